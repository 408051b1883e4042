# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.filter.session_spec import destination_tmpfs
from ansible_collections.livefleet.handover.plugins.module_utils._core import tmpfs_checks
from ansible_collections.livefleet.handover.plugins.module_utils._core.move import Move

MIB = 2**20
SCRATCH = {"place": "/scratch", "size": 200 * MIB, "attributes": "", "device": "0:62", "inside": ""}


def plan(*found, mode="live", **container):
    workload = {"exists": True, "running": True, "pid": 4711, "tmpfs": found, **container}
    return Move("shop", "node1", "node2", mode, {"workload": workload, "host": {}}, {"workload": {}, "host": {}})


def test_a_tmpfs_is_carried_and_not_told():
    carried = tmpfs_checks.carried(plan(SCRATCH))
    assert carried == [{"name": "tmpfs:/scratch", "path": "/proc/4711/root/scratch", "size": 200 * MIB, "tmpfs": "/scratch", "device": "0:62"}]
    assert list(tmpfs_checks.told(plan(SCRATCH))) == []
    assert destination_tmpfs(carried, "/sessions/shop-1") == [
        {"name": "tmpfs:/scratch", "size": 200 * MIB, "tmpfs": "/scratch", "path": "/sessions/shop-1/tmpfs/0"}
    ]


def test_one_that_is_mounted_twice_is_carried_once():
    twice = plan(SCRATCH, {**SCRATCH, "place": "/again"})
    assert [each["tmpfs"] for each in tmpfs_checks.carried(twice)] == ["/scratch"]
    assert list(tmpfs_checks.told(twice)) == []


@pytest.mark.parametrize(
    ("change", "container", "why"),
    [
        ({"inside": "/scratch/deep"}, {}, "/scratch/deep is mounted in it"),
        ({"device": ""}, {}, "another mount lies over it"),
        ({"place": "/scratch one"}, {}, "its path has unusual characters"),
        ({"place": "/scratch\n"}, {}, "its path has unusual characters"),
        ({"size": MIB}, {}, "so little is not worth more"),
        ({}, {"userns": "auto"}, "its user namespace is its own"),
        ({}, {"elsewhere": ["0:61", "0:62"]}, "another member has it mounted, too"),
    ],
)
def test_another_is_packed_by_criu_and_told(change, container, why):
    asked = plan({**SCRATCH, **change}, **container)
    assert tmpfs_checks.carried(asked) == []
    (sentence,) = tmpfs_checks.told(asked)
    assert sentence.endswith("which CRIU packs in the pause: " + why)


@pytest.mark.parametrize(("mode", "running"), [("offline", True), ("live", False)])
def test_nothing_is_carried_of_one_that_is_stopped(mode, running):
    assert tmpfs_checks.carried(plan(SCRATCH, mode=mode, running=running)) == []


def test_what_a_stop_loses_is_told():
    (sentence,) = tmpfs_checks.told(plan(SCRATCH, mode="offline"))
    assert sentence == "the tmpfs /scratch of shop holds 200 MiB, which are gone when it is stopped"
