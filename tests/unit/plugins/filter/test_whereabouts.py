# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.livefleet.handover.plugins.filter.whereabouts import whereabouts

NOT_HERE = {"workload": {"exists": False, "running": False}, "sessions": []}
RUNS = {"workload": {"exists": True, "running": True}, "sessions": []}
STANDS = {"workload": {"exists": True, "running": False}, "sessions": []}
SILENT = {"failed": True, "msg": "podman is missing: install it"}
GONE = {"unreachable": True, "msg": "Failed to connect"}


def let_go(state):
    return {**NOT_HERE, "sessions": [{"workload": "shop", "role": "source", "state": state}]}


def source(answers, **more):
    return whereabouts(answers, "shop", "node2", **more)["source"]


def test_it_leaves_the_host_that_it_runs_on():
    assert source({"node1": RUNS, "node2": NOT_HERE, "node3": SILENT}) == "node1"
    assert source({"node1": RUNS, "node3": STANDS}) == "node1"
    assert source({"node1": STANDS, "node2": NOT_HERE}) == "node1"


def test_an_earlier_move_that_has_let_go_comes_first():
    assert source({"node1": let_go("settled"), "node2": RUNS}) == "node1"
    assert source({"node1": let_go("failed"), "node2": RUNS}) == ""


def test_the_same_move_twice_has_nothing_to_do():
    done = whereabouts({"node1": NOT_HERE, "node2": RUNS}, "shop", "node2")
    assert done == {"source": "", "problem": "", "sentence": "shop is on node2 already: nothing is left to do."}
    assert whereabouts({"node1": NOT_HERE, "node2": RUNS}, "shop", "node2", source="node1")["sentence"] == done["sentence"]
    assert whereabouts({"node2": STANDS}, "shop", "node2")["sentence"] == "shop is on node2 already, and does not run: nothing is left to do."
    # Another of the same name is the role's to refuse.
    assert source({"node1": RUNS, "node2": RUNS}, source="node1") == "node1"


def test_it_is_told_why_nothing_can_move():
    def problem(answers, **more):
        return whereabouts(answers, "shop", "node2", **more)["problem"]

    assert problem({"node1": RUNS, "node3": RUNS}) == "shop is on node1 and node3: say which of them is meant, as in -e handover_source=node1"
    assert problem({"node1": SILENT, "node2": NOT_HERE, "node3": GONE}) == (
        "there is no container named shop on node2 (node1: it could not be asked (podman is missing: install it); node3: it could not be asked "
        "(Failed to connect)): name one that is there, or look further with -e handover_hosts=GROUP"
    )
    assert problem({"node2": RUNS}, source="node2") == "node2 is both the source and the destination: name the host that shop is to go to"
