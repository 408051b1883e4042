# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.filter.reboot import reboot_obstacles


def host(**differs):
    """A host that was emptied: a stopped container is left, and a move of it has ended."""
    return {
        "maintenance": {"since": "2026-11-21T16:30:00Z", "reason": "new disks"},
        "workloads": [{"name": "old", "running": False}],
        "sessions": [{"workload": "shop", "ended": True}],
        **differs,
    }


def test_a_host_that_was_emptied_may_be_restarted():
    assert reboot_obstacles(host(), "node3") == []


@pytest.mark.parametrize(("differs", "said"), [
    ({"maintenance": None}, "handover_source=node3"),
    ({"workloads": [{"name": "web", "running": True}, {"name": "db", "running": True}]}, "a restart would end db, web"),
    ({"workloads": [{"name": "web", "running": False, "untold": "Docker does not run there"}]}, "web (Docker does not run there)"),
    ({"sessions": [{"workload": "shop", "ended": False}]}, "the move of shop has not ended"),
])  # fmt: skip
def test_a_host_in_use_is_not_restarted(differs, said):
    (sentence,) = reboot_obstacles(host(**differs), "node3")
    assert sentence.startswith("node3 is not restarted, for ") and said in sentence
