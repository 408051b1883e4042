# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""ceph_restart_run keeps the record of a restart in the cluster itself."""

from __future__ import annotations

import json
import typing as t

import pytest
from ansible_collections.livefleet.handover.plugins.modules import ceph_restart_run


@pytest.fixture
def restart_run(run_module, cluster):
    def run(state: str = "begun", osds: t.Sequence[int] = (0, 1, 2, 3), check: bool = False, **params: t.Any) -> dict[str, t.Any]:
        return run_module(ceph_restart_run.main, {"osds": list(osds), "state": state, "command": ["ceph"], **params}, check=check)

    return run


def test_a_run_in_the_order_of_the_crush_tree(restart_run, cluster) -> None:
    run = restart_run(osds=[3, 0, 2, 1])
    assert (run["order"], run["done"], run["resumed"], run["epoch"]) == ([0, 1, 2, 3], [], False, 100)
    assert run["places"]["3"] == ["root default", "host store2"]
    assert json.loads(cluster.kept[ceph_restart_run.KEY])["osds"] == [0, 1, 2, 3]


def test_the_hosts_are_put_in_order_too(restart_run) -> None:
    assert restart_run(hosts={"b": [3, 2], "a": [1, 0], "c": []})["hosts"] == ["a", "b", "c"]


def test_a_folder_that_a_purged_osd_left_is_skipped_and_told(restart_run, cluster) -> None:
    run = restart_run(osds=[0, 99, 1], hosts={"a": [0, 99], "b": [1], "c": [99]}, unknown="skip")
    assert (run["order"], run["purged"], run["hosts"]) == ([0, 1], [99], ["a", "b"])
    assert json.loads(cluster.kept[ceph_restart_run.KEY])["osds"] == [0, 1]
    with pytest.raises(Exception, match="the cluster has no osd.99: name OSDs that `ceph osd ls` lists"):
        restart_run(osds=[0, 99])


def test_asking_which_osds_there_are_begins_nothing(restart_run, cluster) -> None:
    known = restart_run("known", [2, 99], unknown="skip")
    assert (known["order"], known["purged"], known["changed"], known["resumed"]) == ([2], [99], False, False)
    assert not cluster.kept


def test_what_came_up_since_the_run_began_is_done(restart_run, cluster) -> None:
    restart_run()
    cluster.restart(0)
    cluster.restart(1)
    cluster.up.discard(1)
    run = restart_run()
    assert (run["resumed"], run["done"], run["changed"]) == (True, [0], False)


def test_the_hosts_of_a_run_join_it(restart_run, cluster) -> None:
    restart_run()
    assert restart_run(osds=[2, 3])["resumed"]
    cluster.restart(2)
    cluster.restart(3)
    assert not restart_run("ended", [2, 3])["changed"]
    cluster.restart(0)
    cluster.restart(1)
    assert restart_run("ended", [0, 1])["changed"]
    assert not cluster.kept


def test_a_run_with_nothing_left_is_in_nobodys_way(restart_run, cluster) -> None:
    restart_run(osds=[1])
    cluster.restart(1)
    assert restart_run(osds=[1])["done"] == [1]
    run = restart_run(osds=[2, 3])
    assert (run["resumed"], run["done"]) == (False, [])
    assert json.loads(cluster.kept[ceph_restart_run.KEY])["osds"] == [2, 3]


def test_another_run_is_refused_until_the_first_is_finished_or_forgotten(restart_run, cluster) -> None:
    restart_run(osds=[0, 1])
    cluster.restart(0)
    begun = r"a restart of osd.0, osd.1 that began at .*Z was not brought to its end \(osd.1 left\): ask for the same OSDs to go on"
    with pytest.raises(Exception, match=begun):
        restart_run(osds=[1, 2])
    assert restart_run(osds=[1, 2], afresh=True)["done"] == []


def test_a_run_in_check_mode_is_not_remembered(restart_run, cluster) -> None:
    assert restart_run(check=True)["changed"]
    assert not cluster.kept
