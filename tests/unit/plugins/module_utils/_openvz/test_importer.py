# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps of an import, against a source and a podman that keep their state, and can lie about it."""

from __future__ import annotations

import os
import shlex
import struct

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import Completed, HandoverError
from ansible_collections.livefleet.handover.plugins.module_utils._openvz import disk, importer, second_look, unit
from ansible_collections.livefleet.handover.plugins.module_utils._openvz.importer import Importer


class World:
    """Both hosts, as the destination's commands see them. `lies` are verbs that end with 0 and do nothing."""

    def __init__(self):
        self.running, self.mounted, self.disabled, self.onboot = True, True, False, True
        self.container, self.up = False, False
        self.lies = set()
        self.clock, self.word = "1700000000", ""

    def remaining(self):
        return 100

    def find(self, tool):
        return None

    def tool(self, name, _package):
        return name

    def wait_for(self, condition, _seconds):
        return condition()

    def run(self, argv, accept=(0,), **_options):
        # ssh -F … source COMMAND
        words = shlex.split(argv[-1]) if argv[0] == "ssh" else list(argv)
        name = " ".join(words[:2])
        said = self.answer(words, name in self.lies)
        done = Completed(tuple(argv), said, "", "") if isinstance(said, int) else Completed(tuple(argv), 0, said, "")
        if done.rc not in accept:
            raise HandoverError(f"{name} failed")
        return done

    def answer(self, words, lie):
        both = self.running and (self.up or self.container)
        assert not both, "it runs on both hosts"
        tool, verb = words[0], words[1] if len(words) > 1 else ""
        if tool == "vzctl":
            if verb == "status":
                return f"CTID 101 exist {'mounted' if self.mounted else 'unmounted'} {'running' if self.running else 'down'} {self.word}"
            if lie:
                return ""
            if verb == "stop" and not self.running:
                return 31
            if verb == "stop":
                self.running = self.mounted = False
            elif verb == "start":
                assert not self.disabled
                self.running = self.mounted = True
            elif verb == "umount":
                self.mounted = False
            elif verb == "set":
                if "--disabled" in words:
                    self.disabled = words[words.index("--disabled") + 1] == "yes"
                if "--onboot" in words:
                    self.onboot = words[words.index("--onboot") + 1] == "yes"
            return ""
        if tool == "date":
            return self.clock
        if tool == "grep":
            return 0 if self.disabled else 1
        if tool == "podman":
            if words[1:3] == ["container", "exists"]:
                return 0 if self.container else 1
            if words[1:3] == ["container", "inspect"]:
                return {"{{.State.Pid}}": "1" if self.up else "0", "{{.State.Status}}": "exited"}.get(words[4], "120 /run/shop.pid")
            if not lie:
                self.container = verb == "create" if verb in ("create", "rm") else self.container
            return ""
        if tool == "systemctl" and verb in ("start", "disable") and not lie:
            self.up = verb == "start"
        if tool == "sh":
            return "@root path /mnt\n@root init /lib/systemd/systemd\n@root has tmp\n@root systemd 252\n"
        return ""


PLAN = {
    "id": "101", "host": "old1 7", "name": "shop", "layout": "simfs", "private": "/vz/private/101", "running": True, "onboot": True,
    "boot_order": 5, "disabled": False,
    "options": ["--hostname=shop"], "interfaces": [],
}  # fmt: skip
OFFER = {"cgroup": 2, "vsyscall": True}


@pytest.fixture(name="world")
def some_world(monkeypatch, tmp_path):
    monkeypatch.setattr(importer, "ROOT", str(tmp_path / "import"))
    monkeypatch.setattr(unit, "FOLDER", str(tmp_path))
    world = World()
    world.plan = {**PLAN, "mountpoint": str(tmp_path / "mnt")}
    (tmp_path / "mnt").mkdir()
    world.step = lambda name, *arguments: getattr(Importer(world, world.plan), name)(*arguments)
    world.start = lambda: world.step("start", OFFER, [], 0, 1)
    return world


def test_an_import_and_its_way_back(world):
    world.step("begin")
    assert world.running and not world.disabled
    assert set(world.step("stop")) == {"stop_s", "second_pass_s"}
    assert (world.running, world.mounted, world.disabled, world.onboot) == (False, False, True, False)
    result = world.start()
    assert world.up and result["downtime_s"] >= 0
    assert importer.read_record("shop")["state"] == importer.IMPORTED and importer.find_record("101", "old1 7")[0] == "shop"
    world.step("undo")
    assert (world.container, world.up, world.running, world.disabled, world.onboot) == (False, False, True, False, True)
    assert importer.read_record("shop")["state"] == importer.BEGUN


def test_one_that_has_moved_on_is_not_started_on_the_source(world):
    world.step("begin")
    world.step("stop")
    world.start()
    world.container = world.up = False
    with pytest.raises(HandoverError, match="shop is not on this host any more, and may run on another that it was moved to: move it back here first"):
        world.step("undo")
    assert not world.running and world.disabled
    assert importer.read_record("shop")["state"] == importer.IMPORTED


def test_a_way_back_that_was_cut_off_goes_on(world):
    world.step("begin")
    world.step("stop")
    world.start()
    world.lies = {"vzctl start"}
    with pytest.raises(HandoverError):
        world.step("undo")
    assert not world.container and not world.running
    world.lies = set()
    world.step("undo")
    assert world.running and importer.read_record("shop")["undoing"] is False


def test_other_hosts_have_containers_of_the_same_id(world):
    world.step("begin")
    assert importer.find_record("101", "old2 7") == ("", {})
    world.plan["host"] = "old2 7"
    for step in ("begin", "stop", "undo"):
        with pytest.raises(HandoverError, match="shop here is container 101 of another host: give another name in import_openvz_name"):
            world.step(step)


def test_the_volume_of_an_attempt_that_did_not_begin_is_in_nobody_s_way(world):
    world.step("undo")
    assert importer.find_record("101", "old1 7")[0] == "shop"


def test_a_volume_that_the_container_has_run_on_is_kept(world, tmp_path):
    image = tmp_path / "shop.img"
    world.plan.update(image=str(image), layout="ploop")
    image.write_text("never ran", encoding="utf-8")
    assert world.step("clear") == {} and not image.exists()
    world.plan["layout"] = "simfs"
    image.write_text("half a copy", encoding="utf-8")
    assert world.step("clear") == {} and image.exists()
    world.step("begin")
    world.step("stop")
    world.start()
    world.step("undo")
    kept = world.step("clear")["kept"]
    assert not image.exists() and kept.startswith(str(image) + ".2")
    image.write_text("another", encoding="utf-8")
    assert world.step("clear") == {}


def test_a_stopped_one_stays_stopped_there_and_back(world):
    world.running = world.mounted = False
    world.plan.update(running=False, onboot=False)
    world.step("begin")
    world.step("stop")
    assert "downtime_s" not in world.start()
    assert world.container and not world.up
    world.step("undo")
    assert not world.running and not world.disabled and not world.onboot


@pytest.mark.parametrize("running", [False, True])
def test_one_that_was_disabled_before_is_so_again(world, running):
    world.running = world.mounted = running
    world.disabled = True
    world.plan.update(running=running, onboot=True, disabled=True)
    for step in ("begin", "stop"):
        world.step(step)
    world.start()
    world.step("undo")
    assert world.disabled and world.onboot and world.running == running


def test_one_that_is_started_during_the_first_copy_runs_here_and_there_again(world):
    world.running = False
    world.plan["running"] = False
    world.step("begin")
    world.running = world.mounted = True
    world.step("stop")
    world.start()
    assert world.up and not world.running
    world.step("undo")
    assert world.running


def test_one_that_is_suspended_during_the_first_copy_is_left_alone(world):
    world.step("begin")
    world.word = "suspended"
    with pytest.raises(HandoverError, match="101 was suspended meanwhile, and its memory cannot come along"):
        world.step("stop")
    assert not world.disabled and importer.read_record("shop")["state"] == importer.BEGUN


def test_the_volume_of_one_that_came_stopped_is_kept_too(world, tmp_path):
    """It may have been started by hand since then."""
    image = tmp_path / "shop.img"
    world.running = world.mounted = False
    world.plan.update(image=str(image), running=False)
    for step in ("begin", "stop"):
        world.step(step)
    world.start()
    world.step("undo")
    image.write_text("weeks of data", encoding="utf-8")
    world.plan["layout"] = "ploop"
    assert world.step("clear")["kept"].startswith(str(image) + ".2")


def test_a_word_of_its_own_for_the_boot_is_that_again(world):
    said, run = [], world.run
    world.run = lambda argv, *rest, **more: said.append(argv[-1]) or run(argv, *rest, **more)
    world.plan["onboot"] = "auto"
    for step in ("begin", "stop", "undo"):
        world.step(step)
    assert "vzctl set 101 --disabled no --onboot auto --save" in said


@pytest.mark.parametrize(
    ("lie", "says"),
    [
        ("vzctl stop", "vzctl stop has ended, and 101 still runs"),
        ("vzctl set", "vzctl set --disabled yes has ended, and 101 may still be started"),
    ],
)
def test_a_source_that_lies_is_found_and_nothing_starts_here(world, lie, says):
    world.lies = {lie}
    world.step("begin")
    with pytest.raises(HandoverError, match=says):
        world.step("stop")
    world.lies = set()
    world.step("undo")
    assert world.running and not world.disabled and not world.container


def test_it_starts_at_boot_only_once_it_has_run_here(world):
    """It waits for that no longer than it has to, and a host that restarts before has an import that is not at its end."""
    said, run = [], world.run
    world.run = lambda argv, *rest, **more: said.append(list(argv)) or run(argv, *rest, **more)
    for step in ("begin", "stop"):
        world.step(step)
    world.start()
    own = unit.name_of("shop")
    assert [words[1:] for words in said if words[0] == "systemctl"] == [["daemon-reload"], ["start", own], ["enable", own]]


def test_nobody_starts_it_between_the_stop_and_the_lock(world):
    run = world.run

    def cron(argv, *rest, **more):
        done = run(argv, *rest, **more)
        if argv[-1] == "vzctl stop 101" and not world.disabled:
            world.running = world.mounted = True
        return done

    world.run = cron
    world.step("begin")
    world.step("stop")
    assert not world.running


def test_one_that_stays_mounted_there_is_refused(world):
    world.step("begin")
    world.running = False
    world.lies = {"vzctl umount"}
    with pytest.raises(HandoverError, match="still mounted on the source"):
        world.step("stop")


def test_the_source_stays_locked_until_the_container_is_gone_here(world):
    world.step("begin")
    world.step("stop")
    world.start()
    world.lies = {"podman rm"}
    with pytest.raises(HandoverError, match="it stays stopped on the source until it is gone here"):
        world.step("undo")
    assert world.disabled and not world.running


def test_a_source_that_does_not_start_again_is_said(world):
    world.step("begin")
    world.step("stop")
    world.lies = {"vzctl start"}
    with pytest.raises(HandoverError, match="vzctl start has ended, and 101 does not run on the source"):
        world.step("undo")


@pytest.mark.parametrize(("rc", "last", "fails"), [(0, True, False), (24, False, False), (24, True, True), (23, False, True)])
def test_files_may_go_away_before_the_last_pass_only(world, rc, last, fails):
    run = world.run
    world.run = lambda argv, accept=(0,), **more: Completed(tuple(argv), rc, "", "x") if argv[0] == "rsync" else run(argv, accept, **more)
    try:
        Importer(world, world.plan)._copy(last)
        failed = False
    except HandoverError as exc:
        failed = "could not be copied from the source" in str(exc)
    assert failed == fails


@pytest.mark.parametrize(("last", "compares"), [(False, False), (True, True)])
def test_the_last_pass_believes_no_time_of_an_image(world, last, compares):
    asked, run = [], world.run
    world.run = lambda argv, *rest, **more: asked.append(argv) or run(argv, *rest, **more)
    world.plan["layout"] = "ploop"
    Importer(world, world.plan)._copy(last)
    assert [("--ignore-times" in argv, "--inplace" in argv) for argv in asked if argv[0] == "rsync"] == [(compares, True)]


def test_files_of_the_time_of_the_first_pass_are_compared_in_the_last(world, tmp_path):
    root = tmp_path / "mnt"
    (root / "var").mkdir()
    (tmp_path / "outside").write_text("", encoding="utf-8")
    for name, when in (("old", 9000), ("var/mapped", 9950), ("var/busy", 10000)):
        (root / name).write_text("", encoding="utf-8")
        os.utime(root / name, (when, when))
    os.utime(tmp_path / "outside", (10000, 10000))
    (root / "link").symlink_to(tmp_path / "outside")
    world.clock = "10000\n"
    world.step("begin")
    assert [(root / name).stat().st_mtime for name in ("old", "var/mapped", "var/busy")] == [9000, 0, 0]
    assert (tmp_path / "outside").stat().st_mtime == 10000
    world.step("stop")
    assert (root / "old").stat().st_mtime == 9000


def test_a_clock_that_tells_nothing_has_all_compared():
    assert [second_look.clock(each) for each in ("welcome\n1700000000\n", "", "date: no")] == [1700000000.0, 0.0, 0.0]


def test_a_container_that_does_not_come_up_is_said(world):
    world.step("begin")
    world.step("stop")
    world.lies = {"systemctl start"}
    with pytest.raises(HandoverError, match="shop was started and is exited after 1 s: see podman logs shop"):
        world.start()


def test_a_root_that_cannot_come_up_here_is_refused_unless_ignored(world):
    world.step("begin")
    world.step("stop")
    with pytest.raises(HandoverError, match=r"\(cgroup\): systemd 219"):
        _old(world).start(OFFER, [], 0, 1)
    assert not world.container
    _old(world).start(OFFER, ["(cgroup)"], 0, 1)
    assert world.container


def _old(world):
    found = Importer(world, world.plan)
    found.look = lambda: {"path": "/mnt", "init": "/lib/systemd/systemd", "has": [], "systemd": 219, "glibc": "2.17", "release": ""}
    return found


def test_the_greatest_order_starts_first(tmp_path):
    for name, order in (("a", 20), ("b", 1)):
        (tmp_path / unit.name_of(name)).write_text(unit.text(name, "1", order, {}, mountpoint="/m", podman="podman", pid_file="/p", stop=1), encoding="utf-8")
    (tmp_path / "container-other.service").write_text("[Unit]\n", encoding="utf-8")
    said = unit.text("c", "103", 10, unit.orders(str(tmp_path)), mountpoint="/mnt/c", podman="/usr/bin/podman", pid_file="/run/pid", stop=150)
    assert "\nAfter=network-online.target container-a.service\nBefore=container-b.service\nRequiresMountsFor=/mnt/c\n" in said
    assert "Restart=no\nRestartForceExitStatus=129\n" in said


def gpt(*partitions, size=1 << 20):
    """A disk with a partition table as ploop makes it."""
    found = bytearray(size)
    found[512:520] = b"EFI PART"
    struct.pack_into("<QII", found, 512 + 72, 2, 128, 128)
    for index, (first, last) in enumerate(partitions):
        struct.pack_into("<16s16sQQ", found, 1024 + index * 128, b"x" * 16, b"y" * 16, first, last)
    return found


def on_disk(tmp_path, content):
    path = tmp_path / "disk"
    path.write_bytes(content)
    return path


def test_the_file_system_of_a_disk_is_found(tmp_path):
    content = gpt((256, 1023))
    content[256 * 512 + 1080 : 256 * 512 + 1082] = b"\x53\xef"
    with open(on_disk(tmp_path, content), "rb") as file:
        assert disk.filesystem_in(file, len(content)) == (256 * 512, 768 * 512, "ext4")
    plain = bytearray(8192)
    plain[:4] = b"XFSB"
    with open(on_disk(tmp_path, plain), "rb") as file:
        assert disk.filesystem_in(file, 8192) == (0, 8192, "xfs")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (gpt(), "has 0 partitions"),
        (gpt((256, 300), (400, 500)), "has 2 partitions"),
        (gpt((256, 300)), "neither ext4 nor xfs"),
        (bytes(4096), "neither a file system nor a partition table"),
    ],
)
def test_a_disk_that_is_none_of_a_container_s_is_refused(tmp_path, content, says):
    with open(on_disk(tmp_path, content), "rb") as file, pytest.raises(HandoverError, match=says):
        disk.filesystem_in(file, len(content))
