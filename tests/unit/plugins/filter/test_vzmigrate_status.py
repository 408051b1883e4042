# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.livefleet.handover.plugins.filter.vzmigrate_status import vzmigrate_status


def test_a_status_is_said_in_words():
    assert vzmigrate_status(9) == "the other host has one of that id"
    assert vzmigrate_status(99) == "vzmigrate ended with status 99"
