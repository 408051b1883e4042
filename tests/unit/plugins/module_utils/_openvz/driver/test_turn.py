# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The commands of a move and the gate, as the helper and vzctl run them, on a host in a folder."""

from __future__ import annotations

import os
import shutil
import time

import pytest


def fault(host, verb):
    (host.state / "FAULT").write_text(verb, encoding="utf-8")


def staged(host, *scripts):
    """A twin that waits for its start, as the module lays it ready."""
    host.have(*scripts)
    (host.staged / "101" / "conf").mkdir(parents=True)
    for name in ("101.conf", *scripts):
        (host.conf / name).rename(host.staged / "101" / "conf" / name)
    (host.staged / "101" / "root").write_text(f"{host.root}/vz/root/101\n", encoding="utf-8")
    (host.staged / "101" / "name").write_text("shop\n", encoding="utf-8")


def test_it_is_stopped_and_comes_home(openvz_host):
    private = openvz_host.have()
    for _again in range(2):
        assert openvz_host.turn("home", "101") == (0, "")
        assert openvz_host.status() == "CTID 101 exist mounted running"
    for _again in range(2):
        assert openvz_host.turn("stop", "101", private) == (0, "")
        assert openvz_host.status() == "CTID 101 exist unmounted down"


@pytest.mark.parametrize("verb", ["stop", "start"])
def test_a_status_of_0_is_not_believed(openvz_host, verb):
    private = openvz_host.have()
    openvz_host.turn("home", "101")
    if verb == "start":
        openvz_host.turn("stop", "101", private)
    fault(openvz_host, verb)
    status, said = openvz_host.turn(*{"stop": ("stop", "101", private), "start": ("home", "101")}[verb])
    assert status == 1 and f"vzctl {verb} 101 has ended, and the container is: exist" in said


def test_one_that_stays_mounted_is_unmounted_or_not_let_go(openvz_host):
    private = openvz_host.have()
    openvz_host.turn("home", "101")
    (openvz_host.state / "101.mounted").write_text("yes", encoding="utf-8")
    assert openvz_host.turn("stop", "101", private)[0] == 0 and openvz_host.status().endswith("unmounted down")
    (openvz_host.state / "101.mounted").write_text("yes", encoding="utf-8")
    fault(openvz_host, "umount")
    status, said = openvz_host.turn("stop", "101", private)
    assert status == 1 and "exist mounted down" in said


def test_the_kernel_s_writes_to_a_ploop_disk_are_made_known(openvz_host):
    private = openvz_host.have()
    disk = private / "root.hdd" / "root.hds"
    disk.parent.mkdir()
    disk.write_bytes(b"disk")
    openvz_host.turn("home", "101")
    before = disk.stat().st_ctime_ns
    openvz_host.turn("stop", "101", private)
    assert disk.stat().st_ctime_ns > before


def test_vzctl_does_not_know_a_twin_before_its_start(openvz_host):
    staged(openvz_host, "101.mount")
    assert openvz_host.status() == "CTID 101 deleted unmounted down"
    assert openvz_host.turn("start", "101") == (0, "")
    assert openvz_host.status() == "CTID 101 exist mounted running"
    assert (openvz_host.conf / "101.mount").exists()
    assert (openvz_host.root / "etc/vz/names/shop").resolve() == openvz_host.conf / "101.conf"
    assert not (openvz_host.staged / "101").exists()
    # The helper may say it again.
    assert openvz_host.turn("start", "101") == (0, "")


def test_one_that_was_stopped_is_registered_and_stays_so(openvz_host):
    staged(openvz_host)
    assert openvz_host.turn("register", "101") == (0, "")
    assert openvz_host.status() == "CTID 101 exist unmounted down" and openvz_host.turn("stopped", "101") == (0, "")
    openvz_host.turn("home", "101")
    assert "was started, mounted or removed meanwhile: it is exist mounted running" in openvz_host.turn("stopped", "101")[1]


def test_a_start_that_failed_is_taken_back(openvz_host):
    staged(openvz_host, "101.mount")
    fault(openvz_host, "start")
    assert openvz_host.turn("start", "101")[0] == 1
    assert openvz_host.turn("discard", "101") == (0, "")
    assert openvz_host.status() == "CTID 101 deleted unmounted down"
    assert sorted(path.name for path in openvz_host.conf.iterdir()) == ["vps.premount"]
    assert not list((openvz_host.root / "etc/vz/names").iterdir())
    # The note of what was made stays for the module, which removes the private area.
    assert (openvz_host.staged / "101").is_dir()


def test_one_that_runs_is_not_discarded(openvz_host):
    staged(openvz_host)
    fault(openvz_host, "nothing")
    openvz_host.turn("start", "101")
    (openvz_host.staged / "101" / "conf").mkdir(parents=True)
    assert openvz_host.turn("discard", "101") == (1, "101 runs here, and is not removed\n")


def test_nothing_starts_where_the_helper_says_no(openvz_host):
    openvz_host.have()
    openvz_host.helper(False)
    status, said = openvz_host.turn("home", "101")
    assert status == 1 and "Error executing premount script" in said
    assert openvz_host.status() == "CTID 101 exist unmounted down"
    assert openvz_host.asked() == '{"bundle": "/run/handover/openvz/101"}\n internal oci-hook\n'


def test_nothing_starts_without_the_helper_or_without_an_id(openvz_host):
    openvz_host.have()
    (openvz_host.root / "bin" / "pcopy").unlink()
    assert openvz_host.turn("home", "101")[0] == 1 and openvz_host.status() == "CTID 101 exist unmounted down"
    assert openvz_host.call("sh", openvz_host.root / "bin" / "premount").returncode == 1
    assert openvz_host.call("env", 'VEID=1"2', "sh", openvz_host.root / "bin" / "premount").returncode == 1


def live(host):
    """Container 101 runs here and can be suspended; the folder for its dump."""
    private = host.have()
    assert host.turn("home", "101") == (0, "")
    return private, host.root / "dump" / "handover.101"


def arrives(host, dump):
    """What was suspended here is gone, and its files, its dump and its configuration have come to another host: this one again."""
    host.call(host.root / "bin" / "vzctl", "--skiplock", "chkpnt", "101", "--kill")
    host.call(host.root / "bin" / "vzctl", "--skiplock", "umount", "101")
    (host.staged / "101" / "conf").mkdir(parents=True)
    (host.conf / "101.conf").rename(host.staged / "101" / "conf" / "101.conf")
    for name, text in (("root", f"{host.root}/vz/root/101"), ("name", "shop"), ("dump", dump)):
        (host.staged / "101" / name).write_text(f"{text}\n", encoding="utf-8")
    (host.root / "asked").unlink(missing_ok=True)


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


def test_it_is_suspended_dumped_and_goes_on(openvz_host):
    _private, dump = live(openvz_host)
    assert openvz_host.turn("still", "101")[0] == 1
    for _again in range(2):
        assert openvz_host.turn("suspend", "101", dump, "63") == (0, "")
        assert (dump / "dump").stat().st_size > 0 and stands_still(openvz_host)
        assert openvz_host.turn("still", "101")[0] == 0
        # No vzctl but the move's works on it: neither resumes it, nor stops it.
        for verb in (["chkpnt", "101", "--resume"], ["stop", "101"]):
            assert openvz_host.call(openvz_host.root / "bin" / "vzctl", *verb).returncode == 9
        for _once_more in range(2):
            assert openvz_host.turn("home", "101", dump) == (0, "")
            assert not stands_still(openvz_host) and not dump.exists()
    assert "--suspend --flags 63" in (openvz_host.state / "log").read_text(encoding="utf-8")
    assert openvz_host.call(openvz_host.root / "bin" / "vzctl", "stop", "101").returncode == 0


def test_what_was_suspended_is_ended_and_nothing_that_runs(openvz_host):
    _private, dump = live(openvz_host)
    assert openvz_host.turn("kill", "101", dump) == (1, "101 runs here, and is not removed\n")
    openvz_host.turn("suspend", "101", dump)
    for _again in range(2):
        assert openvz_host.turn("kill", "101", dump) == (0, "")
        assert openvz_host.status() == "CTID 101 exist unmounted down" and not dump.exists()
    assert not (openvz_host.root / "lock" / "101.lck").exists()


@pytest.mark.parametrize(("verb", "says"), [("chkpnt --suspend", "vzctl chkpnt 101 --suspend has ended"), ("chkpnt --dump", "and there is no dump")])
def test_a_checkpoint_that_does_nothing_is_not_believed(openvz_host, verb, says):
    _private, dump = live(openvz_host)
    fault(openvz_host, verb)
    status, said = openvz_host.turn("suspend", "101", dump)
    assert status == 1 and says in said
    assert openvz_host.turn("home", "101", dump) == (0, "") and not stands_still(openvz_host)


def test_one_that_another_program_works_on_is_not_suspended(openvz_host):
    _private, dump = live(openvz_host)
    (openvz_host.root / "lock").mkdir()
    (openvz_host.root / "lock" / "101.lck").write_text(f"{os.getpid()}\nbackup\n", encoding="utf-8")
    status, said = openvz_host.turn("suspend", "101", dump)
    assert status == 1 and f"process {os.getpid()} works on 101" in said
    assert openvz_host.turn("home", "101", dump) == (0, "")
    assert (openvz_host.root / "lock" / "101.lck").read_text(encoding="utf-8").startswith(f"{os.getpid()}\n")


def test_it_is_undumped_held_and_resumed(openvz_host):
    _private, dump = live(openvz_host)
    openvz_host.turn("suspend", "101", dump)
    arrives(openvz_host, dump)
    assert openvz_host.turn("undump", "101") == (0, "")
    # The gate is told that nothing runs of what it lets through.
    assert openvz_host.asked() == '{"bundle": "/run/handover/openvz/101"}\n internal oci-hook --restores\n'
    assert openvz_host.status() == "CTID 101 exist mounted running" and stands_still(openvz_host)
    assert openvz_host.call(openvz_host.root / "bin" / "vzctl", "restore", "101", "--resume").returncode == 9
    for _again in range(2):
        assert openvz_host.turn("resume", "101") == (0, "")
        assert not stands_still(openvz_host)
        assert not dump.exists() and not (openvz_host.staged / "101").exists() and not (openvz_host.root / "lock" / "101.lck").exists()


def test_a_restore_of_an_operator_s_is_a_start_to_the_gate(openvz_host):
    _private, dump = live(openvz_host)
    openvz_host.turn("suspend", "101", dump)
    arrives(openvz_host, dump)
    kept = (dump / "dump").rename(openvz_host.root / "kept")
    openvz_host.turn("register", "101")
    openvz_host.helper(False)
    assert openvz_host.call(openvz_host.root / "bin" / "vzctl", "--skiplock", "restore", "101", "--dumpfile", kept).returncode == 79
    assert openvz_host.asked().endswith("internal oci-hook\n")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda host, dump: fault(host, "restore"), "exist unmounted down"),
        (lambda host, dump: fault(host, "runs --undump"), "tasks, and those that could run: 1 1"),
        (lambda host, dump: host.program("criu-fails", ""), "Error: undump failed"),
        (lambda host, dump: host.helper(False), "Error executing premount script"),
        (lambda host, dump: (dump / "dump").unlink(), "no dump of 101 has come"),
    ],
)
def test_an_undump_that_does_not_hold_it_is_taken_back(openvz_host, spoil, says):
    _private, dump = live(openvz_host)
    openvz_host.turn("suspend", "101", dump)
    arrives(openvz_host, dump)
    spoil(openvz_host, dump)
    status, said = openvz_host.turn("undump", "101")
    assert status == 1 and says in said
    # Whatever it was, nothing runs here: the source's copy will.
    assert "running" not in openvz_host.status()
    assert openvz_host.turn("discard", "101") == (0, "")
    assert openvz_host.status() == "CTID 101 deleted unmounted down" and not dump.exists() and not (openvz_host.root / "lock" / "101.lck").exists()


def test_what_was_undumped_is_taken_back(openvz_host):
    _private, dump = live(openvz_host)
    openvz_host.turn("suspend", "101", dump)
    arrives(openvz_host, dump)
    openvz_host.turn("undump", "101")
    for _again in range(2):
        assert openvz_host.turn("discard", "101") == (0, "")
        assert openvz_host.status() == "CTID 101 deleted unmounted down" and not dump.exists()


WAITS = 'case "$*" in *" {0} "*) touch {1}/waits; until [ -e {1}/goes ]; do sleep 0.02; done ;; esac'


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("verb", ["--suspend", "--undump"])
def test_a_command_that_is_left_alive_is_not_overtaken_by_its_undoing(openvz_host, verb, killed):
    _private, dump = live(openvz_host)
    begins, undoes = ["suspend", "101", dump, "63"], ["home", "101", dump]
    if verb == "--undump":
        assert openvz_host.turn(*begins) == (0, "")
        arrives(openvz_host, dump)
        begins, undoes = ["undump", "101"], ["discard", "101"]
    openvz_host.vzctl_first(WAITS.format(verb, openvz_host.root))
    first = openvz_host.begin(*begins)
    until((openvz_host.root / "waits").exists)
    if killed:
        # Its vzctl works on.
        first.kill()
        first.wait()
    second = openvz_host.begin(*undoes)
    time.sleep(0.5)
    # Who looks does not wait.
    assert second.poll() is None and openvz_host.turn("still", "101")[0] == 1
    (openvz_host.root / "goes").touch()
    assert second.wait(20) == 0 and "another command of the move of 101 is still at work" in second.stderr.read()
    assert killed or first.wait(20) == 0
    if verb == "--suspend":
        assert openvz_host.status() == "CTID 101 exist mounted running" and not stands_still(openvz_host)
    else:
        assert openvz_host.status() == "CTID 101 deleted unmounted down"
    assert not (openvz_host.root / "lock" / "101.lck").exists()


def test_a_verb_holds_the_turn_and_what_runs_does_not(openvz_host):
    openvz_host.vzctl_first(f'if [ -e /proc/$$/fd/9 ]; then echo "$*" >>{openvz_host.root}/holds; else echo "$*" >>{openvz_host.root}/free; fi')
    _private, dump = live(openvz_host)
    assert openvz_host.turn("suspend", "101", dump, "63") == (0, "")
    arrives(openvz_host, dump)
    assert openvz_host.turn("undump", "101") == (0, "") and openvz_host.turn("resume", "101") == (0, "")
    holds, free = ((openvz_host.root / name).read_text(encoding="utf-8") for name in ("holds", "free"))
    assert all(verb in holds and verb not in free for verb in ("chkpnt 101 --suspend", "chkpnt 101 --dump", "restore 101 --undump", "restore 101 --resume"))
    assert "start 101" in free and "start 101" not in holds


def test_a_resume_that_was_done_is_not_asked_of_vzctl_again(openvz_host):
    _private, dump = live(openvz_host)
    openvz_host.turn("suspend", "101", dump)
    arrives(openvz_host, dump)
    openvz_host.turn("undump", "101")
    assert openvz_host.turn("resume", "101") == (0, "")
    assert openvz_host.call(openvz_host.root / "bin" / "vzctl", "stop", "101").returncode == 0
    # It has run here since, and its owner has stopped it.
    assert openvz_host.turn("resume", "101") == (0, "") and openvz_host.status() == "CTID 101 exist unmounted down"


def test_one_that_was_resumed_is_not_discarded(openvz_host):
    _private, dump = live(openvz_host)
    openvz_host.turn("suspend", "101", dump)
    arrives(openvz_host, dump)
    openvz_host.turn("undump", "101")
    openvz_host.turn("resume", "101")
    assert openvz_host.turn("discard", "101") == (1, "101 is not removed: it is exist mounted running\n") and not stands_still(openvz_host)


@pytest.mark.parametrize(("word", "verb"), [("kill", "chkpnt"), ("discard", "restore")])
def test_no_answer_of_vzctl_is_not_taken_for_an_end(openvz_host, word, verb):
    _private, dump = live(openvz_host)
    openvz_host.turn("suspend", "101", dump)
    if word == "discard":
        arrives(openvz_host, dump)
        openvz_host.turn("undump", "101")
    openvz_host.vzctl_first(f'case "$1" in status) [ ! -e {openvz_host.root}/mute ] || exit 1 ;; esac')
    (openvz_host.root / "mute").touch()
    assert openvz_host.turn(word, "101", dump) == (1, "vzctl does not say that 101 has ended: it is unknown ()\n")
    assert (openvz_host.root / "lock" / "101.lck").exists() and dump.exists()
    (openvz_host.root / "mute").unlink()
    assert openvz_host.turn(word, "101", dump) == (0, "") and "running" not in openvz_host.status()


@pytest.mark.parametrize("verb", ["restore --resume", "chkpnt --resume"])
def test_a_resume_that_does_nothing_is_not_believed(openvz_host, verb):
    _private, dump = live(openvz_host)
    openvz_host.turn("suspend", "101", dump)
    words = ["home", "101", dump]
    if verb.startswith("restore"):
        arrives(openvz_host, dump)
        openvz_host.turn("undump", "101")
        words = ["resume", "101"]
    fault(openvz_host, verb)
    status, said = openvz_host.turn(*words)
    assert status == 1 and "--resume has ended, and the container is: exist mounted running, and stands still" in said
    fault(openvz_host, "nothing")
    # As a recovery would.
    assert openvz_host.turn(*(words if verb.startswith("chkpnt") else ["start", "101"])) == (0, "")
    assert not stands_still(openvz_host)


LIMITS = "ugid\nuser 1000 204800 256000 10000 12000\n"


def limited(host):
    """The host keeps limits of the users of container 101."""
    private = host.have()
    with (host.conf / "101.conf").open("a", encoding="utf-8") as conf:
        conf.write('QUOTAUGIDLIMIT="200"\n')
    (host.state / "101.quota").write_text(LIMITS, encoding="utf-8")
    return private, host.root / "dump" / "handover.101"


def loses_quota(host):
    for name in ("101.quota", "101.quota-on"):
        (host.state / name).unlink(missing_ok=True)


def test_the_limits_of_its_users_are_taken_along_offline(openvz_host):
    private, dump = limited(openvz_host)
    openvz_host.turn("home", "101")
    assert openvz_host.turn("stop", "101", private, dump) == (0, "")
    assert (dump / "quota").read_text(encoding="utf-8") == LIMITS
    arrives(openvz_host, dump)
    loses_quota(openvz_host)
    for _again in range(2):
        assert openvz_host.turn("start", "101") == (0, "")
        # The kernel has them, too.
        assert (openvz_host.state / "101.quota-on").read_text(encoding="utf-8") == LIMITS and not dump.exists()


def test_the_limits_of_its_users_are_taken_along_live_and_taken_back(openvz_host):
    _private, dump = limited(openvz_host)
    openvz_host.turn("home", "101")
    assert openvz_host.turn("suspend", "101", dump, "63", "quota") == (0, "")
    arrives(openvz_host, dump)
    loses_quota(openvz_host)
    assert openvz_host.turn("undump", "101") == (0, "")
    assert (openvz_host.state / "101.quota-on").read_text(encoding="utf-8") == LIMITS
    assert openvz_host.turn("discard", "101") == (0, "")
    assert not list(openvz_host.state.glob("101.quota*")) and not dump.exists()


def test_the_limits_of_one_that_is_stopped_are_taken_along(openvz_host):
    _private, dump = limited(openvz_host)
    assert openvz_host.turn("stopped", "101", dump) == (0, "")
    arrives(openvz_host, dump)
    loses_quota(openvz_host)
    assert openvz_host.turn("register", "101") == (0, "")
    assert (openvz_host.state / "101.quota").read_text(encoding="utf-8") == LIMITS and not (openvz_host.state / "101.quota-on").exists()
    assert not dump.exists() and openvz_host.turn("stays", "101", dump) == (0, "")


def test_one_that_runs_with_its_limits_is_not_discarded_offline(openvz_host):
    private, dump = limited(openvz_host)
    openvz_host.turn("home", "101")
    assert openvz_host.turn("stop", "101", private, dump) == (0, "")
    arrives(openvz_host, dump)
    (openvz_host.state / "101.quota").unlink()
    # The start has come about, and its word has not come to its end.
    kept = openvz_host.staged / "kept"
    shutil.copytree(openvz_host.staged / "101", kept)
    assert openvz_host.turn("start", "101") == (0, "")
    kept.rename(openvz_host.staged / "101")
    assert openvz_host.turn("discard", "101") == (1, "101 runs here, and is not removed\n")
    assert openvz_host.status() == "CTID 101 exist mounted running"


def test_limits_that_cannot_be_read_or_loaded_end_the_move(openvz_host):
    private, dump = limited(openvz_host)
    openvz_host.turn("home", "101")
    openvz_host.program("vzdqdump", "#!/bin/sh\nexit 0\n")
    status, said = openvz_host.turn("stop", "101", private, dump)
    assert status == 1 and "vzdqdump 101 has ended, and there is no dump of its quota" in said
    (dump / "quota").write_text(LIMITS, encoding="utf-8")
    arrives(openvz_host, dump)
    openvz_host.program("vzdqload", "#!/bin/sh\necho no such quota; exit 1\n")
    status, said = openvz_host.turn("start", "101")
    assert status == 1 and "the quota of the users and groups of 101 could not be loaded" in said and "no such quota" in said
    assert openvz_host.status() == "CTID 101 exist unmounted down"
    assert openvz_host.turn("discard", "101") == (0, "") and openvz_host.status() == "CTID 101 deleted unmounted down"
