# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A conversion is killed before and after each thing that it does: nothing is lost, nothing starts on an empty folder, and another run ends it."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import typing as t

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import runtime
from ansible_collections.livefleet.handover.plugins.module_utils._podman.conversion import Plain, User
from ansible_collections.livefleet.handover.plugins.module_utils._podman.conversion_look import record_of
from ansible_collections.livefleet.handover.plugins.module_utils._podman.copies import converter
from ansible_collections.livefleet.handover.plugins.module_utils._podman.volume import Wanted, bound_options


class Killed(BaseException):
    """No handler of errors sees a SIGKILL."""


@dataclasses.dataclass
class Host:
    """A host with one container, which numbers the lines of its file; a mounted image is a file that has the content."""

    root: t.Any
    unit: str = ""
    runs: bool = True
    written: int = 0
    mounted: bool = False
    units: bool = False
    options: dict[str, str] = dataclasses.field(default_factory=dict)
    fails: str = ""
    kill_at: int = -1
    steps: int = 0
    said: list[str] = dataclasses.field(default_factory=list)
    unkept: str = "CRIU is missing"  # why its memory cannot be kept
    restart: bool = True

    def __post_init__(self):
        self.folder = str(self.root / "volumes/shop/_data")
        self.image = str(self.root / "images/shop.img")
        self.place = str(self.root / "mnt/shop")
        os.makedirs(self.folder)
        self.write()

    @property
    def plain(self):
        state, units = "running" if self.runs else "exited", (self.unit,) if self.unit else ()
        user = User("shop", "111", pid=0, state=state, units=units, active=self.runs, unkept=self.unkept)
        return Plain("shop", self.folder, used=1, files=1, users=(user,))

    def step(self, what):
        if self.steps == self.kill_at:
            raise Killed(what)
        self.steps += 1
        self.said.append(what)

    def write(self):
        """The container writes where its volume is."""
        self.written += 1
        with open(self.image if self.options else os.path.join(self.folder, "file"), "a", encoding="utf-8") as target:
            target.write(f"{self.written}\n")

    def start(self):
        """As podman does: on what is there, and on nothing where the folder is missing."""
        self.step("start")
        if not os.path.isdir(self.folder):
            raise runtime.HandoverError("bind mount source stat: no such file or directory")
        if self.options:
            assert self.mounted, "it starts on the empty folder under the mount point"
        else:
            assert os.listdir(self.folder), "it starts on an empty folder"
        self.runs = True

    def stop(self):
        self.runs = False

    def run(self, argv, accept=(0,), stdin=None, timeout=None):
        tool, words = os.path.basename(argv[0]), list(argv[1:])
        if words == ["start", self.unit or "shop"] and tool == ("systemctl" if self.unit else "podman"):
            self.start()
            self.step("started")
            return runtime.Completed(tuple(argv), 0, "", "")
        raise AssertionError(argv)

    def fill(self, *words):
        """The helper."""
        self.step("fill")
        draft, source = words[2], words[3]
        options = dict(zip(words[4::1], words[5::1]))
        if self.runs:
            self.write()
        if "--stop" in words:
            assert options["--stop"].endswith("systemctl stop " + self.unit if self.unit else "podman stop shop")
            self.step("stop")
            self.stop()
        assert not self.runs
        if self.fails == "fill":
            raise runtime.HandoverError("no room")
        with open(os.path.join(source, "file"), encoding="utf-8") as given, open(draft, "w", encoding="utf-8") as target:
            target.write(given.read())
        if "--away" in words:
            os.makedirs(os.path.dirname(options["--away"]), exist_ok=True)
            os.rename(source, options["--away"])
            self.step("renamed")
            if self.fails == "late":
                raise runtime.HandoverError("no proof")
        else:
            assert "--again" in words
        return {"bytes": 3, "stop_ms": 1.2, "last_ms": 2.1}


@dataclasses.dataclass(frozen=True)
class Podman:
    host: Host
    path: str = "/usr/bin/podman"

    def containers(self):
        return [{"Names": ["shop"], "State": "running" if self.host.runs else "exited"}]

    def volumes(self):
        return [{"Name": "shop", "Options": self.host.options}]

    def run(self, *words):
        return self.host.run([self.path, *words])


@dataclasses.dataclass(frozen=True)
class Seen:
    host: Host
    podman: Podman

    def loops(self):
        return ["/dev/loop1"] if self.host.mounted else []

    def mounts(self, loops):
        return loops, None


@dataclasses.dataclass(frozen=True)
class Runtime:
    host: Host

    def run(self, *words):
        return self.host.run(*words)

    def tool(self, name, _package):
        return "/usr/bin/" + name

    def wait_for(self, condition, _seconds):
        return condition()


@dataclasses.dataclass(frozen=True)
class Actions:
    host: Host
    wanted: Wanted
    seen: Seen
    runtime: Runtime

    def make(self, path, _more):
        self.host.step("make")
        assert not os.path.exists(path)
        with open(path, "w", encoding="utf-8"):
            self.host.step("made")

    def write_units(self):
        self.host.units = True
        self.host.step("units")

    def remove_units(self):
        self.host.units = False

    def warn(self, text):
        self.host.said.append(text)

    def unmount(self):
        self.host.step("unmount")
        self.host.mounted = False

    def detach(self):
        self.host.step("detach")

    def attach(self):
        self.host.step("attach")

    def mount(self):
        self.host.step("mount")
        self.host.mounted = True


@pytest.fixture
def convert(monkeypatch):
    """Runs one conversion on a made-up host."""

    def bound_to(_root, _volume, folder, write=True):
        host.step("bind")
        assert host.options or not os.path.exists(host.folder), "podman's folder is there before the volume is bound"
        host.options = {} if host.fails == "bind" else bound_options(folder)
        host.step("bound")
        return ""

    def unbound(_root, _volume, _folder):
        host.step("unbind")
        assert not os.path.exists(host.folder), "podman's folder is there while the volume is unbound"
        host.options = {}
        host.step("unbound")
        return ""

    def run(made, keep_plain=True):
        nonlocal host
        host = made
        actions = Actions(host, Wanted("shop", "mounted", host.image, host.place, size=2**28, podman_volume="shop"), Seen(host, Podman(host)), Runtime(host))
        return converter.Converter(actions, host.plain, keep_plain, host.restart).run(not host.units)

    host: t.Any = None
    synced = converter.files.sync_directory
    monkeypatch.setattr(converter.files, "sync_directory", lambda path: (synced(path), host.step("synced")))
    monkeypatch.setattr(converter.Converter, "_late", lambda self: None)
    monkeypatch.setattr(converter, "Pcopy", lambda _runtime: type("Helper", (), {"call": lambda _self, *words: host.fill(*words)})())
    monkeypatch.setattr(converter.book, "bound_to", bound_to)
    monkeypatch.setattr(converter.book, "unbound", unbound)
    monkeypatch.setattr(converter.guard, "mark", lambda _folder: None)
    monkeypatch.setattr(converter.guard, "unmark", lambda _folder: None)
    return run


def lines(path):
    with open(path, encoding="utf-8") as source:
        return [int(line) for line in source]


def settled(host):
    assert host.runs and host.mounted and host.options == bound_options(host.place) and host.units
    assert lines(host.image) == list(range(1, host.written + 1))
    assert os.listdir(os.path.dirname(host.image)) == ["shop.img"] and os.listdir(host.folder) == []


def starts_on_what_is_there(host):
    """Somebody starts it by hand after the kill: that works where the files are, or not at all."""
    host.kill_at = -1
    if not host.runs:
        try:
            host.start()
        except runtime.HandoverError:
            return
    host.write()


@pytest.mark.parametrize("unit", ["", "shop.service"])
@pytest.mark.parametrize("again", [False, True])
def test_it_is_whole_wherever_it_is_killed(convert, tmp_path, unit, again):
    kill_at, ended = 0, False
    while not ended:
        host = Host(tmp_path / str(kill_at), unit=unit, kill_at=kill_at)
        try:
            convert(host)
            ended = True
        except Killed:
            if again:
                starts_on_what_is_there(host)
            host.kill_at = -1
            convert(host)
        settled(host)
        kill_at += 1
    assert kill_at > 12 and host.said.count("start") == 1


def test_the_result_says_what_it_cost(convert, tmp_path):
    host = Host(tmp_path)
    result = convert(host)
    settled(host)
    assert (result["bytes"], result["stop_ms"], result["last_ms"], result["container"]) == (3, 1, 2, "shop") and result["paused_ms"] >= 3
    assert lines(os.path.join(result["kept"], "file")) == [1, 2] and "shop was down for" in result["summary"]


def test_the_folder_goes_where_that_is_asked_for(convert, tmp_path):
    host = Host(tmp_path)
    result = convert(host, keep_plain=False)
    assert result["kept"] is None and os.listdir(tmp_path / "volumes") == ["shop"]


def test_one_that_does_not_run_is_not_started(convert, tmp_path):
    host = Host(tmp_path, runs=False)
    result = convert(host)
    assert not host.runs and result["paused_ms"] is None and lines(host.image) == [1]


@pytest.mark.parametrize(("fails", "says"), [("fill", "no room"), ("late", "no proof")])
def test_a_failure_gives_the_volume_back(convert, tmp_path, fails, says):
    host = Host(tmp_path, fails=fails)
    with pytest.raises(runtime.HandoverError, match=says + "; podman's volume shop is a plain one as before, and shop runs"):
        convert(host)
    assert host.runs and not host.units and lines(os.path.join(host.folder, "file")) == [1, 2] and os.listdir(tmp_path / "images") == []


def test_nothing_starts_where_podman_does_not_know_of_the_image(convert, tmp_path):
    host = Host(tmp_path, fails="bind")
    with pytest.raises(runtime.HandoverError, match="its options are {}: all files of shop are in .*: run this again.*, and shop is down until then"):
        convert(host)
    assert not host.runs and not os.path.exists(host.folder)
    host.fails = ""
    convert(host)
    settled(host)


def test_an_image_without_the_folder_that_it_was_copied_from_is_not_bound(convert, tmp_path):
    host = Host(tmp_path, runs=False)
    os.makedirs(os.path.dirname(host.image))
    with open(host.image, "w", encoding="utf-8"), pytest.raises(runtime.HandoverError, match="shop is missing, which had the files of shop"):
        convert(host)
    assert not host.options and not host.mounted


def test_two_runs_do_not_meet(convert, tmp_path):
    host = Host(tmp_path)
    os.makedirs(os.path.dirname(host.image))
    for name, says in ((converter.conversion.RECORD, "is being filled by another run"), (converter.conversion.DRAFT, "the helper still copies to")):
        with open(host.image + name, "w", encoding="utf-8") as other:
            converter.fcntl.flock(other, converter.fcntl.LOCK_EX)
            with pytest.raises(runtime.HandoverError, match=says):
                convert(host)
    assert host.runs and os.path.exists(host.image + converter.conversion.DRAFT)


def test_a_note_that_is_cut_off_says_that_nothing_was_done(tmp_path):
    image = str(tmp_path / "shop.img")
    assert record_of(image) is None
    for text, found in (("", {}), (json.dumps({"running": True}), {"running": True})):
        with open(image + converter.conversion.RECORD, "w", encoding="utf-8") as target:
            target.write(text)
        assert record_of(image) == found


def test_a_stop_that_is_under_way_is_seen():
    words = ("987654.25",)
    with subprocess.Popen(["sleep", *words]) as process:
        try:
            assert converter._at_work(words) and converter._at_work(("sleep", *words)) and not converter._at_work(("stop", *words))
        finally:
            process.kill()
    assert not converter._at_work(words)
