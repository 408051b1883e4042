# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The commands of a live move where CRIU dumps and restores, as the helper and vzctl of a stock kernel run them, on a host in a folder.

CRIU is one that stops its process, calls the action script and believes it. That tasks really go on from their dump is for molecule/openvz-hosts.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest

FILES = pathlib.Path(__file__).parents[6] / "roles" / "pcopy" / "files"
CRIU = """
import os, pathlib, signal, subprocess, sys, time
root = pathlib.Path({root!r})
words = dict(zip(sys.argv[2:], sys.argv[3:]), **dict(word.split("=", 1) for word in sys.argv if "=" in word and word.startswith("--")))
images = pathlib.Path(words["--images-dir"])
if (root / "criu-fails").exists():
    sys.exit(1)

def asks(action, first):
    if (root / "no-script").exists():
        return True
    environment = {{**os.environ, "CRTOOLS_SCRIPT_ACTION": action, "CRTOOLS_IMAGE_DIR": str(images), "CRTOOLS_INIT_PID": str(first)}}
    # With status 3 in an answer that is not asked for: other steps are nothing to the script.
    assert subprocess.run([root / "bin/criu-gate"], env={{**environment, "CRTOOLS_SCRIPT_ACTION": "pre-dump"}}).returncode == 0
    # One of the command line is asked before that of the configuration.
    if "--action-script" in words:
        subprocess.run([words["--action-script"]], env=environment, check=True)
    return subprocess.run([root / "bin/criu-gate"], env=environment).returncode == 0

if sys.argv[1] == "dump":
    first = int(words["--tree"])
    os.kill(first, signal.SIGSTOP)
    (root / "status").write_text(f"State:\\tt (tracing stop)\\nTracerPid:\\t{{os.getpid()}}\\n")
    (images / "memory").write_bytes(pathlib.Path("/proc", str(first), "cmdline").read_bytes())
    (images / "inventory.img").write_text("whole")
    goes = asks("post-dump", first)
    os.kill(first, signal.SIGKILL if goes else signal.SIGCONT)
    sys.exit(not goes)
(images / "inventory.img").read_text()
argv = (images / "memory").read_bytes().split(bytes(1))[:-1]
null = subprocess.DEVNULL
child = subprocess.Popen(argv, start_new_session=True, stdin=null, stdout=null, stderr=null).pid
time.sleep(0.1)
os.kill(child, signal.SIGSTOP)
with open(next((root / "freezer").rglob("cgroup.procs")), "a") as procs:
    procs.write(f"{{child}}\\n")
pathlib.Path(words["--pidfile"]).write_text(str(child))
if not asks("post-restore", child):
    os.kill(child, signal.SIGKILL)
    sys.exit(1)
os.kill(child, signal.SIGCONT)
"""


@pytest.fixture(name="stock")
def stock_host(openvz_host):
    """Its kernel is not OpenVZ's. A folder stands for its freezer, which freezes nothing: the CRIU here has stopped the process."""
    yield from by_criu(openvz_host, "stock", "vz-101")


def by_criu(host, kernel, group):
    (host.state / "KERNEL").write_text(kernel, encoding="utf-8")
    (host.state / "FREEZER").write_text(str(host.root / "freezer"), encoding="utf-8")
    host.program("criu", f"#!{sys.executable}\n" + CRIU.format(root=str(host.root)))
    for name in ("vzctl_stock", "vzctl_libvzctl"):
        stand_in = (FILES.parents[2] / f"tests/openvz/{name}.py").read_text(encoding="utf-8")
        host.program(name.replace("_", "-"), f"#!{sys.executable}\n" + host.moved(stand_in))
    words = host.moved((FILES / "openvz-criu").read_text(encoding="utf-8"))
    for path, name in (('"/proc/$1/cgroup"', "cgroup"), ("/proc/self/mountinfo", "mountinfo"), ('"/proc/$pid/status"', "status")):
        words = words.replace(path, str(host.root / name))
    host.program("of-criu", words)
    (host.root / "cgroup").write_text(f"6:freezer:/{group}\n1:name=systemd:/\n", encoding="utf-8")
    (host.root / "mountinfo").write_text(f"30 20 0:30 / {host.root}/freezer rw,relatime shared:9 - cgroup cgroup rw,freezer\n", encoding="utf-8")
    yield host
    # None of its scripts waits on.
    (host.root / "turns").mkdir(exist_ok=True)
    (host.root / "turns" / "101.answer").write_text("no\n", encoding="utf-8")
    # Nor does a process that no vzctl knows any more.
    for each in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            left = f"{host.state}/101.witness".encode() in (each / "cmdline").read_bytes()
        except OSError:
            continue
        if left:
            os.kill(int(each.name), signal.SIGKILL)


def beats(host):
    path = host.root / "vz/private/101/var/log/beat"
    return len(path.read_text(encoding="utf-8").split()) if path.exists() else 0


def until(holds):
    for _each in range(500):
        if holds():
            return
        time.sleep(0.02)
    raise AssertionError("it has not come about")


def stands_still(host):
    before = beats(host)
    time.sleep(0.4)
    return beats(host) == before


def live(host):
    host.have()
    assert host.turn("home", "101") == (0, "")
    until(lambda: beats(host) > 3)
    return host.root / "dump" / "handover.101"


def arrives(host, dump):
    """What was held here is gone, and all of it has come to another host: this one again."""
    kept = host.root / "kept"
    shutil.copytree(dump, kept)
    assert host.turn("kill", "101", dump) == (0, "")
    kept.rename(dump)
    (host.staged / "101" / "conf").mkdir(parents=True)
    (host.conf / "101.conf").rename(host.staged / "101" / "conf" / "101.conf")
    for name, text in (("root", f"{host.root}/vz/root/101"), ("name", "shop"), ("dump", dump)):
        (host.staged / "101" / name).write_text(f"{text}\n", encoding="utf-8")
    (host.root / "asked").unlink(missing_ok=True)


def dumped(host):
    dump = live(host)
    assert host.turn("criu-dump", "101", dump) == (0, "")
    return dump


def restored(host):
    dump = dumped(host)
    arrives(host, dump)
    assert host.turn("criu-restore", "101") == (0, "")
    return dump


def criu_of(host):
    return int((host.root / "turns" / "101.held").read_text(encoding="utf-8").split()[2])


def nothing_left(host):
    left = [path.name for name in ("lock", "dump") for path in (host.root / name).glob("*")]
    return left + sorted(path.name for path in (host.root / "turns").iterdir() if path.name != "101") == []


def test_it_is_dumped_held_and_goes_on(stock):
    dump = live(stock)
    assert stock.turn("still", "101")[0] == 1
    for _again in range(2):
        status, said = stock.turn("criu-dump", "101", dump)
        assert status == 0, said
        assert (dump / "inventory.img").exists() and not (dump.parent / "Dump.101").exists() and stands_still(stock)
        assert (stock.root / "freezer/vz-101/freezer.state").read_text(encoding="utf-8") == "FROZEN\n"
        assert stock.turn("still", "101")[0] == 0
        # vzctl does not take it for a suspended one, and no other works on it.
        assert stock.status() == "CTID 101 exist mounted running"
        for verb in ("stop", "chkpnt"):
            assert stock.call(stock.root / "bin" / "vzctl", verb, "101").returncode == 9
        for _once_more in range(2):
            assert stock.turn("home", "101", dump) == (0, "")
            assert not stands_still(stock) and nothing_left(stock)
        assert (stock.root / "freezer/vz-101/freezer.state").read_text(encoding="utf-8") == "THAWED\n"


def test_what_is_held_is_ended_and_nothing_that_runs(stock):
    dump = live(stock)
    assert stock.turn("kill", "101", dump) == (1, "101 runs here, and is not removed\n")
    stock.turn("criu-dump", "101", dump)
    for _again in range(2):
        assert stock.turn("kill", "101", dump) == (0, "")
        assert stock.status() == "CTID 101 exist unmounted down" and nothing_left(stock)


def test_it_is_ended_though_its_criu_was_killed(stock):
    dump = dumped(stock)
    os.kill(criu_of(stock), signal.SIGKILL)
    # It is frozen, and is held so.
    assert stock.turn("still", "101")[0] == 0
    assert stock.turn("kill", "101", dump) == (0, "") and stock.status() == "CTID 101 exist unmounted down" and nothing_left(stock)


def test_a_dump_that_nothing_held_is_its_memory_and_is_restored(stock):
    dump = live(stock)
    (stock.root / "no-script").touch()
    status, said = stock.turn("criu-dump", "101", dump)
    assert status == 1 and "and CRIU was not held: is its action script named in /etc/criu/default.conf?" in said and "Checkpointing finished" in said
    assert stock.status() == "CTID 101 exist unmounted down suspended"
    assert stock.turn("home", "101", dump) == (0, "")
    assert not stands_still(stock) and nothing_left(stock)
    assert "restore 101" in (stock.state / "log").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda host, dump: (host.root / "criu-fails").touch(), "Failed to checkpoint the Container"),
        (lambda host, dump: (host.state / "FAULT").write_text("chkpnt", encoding="utf-8"), "and CRIU was not held"),
        (lambda host, dump: (host.root / "cgroup").write_text("6:freezer:/\n", encoding="utf-8"), "are in no freezer of their own"),
        (lambda host, dump: (host.root / "mountinfo").write_text("", encoding="utf-8"), "are in no freezer of their own"),
        (lambda host, dump: (dump.parent / "Dump.101").mkdir(parents=True), "it was suspended meanwhile"),
    ],
)
def test_a_dump_that_does_not_hold_it_is_undone(stock, spoil, says):
    dump = live(stock)
    spoil(stock, dump)
    status, said = stock.turn("criu-dump", "101", dump)
    assert status == 1 and says in said
    (stock.state / "FAULT").unlink(missing_ok=True)
    assert stock.turn("home", "101", dump) == (0, "") and not stands_still(stock)
    # One that was suspended by others keeps its dump.
    assert (dump.parent / "Dump.101").exists() == ("suspended" in says)


def test_what_ran_on_since_the_dump_is_not_taken_for_it(stock):
    dump = live(stock)
    gate = stock.root / "bin" / "criu-gate"
    text = gate.read_text(encoding="utf-8")
    # Its CRIU has let one task go before it was frozen.
    stock.program("criu-gate", text.replace("trap ''", f"echo 'TracerPid: 0' >{stock.root}/status; trap ''"))
    status, said = stock.turn("criu-dump", "101", dump)
    assert status == 1 and "CRIU does not hold all tasks of 101 any more" in said
    assert stock.turn("home", "101", dump) == (0, "") and not stands_still(stock)


def test_it_is_restored_held_and_goes_on(stock):
    dump = restored(stock)
    # The gate is told that nothing runs of what it lets through.
    assert stock.asked() == '{"bundle": "/run/handover/openvz/101"}\n internal oci-hook --restores\n'
    assert stock.status() == "CTID 101 exist mounted running" and stands_still(stock) and stock.turn("still", "101")[0] == 0
    assert stock.call(stock.root / "bin" / "vzctl", "stop", "101").returncode == 9
    # Nothing restores it twice.
    assert not (dump.parent / "Dump.101" / "inventory.img").exists() and not dump.exists()
    for _again in range(2):
        assert stock.turn("resume", "101") == (0, "")
        assert not stands_still(stock) and nothing_left(stock) and not (stock.staged / "101").exists()


def test_an_operator_s_restore_is_a_start_to_the_gate(stock):
    dump = dumped(stock)
    arrives(stock, dump)
    stock.turn("register", "101")
    shutil.copytree(dump, dump.parent / "Dump.101") if dump.exists() else (dump.parent / "Dump.101").mkdir(parents=True)
    stock.helper(False)
    assert stock.call(stock.root / "bin" / "vzctl", "--skiplock", "restore", "101").returncode == 79
    assert stock.asked().endswith("internal oci-hook\n")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda host, dump: (host.root / "criu-fails").touch(), "The restore log was saved in"),
        (lambda host, dump: (host.root / "no-script").touch(), "has ended, or holds nothing"),
        (lambda host, dump: host.helper(False), "Error executing premount script"),
        (lambda host, dump: (host.state / "FAULT").write_text("restore", encoding="utf-8"), "exist unmounted down"),
        (lambda host, dump: (dump / "inventory.img").unlink(), "no dump of 101 has come"),
    ],
)
def test_a_restore_that_does_not_hold_it_is_taken_back(stock, spoil, says):
    dump = dumped(stock)
    arrives(stock, dump)
    spoil(stock, dump)
    status, said = stock.turn("criu-restore", "101")
    assert status == 1 and says in said
    # Whatever it was, nothing runs here: the source's copy will.
    assert "running" not in stock.status()
    assert stock.turn("discard", "101") == (0, "") and stock.status() == "CTID 101 deleted unmounted down" and nothing_left(stock)


def test_what_is_held_is_taken_back(stock):
    restored(stock)
    for _again in range(2):
        assert stock.turn("discard", "101") == (0, "")
        assert stock.status() == "CTID 101 deleted unmounted down" and nothing_left(stock)


@pytest.mark.parametrize("word", ["resume", "start", "discard", "has run"])
def test_tasks_that_a_killed_criu_has_left_are_not_taken_for_a_container(stock, word):
    """vzctl has ended with 0, and does not know the tasks any more, which wait for ever."""
    restored(stock)
    first = int((stock.state / "101.pid").read_text(encoding="utf-8"))
    os.kill(criu_of(stock), signal.SIGKILL)
    until(lambda: "restore log" in (stock.root / "turns" / "101.said").read_text(encoding="utf-8"))
    until(lambda: stock.status() == "CTID 101 exist mounted down suspended")
    assert stock.turn("still", "101")[0] == 1
    # As the killed CRIU leaves it. What is in it is mounted there, and is not the dump's.
    (stock.root / "dump/Dump.101/.criu.cgyard.X").mkdir()
    starts = (stock.state / "log").read_text(encoding="utf-8").count("start 101")
    if word == "has run":
        # Then its dump is older than its files, and is never restored again.
        (stock.root / "turns" / "101.ran").touch()
        (stock.root / "turns" / "101.answer").write_text("go\n", encoding="utf-8")
        status, said = stock.turn("resume", "101")
        assert status == 1 and "and CRIU has not let it run" in said and stands_still(stock)
        return
    status, said = stock.turn(word, "101")
    assert status == 0, said
    until(lambda: not pathlib.Path(f"/proc/{first}").exists() or "Z" in pathlib.Path(f"/proc/{first}/stat").read_text(encoding="utf-8").rpartition(")")[2][:3])
    if word == "discard":
        assert (status, stock.status()) == (0, "CTID 101 deleted unmounted down")
    else:
        # It has not run, and its memory is in its dump.
        assert status == 0 and not stands_still(stock) and nothing_left(stock), said
        assert (stock.state / "log").read_text(encoding="utf-8").count("start 101") == starts


@pytest.mark.parametrize("word", ["criu-dump", "criu-restore"])
def test_a_command_that_was_killed_is_waited_for_and_undone(stock, word):
    dump = live(stock)
    begins, undoes = ["criu-dump", "101", dump], ["home", "101", dump]
    if word == "criu-restore":
        stock.turn(*begins)
        arrives(stock, dump)
        begins, undoes = ["criu-restore", "101"], ["discard", "101"]
    gate = stock.root / "bin" / "criu-gate"
    waits = f"until [ -e {stock.root}/goes ]; do touch {stock.root}/waits; sleep 0.02; done; trap ''"
    stock.program("criu-gate", gate.read_text(encoding="utf-8").replace("trap ''", waits))
    first = stock.begin(*begins)
    until((stock.root / "waits").exists)
    first.kill()
    first.wait()
    second = stock.begin(*undoes)
    # Longer than a container may take to go on.
    time.sleep(7)
    assert second.poll() is None
    (stock.root / "goes").touch()
    assert second.wait(20) == 0, second.stderr.read()
    assert nothing_left(stock)
    assert stock.status() == ("CTID 101 exist mounted running" if word == "criu-dump" else "CTID 101 deleted unmounted down")


def gate_says(host, action, images):
    return host.call("env", f"CRTOOLS_SCRIPT_ACTION={action}", f"CRTOOLS_IMAGE_DIR={images}", host.root / "bin" / "criu-gate").returncode


def begin_gate(host, action, images):
    environment = {**os.environ, "CRTOOLS_SCRIPT_ACTION": action, "CRTOOLS_IMAGE_DIR": str(images)}
    return subprocess.Popen([host.root / "bin" / "criu-gate"], env=environment)


def test_the_gate_holds_the_move_s_and_no_other(stock):
    turns, images = stock.root / "turns", stock.root / "images"
    images.mkdir()
    turns.mkdir()
    # No move has armed one.
    assert gate_says(stock, "post-restore", images) == 0 and gate_says(stock, "post-dump", "/nowhere/at/all") == 0
    (turns / "101.gate").write_text(f"post-restore\n{images}\n", encoding="utf-8")
    (turns / "101.answer").write_text("go\n", encoding="utf-8")
    assert [gate_says(stock, action, stock.root) for action in ("post-dump", "post-restore")] == [0, 0]
    assert gate_says(stock, "post-dump", images) == 0 and gate_says(stock, "post-restore", images) == 0
    assert (turns / "101.ran").exists()
    # A move of another container is under way: what is held is said of this one.
    (turns / "102.gate").write_text("post-dump\n/another\n", encoding="utf-8")
    (turns / "101.answer").unlink()
    held = begin_gate(stock, "post-restore", images)
    until((turns / "101.held").exists)
    assert (turns / "101.held").read_text(encoding="utf-8").split()[:2] == ["post-restore", str(held.pid)] and held.poll() is None
    (turns / "101.answer").write_text("go\n", encoding="utf-8")
    assert held.wait(20) == 0
    (turns / "101.ran").unlink()
    for said in ("no\n", ""):
        (turns / "101.answer").write_text(said, encoding="utf-8")
        assert gate_says(stock, "post-restore", images) == 1 and not (turns / "101.ran").exists()
    # In doubt nothing runs.
    assert gate_says(stock, "post-restore", "/nowhere/at/all") == 1
