# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.livefleet.handover.plugins.filter.kept_locks import kept_locks


def test_a_line_for_each_host_that_keeps_it():
    results = [{"item": "node1", "changed": True}, {"item": "node2", "unreachable": True, "msg": "No route to host"}]
    assert kept_locks(results, "web1") == ["node2 keeps the lock of web1, and the next run takes it over: No route to host"]
    assert kept_locks(results[:1], "web1") == []
