# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A container keeps its memory while its volume becomes another, and is killed, or fails, before and after each thing that is done."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import time
import typing as t

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import runtime
from ansible_collections.livefleet.handover.plugins.module_utils._podman.conversion_look import record_of
from ansible_collections.livefleet.handover.plugins.module_utils._podman.copies import memory_left
from ansible_collections.livefleet.handover.tests.unit.plugins.module_utils._podman.copies import test_converter as base
from ansible_collections.livefleet.handover.tests.unit.plugins.module_utils._podman.copies.test_converter import Killed, lines, settled, starts_on_what_is_there

convert = base.convert
IDENTIFIER = "5f7a9c0e12b4"


@dataclasses.dataclass
class Host(base.Host):
    """It counts the lines in its memory, too. A dump has the memory of its moment, and the files may have gone on since."""

    unkept: str = ""
    restart: bool = False
    memory: int = 0
    dump: int | None = None
    started: int = 0  # how often
    boots: int = 0
    kept: bool = False  # its unit does not act
    ended: bool = True  # podman has laid down all that belongs to the dump
    gone: bool = False  # the container is
    replaced: bool = False  # by its unit
    silent: list[bool] = dataclasses.field(default_factory=list)  # whether each restore was

    def write(self):
        self.memory += 1
        aside = str(self.root / "volumes/.handover-plain/shop")
        if not self.options and not os.path.exists(self.folder) and os.path.exists(aside):  # what is mounted does not go by its name
            self.written += 1
            with open(os.path.join(aside, "file"), "a", encoding="utf-8") as target:
                target.write(f"{self.written}\n")
            return
        super().write()

    def start(self):
        super().start()
        self.memory, self.started, self.dump, self.gone = 0, self.started + 1, None, False

    def listed(self):
        state = "running" if self.runs else "exited"
        return [] if self.gone else [{"Names": ["shop"], "Id": "222" if self.replaced else "111", "State": state}]

    def inspect(self):
        if self.gone:
            raise runtime.HandoverError("no such container")
        state = {"Running": self.runs, "StartedAt": str(self.started), "Checkpointed": self.dump is not None and self.ended, "ConmonPid": 7}
        return {"Id": "111", "Name": "shop", "State": state, "StaticDir": str(self.root / "static")}

    def fill(self, *words):
        if "--memory" not in words:
            return super().fill(*words)
        self.step("fill")
        draft, source, away = words[2], words[3], words[words.index("--away") + 1]
        self.write()
        if self.fails in ("fill", "frozen"):
            raise runtime.HandoverError("no room")
        with open(os.path.join(source, "file"), encoding="utf-8") as given, open(draft, "w", encoding="utf-8") as target:
            target.write(given.read())
        os.makedirs(os.path.dirname(away), exist_ok=True)
        os.rename(source, away)
        self.step("renamed")  # killed here, CRIU lets it run on
        if self.fails == "late":
            os.rename(away, source)
            raise runtime.HandoverError("no proof")
        self.runs, self.dump = False, self.memory
        os.makedirs(self.root / "static/checkpoint", exist_ok=True)
        (self.root / "static/checkpoint/inventory.img").write_text("")
        self.step("dumped")
        return {"bytes": 3, "stop_ms": 400.2, "last_ms": 20.1}

    def restore(self, within="", network=None):
        self.step("restore")
        self.silent.append(bool(network))
        if self.fails == "restore" or self.fails == "restore-new" and self.options:
            raise runtime.HandoverError("CRIU cannot restore it")
        assert within or not self.unit
        if not os.path.isdir(self.folder) or self.runs:
            raise runtime.HandoverError("it cannot be restored")
        assert self.dump is not None and (self.mounted if self.options else os.listdir(self.folder))
        assert lines(self.image if self.options else os.path.join(self.folder, "file")) == list(range(1, self.written + 1)), "other files than at the dump"
        self.runs, self.memory, self.dump = True, self.dump, None
        self.step("restored")


class Unit:
    """Of the container."""

    host: Host

    def __init__(self, _runtime, service):
        assert service["unit"] == "shop.service"

    def expect(self):
        self.host.step("expect")
        self.host.kept = True

    def hand_over(self, _name, restore):
        assert self.host.kept
        restore("/sys/fs/cgroup/shop")
        self.host.step("handed")
        self.host.kept = False

    def resume(self, _name):
        self.host.kept = False

    def start(self):
        self.host.kept = False
        self.host.start()


@pytest.fixture
def live(convert, monkeypatch):
    """Runs one conversion of a container that can be dumped."""

    @contextlib.contextmanager
    def left(*_words):
        yield type("Left", (), {"options": lambda _self, _limit: ["--memory", "/memory.json"]})()

    def run(host, **options):
        if host.unit:
            monkeypatch.setattr(Host, "plain", property(plain_with_unit))
        Unit.host = host
        monkeypatch.setattr(base.Podman, "inspect", lambda _self, _name: host.inspect(), raising=False)
        monkeypatch.setattr(base.Podman, "info", lambda _self: {}, raising=False)
        monkeypatch.setattr(base.Podman, "containers", lambda _self: host.listed())
        monkeypatch.setattr(memory_left, "boot", lambda: str(host.boots))
        monkeypatch.setattr(memory_left, "go_on", lambda _runtime, _name, _facts, within, network: host.restore(within, network))
        return convert(host, **options)

    own = base.Host.plain

    def plain_with_unit(self):
        service = dict.fromkeys(memory_left._OF_UNIT, True)
        plain = own.fget(self)
        return dataclasses.replace(plain, users=(dataclasses.replace(plain.user, service={**service, "unit": self.unit}),))

    monkeypatch.setattr(memory_left, "UnitReturn", Unit)
    monkeypatch.setattr(memory_left, "MemoryLeft", left)
    monkeypatch.setattr(memory_left, "cgroup_of", lambda _facts: "/sys/fs/cgroup/shop")
    monkeypatch.setattr(memory_left, "why_halted", lambda _podman, _facts: "")
    return run


def remembers(host):
    """It runs with all that it had in its memory, and its unit acts."""
    assert host.runs and host.memory == host.written and not host.kept


@pytest.mark.parametrize("unit", ["", "shop.service"])
def test_it_runs_on_from_its_dump_on_the_image_volume(live, tmp_path, unit):
    host = Host(tmp_path, unit=unit)
    result = live(host)
    settled(host)
    remembers(host)
    assert (result["memory"], result["anew"], host.started) == (True, "", 0) and result["paused_ms"] >= 420
    assert "shop stood still, with its memory and connections, for " in result["summary"] and "400 ms to dump it" in result["summary"]


@pytest.mark.parametrize("unit", ["", "shop.service"])
@pytest.mark.parametrize("again", [False, True])
def test_it_is_whole_and_remembers_wherever_it_is_killed(live, tmp_path, unit, again):
    """Somebody may start it by hand after the kill: then its memory is that of this start."""
    kill_at, ended = 0, False
    while not ended:
        host = Host(tmp_path / str(kill_at), unit=unit, kill_at=kill_at)
        try:
            live(host)
            ended = True
        except Killed:
            host.kill_at = -1
            if again and not host.runs:
                starts_on_what_is_there(host)
            elif host.runs:
                host.write()
            live(host)
        settled(host)
        if not host.started:
            remembers(host)
        assert host.runs and not host.kept
        kill_at += 1
    assert kill_at > 14


def test_after_a_boot_it_begins_anew(live, tmp_path):
    host = Host(tmp_path, fails="bind")
    with pytest.raises(runtime.HandoverError, match="run this again, which ends it, and shop is down until then"):
        live(host)
    assert host.dump is not None and not host.runs
    host.fails, host.mounted, host.boots = "", False, 1
    result = live(host)
    settled(host)
    assert host.started == 1 and "shop began anew, without its memory: the host has booted since" in result["summary"]


@pytest.mark.parametrize(
    ("change", "says"),
    [({"started": 5}, "it was started by another hand"), ({"ended": False}, "its dump was not ended"), ({"dump": None}, "its dump was not ended")],
)
def test_a_dump_of_another_moment_is_not_gone_back_to(live, tmp_path, change, says):
    host = Host(tmp_path, fails="bind")
    with pytest.raises(runtime.HandoverError):
        live(host)
    vars(host).update(change, fails="")
    assert says in live(host)["summary"] and "restore" not in host.said
    settled(host)


def test_one_that_is_gone_begins_anew_by_its_unit(live, tmp_path):
    host = Host(tmp_path, fails="bind", unit="shop.service")
    with pytest.raises(runtime.HandoverError):
        live(host)
    host.fails, host.gone = "", True
    assert "began anew, without its memory: it is not there any more" in live(host)["summary"]
    settled(host)
    assert host.started == 1 and not host.kept and "restore" not in host.said


@pytest.mark.parametrize(("unit", "replaced"), [("", False), ("shop.service", False), ("shop.service", True)])
def test_the_dump_of_one_that_began_anew_goes(live, tmp_path, unit, replaced):
    """podman would restore it whenever it is asked. Another container's folder is not touched."""
    host = Host(tmp_path, fails="bind", unit=unit)
    with pytest.raises(runtime.HandoverError):
        live(host)
    host.fails, host.boots, host.replaced = "", 1, replaced
    live(host)
    settled(host)
    assert (tmp_path / "static/checkpoint").exists() == replaced


def test_a_restore_of_another_run_is_silent_too(live, tmp_path):
    host = Host(tmp_path, fails="bind")
    with pytest.raises(runtime.HandoverError):
        live(host)
    host.fails = ""
    live(host)
    remembers(host)
    assert host.silent == [True]


@pytest.mark.parametrize(("fails", "says"), [("fill", "no room"), ("late", "no proof")])
@pytest.mark.parametrize("unit", ["", "shop.service"])
def test_a_failure_before_its_end_leaves_it_running(live, tmp_path, fails, says, unit):
    host = Host(tmp_path, fails=fails, unit=unit)
    with pytest.raises(runtime.HandoverError, match=says + "; podman's volume shop is a plain one as before, and shop runs$"):
        live(host)
    remembers(host)
    assert not host.units and lines(os.path.join(host.folder, "file")) == [1, 2] and os.listdir(tmp_path / "images") == []
    assert "restore" not in host.said and not host.started


@pytest.mark.parametrize("unit", ["", "shop.service"])
def test_one_that_cannot_be_restored_there_goes_back(live, tmp_path, unit):
    host = Host(tmp_path, fails="restore-new", unit=unit)
    with pytest.raises(runtime.HandoverError, match="CRIU cannot restore it; podman's volume shop is a plain one as before, and shop runs$"):
        live(host)
    remembers(host)
    assert not host.options and not host.mounted and lines(os.path.join(host.folder, "file")) == [1, 2] and os.listdir(tmp_path / "images") == []
    assert not host.started


@pytest.mark.parametrize("unit", ["", "shop.service"])
def test_one_that_cannot_be_restored_at_all_begins_anew_where_it_was(live, tmp_path, unit):
    host = Host(tmp_path, fails="restore", unit=unit)
    with pytest.raises(runtime.HandoverError, match=r"a plain one as before, and shop runs anew, without its memory \(shop cannot be restored: CRIU cannot"):
        live(host)
    assert host.runs and host.started == 1 and not host.options and not host.kept and lines(os.path.join(host.folder, "file")) == [1, 2]


def test_it_is_whole_wherever_the_way_back_is_killed(live, tmp_path):
    kill_at, ended = 0, False
    while not ended:
        host = Host(tmp_path / str(kill_at), fails="restore-new", kill_at=kill_at)
        try:
            live(host)
        except Killed:
            host.kill_at, host.fails = -1, ""
            live(host)
            settled(host)
            remembers(host)
        except runtime.HandoverError:
            ended = True
            remembers(host)
        kill_at += 1
    assert kill_at > 20 and {"unbind", "unmount", "detach"} <= set(host.said)


def test_a_dump_that_fails_is_no_stop_without_leave(live, tmp_path, monkeypatch):
    host = Host(tmp_path, fails="frozen", restart=True)
    noted = []
    stop = host.stop
    monkeypatch.setattr(host, "stop", lambda: (noted.append(record_of(host.image)), stop()))
    result = live(host)
    settled(host)
    assert host.started == 1 and result["memory"] is None and "shop was down for" in result["summary"]
    assert [(note["memory"], note["running"]) for note in noted] == [(None, True)], "another run would await a dump"
    assert "shop is stopped and started, and loses its memory and connections: no room" in host.said
    host = Host(tmp_path / "other", fails="frozen")
    with pytest.raises(runtime.HandoverError, match="no room"):
        live(host)
    assert "stop" not in host.said and not host.started


def test_the_note_is_of_the_container_that_runs(live, tmp_path):
    """Killed before anything was done, it was started anew in between: the next dump is of that one."""
    host: t.Any = Host(tmp_path, kill_at=4)
    with pytest.raises(Killed):
        live(host)
    host.kill_at, host.runs = -1, False
    starts_on_what_is_there(host)
    live(host)
    settled(host)
    assert host.started == 1 and host.memory == 2


def test_a_dump_has_a_time_of_its_own(monkeypatch):
    spec = '{"dump": {"argv": [], "timeout": 86400, "log": "/static/dump.log"}}'
    monkeypatch.setattr(memory_left.MemoryInPlace, "_texts", lambda _self: {memory_left.SPEC: spec})
    monkeypatch.setattr(memory_left, "processes_of", lambda pid: {7: type("Processes", (), {"memory": 1000 * 2**20})}[pid])
    left = object.__new__(memory_left.MemoryLeft)
    vars(left).update(podman=type("Podman", (), {"path": "podman"}), name="shop", facts={"id": "111", "pid": 7}, watcher=9, places=["/data"])
    found = json.loads(left._texts()[memory_left.SPEC])
    assert found["dump"] == {"argv": ["podman", *memory_left.dump_words("shop")], "timeout": 70, "log": "/static/dump.log"}
    assert (found["ends"], found["watcher"], found["watches"], found["databases"]) == (True, 9, "111", ["/data"])


@pytest.fixture
def conmon(tmp_path):
    """Begins processes of that name, stopped or not, with a word of theirs."""
    begun = []

    def begin(word, name="conmon", stopped=True):
        (tmp_path / "bin").mkdir(exist_ok=True)
        program = tmp_path / "bin" / name
        if not program.exists():
            program.symlink_to(shutil.which("sleep"))
        process = subprocess.Popen([word, "600"], executable=str(program))
        begun.append(process)
        if stopped:
            process.send_signal(signal.SIGSTOP)
        reached(process, "T" if stopped else "S")
        return process

    yield begin
    for process in begun:
        process.kill()
        process.wait()


def reached(process, state):
    for _look in range(500):
        with open(f"/proc/{process.pid}/stat", encoding="utf-8") as source:
            found = source.read().rpartition(") ")[2][0]
        if found == state:
            return
        time.sleep(0.01)
    raise AssertionError(f"it is {found} and not {state}")


def test_a_conmon_that_was_left_stopped_acts_again_or_ends(live, tmp_path, conmon, monkeypatch):
    monkeypatch.setattr(Host, "inspect", lambda self, own=Host.inspect: {**own(self), "Id": IDENTIFIER})
    monkeypatch.setattr(Host, "listed", lambda self, own=Host.listed: [{**each, "Id": IDENTIFIER} for each in own(self)])
    others = [conmon("another"), conmon(IDENTIFIER, name="sleep")]
    its = conmon(IDENTIFIER, stopped=False)
    # Killed before it had ended, it runs on.
    host = Host(tmp_path / "runs", fails="frozen")
    its.send_signal(signal.SIGSTOP)
    reached(its, "T")
    with pytest.raises(runtime.HandoverError):
        live(host)
    remembers(host)
    reached(its, "S")
    # It has ended, and another run restores it.
    host = Host(tmp_path / "ended", fails="bind")
    with pytest.raises(runtime.HandoverError):
        live(host)
    its.send_signal(signal.SIGSTOP)
    reached(its, "T")
    host.fails = ""
    live(host)
    remembers(host)
    reached(its, "Z")
    for other in others:
        reached(other, "T")
