# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The commands of a live move of a directory container of libvzctl's, on a host in a folder. CRIU is that of test_turn_criu.py."""

from __future__ import annotations

import fcntl
import os
import pathlib
import shutil
import signal

import pytest
from ansible_collections.livefleet.handover.tests.unit.plugins.module_utils._openvz.driver import conftest
from ansible_collections.livefleet.handover.tests.unit.plugins.module_utils._openvz.driver.test_turn_criu import (
    by_criu,
    criu_of,
    nothing_left,
    stands_still,
    until,
)

UP, PAUSED, DOWN, NONE = (f"VEID 101 {words}" for words in ("exist mounted running", "exist mounted paused", "exist unmounted down", "deleted unmounted down"))


@pytest.fixture(name="libvzctl")
def host_of_libvzctl(openvz_host):
    for host in by_criu(openvz_host, "libvzctl", "machine.slice/101"):
        host.area = conftest.newer(host, owner="node2")
        assert host.call(host.root / "bin/vzctl", "register", host.area, "101").returncode == 0
        yield host


def beats(host):
    path = host.area / "var/log/beat"
    return len(path.read_text(encoding="utf-8").split()) if path.exists() else 0


def live(host):
    assert host.turn("home", "101") == (0, "")
    until(lambda: beats(host) > 3)
    return host.root / "dump" / "handover.101"


def dumped(host):
    dump = live(host)
    assert host.turn("libvzctl-dump", "101", dump) == (0, "")
    return dump


def arrives(host, dump):
    """What was held here is gone, and all of it has come to another host: this one again."""
    kept = host.root / "kept"
    shutil.copytree(dump, kept)
    assert host.turn("kill", "101", dump) == (0, "")
    assert host.call(host.root / "bin/vzctl", "unregister", "101").returncode == 0
    kept.rename(dump)
    (host.staged / "101" / "conf").mkdir(parents=True)
    for name, text in (("root", ""), ("name", "shop"), ("private", host.area), ("dump", dump)):
        (host.staged / "101" / name).write_text(f"{text}\n", encoding="utf-8")
    (host.root / "asked").unlink(missing_ok=True)


def restored(host):
    dump = dumped(host)
    arrives(host, dump)
    assert host.turn("libvzctl-restore", "101") == (0, "")
    return dump


def log(host):
    return (host.state / "log").read_text(encoding="utf-8")


def first_of(host):
    return int((host.state / "101.pid").read_text(encoding="utf-8"))


def end_tasks(host):
    os.kill(first_of(host), signal.SIGKILL)
    until(lambda: host.status().endswith(" down"))


def test_it_is_dumped_held_and_goes_on(libvzctl):
    host, dump = libvzctl, live(libvzctl)
    for _again in range(2):
        assert host.turn("libvzctl-dump", "101", dump) == (0, "")
        assert (dump / "inventory.img").exists() and stands_still(host)
        assert sorted(path.name for path in dump.parent.iterdir()) == ["handover.101", "handover.101.criu"]
        # libvzctl's own script was asked before the gate: what it has written is in the dump.
        assert (dump / "vz_core_pattern.img").exists() and host.turn("still", "101")[0] == 0
        # A freezer keeps it, and no vzctl lets it go.
        assert host.status() == PAUSED
        for verb in ("start", "stop", "chkpnt"):
            assert host.call(host.root / "bin/vzctl", verb, "101").returncode == 9
        assert stands_still(host)
        for _once_more in range(2):
            assert host.turn("home", "101", dump) == (0, "")
            assert not stands_still(host) and nothing_left(host) and host.status() == UP
    assert "restore" not in log(host)


def test_what_is_held_is_ended_and_vzctl_comes_to_its_end(libvzctl):
    dump = live(libvzctl)
    assert libvzctl.turn("kill", "101", dump) == (1, "101 runs here, and is not removed\n")
    libvzctl.turn("libvzctl-dump", "101", dump)
    # The words of vzctl, which are removed with all the rest.
    (libvzctl.root / "words").hardlink_to(libvzctl.root / "turns" / "101.said")
    for _again in range(2):
        assert libvzctl.turn("kill", "101", dump) == (0, "")
        assert libvzctl.status() == DOWN and nothing_left(libvzctl)
    # It has unmounted it itself, and the addresses of the host with that.
    assert "Checkpointing finished" in (libvzctl.root / "words").read_text(encoding="utf-8") and "umount" not in log(libvzctl)


@pytest.mark.parametrize("word", ["kill", "home"])
def test_a_criu_that_is_killed_leaves_it_frozen(libvzctl, word):
    dump = dumped(libvzctl)
    os.kill(criu_of(libvzctl), signal.SIGKILL)
    until(lambda: "Failed to checkpoint" in (libvzctl.root / "turns" / "101.said").read_text(encoding="utf-8"))
    # libvzctl has found nothing to give the name of a failed dump.
    assert (dump / "inventory.img").exists() and libvzctl.turn("still", "101")[0] == 0 and libvzctl.status() == PAUSED
    if word == "home":
        os.kill(first_of(libvzctl), signal.SIGCONT)
    assert libvzctl.turn(word, "101", dump) == (0, "") and nothing_left(libvzctl)
    assert libvzctl.status() == (UP if word == "home" else DOWN)


def test_a_dump_that_nothing_held_is_its_memory_and_is_restored(libvzctl):
    host, dump = libvzctl, live(libvzctl)
    (host.root / "no-script").touch()
    status, said = host.turn("libvzctl-dump", "101", dump)
    assert status == 1 and "and CRIU was not held: is its action script named in /etc/criu/default.conf?" in said
    place = dump.parent / "handover.101.vzctl"
    assert host.status() == DOWN and (place / "inventory.img").exists()
    starts = log(host).count("start 101")
    assert host.turn("home", "101", dump) == (0, "")
    assert not stands_still(host) and nothing_left(host) and log(host).count("start 101") == starts
    assert f"restore 101 --dumpfile {place}" in log(host)


def test_a_dump_of_which_it_is_not_known_that_it_is_whole_is_not_restored(libvzctl):
    """libvzctl gives a dump its name when CRIU has ended well. One that still has the other may be older than the files."""
    host, dump = libvzctl, live(libvzctl)
    (host.root / "no-script").touch()
    assert host.turn("libvzctl-dump", "101", dump)[0] == 1
    place = dump.parent / "handover.101.vzctl"
    place.rename(f"{place}.tmp")
    starts = log(host).count("start 101")
    assert host.turn("home", "101", dump) == (0, "") and nothing_left(host) and log(host).count("start 101") == starts + 1


@pytest.mark.parametrize("ended", ["before it ran", "after it ran"])
def test_one_that_ended_while_it_was_held_goes_on_from_its_dump_once(libvzctl, ended):
    host, dump = libvzctl, dumped(libvzctl)
    end_tasks(host)
    starts = log(host).count("start 101")
    words = host.root / "bin/of-criu"
    text = words.read_text(encoding="utf-8")
    # The word is cut when the restore has begun, or when it has ended.
    point = "    on_images restore\n    await_home\n"
    assert point in text
    host.program("of-criu", text.replace(point, point.replace("    await_home\n", "    exit 9\n") if ended == "before it ran" else f"{point}    exit 9\n"))
    assert host.turn("home", "101", dump)[0] == 9
    if ended == "after it ran":
        until(lambda: not stands_still(host))
        end_tasks(host)
    host.program("of-criu", text)
    assert host.turn("home", "101", dump) == (0, "")
    assert not stands_still(host) and nothing_left(host)
    # It was restored once. What has run since is not in its dump.
    assert log(host).count("restore 101") == 1 and log(host).count("start 101") == starts + (ended == "after it ran")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda host, dump: (host.root / "criu-fails").touch(), "Failed to checkpoint the Container"),
        (lambda host, dump: (host.state / "FAULT").write_text("chkpnt", encoding="utf-8"), "and CRIU was not held"),
        # That of vzctl 4 is another container's here.
        (lambda host, dump: (host.root / "cgroup").write_text("6:freezer:/vz-101\n", encoding="utf-8"), "are in no freezer of their own"),
        (lambda host, dump: (host.root / "cgroup").write_text("0::/machine.slice/101\n", encoding="utf-8"), "are in no freezer of their own"),
        (lambda host, dump: (dump.parent / "handover.101.vzctl").mkdir(parents=True), "it was suspended meanwhile"),
    ],
)
def test_a_dump_that_does_not_hold_it_is_undone(libvzctl, spoil, says):
    dump = live(libvzctl)
    spoil(libvzctl, dump)
    status, said = libvzctl.turn("libvzctl-dump", "101", dump)
    assert status == 1 and says in said
    (libvzctl.state / "FAULT").unlink(missing_ok=True)
    assert libvzctl.turn("home", "101", dump) == (0, "") and not stands_still(libvzctl) and libvzctl.status() == UP


def test_it_is_restored_held_and_goes_on(libvzctl):
    host, dump = libvzctl, restored(libvzctl)
    # The gate is told that nothing runs of what it lets through.
    assert host.asked() == '{"bundle": "/run/handover/openvz/101"}\n internal oci-hook --restores\n'
    assert host.status() == UP and stands_still(host) and host.turn("still", "101")[0] == 0
    assert (host.state / "101.actions").read_text(encoding="utf-8").split()[-1] == "post-restore"
    for verb in ("stop", "start", "chkpnt"):
        assert host.call(host.root / "bin/vzctl", verb, "101").returncode == 9
    # Nobody gets into it, until it runs.
    for verb in ("exec", "exec2", "enter"):
        assert enters(host, verb) == (8, False)
    # Nothing restores it twice, and nothing takes it for a suspended one.
    assert not list(dump.parent.glob("*/inventory.img")) and not (host.area / "dump").exists()
    for _again in range(2):
        assert host.turn("resume", "101") == (0, "")
        assert not stands_still(host) and nothing_left(host) and not (host.staged / "101").exists()
    assert (host.area / ".owner").read_text(encoding="utf-8") == "node2" and enters(host) == (0, True)


def enters(host, verb="exec"):
    """The status of a command in the container, and whether it has run."""
    mark = host.root / "entered"
    status = host.call(host.root / "bin/vzctl", verb, "101", "touch", mark).returncode
    return status, mark.exists()


def test_nobody_gets_into_it_while_it_is_held_here(libvzctl):
    """By libvzctl's own lock, and that of a CRIU that was killed is gone: then its freezer keeps who enters."""
    dumped(libvzctl)
    assert enters(libvzctl) == (8, False)


def test_one_whose_entry_cannot_be_locked_is_not_restored(libvzctl):
    host, dump = libvzctl, dumped(libvzctl)
    arrives(host, dump)
    with (host.root / "entry" / "101-enter.lck").open("w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        status, said = host.turn("libvzctl-restore", "101")
        assert status == 1 and "the entry of 101 cannot be locked, and a command could run in it before the release" in said
        assert host.status() == NONE and host.asked() == ""
    assert host.turn("discard", "101") == (0, "") and nothing_left(host)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda host, dump: (host.root / "criu-fails").touch(), "The restore log was saved in"),
        (lambda host, dump: [(host.root / "criu-fails").touch(), (host.state / "FAULT").write_text("restore fails", encoding="utf-8")], "has ended, or holds"),
        (lambda host, dump: (host.root / "no-script").touch(), "has ended, or holds nothing"),
        (lambda host, dump: host.helper(False), "Error executing premount script"),
        (lambda host, dump: (host.state / "FAULT").write_text("restore", encoding="utf-8"), "exist unmounted down"),
        (lambda host, dump: (host.state / "FAULT").write_text("register", encoding="utf-8"), "vzctl register"),
        (lambda host, dump: (dump / "inventory.img").unlink(), "no dump of 101 has come"),
    ],
)
def test_a_restore_that_does_not_hold_it_is_taken_back(libvzctl, spoil, says):
    dump = dumped(libvzctl)
    arrives(libvzctl, dump)
    spoil(libvzctl, dump)
    status, said = libvzctl.turn("libvzctl-restore", "101")
    assert status == 1 and says in said
    # Whatever it was, nothing runs here: the source's copy will.
    assert "running" not in libvzctl.status()
    assert libvzctl.turn("discard", "101") == (0, "") and libvzctl.status() == NONE and nothing_left(libvzctl)


def test_what_is_held_is_taken_back(libvzctl):
    restored(libvzctl)
    for _again in range(2):
        assert libvzctl.turn("discard", "101") == (0, "")
        assert libvzctl.status() == NONE and nothing_left(libvzctl)


@pytest.mark.parametrize("word", ["resume", "start", "discard", "has run"])
def test_a_criu_that_is_killed_while_it_holds_a_restore(libvzctl, word):
    """libvzctl ends the tasks that it has left, and its dump is its memory still."""
    host, dump = libvzctl, restored(libvzctl)
    first, starts = first_of(host), log(host).count("start 101")
    os.kill(criu_of(host), signal.SIGKILL)
    until(lambda: host.status() == DOWN)
    assert host.turn("still", "101")[0] == 1
    until(lambda: not pathlib.Path(f"/proc/{first}").exists() or " Z " in pathlib.Path(f"/proc/{first}/stat").read_text(encoding="utf-8"))
    place = dump.parent / "handover.101.vzctl"
    (place / ".criu.cgyard.X").mkdir()
    if word == "has run":
        (host.root / "turns" / "101.ran").touch()
        (host.root / "turns" / "101.answer").write_text("go\n", encoding="utf-8")
        status, said = host.turn("resume", "101")
        assert status == 1 and "and CRIU has not let it run" in said and (host.staged / "101").is_dir()
        return
    assert host.turn(word, "101") == (0, "")
    if word == "discard":
        assert host.status() == NONE
        return
    assert not stands_still(host) and nothing_left(host) and log(host).count("start 101") == starts


def test_a_container_that_is_said_to_run_is_believed_by_criu_s_end_alone(libvzctl):
    """vzctl has ended with 0 and says that it runs, and CRIU has not come to its end."""
    stand_in = libvzctl.root / "bin/vzctl-libvzctl"
    libvzctl.program(stand_in.name, stand_in.read_text(encoding="utf-8").replace("    kept.mkdir(exist_ok=True)\n", "    return 0\n"))
    restored(libvzctl)
    status, said = libvzctl.turn("resume", "101")
    assert status == 1 and "and the container is: exist mounted running, and CRIU has not let it run" in said
    assert (libvzctl.staged / "101").is_dir()


def test_logs_of_a_restore_before_are_no_end_of_this_one(libvzctl):
    dump = dumped(libvzctl)
    arrives(libvzctl, dump)
    (dump.parent / "handover.101.vzctl.restore").mkdir()
    assert libvzctl.turn("libvzctl-restore", "101") == (0, "")
    assert not (dump.parent / "handover.101.vzctl.restore").exists()
