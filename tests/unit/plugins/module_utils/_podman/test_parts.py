# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.livefleet.handover.plugins.module_utils._podman.parts import NETWORK, POD, Parts


def test_the_last_move_that_is_taken_back_removes_it(tmp_path):
    parts = Parts(str(tmp_path / "parts"))
    with parts.alone():
        assert not parts.claimed(NETWORK, "shop_default")
        for move in ("db", "web"):
            parts.claim(NETWORK, "shop_default", move)
        parts.claim(POD, "pod_shop", "db")
    assert parts.claimed(NETWORK, "shop_default")
    assert not parts.release(NETWORK, "shop_default", "stranger")
    assert not parts.release(NETWORK, "shop_default", "db")
    assert parts.release(NETWORK, "shop_default", "web")
    assert not parts.claimed(NETWORK, "shop_default")
    assert not parts.release(NETWORK, "shop_default", "web")


def test_what_a_move_that_has_ended_well_needs_stays(tmp_path):
    parts = Parts(str(tmp_path / "parts"))
    parts.keep("db")  # where nothing was ever made
    for move in ("db", "web"):
        parts.claim(NETWORK, "shop_default", move)
    parts.claim(NETWORK, "other", "web")
    parts.keep("db")
    assert not parts.release(NETWORK, "shop_default", "web")
    assert parts.release(NETWORK, "other", "web")
