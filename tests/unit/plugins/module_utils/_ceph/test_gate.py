# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._ceph.cluster import crush_order
from ansible_collections.livefleet.handover.plugins.module_utils._ceph.gate import Seen, is_clean, parse_sequences, told


@pytest.mark.parametrize(
    ("state", "clean"),
    [
        ("active+clean", True),
        ("active+clean+scrubbing+deep", True),
        ("active+clean+snaptrim_wait", True),
        ("active+undersized+degraded", False),
        ("active+clean+remapped", False),
        ("peering", False),
        ("active+recovering", False),
        ("clean", False),
        ("unknown", False),
    ],
)
def test_what_is_clean(state: str, clean: bool) -> None:
    assert is_clean(state) is clean


def test_only_groups_that_are_not_clean_are_told() -> None:
    seen = Seen({}, {"active+clean": 90, "active+clean+scrubbing": 1, "peering": 6}, {})
    assert seen.unclean() == {"peering": 6}


def test_ignored_checks_are_no_problem() -> None:
    seen = Seen({"OSDMAP_FLAGS": "noscrub flag(s) set", "MON_DOWN": "1/3 mons down"}, {}, {})
    assert seen.problems({"OSDMAP_FLAGS"}) == {"MON_DOWN": "1/3 mons down"}
    assert told(seen.health) == "MON_DOWN: 1/3 mons down; OSDMAP_FLAGS: noscrub flag(s) set"


def test_an_osd_that_did_not_answer_has_no_number() -> None:
    assert parse_sequences("osd.0: 81604378785\nosd.1: Error ENXIO: problem getting command descriptions from osd.1\nosd.12: 7\n\n") == {0: 81604378785, 12: 7}


def test_the_crush_tree_is_walked_one_failure_domain_after_the_other() -> None:
    tree = {
        "nodes": [
            {"id": -1, "name": "default", "type": "root", "children": [-5, -3]},
            {"id": -5, "name": "rack2", "type": "rack", "children": [-6]},
            {"id": -3, "name": "rack1", "type": "rack", "children": [-4, -7]},
            {"id": -6, "name": "store3", "type": "host", "children": [1]},
            {"id": -4, "name": "store2", "type": "host", "children": [3, 0]},
            {"id": -7, "name": "store1", "type": "host", "children": [2]},
            *({"id": osd, "name": f"osd.{osd}", "type": "osd"} for osd in range(4)),
        ],
        "stray": [{"id": 9}],
    }
    order = crush_order(tree)
    assert list(order) == [2, 0, 3, 1, 9]
    assert order[0] == ["root default", "rack rack1", "host store2"]
