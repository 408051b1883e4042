# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The gate before runc: the preflight's proof that it stands, and the script itself."""

from __future__ import annotations

import concurrent.futures
import os
import pathlib
import subprocess

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._docker import gate

TURN = pathlib.Path(__file__).parents[5] / "roles" / "pcopy" / "files" / "docker-turn"
SCRIPT = pathlib.Path(__file__).parents[5] / "roles" / "pcopy" / "files" / "docker-runc"


def program(path, text="#!/bin/sh\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture
def host(tmp_path, monkeypatch):
    """One containerd, whose PATH begins with the gate's folder."""
    monkeypatch.setattr(gate, "FIRST", (str(tmp_path / "opt"),))
    ours, real = program(tmp_path / "ours" / "runc"), program(tmp_path / "real" / "runc")
    process = tmp_path / "proc" / "17"
    process.mkdir(parents=True)
    (process / "comm").write_text("containerd\n", encoding="utf-8")
    (process / "environ").write_text(f"LANG=C\0PATH={ours.parent}:{real.parent}\0", encoding="utf-8")
    return tmp_path


def seen(host):
    return gate.obstacle(str(host / "proc"), str(host / "ours" / "runc"))


def test_the_gate_stands(host):
    assert seen(host) == ""


def test_a_containerd_that_was_not_restarted_has_the_old_path(host):
    (host / "proc" / "17" / "environ").write_text(f"PATH={host / 'real'}\0", encoding="utf-8")
    assert seen(host) == f"containerd starts {host / 'real' / 'runc'}"


def test_a_runc_in_the_folder_that_containerd_puts_first(host):
    program(host / "opt" / "runc")
    assert seen(host) == f"containerd starts {host / 'opt' / 'runc'}"


def test_a_gate_that_is_gone(host):
    (host / "ours" / "runc").unlink()
    assert seen(host) == f"{host / 'ours' / 'runc'} is missing"


def test_no_containerd(host):
    (host / "proc" / "17" / "comm").write_text("dockerd\n", encoding="utf-8")
    assert seen(host) == "no containerd runs"


@pytest.fixture
def run(tmp_path):
    """The script with a helper that answers, and a runc that prints its words; ours may stand anywhere in the PATH."""
    own = tmp_path / "own"
    text = SCRIPT.read_text(encoding="utf-8").replace("/usr/local/libexec/handover/docker", str(own))
    text = text.replace("/sys/fs/cgroup", str(tmp_path / "cgroups"))
    program(own / "runc", text.replace("/usr/local/libexec/handover/pcopy", str(tmp_path / "pcopy")))
    program(tmp_path / "real" / "runc", '#!/bin/sh\necho "runc: $*"\n')

    def call(*words, may_start=True, path=""):
        program(tmp_path / "pcopy", f"#!/bin/sh\necho \"asked: $*\"\nexit {0 if may_start else 1}\n")
        folders = path or f"/nothing:{own}:{tmp_path / 'real'}:/usr/bin:/bin"
        done = subprocess.run([own / "runc", *words], env={"PATH": folders}, capture_output=True, text=True, check=False, timeout=30)
        return done.returncode, done.stdout.splitlines(), done.stderr

    return call


CREATE = ("--root", "/run/r", "create", "--bundle", "/a bundle", "0123")


def test_the_helper_becomes_runc_where_one_is_restored(run):
    words = ["restore" if each == "create" else each for each in CREATE]
    for may_start in (True, False):
        assert run(*words, may_start=may_start)[:2] == (0 if may_start else 1, [f"asked: internal runc-restore {' '.join(words)}"])


@pytest.mark.parametrize("word", ["create", "run"])
def test_the_helper_is_asked_before_a_container_is_made(run, word):
    words = [word if each == "create" else each for each in CREATE]
    assert run(*words)[1] == [f"asked: internal runc-hook {' '.join(words)}", f"runc: {' '.join(words)}"]
    assert run(*words, may_start=False)[:2] == (1, [f"asked: internal runc-hook {' '.join(words)}"])


@pytest.mark.parametrize("word", ["kill", "delete", "state", "exec", "start", "pause"])
def test_what_runs_can_be_stopped_without_the_helper(run, word):
    assert run("--root", "/run/r", word, "0123", may_start=False)[:2] == (0, [f"runc: --root /run/r {word} 0123"])


@pytest.mark.parametrize(("populated", "left"), [("0", "0\n"), ("1", "1\n")])
def test_what_stands_frozen_and_is_empty_can_be_deleted(run, tmp_path, populated, left):
    cgroup = tmp_path / "cgroups" / "system.slice" / "docker-0123.scope"
    cgroup.mkdir(parents=True)
    (cgroup / "cgroup.events").write_text(f"populated {populated}\nfrozen 1\n", encoding="ascii")
    (cgroup / "cgroup.freeze").write_text("1\n", encoding="ascii")
    assert run("--root", "/run/r", "delete", "0123")[:2] == (0, ["runc: --root /run/r delete 0123"])
    assert (cgroup / "cgroup.freeze").read_text(encoding="ascii") == left


def test_what_begins_during_a_dump_waits_for_its_end(run, tmp_path):
    """And gets nothing of the lock, nor of the folder that it is on."""
    root = tmp_path / "moby"
    (root / "0123").mkdir(parents=True)
    words = ("--root", str(root), "exec", "--process", "/tmp/p", "--detach", "0123")
    program(tmp_path / "real" / "runc", '#!/bin/sh\necho "runc: $*"\nls -l /proc/self/fd\n')
    held = ["flock", "--exclusive", root / "0123", "sh", "-c", "echo held; read -r line"]
    with subprocess.Popen(held, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as dump:
        assert dump.stdout.readline() == b"held\n"
        with concurrent.futures.ThreadPoolExecutor() as pool:
            begun = pool.submit(run, *words)
            assert not concurrent.futures.wait([begun], timeout=0.5).done
            dump.stdin.close()
            status, out, _said = begun.result()
    assert (status, out[0]) == (0, f"runc: {' '.join(words)}")
    assert str(root) not in "".join(out[1:])


def test_what_an_operator_starts_by_runc_itself_has_words_after_the_name(run, tmp_path):
    (tmp_path / "moby" / "0123").mkdir(parents=True)
    words = ("--root", str(tmp_path / "moby"), "exec", "0123", "sh")
    assert run(*words)[:2] == (0, [f"runc: {' '.join(words)}"])


@pytest.fixture
def turn(tmp_path):
    """The commands of the driver, with a Docker and a runc that write down their words, and processes by number, each with its parent and its number inside."""
    folder = tmp_path / "turn"
    text = TURN.read_text(encoding="utf-8").replace("/proc/", str(tmp_path / "proc") + "/")
    program(folder / "turn", text)
    for name in ("docker", "runc"):
        program(folder / name, f'#!/bin/sh\necho "{name} $*" >>{tmp_path}/words\n')
    # The health check is over when it was waited for.
    program(folder / "sleep", f"#!/bin/sh\necho waited >>{tmp_path}/words\nrm -rf {tmp_path}/proc/30\n")
    (tmp_path / "moby" / "0123").mkdir(parents=True)
    (tmp_path / "cgroup").mkdir()

    def call(processes, word="checkpoint"):
        for pid, (parent, inside) in processes.items():
            place = tmp_path / "proc" / str(pid)
            place.mkdir(parents=True)
            (place / "status").write_text(f"Name:\tx\nPid:\t{pid}\nPPid:\t{parent}\nNSpid:\t{pid}\t{inside}\n", encoding="ascii")
        (tmp_path / "cgroup" / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in processes), encoding="ascii")
        words = [word, "shop", "0123", tmp_path / "moby", "/images/dump", tmp_path / "cgroup"]
        subprocess.run([folder / "turn", *words], env={"PATH": f"{folder}:/usr/bin:/bin"}, check=True, timeout=30)
        return (tmp_path / "words").read_text(encoding="utf-8").splitlines()

    return call


DUMP = "runc --root {0} checkpoint --image-path /images/dump --work-path /images --tcp-established --file-locks 0123"


@pytest.mark.parametrize(
    ("processes", "waits"),
    [
        ({20: (7, 1), 21: (20, 2), 22: (21, 3)}, 0),
        ({20: (7, 1), 21: (20, 2), 30: (7, 9)}, 1),  # a health check
    ],
)
def test_a_dump_waits_for_what_came_from_outside(turn, tmp_path, processes, waits):
    assert turn(processes) == ["docker update --restart=no shop", *["waited"] * waits, DUMP.format(tmp_path / "moby")]


def test_after_a_dump_for_a_copy_it_runs_on_with_its_policy(turn, tmp_path):
    assert turn({20: (7, 1), 30: (7, 9)}, "dump") == ["waited", DUMP.format(tmp_path / "moby").replace(" 0123", " --leave-running 0123")]


def test_a_docker_exec_that_does_not_end_is_not_waited_for_forever(turn, tmp_path):
    words = turn({20: (7, 1), 40: (7, 9)})
    assert words[-1] == DUMP.format(tmp_path / "moby") and 10 < words.count("waited") < 100


@pytest.mark.parametrize(
    ("says", "status", "words"),
    [
        ("echo shop", 0, ["docker rm --force shop"]),
        # Another one's name has it in it.
        ("echo shop-db; echo a-shop", 0, []),
        ("exit 1", 1, []),
    ],
    ids=["there", "gone", "a daemon that is down"],
)
def test_only_a_daemon_that_answers_says_that_it_is_gone(turn, tmp_path, says, status, words):
    folder = tmp_path / "turn"
    program(folder / "docker", f'#!/bin/sh\ncase $1 in ps) {says} ;; *) echo "docker $*" >>{tmp_path}/words ;; esac\n')
    done = subprocess.run([folder / "turn", "discard", "shop"], env={"PATH": f"{folder}:/usr/bin:/bin"}, check=False, timeout=30)
    said = tmp_path / "words"
    assert (done.returncode, said.read_text(encoding="utf-8").splitlines() if said.exists() else []) == (status, words)


def test_without_a_runc_beside_it_does_not_call_itself(run, tmp_path):
    status, _out, said = run("state", "0123", path=f"{tmp_path / 'own'}:/nothing")
    assert status == 127 and "there is no runc in" in said


def test_the_script_is_a_shells_own():
    assert os.access(SCRIPT, os.R_OK) and SCRIPT.read_text(encoding="utf-8").startswith("#!/bin/sh\n")
