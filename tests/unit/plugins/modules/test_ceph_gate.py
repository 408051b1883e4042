# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""ceph_gate opens for a calm cluster, and names whatever keeps it shut."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.livefleet.handover.plugins.modules import ceph_gate


@pytest.fixture
def gate(run_module, cluster):
    def run(state: str, osds: t.Sequence[int] = (2,), timeout: int = 0, **params: t.Any) -> dict[str, t.Any]:
        return run_module(ceph_gate.main, {"osds": list(osds), "state": state, "timeout": timeout, "command": ["ceph"], **params})

    return run


def test_a_calm_cluster_lets_an_osd_stop(gate) -> None:
    assert gate("may_stop", [2, 3])["up_from"] == {"2": 13, "3": 14}


@pytest.mark.parametrize(
    ("plant", "sentence"),
    [
        ({"health": {"MON_DOWN": "1/3 mons down"}}, r"osd.2 may not be stopped: the cluster is not healthy \(MON_DOWN: 1/3 mons down\); mend that, or name"),
        ({"groups": {"active+clean": 90, "peering": 7}}, r"osd.2 may not be stopped: not all placement groups are active\+clean \(7 peering\)"),
        (
            {"ok_to_stop": False},
            r"osd.2 may not be stopped: unsafe to stop osd\(s\) at this time \(20 PGs are or would become offline\) \(a pool whose min_size",
        ),
    ],
)
def test_what_keeps_an_osd_from_being_stopped(gate, cluster, plant, sentence) -> None:
    vars(cluster).update(plant)
    with pytest.raises(Exception, match=sentence):
        gate("may_stop")


def test_slow_operations_keep_it_too_even_if_the_check_is_ignored(gate, cluster) -> None:
    cluster.health = {"SLOW_OPS": "3 slow ops, oldest one blocked for 32 sec"}
    with pytest.raises(Exception, match="may not be stopped: 3 slow ops"):
        gate("may_stop", ignore=["SLOW_OPS"])


def test_a_check_that_is_named_does_not_count(gate, cluster) -> None:
    cluster.health = {"OSDMAP_FLAGS": "noscrub flag(s) set"}
    assert gate("may_stop", ignore=["OSDMAP_FLAGS"])["health"] == {"OSDMAP_FLAGS": "noscrub flag(s) set"}


def test_an_osd_that_the_cluster_does_not_have(gate) -> None:
    with pytest.raises(Exception, match="the cluster has no osd.9: name OSDs that `ceph osd ls` lists"):
        gate("may_stop", [2, 9])


def test_an_osd_that_is_up_by_the_map_and_does_not_answer_is_named(gate, cluster) -> None:
    cluster.mute = {1, 3}
    with pytest.raises(Exception, match=r"osd\.2 may not be stopped: osd\.1, osd\.3 did not answer, after"):
        gate("may_stop")
    cluster.restart(2)
    with pytest.raises(Exception, match=r"the cluster has not recovered from the restart of osd\.2: osd\.1, osd\.3 did not answer"):
        gate("recovered", up_from={"2": 13})
    cluster.mute = set()
    assert gate("recovered", up_from={"2": 13})["up_from"] == {"2": 103}


def test_an_osd_that_did_not_come_up_again_has_not_recovered(gate, cluster) -> None:
    with pytest.raises(Exception, match="osd.2 is up, but was not seen to go down and come up again"):
        gate("recovered", up_from={"2": 13})
    cluster.up.discard(2)
    with pytest.raises(Exception, match="osd.2 has not come up"):
        gate("recovered", up_from={"2": 13})
    cluster.up.add(2)
    cluster.restart(2)
    assert gate("recovered", up_from={"2": 13})["up_from"] == {"2": 103}


def test_it_waits_for_what_passes(gate, cluster) -> None:
    cluster.restart(2)
    cluster.health = {"PG_DEGRADED": "Degraded data redundancy"}
    cluster.groups = {"active+recovering+degraded": 3, "active+clean": 94}

    def heal(words: str) -> None:
        if words == "status" and cluster.count("status") == 4:
            cluster.health, cluster.groups = {"OSD_FLAGS": "1 OSDs … have flags set"}, {"active+clean": 97}

    cluster.before_each = heal
    gate("recovered", up_from={"2": 13}, timeout=60)
    # Looked at with all that belongs to it before the wait and after it, and in between with one command each time.
    assert (cluster.count("tell"), cluster.count("osd dump"), cluster.count("status")) == (2, 2, 5)


def test_what_the_manager_knew_before_opens_no_gate(gate, cluster) -> None:
    """It takes a cluster for clean that is not, until the OSDs have reported."""
    cluster.restart(2)

    def stale(words: str) -> None:
        reported = cluster.commands[-2].startswith("pg dump")
        cluster.groups = {"active+clean": 97} if cluster.reports >= 3 or not reported else {"active+undersized+degraded": 3, "active+clean": 94}

    cluster.before_each = lambda words: stale(words) if words == "status" else None
    gate("recovered", up_from={"2": 13}, timeout=60)
    assert cluster.count("tell") == 3


def test_a_problem_that_a_restart_does_not_explain_ends_it_at_once(gate, cluster) -> None:
    cluster.restart(2)
    cluster.health = {"MON_DOWN": "1/3 mons down", "OSD_FLAGS": "1 OSDs … have flags set"}
    with pytest.raises(Exception, match=r"osd.2 came back, but the cluster is not healthy any more \(MON_DOWN: 1/3 mons down\): mend that before the next"):
        gate("recovered", up_from={"2": 13}, timeout=600)
    assert cluster.count("tell") == 1
