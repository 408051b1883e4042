# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A snapshot of a container of Docker's with its memory, and the way back to it: on its own host, on another one, and where the dump is damaged.

The container counts in its memory, and writes a ledger on its volume: each line has the count and a word that only this process knows. A process that was
started anew would have another word, and disks of another moment another count.
"""

from __future__ import annotations

import os
import socket
import typing as t
from pathlib import Path

import fleet as hosts
import pytest
import yaml
from turns import in_turn

SCENARIO = Path(__file__).resolve().parent.parent
VARIABLES = yaml.safe_load((SCENARIO / "vars.yml").read_text(encoding="utf-8"))
IMAGE, NETWORK, PORT = (VARIABLES["scenario_" + name] for name in ("image", "network", "port"))
ADDRESS = yaml.safe_load(Path(os.environ["FAULTS_PARAMETERS"]).read_text(encoding="utf-8"))["lab_gateway"].rpartition(".")[0] + ".27"
NAME, VOLUME = "counter", "counterplain"
SNAPSHOTS = "/var/lib/handover/snapshots"
POLICIES, NOTES = "/var/lib/handover/docker/policies", "/run/handover/memory"
COUNTS = (
    f"heartbeat -file /data/heartbeat -sync 10 -serve :{PORT} & "
    "word=$(cat /proc/sys/kernel/random/uuid); for d in /dev/shm /scratch /; do echo $word >$d/word; done; "
    "n=0; while :; do n=$((n+1)); echo $n $word >>/data/ledger; sleep 0.01; done"
)
# Its own layer, a tmpfs, and the memory that it shares.
WORDS = "cat /word /scratch/word /dev/shm/word"


class Counter:
    """The container, on the first of two hosts."""

    def __init__(self, reports: Path) -> None:
        self.first, self.second = hosts.Fleet(reports).hosts
        self.reports = reports

    def play(self, playbook: str, host: hosts.Host, **more: t.Any) -> tuple[int, str]:
        asked = {"handover_source": host.name, "handover_workload": NAME, "handover_driver": "docker", "handover_memory": True, **more}
        play = hosts.Play(f"playbooks/{playbook}.yml", asked)
        return play.end(), " ".join(play.text.split())

    def does(self, playbook: str, host: hosts.Host, **more: t.Any) -> str:
        status, text = self.play(playbook, host, **more)
        assert status == 0, text[-4000:]
        return text

    def start(self, *options: str) -> None:
        more = f"--restart always --network {NETWORK} --ip {ADDRESS} --tmpfs /scratch --volume {VOLUME}:/data {' '.join(options)}"
        healthy = "--health-cmd 'test -s /data/ledger && sleep 0.2' --health-interval 1s"
        self.first.run(f"docker run --detach --name {NAME} {more} {healthy} {IMAGE} sh -c '{COUNTS}'")
        self.until(self.first, 10)

    def ledger(self, host: hosts.Host) -> tuple[int, str]:
        """The count, and the one word; each count is there once."""
        lines = host.run(f"cat $(docker volume inspect {VOLUME} --format '{{{{.Mountpoint}}}}')/ledger").splitlines()
        assert [line.split()[0] for line in lines] == [str(number) for number in range(1, len(lines) + 1)]
        (word,) = {line.split()[1] for line in lines}
        return len(lines), word

    def until(self, host: hosts.Host, count: int) -> None:
        hosts.until(f"it counts beyond {count}", lambda: host.ask(f"docker exec {NAME} sh -c '[ $(wc -l </data/ledger) -gt {count} ]'").returncode == 0)

    def is_whole(self, host: hosts.Host, word: str) -> None:
        """It is the same process, Docker knows that, and nothing is left of the way back."""
        assert self.ledger(host)[1] == word
        assert host.run(f"docker exec {NAME} {WORDS}").split() == [word] * 3
        assert host.run(state("{{.State.Status}} {{.HostConfig.RestartPolicy.Name}}")).strip() == "running always"
        assert "heartbeat -file" in host.run(f"docker top {NAME}")
        assert self.left(host) == ""

    def left(self, host: hosts.Host) -> str:
        """What a way back has left: a policy, a note for the gate, a copy beside the layer, or images."""
        folders = f"{POLICIES} {NOTES} /var/lib/containers/docker/overlay2 /var/lib/containers/docker/containers"
        return host.run(f"find {folders} -mindepth 1 -maxdepth 2 '(' -path '{POLICIES}/*' -o -path '{NOTES}/*' -o -name '*rollback*' -o -name 'handover*' ')'")

    def clean(self) -> None:
        for host in (self.first, self.second):
            host.ask(f"docker rm --force --volumes {NAME}; docker volume rm --force {VOLUME}")
            host.run(f"rm --recursive --force {SNAPSHOTS}/{NAME} {SNAPSHOTS}/.disks/{NAME} {POLICIES}; mkdir --parents {POLICIES} {NOTES}")


def state(form: str) -> str:
    return f"docker inspect {NAME} --format '{form}'"


@pytest.fixture
def counter(tmp_path: Path) -> t.Iterator[Counter]:
    counter = Counter(tmp_path)
    counter.clean()
    try:
        yield counter
    finally:
        counter.clean()


@in_turn(0)
def test_it_runs_on_from_its_snapshot_and_a_damaged_dump_leaves_it_to_its_operator(counter: Counter) -> None:
    host = counter.first
    counter.start("--init")
    status, text = counter.play("snapshot", host, handover_snapshot="warm")
    assert status != 0 and "was created with --init" in text and "or leave its memory out (handover_memory=false)" in text, text[-4000:]
    assert not host.ask(f"ls {SNAPSHOTS}/{NAME}").stdout
    counter.clean()

    # With a terminal: its other end is an engine's, which has another on the way back.
    counter.start("--interactive", "--tty")
    before, word = counter.ledger(host)
    process = host.run(state("{{.State.Pid}}"))
    with socket.create_connection((ADDRESS, PORT), 30) as connection:
        connection.sendall(b"next\n")
        assert connection.recv(64)
        counter.does("snapshot", host, handover_snapshot="warm")
        connection.sendall(b"next\n")
        assert connection.recv(64), "its connections stay"
    assert host.run(state("{{.State.Pid}}")) == process, "it did not end for the snapshot"
    after, _word = counter.ledger(host)
    counter.until(host, after + 300)
    host.run(f"docker exec {NAME} touch /later")
    counter.does("rollback", host, handover_snapshot="warm")
    counter.until(host, before)
    assert before <= counter.ledger(host)[0] < after + 300, "from the moment of the snapshot"
    assert host.ask(f"docker exec {NAME} ls /later").returncode != 0, "its layer is of that moment, too"
    counter.is_whole(host, word)

    host.run(f"rm {SNAPSHOTS}/{NAME}/warm/checkpoint/core-1.img")
    status, text = counter.play("rollback", host, handover_snapshot="warm")
    assert status != 0 and "does not run on from its memory: " in text and f"start it anew (docker start {NAME})" in text, text[-4000:]
    assert host.run(state("{{.State.Status}} {{.HostConfig.RestartPolicy.Name}}")).strip() == "exited always"
    assert counter.left(host) == ""
    host.run(f"docker start {NAME}")
    hosts.until("it has begun anew", lambda: host.run(f"docker exec {NAME} cat /word").strip() != word)


@in_turn(1)
def test_back_on_another_host_with_all_of_its_snapshots(counter: Counter) -> None:
    counter.start()
    counter.does("snapshot", counter.first, handover_snapshot="warm")
    after, word = counter.ledger(counter.first)
    counter.until(counter.first, after + 300)
    # A container of the name over there is told before anything is touched.
    counter.second.run(f"docker create --name {NAME} {IMAGE} true")
    asked = {"handover_snapshot": "warm", "handover_destination": counter.second.name, "handover_report_dir": str(counter.reports)}
    status, text = counter.play("rollback", counter.first, **asked)
    assert status != 0 and f"{counter.second.name} has a container named {NAME} already" in text, text[-4000:]
    assert counter.second.ask(f"ls {SNAPSHOTS}/{NAME}").stdout == ""
    counter.second.run(f"docker rm {NAME}")
    counter.is_whole(counter.first, word)

    text = counter.does("rollback", counter.first, **asked)
    assert f"Of its snapshots warm come to {counter.second.name}" in text
    assert counter.ledger(counter.second)[0] < after + 300, "from the moment of the snapshot"
    counter.is_whole(counter.second, word)
    assert not counter.first.run(f"docker ps --all --quiet --filter name={NAME}"), "it is on one host"
    assert counter.first.run(f"ls {SNAPSHOTS}/{NAME}").split() == ["warm"], "the snapshots stay there, too"
    (undo,) = set(counter.second.run(f"ls {SNAPSHOTS}/{NAME}").split()) - {"warm"}
    assert undo.startswith("undo-")
