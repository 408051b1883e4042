# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import errno
import fcntl
import json
import os
import shlex
import shutil
import subprocess
import time
import types
from pathlib import Path

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import disk_store, loop, runtime, snapshot_records as snapshots
from ansible_collections.livefleet.handover.plugins.module_utils._core.snapshot_mounts import SnapshotMounts
from ansible_collections.livefleet.handover.plugins.module_utils._podman import rollback
from ansible_collections.livefleet.handover.plugins.module_utils._podman.copies import one_snapshot

UNIT = {"name": "shop", "service": {"unit": "shop.service", "adoption": "inside"}}


class Host:
    """A host with one container, whose images are real files; it notes what is done in which state of the container."""

    def __init__(self, folder):
        self.folder = folder
        self.state = "running"
        self.identifier = "111"
        self.commands = []
        self.warnings = []
        self.apart = []  # what does not end with the unit that it was begun in
        self.fails = ()
        self.restoring = ""  # the point that a rollback has begun to write
        self.tracked = ""
        self.found = {"how": "marks"}
        self.size = None
        self.mounted = []
        self.mounts = [{"Type": "volume", "Name": "pgdata", "Destination": "/data"}]
        self.namespace = self.rootfs = ""
        self.backend = "cni"
        self.static = folder / "static"
        for name, text in (("pgdata.img", "data"), ("static/checkpoint/pages.img", "memory"), ("layer/file", "layer")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)

    def run(self, argv, accept=(0,), stdin=None, timeout=None):
        tool, *rest = [str(word) for word in argv]
        if os.path.basename(tool) == "systemd-run":
            assert "--scope" in rest
            tool, *rest = rest[rest.index("--") + 1 :]
            self.apart.append(" ".join(rest[-2:]))
        tool = os.path.basename(tool)
        out = ""
        if rest[:2] == ["ps", "--all"]:
            out = json.dumps([{"Id": self.identifier, "Names": ["shop"], "State": self.state}])
        elif rest[:2] == ["container", "inspect"]:
            out = json.dumps([{
                "Id": self.identifier, "Name": "shop", "State": {"Status": self.state, "Running": self.state == "running"},
                "NetworkSettings": {"SandboxKey": self.namespace}, "StaticDir": str(self.static),
                "GraphDriver": {"Data": {"UpperDir": str(self.folder / "layer")}}, "Mounts": self.mounts, "Rootfs": self.rootfs,
            }])  # fmt: skip
        elif rest[:2] == ["volume", "ls"]:
            out = json.dumps([{"Name": "pgdata", "Options": {"device": "/mnt", "o": "bind"}}])
        elif rest[:1] == ["info"]:
            out = json.dumps({"host": {"networkBackend": self.backend, "networkBackendInfo": {"path": "/usr/lib/podman/" + self.backend}}})
        elif tool == "pcopy" and rest[0] == "snapshot":
            out = self.pcopy(*[word for word in rest[1:] if word != "--json"], stdin=stdin)
        else:
            verb = " ".join([tool, *rest]) if tool != "cp" else "cp " + os.path.basename(rest[-1])
            if any(word in verb for word in self.fails):
                raise runtime.HandoverError(verb + " failed: as the test wants it")
            self.commands.append((verb, self.state))
            if tool == "cp":
                (shutil.copytree if os.path.isdir(rest[-2]) else shutil.copy2)(rest[-2], rest[-1])
            if tool == "losetup" and "--show" in rest:
                out = "/dev/loop7\n"
            if tool == "mount":
                self.mounted.append(loop.Mount("7:7", rest[-1], "ext4", rest[-2]))
            if tool == "umount":
                self.mounted = [each for each in self.mounted if each.mountpoint != rest[-1]]
            if "checkpoint" in rest and (tool == "podman" or "shut-door" in rest):
                self.dump()
            for word, state in (("pause", "paused"), ("unpause", "running"), ("checkpoint", "exited"), ("restore", "running"), ("start", "running"),
                                ("stop", "exited"), ("kill", "exited")):  # fmt: skip
                if (tool in ("podman", "env") or "shut-door" in rest) and word in rest:
                    self.state = state
        return runtime.Completed(tuple(argv), 0, out, "")

    def dump(self):
        """What CRIU writes; podman restores where the inventory is."""
        for name, text in (("pages.img", "memory"), ("inventory.img", "")):
            (self.static / "checkpoint").mkdir(exist_ok=True)
            (self.static / "checkpoint" / name).write_text(text)

    def script(self, words):
        """Runs a script of the halt as the helper does: podman's words are this host's, and files are copied."""
        path = Path(shlex.split(words)[1])
        for line in path.read_text().splitlines():
            if "container checkpoint" in line or "container restore" in line:
                self.run(shlex.split(line.removeprefix("exec ").removesuffix(" >&2")))
            elif line.startswith(("cp ", "mkdir ", "touch ", "rm -rf ", "[ ! -e ", "echo $$")):
                subprocess.run(["sh", "-c", line], check=True)
                if line.startswith("cp "):
                    self.commands.append(("cp " + os.path.basename(line.split()[-1]), self.state))

    def pcopy(self, verb, *words, stdin=None):
        """The helper's store of disks: a folder for each snapshot."""
        flags = dict(word[2:].partition("=")[::2] for word in words if word.startswith("--"))
        store, *names = [Path(word) if n == 0 else word for n, word in enumerate(word for word in words if not word.startswith("--"))]
        name = names[0] if names else ""
        if verb == "wave":
            (part,) = json.loads(stdin)["parts"]
            store, name = Path(part["store"]), part["name"]
        if verb not in ("list", "show"):
            if any(word in verb + " " + name for word in self.fails):
                raise runtime.HandoverError("pcopy snapshot " + verb + " failed: as the test wants it")
            self.commands.append(("pcopy snapshot {0} {1}".format(verb, name), self.state))
        if verb == "show":
            return json.dumps({"data": {each.name: each.stat().st_size for each in (store / name).iterdir()}})
        if verb == "list":
            return json.dumps(
                {"snapshots": [{"name": each.name, "restoring": each.name == self.restoring} for each in sorted(store.iterdir()) if each.is_dir()]}
            )
        volume, _equals, path = flags.get("volume", "").partition("=")
        if verb == "wave":
            self.tracked = flags["track"]
            if "halt" in flags:
                self.script(flags["halt"])
            (along,), (place,) = part["files"], part["volumes"]
            self.along = Path(along["path"]).read_text()
            (store / name).mkdir(parents=True)
            (store / "store.json").write_text("{}")
            shutil.copy2(place["path"], store / name / place["name"])
            if "halt" in flags:
                self.commands.append(("last pass", self.state))
                self.script(flags["go-on"])
            return json.dumps({"snapshots": [{"frozen_ms": 12.3, "volumes": [{"name": place["name"], "stored": 4}]}]})
        if verb == "restore":
            # With --current the container cannot start until it has ended; a new file is in nobody's use.
            assert "--current" in words or not os.path.exists(path)
            shutil.copy2(store / name / volume, path)
            self.restoring = ""
            differs = {"volume": volume, "size": 2 << 30, "read": 5 << 20, "written": 20 << 20, "zeroed": 1 << 20, **self.found}
            return json.dumps({"volumes": [differs]})
        shutil.rmtree(store / name)
        return ""

    @property
    def volumes(self):
        return [{"name": "pgdata", "image": str(self.folder / "pgdata.img"), "mountpoint": "/mnt", "fstype": "ext4", "options": "discard", "size": self.size}]


@pytest.fixture
def host(monkeypatch, tmp_path):
    fake = Host(tmp_path)
    monkeypatch.setattr(runtime.Runtime, "run", lambda self, argv, accept=(0,), stdin=None, timeout=None: fake.run(argv, accept, stdin, timeout))
    monkeypatch.setattr(runtime.Runtime, "find", lambda self, tool: "/usr/bin/" + tool)
    monkeypatch.setattr(loop, "read_mounts", lambda proc="/proc", pid="self": list(fake.mounted))
    monkeypatch.setattr(one_snapshot.Pcopy, "check_installed", lambda self: None)
    return fake


@pytest.fixture
def act(host):
    def run(state="present", check=False, **params):
        given = {"workload": "shop", "name": "before", "state": state, "memory": False, "volumes": host.volumes, "root": str(host.folder / "root"),
                 "timeout": 60, "keep": False, "track": False, "configuration": {"name": "shop"}, **params}  # fmt: skip
        return one_snapshot.Snapshot(types.SimpleNamespace(params=given, check_mode=check, warn=host.warnings.append)).run()

    return run


def kept(host):
    return {path.name: path for path in (host.folder / "root" / "shop").glob("*")}


def disks(host):
    return {path.name: path for path in (host.folder / "root" / ".disks" / "shop").glob("*") if path.is_dir()}


def test_the_volumes_are_taken_while_it_runs(host, act):
    result = act()
    assert result["changed"]
    assert host.commands == [("pcopy snapshot wave before", "running")]
    assert (disks(host)["before"] / "pgdata").read_text() == "data"
    found = result["snapshot"]
    assert (found["container"], found["paused_ms"], found["size"], found["disks"]) == ("111", 12, 4, True)


def test_disks_that_a_killed_run_left_are_taken_again(host, act):
    act()
    shutil.rmtree(host.folder / "root" / "shop" / "before")  # it was killed before there was a record
    (host.folder / "pgdata.img").write_text("later")
    host.commands.clear()
    act()
    assert [verb for verb, _state in host.commands] == ["pcopy snapshot delete before", "pcopy snapshot wave before"]
    assert (disks(host)["before"] / "pgdata").read_text() == "later"


def test_disks_without_a_record_are_removed(host, act):
    act()
    shutil.rmtree(host.folder / "root" / "shop" / "before")
    assert act("absent")["changed"]
    assert not disks(host)
    assert not act("absent")["changed"]


def test_an_earlier_snapshot_of_whole_files_is_gone_back_to(host, act):
    folder = host.folder / "root" / "shop" / "before"
    folder.mkdir(parents=True)
    (folder / "pgdata.img").write_text("old")
    record = {"name": "before", "taken": "2026-11-21T20:30:00Z", "container": "111", "memory": False, "running": True, "size": 3, "volumes": host.volumes}
    (folder / "snapshot.json").write_text(json.dumps(record))
    act("staged")
    assert (host.folder / "pgdata.img.rollback").read_text() == "old"
    assert act("absent")["changed"]


def test_the_memory_is_of_the_same_moment(host, act):
    act(memory=True)
    verbs = [verb for verb, _state in host.commands]
    dump, back = (f"podman container {verb} --tcp-established --file-locks shop" for verb in ("checkpoint --keep", "restore"))
    assert verbs[:6] == ["pcopy snapshot wave before", dump, "cp layer", "cp checkpoint", "last pass", back]
    assert [state for _verb, state in host.commands[2:5]] == ["exited"] * 3
    assert host.apart == ["--file-locks shop"]
    # Whatever takes its time is done when it runs again.
    assert {state for _verb, state in host.commands[6:]} == {"running"}
    assert not (host.static / "handover-backup").exists()
    assert (kept(host)["before"] / "checkpoint" / "pages.img").read_text() == "memory"
    assert (kept(host)["before"] / "layer" / "file").read_text() == "layer"


def test_one_without_memory_is_not_one_with_it(host, act):
    act()
    with pytest.raises(runtime.HandoverError, match="^the snapshot before of shop has no memory: choose another name$"):
        act(memory=True)
    act(memory=True, name="after")
    assert not act(memory=True, name="after")["changed"] and not act(name="after")["changed"]


def test_nobody_new_gets_in_while_its_memory_is_dumped(host, act):
    host.namespace = "/run/netns/netns-1"
    act(memory=True)
    (dump,) = (verb for verb, _state in host.commands if "checkpoint" in verb and not verb.startswith("cp "))
    assert dump == (
        "pcopy internal shut-door --namespace=/run/netns/netns-1 -- /usr/bin/podman container checkpoint --keep --tcp-established --file-locks shop"
    )
    assert host.state == "running"


def test_its_addresses_are_there_when_its_sockets_are_restored(host, act):
    host.backend = "netavark"
    act(memory=True)
    act("restored", memory=True)
    through = "env CONTAINERS_HELPER_BINARY_DIR=/usr/local/libexec/handover/podman HANDOVER_NETAVARK=/usr/lib/podman/netavark HANDOVER_GATE={0} "
    restored = through.format(host.static / "checkpoint") + "/usr/bin/podman container restore --tcp-established --file-locks shop"
    assert [verb for verb, _state in host.commands if "container restore" in verb] == [restored, restored]


def test_it_goes_on_when_copying_fails_and_no_half_is_left(host, act):
    for params, fails in (({}, "wave"), ({"memory": True}, "wave"), ({"memory": True}, "cp layer")):
        host.fails = (fails,)
        with pytest.raises(runtime.HandoverError, match="as the test wants it"):
            act(**params)
        assert host.state == "running"
        assert not kept(host)


def test_both_reasons_are_told_when_it_does_not_go_on_either(host, act):
    host.fails = ("container restore",)
    both = "^podman container restore .* as the test wants it; and shop does not run on: podman container restore .* failed"
    with pytest.raises(runtime.HandoverError, match=both):
        act(memory=True)
    assert not list((host.folder / "root" / "shop").iterdir())


def test_a_dump_that_fails_leaves_it_running(host, act):
    host.fails = ("checkpoint",)
    with pytest.raises(runtime.HandoverError, match="^podman container checkpoint .* as the test wants it$"):
        act(memory=True)
    assert (host.state, [verb for verb, _state in host.commands]) == ("running", ["pcopy snapshot wave before"])
    assert not kept(host)


def of_whole_copies(host, act):
    """A snapshot as they were before disks were in a store: whole copies in its folder."""
    act(memory=True)
    place = kept(host)["before"]
    os.rename(disks(host)["before"] / "pgdata", place / "pgdata.img")
    disks(host)["before"].rmdir()
    record = json.loads((place / "snapshot.json").read_text())
    (place / "snapshot.json").write_text(json.dumps({**record, "disks": False}))


def test_going_back_begins_with_whole_copies_or_not_at_all(host, act):
    of_whole_copies(host, act)
    host.commands.clear()
    host.fails = ("cp layer.rollback",)
    (host.folder / "pgdata.img.rollback").write_text("a half")
    with pytest.raises(runtime.HandoverError, match="as the test wants it"):
        act("staged", memory=True)
    assert not (host.folder / "pgdata.img.rollback").exists()
    assert (host.state, [verb for verb, _state in host.commands]) == ("running", ["cp pgdata.img.rollback"])


def test_a_layer_that_cannot_be_removed(host, act, monkeypatch):
    act(memory=True)
    (host.folder / "layer.rollback").mkdir()
    host.commands.clear()

    def refuse(path):
        raise PermissionError(1, "Operation not permitted", path)

    monkeypatch.setattr(rollback.shutil, "rmtree", refuse)
    with pytest.raises(runtime.HandoverError, match="layer.rollback cannot be removed: Operation not permitted"):
        act("staged", memory=True)
    assert host.state == "running"


def test_nothing_is_put_in_place_under_a_container_that_runs(host, act):
    act()
    host.commands.clear()
    with pytest.raises(runtime.HandoverError, match="shop is running: stop it first"):
        act("placed")
    assert host.commands == []


def test_what_is_there_is_not_taken_again(host, act):
    act()
    host.commands.clear()
    assert not act()["changed"]
    assert host.commands == []


def test_check_mode_touches_nothing(host, act):
    assert act(check=True)["changed"]
    assert host.commands == []
    assert not kept(host)


def test_going_back(host, act):
    act()
    (host.folder / "pgdata.img").write_text("later")
    host.commands.clear()
    staged = act("staged")
    assert [volume["store"] for volume in staged["volumes"]] == [str(host.folder / "root" / ".disks" / "shop")]
    assert (host.folder / "pgdata.img").read_text() == "later"
    assert host.commands == [("podman stop shop", "running"), ("podman wait shop", "exited")]
    assert act("placed")["lines"] == ["pgdata: 21 MiB of 2 GiB written, and 5 MiB read to find them (by marks)"]
    host.found = {"how": "digests", "why": "the host was restarted"}
    (line,) = act("placed")["lines"]
    assert line.endswith("(by digests, as the host was restarted)")
    del host.commands[3:]
    assert (host.folder / "pgdata.img").read_text() == "data"
    assert host.commands[2:] == [("pcopy snapshot restore before", "exited")]
    act("restored")
    assert host.state == "running"


def test_going_back_keeps_what_is_there(host, act):
    act()
    (host.folder / "pgdata.img").write_text("later")
    act("staged", keep=True, track=True)
    assert host.tracked == "true"
    (undo,) = (name for name in kept(host) if name.startswith("undo-"))
    assert (disks(host)[undo] / "pgdata").read_text() == "later"
    # A volume that a restart of the host has not mounted is kept, too.
    (host.folder / "pgdata.img").write_text("later still")
    act("staged", keep=True, volumes=[])
    (again,) = (name for name in kept(host) if name.startswith("undo-") and name != undo)
    assert (disks(host)[again] / "pgdata").read_text() == "later still"
    # One that a rollback has left half written, or not at all, is no state to be kept.
    (host.folder / "pgdata.img").write_text("handover: a rollback of this disk was begun, and has not ended. Run it again.")
    act("staged", keep=True, volumes=[])
    (host.folder / "pgdata.img").rename(host.folder / "aside")
    assert rollback.is_half(str(host.folder / "pgdata.img"))
    assert len(kept(host)) == 3


def test_what_is_kept_has_a_name_of_its_own(host, act, monkeypatch):
    """The clock went back to the second of an earlier rollback."""
    monkeypatch.setattr(snapshots.time, "gmtime", lambda: time.struct_time((2026, 11, 26, 2, 30, 0, 3, 330, 0)))
    act()
    for text in ("first", "second"):
        (host.folder / "pgdata.img").write_text(text)
        act("staged", keep=True)
    names = ["undo-20261126T023000", "undo-20261126T023000-2"]
    assert [(disks(host)[name] / "pgdata").read_text() for name in names] == ["first", "second"]


def test_a_rollback_that_was_cut_off_is_run_again(host, act):
    """Its volume is not mounted; podman knows its place."""
    act()
    host.state = "exited"
    act("staged", volumes=[])
    host.mounts = []
    with pytest.raises(runtime.HandoverError, match="shop does not have the image volume"):
        act("staged", volumes=[])


@pytest.mark.parametrize("make", [lambda host, act: act(memory=True), of_whole_copies], ids=["in the store", "whole copies"])
def test_going_back_with_the_memory(host, act, make):
    make(host, act)
    (host.folder / "layer" / "late").write_text("x")
    (host.folder / "pgdata.img").write_text("later")
    shutil.rmtree(host.static / "checkpoint")
    act("staged", memory=True)
    assert (host.folder / "layer" / "late").exists()
    act("placed", memory=True)
    assert (host.static / "checkpoint" / "pages.img").read_text() == "memory"
    assert os.listdir(host.folder / "layer") == ["file"]
    assert (host.folder / "pgdata.img").read_text() == "data"
    assert not [path for path in host.folder.rglob("*") if "rollback" in path.name]
    act("restored", memory=True)
    assert host.commands[-1][0] == "podman container restore --tcp-established --file-locks shop"


def test_the_configuration_goes_along(host, act):
    act()
    assert json.loads(host.along) == {"name": "shop"}
    act(name="later", memory=True)
    for name in ("before", "later"):
        path = kept(host)[name] / "configuration.json"
        assert json.loads(path.read_text()) == {"name": "shop"}
        assert path.stat().st_mode & 0o077 == 0  # it may have secrets


def test_without_its_configuration_nothing_can_be_made_of_it(host, act):
    act(name="one", with_configuration=False)
    assert json.loads((kept(host)["one"] / "configuration.json").read_text()) == {}
    act("staged", name="one", keep=True, with_configuration=False)
    (undo,) = [name for name in kept(host) if name.startswith("undo-")]
    assert json.loads((kept(host)[undo] / "configuration.json").read_text()) == {"name": "shop"}, "what a way back keeps has everything"


@pytest.mark.parametrize("memory", [False, True])
def test_mounted_and_unmounted(host, act, memory):
    act(memory=memory)
    host.commands.clear()
    result = act("mounted")
    place = host.folder / "root" / ".mounted" / "shop" / "before" / "pgdata"
    assert result["changed"] and result["mountpoints"] == {"pgdata": str(place)}
    assert Path(str(place) + ".img").read_text() == "data"
    assert "mount -t ext4 -o ro,nodev,nosuid /dev/loop7 {0}".format(place) in [verb for verb, _state in host.commands]
    assert host.state == "running"
    assert not act("mounted")["changed"]
    with pytest.raises(runtime.HandoverError, match="the snapshot before is mounted below .*: unmount it first"):
        act("absent")
    assert act("unmounted")["changed"]
    assert not place.parent.exists()
    assert not act("unmounted")["changed"]
    assert act("absent")["changed"]


@pytest.mark.parametrize("state", ("mounted", "unmounted"))
def test_another_run_mounts_at_the_same_time(host, act, state):
    act()
    if state == "unmounted":
        act("mounted")
    there = list(host.mounted)
    with SnapshotMounts(str(host.folder / "root"), "shop").held(False):
        assert act(state, check=True)["changed"]
        with pytest.raises(runtime.HandoverError, match="another run mounts or unmounts copies of shop on this host: wait until it has ended"):
            act(state)
        assert not act("present")["changed"], "no work on the copies"
    assert host.mounted == there and act(state)["changed"]


def test_a_new_snapshot_is_mounted_with_its_own_files(host, act):
    """A restart of the host leaves the files of a mount: they go with the snapshot, or with the next of the name."""
    image = host.folder / "root/.mounted/shop/before/pgdata.img"
    act()
    act("mounted")
    host.mounted = []
    assert act("absent", check=True)["changed"] and image.exists()
    assert act("absent")["reasons"] == ["a mount of before has left files", "there is a snapshot before"]
    assert not image.exists() and not act("absent")["changed"]
    image.parent.mkdir()
    image.write_text("of a run that was killed")
    assert act("absent")["changed"] and not image.exists(), "without a snapshot, too"
    image.parent.mkdir()
    image.write_text("old")
    assert act(check=True)["changed"] and image.exists()
    act()
    act("mounted")
    assert image.read_text() == "data"


def test_files_that_are_still_mounted_are_in_the_way_of_a_new_snapshot(host, act):
    act()
    act("mounted")
    shutil.rmtree(host.folder / "root/shop/before")
    with pytest.raises(runtime.HandoverError, match="files of an earlier snapshot before are mounted below .*: unmount them first"):
        act()
    assert host.mounted and act("unmounted")["changed"] and act()["changed"]


def test_a_mount_that_fails_keeps_no_device(host, act):
    act()
    host.fails = ("mount -t",)
    with pytest.raises(runtime.HandoverError, match="as the test wants it"):
        act("mounted")
    assert host.commands[-1][0] == "losetup --detach /dev/loop7"
    host.fails = ("umount",)
    assert act("unmounted")["changed"]  # the file goes


def test_a_snapshot_in_use_stays_mounted(host, act, monkeypatch):
    act()
    act("mounted")
    monkeypatch.setattr(loop, "users_of_mount", lambda place, proc="/proc": [loop.Holder(12, "bash")])
    real = runtime.Runtime.run

    def busy(self, argv, accept=(0,), stdin=None, timeout=None):
        if os.path.basename(argv[0]) == "umount":
            return runtime.Completed(tuple(argv), 32, "", "target is busy")
        return real(self, argv, accept, stdin, timeout)

    monkeypatch.setattr(runtime.Runtime, "run", busy)
    with pytest.raises(runtime.HandoverError, match=r"pgdata could not be unmounted: it is in use by bash \(pid 12\): end that first"):
        act("unmounted")


def test_too_little_room_to_mount(host, act, monkeypatch):
    act()
    monkeypatch.setattr(one_snapshot.host, "free_space", lambda path: 0)
    with pytest.raises(runtime.HandoverError, match="the copy of shop takes .* is free in"):
        act("mounted")


def test_a_tracker_stays_if_asked(host, act):
    act()
    assert host.tracked == "false"
    act(name="later", track=True)
    assert host.tracked == "true"


@pytest.mark.parametrize(
    ("taken", "asked", "change", "sentence"),
    [
        ({}, {"name": "after"}, {}, "there is no snapshot after in .*: name one of before"),
        ({}, {"memory": True}, {}, "the snapshot before of shop has no memory: go back without it"),
        ({"memory": True}, {"memory": True}, {"identifier": "222"}, "the memory in the snapshot before is of an earlier container named shop"),
        ({}, {"volumes": []}, {"mounts": []}, "shop does not have the image volume .*pgdata.img any more, which the snapshot before is of"),
        ({}, {"name": "../x"}, {}, "name: '../x' is no name"),
    ],
)
def test_where_there_is_no_way_back(host, act, taken, asked, change, sentence):
    act(**taken)
    for key, value in change.items():
        setattr(host, key, value)
    host.commands.clear()
    with pytest.raises(runtime.HandoverError, match=sentence):
        act("staged", **asked)
    assert host.commands == []


def test_a_root_that_an_earlier_rollback_has_left_unmounted_is_known(host, act):
    act()
    (place,) = {volume["mountpoint"] for volume in act("staged")["volumes"]}
    host.mounts, host.rootfs = [], place
    assert act("staged", volumes=[])["volumes"]


@pytest.mark.parametrize(
    ("state", "params", "sentence"),
    [
        ("paused", {}, "shop is paused: start it or stop it first"),
        ("exited", {"memory": True}, "shop is exited: start it first"),
        ("running", {"memory": True, "configuration": UNIT}, "shop is run by shop.service, which would take its halt for its end .*: mend that, or take"),
        ("running", {"memory": True, "configuration": {"name": "shop", "auto_remove": True}}, r"shop is removed when it ends \(--rm\)"),
        ("running", {"volumes": []}, "shop has no volume to take a snapshot of"),
        ("running", {"workload": "other"}, "there is no container named other on this host"),
    ],
)
def test_what_cannot_be_taken(host, act, state, params, sentence):
    host.state = state
    with pytest.raises(runtime.HandoverError, match=sentence):
        act(**params)
    assert host.commands == []


def test_too_little_room(host, act, monkeypatch):
    monkeypatch.setattr(one_snapshot.host, "free_space", lambda path: 0)
    with pytest.raises(runtime.HandoverError, match="the copy of shop takes .*, and 0 .* is free in .*/root: free "):
        act()
    assert host.commands == []


def test_too_little_room_beside_the_images(host, act, monkeypatch):
    of_whole_copies(host, act)
    host.commands.clear()
    monkeypatch.setattr(one_snapshot.host, "free_space", lambda path: 0 if path == str(host.folder) else 2**40)
    with pytest.raises(runtime.HandoverError, match="the copy of shop takes .* is free in {0}: free ".format(host.folder)):
        act("staged")
    assert host.commands == []


def test_removed_and_listed(host, act):
    act()
    act(name="later")
    listed = snapshots.Snapshots(str(host.folder / "root"), "shop").all()
    assert sorted(each["name"] for each in listed) == ["before", "later"]
    assert act("absent")["changed"]
    assert not act("absent")["changed"]
    assert list(kept(host)) == list(disks(host)) == ["later"]


def from_a_repository(host, act):
    act(name="seed")
    os.makedirs(host.folder / "repository")
    os.rename(disks(host)["seed"], host.folder / "repository" / "0abc")
    (host.folder / "repository" / "store.json").write_text("{}")
    record = kept(host)["seed"] / "snapshot.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "store": str(host.folder / "repository"), "point": "0abc"}))
    host.commands.clear()


def test_a_backup_is_gone_back_to_from_its_repository(host, act):
    from_a_repository(host, act)
    (host.folder / "pgdata.img").write_text("later")
    act("staged", name="seed")
    act("placed", name="seed")
    assert (host.folder / "pgdata.img").read_text() == "data"
    assert "pcopy snapshot restore 0abc" in [verb for verb, _state in host.commands]
    assert act("absent", name="seed")["changed"]
    assert (host.folder / "repository" / "0abc").exists()


def test_a_repository_that_cannot_be_written_stops_nothing(host, act, monkeypatch):
    from_a_repository(host, act)
    (host.folder / "repository/.lock").touch()
    with open(host.folder / "repository/.lock", "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(runtime.HandoverError, match="another process works on .*repository, such as a backup: wait until it has ended"):
            act("staged", name="seed")

    def refuse(path, *mode):
        raise OSError(errno.EROFS, "Read-only file system", path)

    monkeypatch.setattr(disk_store, "open", refuse, raising=False)
    with pytest.raises(runtime.HandoverError, match=r"repository cannot be written \(Read-only file system\)"):
        act("staged", name="seed")
    assert (host.state, host.commands) == ("running", [])


def test_a_disk_that_was_grown_stops_nothing(host, act):
    """The helper writes a disk of the same size only, and finds that out when the container has been stopped."""
    host.size = 4
    act()
    act("staged")
    host.state = "running"
    host.commands.clear()
    (host.folder / "pgdata.img").write_text("data and more")
    with pytest.raises(runtime.HandoverError, match="the volume pgdata has 13 B now, and had 4 B at the snapshot: make a new container"):
        act("staged", keep=True)
    assert (host.state, host.commands) == ("running", [])
