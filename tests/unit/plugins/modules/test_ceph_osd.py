# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""ceph_osd and ceph_osd_hold against an OSD that is a table of answers."""

from __future__ import annotations

import json
import os
import time
import typing as t
from pathlib import Path

import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible_collections.livefleet.handover.plugins.module_utils._ceph import (
    asok,
)
from ansible_collections.livefleet.handover.plugins.module_utils._ceph import (
    drop_in as ceph_drop_in,
)
from ansible_collections.livefleet.handover.plugins.module_utils._ceph import (
    hold as ceph_hold,
)
from ansible_collections.livefleet.handover.plugins.module_utils._ceph import (
    osd as _ceph_osd,
)
from ansible_collections.livefleet.handover.plugins.module_utils._ceph import (
    restart as ceph_restart,
)
from ansible_collections.livefleet.handover.plugins.module_utils._core import memory
from ansible_collections.livefleet.handover.plugins.module_utils._core import pcopy as _pcopy
from ansible_collections.livefleet.handover.plugins.module_utils._core import runtime as _runtime
from ansible_collections.livefleet.handover.plugins.modules import (
    ceph_osd,
    ceph_osd_hold,
)

DEFAULTS = {"bluefs_log_compact_min_ratio": "5.0", "bluefs_log_compact_min_size": "16777216", "osd_fast_shutdown": "true", "bluefs_buffered_io": "true"}
DEFAULTS["bdev_aio_poll_ms"] = "250"
MIB = 1 << 20


class Fake:
    """The host of one BlueStore OSD."""

    def __init__(self) -> None:
        self.pid: int | None = 100
        self.store = "bluestore"
        self.options = dict(DEFAULTS)
        self.log_bytes = 12 * MIB
        self.room = 4096 * MIB
        self.environment, self.nice = "", "0"
        self.niceness: list[tuple[int, int, int]] = []
        self.log_shrinks = False
        self.state = "active"
        self.knows = True
        self.unit = "active"
        self.journal = ""
        self.comes_up = True
        self.restart_rc = 0
        self.hold = "inactive"
        self.wal, self.tables, self.cached = 100 * MIB, 200 * MIB, 250 * MIB
        self.commands: list[str] = []
        self.asked: list[str] = []

    def call(self, prefix: str, **arguments: t.Any) -> t.Any:
        if self.pid is None:
            raise asok.NoAnswer("asok does not answer")
        self.asked.append(" ".join([prefix, *(str(value) for value in arguments.values())]))
        if prefix == "help":
            return {"status": ""} if self.knows else {}
        if prefix == "status":
            return {"state": self.state}
        if prefix == "perf dump":
            return {"bluefs": {"log_bytes": self.log_bytes}, "osd": {"stat_bytes_avail": self.room}}
        if prefix == "config get":
            return {arguments["var"]: self.options[arguments["var"]]}
        if prefix == "config set":
            self.options[arguments["var"]] = arguments["val"][0]
            if self.log_shrinks:
                self.log_bytes = MIB
        if prefix == "config unset":
            self.options[arguments["var"]] = DEFAULTS[arguments["var"]]
        if prefix == "compact":
            # BlueFS compacts its log with it; a FileStore has none.
            assert self.options["bluefs_log_compact_min_size"] == ("0" if self.store == "bluestore" else "16777216")
            self.wal = MIB
        return {}

    def run(self, argv: t.Sequence[str], accept: t.Container[int] = (0,), **_options: t.Any) -> _runtime.Completed:
        tool = os.path.basename(argv[0])
        words = " ".join([tool, *argv[1:]])
        self.commands.append(words)
        out, rc = "", 0
        if tool == "systemctl" and argv[1] in ("restart", "start", "stop"):
            rc = self.restart_rc
            if "hold" in argv[-1]:
                self.hold = "inactive"
            elif not rc:
                self.pid = {"stop": None}.get(argv[1], 200) if self.comes_up else None
        elif tool == "systemctl" and argv[1] == "show":
            name = argv[2].removeprefix("--property=")
            if name == "ActiveState":
                out = self.hold if "hold" in argv[-1] else self.unit
            elif name == "Environment":
                out = self.environment
            elif name == "Nice":
                out = self.nice
            elif name == "InactiveEnterTimestampMonotonic":
                out = str(int(time.monotonic() * 1e6))
        elif tool == "systemd-run":
            self.hold, self.cached = "active", self.wal + self.tables
        elif tool == "journalctl":
            out = self.journal
        return _runtime.Completed(tuple(argv), rc, out + "\n", "Job failed" if rc else "")

    def pcopy(self, *words: str, **_options: t.Any) -> list[dict[str, t.Any]]:
        if words[0] == "bluefs":
            return [{"devices": {"/dev/dm-1": [[0, self.tables + self.wal]]}, "tables": self.tables, "wal": self.wal, "log": self.log_bytes, "files": 9}]
        return [{"path": "/dev/dm-1", "resident": min(self.cached, self.wal + self.tables)}]


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fake:
    fake = Fake()
    layout = _ceph_osd.LAYOUTS[0]
    osd = _ceph_osd.Osd(2, layout, {"id": "2", "cluster": "ceph"}, str(tmp_path))
    monkeypatch.setattr(_ceph_osd.Osd, "pid", lambda self: fake.pid)
    monkeypatch.setattr(_ceph_osd.Osd, "store", lambda self: fake.store)
    monkeypatch.setattr(_ceph_osd.Osd, "devices", lambda self: {"block": "/dev/dm-1"})
    monkeypatch.setattr(_ceph_osd.Osd, "disks", lambda self: [])
    monkeypatch.setattr(_ceph_osd.Osd, "shared", str(tmp_path))
    for module in (ceph_osd, ceph_osd_hold):
        monkeypatch.setattr(module, "find_osd", lambda runtime, number: osd)
    monkeypatch.setattr(asok.AdminSocket, "call", lambda self, *args, **kwargs: fake.call(*args, **kwargs))
    monkeypatch.setattr(_runtime.Runtime, "run", lambda self, *args, **kwargs: fake.run(*args, **kwargs))
    monkeypatch.setattr(_runtime.Runtime, "find", lambda self, tool: "/usr/bin/" + tool)
    monkeypatch.setattr(_pcopy.Pcopy, "events", lambda self, *args, **kwargs: fake.pcopy(*args, **kwargs))
    monkeypatch.setattr(memory, "memory_available", lambda: 1 << 30)
    monkeypatch.setattr(ceph_hold, "FOLDER", str(tmp_path / "run"))
    monkeypatch.setattr(ceph_drop_in, "UNITS", str(tmp_path / "units"))
    monkeypatch.setattr(ceph_drop_in, "set_niceness", lambda *change: fake.niceness.append(change))
    monkeypatch.setattr(ceph_restart, "_PAUSE", 0.001)
    return fake


@pytest.fixture
def restart(run_module, host):
    def run(check: bool = False, **params: t.Any) -> dict[str, t.Any]:
        return run_module(ceph_osd.main, {"osds": [2], "timeout": 1, **params}, check=check)

    return run


@pytest.fixture
def hold(run_module, host):
    def run(state: str = "held", check: bool = False, **params: t.Any) -> dict[str, t.Any]:
        return run_module(ceph_osd_hold.main, {"osd": 2, "state": state, **params}, check=check)

    return run


# Restarting


def test_a_restart_is_one_job_of_systemds(restart, host) -> None:
    assert restart()["osds"][0]["id"] == 2
    jobs = [command for command in host.commands if command.split()[1] in ("restart", "stop", "start")]
    assert jobs == ["systemctl restart ceph-osd@2.service"]
    assert "systemctl reset-failed ceph-osd@2.service" in host.commands


def test_a_large_log_of_bluefs_is_compacted_by_a_shutdown_in_order(restart, host) -> None:
    assert restart()["osds"][0]["tidy"]
    assert "config set osd_fast_shutdown ['false']" in host.asked


def test_a_release_that_compacts_at_once_may_end_at_once(restart, host) -> None:
    host.log_shrinks = True
    assert not restart()["osds"][0]["tidy"]
    assert not [command for command in host.asked if "fast_shutdown" in command]


def test_a_small_log_is_left_alone(restart, host) -> None:
    host.log_bytes = MIB
    restart()
    assert not [command for command in host.asked if command.startswith("config set")]


@pytest.mark.parametrize(("policy", "tidy"), [("auto", True), ("always", True), ("never", False)])
def test_a_filestore_leaves_nothing_in_its_journal(restart, host, monkeypatch, policy, tidy) -> None:
    monkeypatch.setattr(_ceph_osd.Osd, "store", lambda self: "filestore")
    assert restart(tidy_stop=policy)["osds"][0]["tidy"] is tidy
    assert ("config set osd_fast_shutdown ['false']" in host.asked) is tidy
    assert not [command for command in host.asked if "bluefs" in command]


def test_what_somebody_else_stops_can_be_told_how(restart, host, monkeypatch) -> None:
    assert not restart(state="tidy")["changed"]
    assert host.options == DEFAULTS  # a BlueStore would have them until it is stopped, which it may never be
    monkeypatch.setattr(_ceph_osd.Osd, "store", lambda self: "filestore")
    said = restart(state="tidy")
    assert (said["osds"], said["reasons"]) == ([{"id": 2, "tidy": True}], ["osd.2 is to be told to leave little behind when it stops"])
    assert host.options["osd_fast_shutdown"] == "false"
    assert host.commands == []
    host.pid = None
    assert not restart(state="tidy")["changed"]


@pytest.fixture
def object_map(host, tmp_path: Path) -> Path:
    host.store = "filestore"
    folder = tmp_path / "current" / "omap"
    folder.mkdir(parents=True)
    (tmp_path / "type").write_text("filestore\n")
    (folder / "000007.sst").write_bytes(b"k" * 3 * MIB)
    return folder


def test_an_object_map_is_written_anew_while_the_osd_serves(restart, host, object_map) -> None:
    assert restart(state="compacted", check=True)["reasons"] == ["osd.2 is to be told to write its object map anew"]
    assert "compact" not in host.asked
    said = restart(state="compacted")
    assert (said["changed"], said["osds"][0]["id"]) == (True, 2) and said["osds"][0]["compact_seconds"] >= 0
    assert "compact" in host.asked
    assert (host.commands, host.options, host.pid) == ([], DEFAULTS, 100)


def test_a_bluestore_is_left_to_the_hold(restart, host) -> None:
    assert not restart(state="compacted")["changed"]
    assert host.asked == []


def test_an_osd_that_is_away_has_nobody_to_write_its_object_map(restart, host, object_map) -> None:
    host.pid = None
    assert not restart(state="compacted")["changed"]


@pytest.mark.parametrize(
    ("room", "limit", "why"),
    [
        (6 * MIB - 1, "4G", "osd.2 has 6 MiB left, and may take 6 MiB for a while to write its database of 3 MiB anew"),
        (4096 * MIB, "2M", "the object map of osd.2 has 3 MiB"),
    ],
)
def test_an_object_map_that_does_not_fit_is_left_as_it_is(restart, host, object_map, monkeypatch, room, limit, why) -> None:
    host.room = room
    warned: list[str] = []
    monkeypatch.setattr(AnsibleModule, "warn", lambda _self, text: warned.append(text))
    assert not restart(state="compacted", compact_limit=limit)["changed"]
    assert warned == [f"{why}: it is not compacted, and merges what is new in it when it starts"]
    assert "compact" not in host.asked


def test_a_policy_says_whether_an_object_map_is_written_anew(restart, host, object_map) -> None:
    assert not restart(state="compacted", compact="never")["changed"]
    assert restart(state="compacted", compact="always", compact_limit="2M")["changed"]
    host.room = MIB
    with pytest.raises(Exception, match="to write its database of 3 MiB anew: make room, or leave compact=always"):
        restart(state="compacted", compact="always")


def test_an_osd_that_does_not_answer_has_its_object_map_as_it_is(restart, host, object_map, monkeypatch) -> None:
    def mute(self: t.Any, *_args: t.Any, **_options: t.Any) -> None:
        raise asok.NoAnswer("asok does not answer")

    warned: list[str] = []
    monkeypatch.setattr(asok.AdminSocket, "call", mute)
    monkeypatch.setattr(AnsibleModule, "warn", lambda _self, text: warned.append(text))
    assert not restart(state="compacted")["changed"]
    assert warned == ["asok does not answer; it is not compacted"]


def test_a_limit_that_is_no_size_is_said_before_anything_is_touched(restart, host, object_map) -> None:
    with pytest.raises(Exception, match="compact_limit: '4 gigs' is not a size"):
        restart(state="compacted", compact_limit="4 gigs")
    assert host.asked == []


def test_an_osd_that_does_not_answer_is_restarted_all_the_same(restart, host) -> None:
    host.pid = None
    assert restart()["changed"]


def test_if_systemd_refuses_the_options_are_as_before(restart, host) -> None:
    host.restart_rc = 1
    with pytest.raises(Exception, match="`systemctl restart ceph-osd@2.service` failed: Job failed; look at `journalctl -u ceph-osd@2.service`"):
        restart()
    assert host.options == DEFAULTS


def test_a_process_that_runs_is_not_an_osd_that_is_up(restart, host) -> None:
    host.state = "booting"
    host.journal = "2026-11-21T14:47:44 7f -1 osd.2 0 unable to obtain rotating service keys; retrying\n2026 7f -1 asok(0x5) AdminSocket: request not defined\n"
    with pytest.raises(Exception, match="osd.2 did not come up within 1 s: osd.2 0 unable to obtain rotating service keys; retrying; look at `journalctl"):
        restart()


def test_while_it_starts_next_to_nothing_else_runs(restart, host) -> None:
    host.state = "booting"
    with pytest.raises(Exception, match="did not come up within 1 s"):
        restart()
    assert host.asked.count("status") > 10
    # At the beginning, after a second, and for the sentence.
    assert sum("ActiveState" in words for words in host.commands) <= 3


def test_reads_are_counted_until_it_is_up(restart, host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceph_restart.Restart, "_reads", lambda self: (len(host.commands), 0))
    (found,) = restart()["osds"]
    # What is asked afterwards is behind that.
    assert found["reads"] == next(at for at, words in enumerate(host.commands) if "InactiveEnterTimestampMonotonic" in words)


def test_one_that_has_failed_is_not_waited_for(restart, host) -> None:
    host.comes_up, host.unit = False, "failed"
    with pytest.raises(Exception, match="osd.2 has failed to start; look at `journalctl -u ceph-osd@2.service`, and run the play again"):
        restart(timeout=600)


def test_it_is_not_asked_what_it_does_not_know_yet(restart, host) -> None:
    host.knows = False
    with pytest.raises(Exception, match="did not come up"):
        restart()
    assert "status" not in host.asked


def test_started_is_idempotent(restart, host) -> None:
    assert not restart(state="started")["changed"]
    assert not host.commands
    host.pid = None
    assert restart(state="started")["changed"]


def test_restart_in_check_mode(restart, host) -> None:
    assert restart(check=True)["changed"]
    assert not host.commands


def test_what_somebody_else_had_set_is_set_again(host) -> None:
    host.options["osd_fast_shutdown"] = "false"
    overrides = ceph_restart.Overrides(asok.AdminSocket("asok"))
    overrides.set("osd_fast_shutdown", "true")
    overrides.restore()
    assert host.options["osd_fast_shutdown"] == "false"


# Holding


def test_hold_and_release(hold, host, tmp_path: Path) -> None:
    held = hold(compact="never")
    assert held["changed"] and held["reasons"] == ["nobody holds the devices of osd.2", "50 MiB of 300 MiB are not in memory"]
    assert (held["size"], held["resident_before"], held["resident"], held["compacted"]) == (300 * MIB, 250 * MIB, 300 * MIB, False)
    drop_in = (tmp_path / "units/ceph-osd@2.service.d/handover-hold.conf").read_text()
    assert f"ExecStartPre=-{_pcopy.HELPER} pages --read --seconds=60 --ranges {tmp_path}/run/osd.2.json /dev/dm-1\n" in drop_in
    assert not hold(compact="never")["changed"]
    assert hold("released")["changed"]
    assert not list((tmp_path / "units").iterdir()) and not list((tmp_path / "run").iterdir())
    assert not hold("released")["changed"]


def test_what_was_written_meanwhile_is_read_too(hold, host, tmp_path: Path) -> None:
    hold(compact="never")
    host.wal, host.cached = 140 * MIB, 260 * MIB
    host.commands.clear()
    again = hold(compact="always")
    assert again["reasons"] == ["80 MiB of 340 MiB are not in memory"] and "compact" not in host.asked
    assert again["resident"] == 340 * MIB and host.hold == "active"
    assert json.loads((tmp_path / "run/osd.2.json").read_text()) == {"/dev/dm-1": [[0, 340 * MIB]]}
    # Never two at once by one name, and the new one has its own time.
    ended, started = (next(i for i, command in enumerate(host.commands) if command.startswith(word)) for word in ("systemctl stop", "systemd-run"))
    assert ended < started
    assert "Environment=CEPH_ARGS=--bdev_aio_poll_ms=1" in (tmp_path / "units/ceph-osd@2.service.d/handover-hold.conf").read_text()


def test_what_is_locked_already_needs_no_memory(hold, host, monkeypatch) -> None:
    hold(compact="never")
    monkeypatch.setattr(memory, "memory_available", lambda: 600 * MIB)
    host.wal = 110 * MIB
    assert hold(compact="never", reserve="512M")["changed"]


def test_a_hold_on_one_that_is_down_is_not_touched(hold, host) -> None:
    """It is all that keeps the pages."""
    hold(compact="never")
    host.pid, host.cached = None, 0
    host.commands.clear()
    assert not hold(compact="never")["changed"]
    assert not [command for command in host.commands if "stop" in command or "systemd-run" in command]


def test_one_that_was_started_under_its_hold_and_is_held_again(hold, host, tmp_path: Path) -> None:
    """What the poll was is not forgotten for what the hold has made of it."""
    hold(compact="never")
    host.options["bdev_aio_poll_ms"], host.cached = "1", 0
    assert hold(compact="never")["changed"]
    hold("released")
    assert host.options == DEFAULTS


def test_the_holder_ends_by_itself_and_goes_first(hold, host) -> None:
    hold(compact="never", seconds=77)
    (started,) = [command for command in host.commands if command.startswith("systemd-run")]
    for word in ("--property=RuntimeMaxSec=77", "--property=OOMScoreAdjust=1000", "--property=Type=notify", "hold --seconds=77 --read --lock", "--collect"):
        assert word in started


@pytest.mark.parametrize(
    ("policy", "wal", "tables", "compacts"),
    [("auto", 100, 200, True), ("auto", 10, 200, False), ("auto", 100, 400, False), ("always", 1, 400, True), ("never", 100, 200, False)],
)
def test_when_the_database_is_compacted(hold, host, policy, wal, tables, compacts) -> None:
    host.wal, host.tables = wal * MIB, tables * MIB
    assert hold(compact=policy, compact_log="64M", compact_limit="400M")["compacted"] is compacts
    assert ("compact" in host.asked) is compacts
    assert host.options == DEFAULTS


def test_a_full_osd_is_not_compacted(hold, host, monkeypatch) -> None:
    host.room = 599 * MIB
    warned: list[str] = []
    monkeypatch.setattr(AnsibleModule, "warn", lambda _self, text: warned.append(text))
    full = "osd.2 has 599 MiB left, and may take 600 MiB for a while to write its database of 300 MiB anew"
    with pytest.raises(Exception, match=f"{full}: make room, or leave compact=always"):
        hold(compact="always")
    assert host.hold == "inactive"
    assert hold()["compacted"] is False and host.hold == "active"
    assert warned == [f"{full}: it is not compacted, and replays its log when it starts"]
    assert "compact" not in host.asked


def test_the_start_closes_its_devices_quickly_and_runs_as_before(hold, host, tmp_path: Path) -> None:
    hold(compact="never")
    drop_in = (tmp_path / "units/ceph-osd@2.service.d/handover-hold.conf").read_text()
    assert "\nEnvironment=CEPH_ARGS=--bdev_aio_poll_ms=1\n" in drop_in and "\nX-bdev_aio_poll_ms=250\n" in drop_in
    host.options["bdev_aio_poll_ms"] = "1"  # it was started so
    hold("released")
    assert host.options == DEFAULTS


def test_an_osd_that_refuses_what_it_was_has_nothing_of_the_hold_left(hold, host, tmp_path: Path, monkeypatch) -> None:
    hold(compact="never")
    host.options["bdev_aio_poll_ms"] = "1"

    def call(_self: t.Any, prefix: str, **arguments: t.Any) -> t.Any:
        if prefix == "config set":
            raise asok.Refused("asok: 'config set' was answered with: no")
        return host.call(prefix, **arguments)

    monkeypatch.setattr(asok.AdminSocket, "call", call)
    with pytest.raises(Exception, match="was answered with: no"):
        hold("released")
    assert host.hold == "inactive" and not list((tmp_path / "units").iterdir()) and not list((tmp_path / "run").iterdir())


def test_the_start_comes_first_on_the_processors_until_it_is_up(hold, restart, host, tmp_path: Path) -> None:
    hold(compact="never")
    drop_in = tmp_path / "units/ceph-osd@2.service.d/handover-hold.conf"
    assert "\nNice=-10\n" in drop_in.read_text() and "\nX-Nice=0\n" in drop_in.read_text()
    host.nice, host.cached = "-10", 0  # as systemd says it now
    hold(compact="never")
    assert "\nX-Nice=0\n" in drop_in.read_text()
    restart()
    assert host.niceness == [(200, -10, 0)]
    host.pid = 300  # it was started again by somebody else
    hold("released")
    assert host.niceness[1:] == [(300, -10, 0)]
    restart()
    assert len(host.niceness) == 2


def test_a_niceness_that_somebody_has_set_is_left_alone(hold, restart, host, tmp_path: Path) -> None:
    host.nice = "5"
    hold(compact="never")
    assert "Nice" not in (tmp_path / "units/ceph-osd@2.service.d/handover-hold.conf").read_text()
    restart()
    hold("released")
    assert not host.niceness


@pytest.mark.parametrize("what", ["environment", "option", "silent"])
def test_a_start_that_somebody_has_set_is_left_alone(hold, host, tmp_path: Path, what) -> None:
    if what == "environment":
        host.environment = "CLUSTER=ceph CEPH_ARGS=--debug_osd=1"
    elif what == "option":
        host.options["bdev_aio_poll_ms"] = "1"
    else:
        host.pid = None
    hold(compact="never")
    assert "CEPH_ARGS" not in (tmp_path / "units/ceph-osd@2.service.d/handover-hold.conf").read_text()
    hold("released")
    assert host.options["bdev_aio_poll_ms"] == ("1" if what == "option" else "250")


def test_an_osd_that_reads_past_the_cache_has_nothing_to_hold(hold, host, monkeypatch) -> None:
    host.options["bluefs_buffered_io"] = "false"
    # Not read from the result: once another test has imported a plugin of the controller, warnings go the controller's way.
    warned: list[str] = []
    monkeypatch.setattr(AnsibleModule, "warn", lambda _self, text: warned.append(text))
    result = hold()
    assert (result["usable"], result["changed"]) == (False, False)
    assert warned == ["osd.2 has bluefs_buffered_io=false and reads its database past the page cache: there is nothing to hold"]


def test_too_little_memory_is_refused_before_anything_is_touched(hold, host, monkeypatch) -> None:
    monkeypatch.setattr(memory, "memory_available", lambda: 512 * MIB)
    with pytest.raises(Exception, match="the database of osd.2 is 300 MiB, and this host has 512 MiB of memory available, of which 512 MiB are to stay free"):
        hold()
    with pytest.raises(Exception, match="the database of osd.2 is 300 MiB, more than the limit of 100 MiB"):
        hold(limit="100M")
    assert not [command for command in host.asked if not command.startswith("config get")] and host.hold == "inactive"


def test_hold_in_check_mode(hold, host, tmp_path: Path) -> None:
    assert hold(check=True)["changed"]
    assert host.hold == "inactive" and not (tmp_path / "units").exists() and "compact" not in host.asked


def test_a_filestore_is_sent_to_vmtouch(hold, monkeypatch) -> None:
    monkeypatch.setattr(_ceph_osd.Osd, "store", lambda self: "filestore")
    with pytest.raises(Exception, match="osd.2 is no BlueStore: what a FileStore reads are files, which livefleet.handover.vmtouch keeps in memory"):
        hold()
