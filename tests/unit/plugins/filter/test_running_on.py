# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.livefleet.handover.plugins.filter.running_on import running_on, unattended

RUNS = {"item": "node1", "workload": {"exists": True, "running": True, "conmon_gone": False}}
LEFT = {"item": "node2", "workload": {"exists": False, "running": False}}
SILENT = {"item": "node3", "unreachable": True, "msg": "No route to host"}
BROKEN = {"item": "node4", "failed": True, "workload": None}


def test_only_a_host_that_says_so_runs_it():
    assert running_on([RUNS, LEFT, SILENT, BROKEN]) == ["node1"]
    assert running_on([LEFT, SILENT]) == []
    assert running_on([RUNS, {**RUNS, "item": "node2"}]) == ["node1", "node2"], "that it runs on two is not hidden"


def test_a_container_whose_conmon_has_died_is_told_with_the_way_out():
    assert unattended([RUNS, LEFT, SILENT, BROKEN], "shop") == ""
    orphan = {"item": "node2", "workload": {**RUNS["workload"], "conmon_gone": True}}
    assert unattended([LEFT, orphan], "shop") == (
        "it has ended; the conmon of shop on node2 has died, so podman neither keeps its output nor sees its end: "
        "run `podman stop shop; podman start shop` there, of which the first complains of that once more"
    )
