# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""ceph_option sets options for a while, and puts back the values that it found."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import runtime as _runtime
from ansible_collections.livefleet.handover.plugins.modules import ceph_option


@pytest.fixture
def option(run_module, cluster, tmp_path):
    cluster.units = tmp_path

    def run(state: str = "set", check: bool = False, **params: t.Any) -> dict[str, t.Any]:
        options = [{"who": "mon", "name": "paxos_propose_interval", "value": "0.1"}]
        asked = {"options": options, "state": state, "units": str(tmp_path), "command": ["ceph"], **params}
        return run_module(ceph_option.main, asked, check=check)

    return run


INTERVAL, BALANCER, HDDS = ("mon", "paxos_propose_interval"), ("mgr", "mgr/balancer/active"), ("osd/class:hdd", "osd_recovery_sleep")
TOLD = "paxos_propose_interval of mon"
THREE = [dict(zip(("who", "name", "value"), (*key, value))) for key, value in ((INTERVAL, "0.1"), (BALANCER, "false"), (HDDS, "0.5"))]


def leased(result: dict[str, t.Any]) -> list[bool]:
    return [each["leased"] for each in result["options"]]


@pytest.mark.parametrize("before", [{}, {INTERVAL: "0.900000"}, {("global", INTERVAL[1]): "0.800000"}])
def test_an_option_is_set_and_is_then_what_it_was(option, cluster, tmp_path: Path, before) -> None:
    cluster.options = dict(before)
    result = option()
    assert (result["changed"], leased(result), cluster.options) == (True, [True], {**before, INTERVAL: "0.100000"})
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"handover-option-mon-paxos_propose_interval.{kind}" for kind in ("service", "timer")]
    # It is prolonged, and what was there before is not forgotten for what we have set.
    assert not option()["changed"]
    result = option("restored")
    assert (result["changed"], leased(result), cluster.options) == (True, [False], before)
    assert result["diff"] == {"before": {TOLD: "0.100000"}, "after": {TOLD: before.get(INTERVAL)}}
    assert not list(tmp_path.iterdir()) and not option("restored")["changed"]


@pytest.mark.parametrize(
    ("who", "name", "was", "value", "unit"),
    [
        ("mgr", "mgr/balancer/active", "true", "false", "mgr-mgr-balancer-active"),
        ("osd/class:hdd", "osd_recovery_sleep", "0.200000", "0.5", "osd-class-hdd-osd_recovery_sleep"),
    ],
)
def test_an_option_whose_name_is_no_files(option, cluster, tmp_path: Path, who, name, was, value, unit) -> None:
    cluster.options = {("osd", name): "7.000000", (who, name): was}
    asked = {"options": [{"who": who, "name": name, "value": value}]}
    assert option(**asked)["diff"]["before"] == {f"{name} of {who}": was}
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"handover-option-{unit}.{kind}" for kind in ("service", "timer")]
    assert option("restored", **asked)["changed"]
    assert cluster.options == {("osd", name): "7.000000", (who, name): was}


def test_an_option_that_is_as_asked_for_is_somebody_elses(option, cluster, tmp_path: Path) -> None:
    cluster.options[INTERVAL] = "0.100000"
    assert (option()["changed"], leased(option())) == (False, [False])
    option("restored")
    assert cluster.options == {INTERVAL: "0.100000"} and not list(tmp_path.iterdir())


def test_the_lease_is_there_before_the_option(option, cluster, tmp_path: Path) -> None:
    def look(words: str) -> None:
        if words.startswith("config set"):
            assert (tmp_path / "handover-option-mon-paxos_propose_interval.timer").exists()
            assert cluster.count("systemctl restart handover-option-mon-paxos_propose_interval.timer") == 1

    cluster.before_each = look
    option()
    assert cluster.count("config set mon paxos_propose_interval 0.1") == 1


def test_an_option_that_no_monitor_puts_back_is_left_to_the_lease(option, cluster, tmp_path: Path) -> None:
    option()
    cluster.dead = True
    with pytest.raises(Exception, match="RADOS timed out .*; this host puts paxos_propose_interval of mon back by itself as soon as the cluster answers"):
        option("restored")
    assert (tmp_path / "handover-option-mon-paxos_propose_interval.timer").exists()
    assert cluster.count("systemctl start handover-option-mon-paxos_propose_interval.service") == 1


@pytest.mark.parametrize("before", [{}, {INTERVAL: "0.900000"}])
def test_an_option_is_put_back_again_if_the_monitors_forgot(option, cluster, before) -> None:
    cluster.options = dict(before)
    option()
    cluster.deaf = 2
    assert option("restored")["options"][0]["value"] == before.get(INTERVAL)
    assert cluster.options == before


def test_an_option_that_monitors_will_not_put_back_is_said(option, cluster) -> None:
    option()
    cluster.deaf = 9
    refused = "paxos_propose_interval of mon is 0.100000 after .*config rm mon paxos_propose_interval, which the monitors accepted: run it again"
    with pytest.raises(Exception, match=refused):
        option("restored")


def test_several_options_are_set_and_put_back_together(option, cluster, tmp_path: Path) -> None:
    """Each look at the configuration and each change of a unit costs seconds, so what is asked for together is done together."""
    before = {BALANCER: "false", HDDS: "0.200000"}
    cluster.options = dict(before)
    result = option(options=THREE)
    assert leased(result) == [True, False, True] and [each["value"] for each in result["options"]] == ["0.1", "false", "0.5"]
    assert cluster.options == {INTERVAL: "0.100000", BALANCER: "false", HDDS: "0.500000"}
    assert (cluster.count("config dump"), cluster.count("systemctl restart")) == (1, 1)
    assert option("restored", options=THREE)["changed"]
    assert cluster.options == before and not list(tmp_path.iterdir())
    assert (cluster.count("config dump"), cluster.count("systemctl start")) == (3, 1)


def test_one_that_cannot_be_put_back_does_not_keep_the_others(option, cluster, tmp_path: Path) -> None:
    option(options=THREE)

    def refuse(words: str) -> None:
        if words == "config rm mgr mgr/balancer/active":
            raise _runtime.HandoverError("ceph failed: [errno 110] RADOS timed out (error connecting to the cluster)")

    cluster.before_each = refuse
    with pytest.raises(Exception, match="RADOS timed out .*; this host puts mgr/balancer/active of mgr back by itself as soon as the cluster answers"):
        option("restored", options=THREE)
    assert cluster.options == {BALANCER: "false"}
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".timer"] == ["handover-option-mgr-mgr-balancer-active.timer"]


def test_an_option_without_a_value_is_refused_before_any_is_set(option, cluster) -> None:
    with pytest.raises(Exception, match="mgr/balancer/active of mgr is to be set and has no value: give it one"):
        option(options=[THREE[0], {**THREE[1], "value": None}])
    assert not cluster.options and not cluster.commands


def test_check_mode_leaves_the_option(option, cluster, tmp_path: Path) -> None:
    would = option(check=True)
    assert would["changed"] and would["diff"] == {"before": {TOLD: None}, "after": {TOLD: "0.1"}}
    assert not cluster.options and not list(tmp_path.iterdir())
    option()
    assert option("restored", check=True)["changed"] and cluster.options
