# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""ceph_gate, ceph_noout, ceph_option and ceph_restart_run against a cluster that answers as Ceph 16.2 does."""

from __future__ import annotations

import json
import re
import time
import typing as t
from pathlib import Path

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._ceph import cluster as ceph
from ansible_collections.livefleet.handover.plugins.module_utils._ceph import lease as ceph_lease
from ansible_collections.livefleet.handover.plugins.module_utils._core import runtime as _runtime
from ansible_collections.livefleet.handover.plugins.modules import (
    ceph_gate,
    ceph_noout,
    ceph_option,
    ceph_restart_run,
)


class Fake:
    """A cluster of four OSDs on two hosts, and the host that administers it."""

    def __init__(self) -> None:
        self.epoch = 100
        self.up_from = {0: 11, 1: 12, 2: 13, 3: 14}
        self.up = set(self.up_from)
        self.flags: dict[int, set[str]] = {osd: set() for osd in self.up_from}
        self.health: dict[str, str] = {}
        self.groups = {"active+clean": 97}
        self.ok_to_stop = True
        self.kept: dict[str, str] = {}
        self.options: dict[tuple[str, str], str] = {}
        self.units = Path("/nowhere")
        self.commands: list[str] = []
        self.dead = False
        self.deaf = 0  # so many commands to the configuration are accepted and forgotten
        self.mute: set[int] = set()
        self.reports = 0
        self.arrived = 0
        self.before_each: t.Callable[[str], None] = lambda words: None

    def run(self, argv: t.Sequence[str], accept: t.Container[int] = (0,), stdin: str | None = None, timeout: float | None = None) -> _runtime.Completed:
        if "systemctl" in argv[0]:
            self.commands.append(" ".join(["systemctl", *argv[1:]]))
            # Each comes to its end, whatever becomes of the others.
            failed = [exc for name in argv[2:] if argv[1] == "start" for exc in self.lease_ends(name)]
            if failed:
                raise failed[0]
            return _runtime.Completed(tuple(argv), 0, "", "")
        words = " ".join(word for word in argv[1:] if not word.startswith("--"))
        self.commands.append(words)
        self.before_each(words)
        if self.dead:
            raise _runtime.HandoverError("ceph failed: [errno 110] RADOS timed out (error connecting to the cluster)")
        rc, out, err = self.answer(words)
        if rc not in accept:
            raise _runtime.HandoverError(f"ceph {words} failed: {err}")
        return _runtime.Completed(tuple(argv), rc, out, err)

    def answer(self, words: str) -> tuple[int, str, str]:
        if words == "osd dump":
            osds = [{"osd": o, "up": int(o in self.up), "up_from": e, "state": ["exists", "up", *self.flags[o]]} for o, e in self.up_from.items()]
            return 0, json.dumps({"epoch": self.epoch, "osds": osds}), ""
        if words == "osd tree":
            hosts = [{"id": -2, "name": "store1", "type": "host", "children": [1, 0]}, {"id": -3, "name": "store2", "type": "host", "children": [3, 2]}]
            osds = [{"id": osd, "name": f"osd.{osd}", "type": "osd"} for osd in self.up_from]
            return 0, json.dumps({"nodes": [{"id": -1, "name": "default", "type": "root", "children": [-3, -2]}, *hosts, *osds], "stray": []}), ""
        if words == "tell osd.* flush_pg_stats":
            self.reports += 1
            return 0, "".join(f"osd.{osd}: {self.reports}\n" for osd in sorted(self.up - self.mute)), ""
        if words == "pg dump osds":
            self.arrived = self.reports
            return 0, json.dumps({"pg_ready": True, "osd_stats": [{"osd": osd, "seq": self.arrived} for osd in self.up]}), ""
        if words == "status":
            # The manager knows only what has arrived.
            assert self.arrived == self.reports, "looked at placement groups before the reports had arrived"
            checks = {name: {"summary": {"message": text}, "muted": False} for name, text in self.health.items()}
            groups = [{"state_name": state, "count": count} for state, count in self.groups.items()]
            return 0, json.dumps({"health": {"checks": checks}, "pgmap": {"pgs_by_state": groups}}), ""
        if words.startswith("osd ok-to-stop"):
            return (0, "{}", "") if self.ok_to_stop else (16, "{}", "Error EBUSY: unsafe to stop osd(s) at this time (20 PGs are or would become offline)\n")
        flag = re.fullmatch(r"osd (set|unset)-group noout (.*)", words)
        if flag:
            for name in flag[2].split():
                osd = self.flags[int(name.removeprefix("osd."))]
                osd.add("noout") if flag[1] == "set" else osd.discard("noout")
            return 0, "", ""
        if words.startswith("config "):
            verb, *rest = words.split()[1:]
            if verb in ("set", "rm") and self.deaf:
                self.deaf -= 1
                return 0, "", ""
            if verb == "set":
                self.options[rest[0], rest[1]] = f"{float(rest[2]):f}" if rest[2][0].isdigit() else rest[2]
            if verb == "rm":
                del self.options[rest[0], rest[1]]
            sections = [(who.partition("/"), name, value) for (who, name), value in self.options.items()]
            return 0, json.dumps([{"section": who[0], "name": name, "value": value, "mask": who[2]} for who, name, value in sections]), ""
        verb, _blank, rest = words.removeprefix("config-key ").partition(" ")
        key, _blank, value = rest.partition(" ")
        if verb == "set":
            self.kept[key] = value
        if verb == "rm":
            self.kept.pop(key)
        return (0, self.kept[key], "") if key in self.kept else (2, "", "Error ENOENT") if verb == "get" else (0, "", "")

    def lease_ends(self, name: str) -> list[_runtime.HandoverError]:
        """What systemd does with the service of a lease; why it failed, if it did."""
        (undo,) = re.findall("^ExecStart=(.*)$", (self.units / name).read_text(), re.MULTILINE)
        try:
            self.run(undo.split())
        except _runtime.HandoverError as exc:
            return [exc]
        for path in self.units.glob(name.replace(".service", ".*")):
            path.unlink()
        return []

    def restart(self, osd: int) -> None:
        self.epoch += 4
        self.up_from[osd] = self.epoch - 1

    def count(self, beginning: str) -> int:
        return sum(command.startswith(beginning) for command in self.commands)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Fake:
    fake = Fake()
    monkeypatch.setattr(_runtime.Runtime, "run", lambda self, *args, **kwargs: fake.run(*args, **kwargs))
    monkeypatch.setattr(_runtime.Runtime, "find", lambda self, tool: "/usr/bin/" + tool)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    return fake


@pytest.fixture
def gate(run_module, cluster):
    def run(state: str, osds: t.Sequence[int] = (2,), timeout: int = 0, **params: t.Any) -> dict[str, t.Any]:
        return run_module(ceph_gate.main, {"osds": list(osds), "state": state, "timeout": timeout, "command": ["ceph"], **params})

    return run


@pytest.fixture
def noout(run_module, cluster, tmp_path):
    def run(state: str, osds: t.Sequence[int] = (2,), check: bool = False, **params: t.Any) -> dict[str, t.Any]:
        return run_module(ceph_noout.main, {"osds": list(osds), "state": state, "units": str(tmp_path), "command": ["ceph"], **params}, check=check)

    return run


@pytest.fixture
def option(run_module, cluster, tmp_path):
    cluster.units = tmp_path

    def run(state: str = "set", check: bool = False, **params: t.Any) -> dict[str, t.Any]:
        options = [{"who": "mon", "name": "paxos_propose_interval", "value": "0.1"}]
        asked = {"options": options, "state": state, "units": str(tmp_path), "command": ["ceph"], **params}
        return run_module(ceph_option.main, asked, check=check)

    return run


@pytest.fixture
def restart_run(run_module, cluster):
    def run(state: str = "begun", osds: t.Sequence[int] = (0, 1, 2, 3), check: bool = False, **params: t.Any) -> dict[str, t.Any]:
        return run_module(ceph_restart_run.main, {"osds": list(osds), "state": state, "command": ["ceph"], **params}, check=check)

    return run


# The gate


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


# noout


def test_the_flag_is_set_and_restored(noout, cluster, tmp_path: Path) -> None:
    assert noout("set", [2, 3])["set"] == [2, 3]
    assert [osd for osd, flags in cluster.flags.items() if flags] == [2, 3]
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"handover-noout-osd.{osd}.{kind}" for osd in (2, 3) for kind in ("service", "timer")]
    assert noout("restored", [2, 3])["changed"]
    assert not any(cluster.flags.values()) and not list(tmp_path.iterdir())
    assert not noout("restored", [2, 3])["changed"]


def test_a_flag_that_was_found_stays(noout, cluster, tmp_path: Path) -> None:
    cluster.flags[2].add("noout")
    assert noout("set", [2, 3]) | {"diff": 0} == {**noout("set", [2, 3]), "changed": True, "reasons": ["osd.3 has no noout"], "diff": 0}
    result = noout("restored", [2, 3])
    assert (result["found"], result["reasons"]) == ([2], ["noout of osd.3 was set by this module"])
    assert cluster.flags[2] == {"noout"} and not cluster.flags[3]


def test_the_lease_is_there_before_the_flag(noout, cluster, tmp_path: Path) -> None:
    def look(words: str) -> None:
        if "set-group" in words:
            assert (tmp_path / "handover-noout-osd.2.timer").exists()
            assert cluster.count("systemctl restart handover-noout-osd.2.timer") == 1

    cluster.before_each = look
    noout("set")
    assert cluster.count("osd set-group noout osd.2") == 1


def test_a_lease_says_what_it_will_do_and_when(noout, tmp_path: Path) -> None:
    noout("set", seconds=600)
    service = (tmp_path / "handover-noout-osd.2.service").read_text()
    assert "ExecStart=ceph --connect-timeout=15 osd unset-group noout osd.2\n" in service and "Restart=on-failure\n" in service
    timer = (tmp_path / "handover-noout-osd.2.timer").read_text()
    assert re.search(r"^OnCalendar=20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC$", timer, re.MULTILINE) and "Persistent=true\n" in timer


def test_a_lease_that_cannot_be_written_leaves_the_flag_alone(noout, cluster, tmp_path: Path, monkeypatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(Exception, match="the lease of noout of osd.2 cannot be written to .*: No space left on device; nothing was set"):
        noout("set", [2, 3])
    assert not any(cluster.flags.values()) and not list(tmp_path.iterdir())


@pytest.mark.parametrize("first", ["osd dump", "unset-group"])
def test_if_no_monitor_answers_the_lease_ends_now(noout, cluster, tmp_path: Path, first: str) -> None:
    noout("set", seconds=3600)
    restarts = cluster.count("systemctl restart")

    def lose(words: str) -> None:
        cluster.dead = first in words

    cluster.before_each = lose
    with pytest.raises(Exception, match="RADOS timed out .*; this host takes noout of osd.2 back by itself as soon as the cluster answers"):
        noout("restored")
    assert cluster.count("systemctl restart") == restarts + 1
    assert (tmp_path / "handover-noout-osd.2.timer").exists()


def test_a_second_run_prolongs_the_lease_and_still_restores(noout, cluster) -> None:
    noout("set")
    again = noout("set")
    assert not again["changed"] and again["set"] == [2]
    noout("restored", [])
    assert not cluster.flags[2]


def test_check_mode_touches_nothing(noout, cluster, tmp_path: Path) -> None:
    would = noout("set", check=True)
    assert would["changed"] and would["diff"] == {"before": {"noout": []}, "after": {"noout": [2]}}
    assert not cluster.flags[2] and not list(tmp_path.iterdir())


# An option

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


def test_a_lease_knows_what_it_takes_back(tmp_path: Path) -> None:
    lease = ceph_lease.Lease("handover-option-x", "x", ("ceph", "config", "set", "osd", "x", "100% of $HOME's 'own' $$"))
    (tmp_path / "handover-option-x.service").write_text(ceph_lease.service(lease, str(tmp_path), "systemctl"))
    assert ceph_lease.Leases(None, str(tmp_path)).undo(lease.name) == lease.undo
    with pytest.raises(_runtime.HandoverError, match="/y.service does not say how the lease y ends: .*No such file"):
        ceph_lease.Leases(None, str(tmp_path)).undo("y")


def test_check_mode_leaves_the_option(option, cluster, tmp_path: Path) -> None:
    would = option(check=True)
    assert would["changed"] and would["diff"] == {"before": {TOLD: None}, "after": {TOLD: "0.1"}}
    assert not cluster.options and not list(tmp_path.iterdir())
    option()
    assert option("restored", check=True)["changed"] and cluster.options


# The run


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


# Which command


def test_a_host_that_cannot_administer_is_told_so(tmp_path: Path, monkeypatch) -> None:
    runtime = t.cast(t.Any, type("Runtime", (), {"find": staticmethod(lambda tool: None)}))
    with pytest.raises(_runtime.HandoverError, match="this host cannot administer a Ceph cluster"):
        ceph.find_command(runtime, str(tmp_path))


@pytest.mark.parametrize(
    ("mark", "tools", "command"),
    [
        ("etc/ceph/ceph.client.admin.keyring", ["ceph", "cephadm"], ["/bin/ceph"]),
        ("etc/systemd/system/ceph-mon@.service", ["podman"], ["/bin/podman", "exec", "ceph-mon-store1", "ceph"]),
        ("var/lib/ceph/5ad7e3a2/mon.store1", ["cephadm"], ["/bin/cephadm", "shell", "--fsid", "5ad7e3a2", "--", "ceph"]),
    ],
)
def test_how_each_deployment_is_administered(tmp_path: Path, monkeypatch, mark, tools, command) -> None:
    (tmp_path / mark).parent.mkdir(parents=True)
    (tmp_path / mark).touch()
    monkeypatch.setattr("os.uname", lambda: type("uname", (), {"nodename": "store1.example"}))
    runtime = t.cast(t.Any, type("Runtime", (), {"find": staticmethod(lambda tool: f"/bin/{tool}" if tool in tools else None)}))
    assert ceph.find_command(runtime, str(tmp_path)) == command
