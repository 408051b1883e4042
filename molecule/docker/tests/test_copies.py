# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Snapshots and backups of containers of Docker's that write without end: one with an image volume and a plain one, and one beside it."""

from __future__ import annotations

import json
import os
import typing as t
from pathlib import Path

import fleet as hosts
import pytest
import yaml

SCENARIO = Path(__file__).resolve().parent.parent
IMAGE = yaml.safe_load((SCENARIO / "vars.yml").read_text(encoding="utf-8"))["scenario_image"]
NAME, BESIDE, CLONE = "books", "till", "books-try"
# An image volume, mounted by its path and by a volume that is bound to it; and a plain one of Docker's.
DISK, BOUND, PLAIN = "booksdata", "booksbound", "booksplain"
MOUNTED = f"/var/lib/handover/mnt/{DISK}"
DISK_IMAGE = f"/var/lib/handover/volumes/{DISK}.img"
SNAPSHOTS, REPOSITORY = "/var/lib/handover/snapshots", "/var/lib/handover/test-backups"
POLICIES = "/var/lib/handover/docker/policies"
PCOPY = "/usr/local/libexec/handover/pcopy"
# Two files that differ by one at most, at any moment, and a ledger on the image volume.
WRITES = (
    "heartbeat -file /data/heartbeat -sync 10 & "
    "n=$(cat /plain/b 2>/dev/null || echo 0); while :; do n=$((n+1)); for d in a b; do echo $n >/plain/new; mv /plain/new /plain/$d; done; done"
)


class Keeper:
    """The host that has the containers."""

    def __init__(self) -> None:
        self.host, other = hosts.Fleet(Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "reports").hosts
        self.there = other.name

    def run(self, command: str) -> str:
        return self.host.run(command).strip()

    def say(self, command: str, name: str = NAME) -> str:
        return self.run(f"docker exec {name} sh -c '{command}'")

    def play(self, playbook: str, *words: str, stop_at: str = "", **more: t.Any) -> hosts.Play:
        asked = {"handover_source": self.host.name, "handover_workload": NAME, "handover_driver": "docker", **more}
        return hosts.Play(f"playbooks/{playbook}.yml", asked, stop_at, words)

    def does(self, playbook: str, **more: t.Any) -> str:
        play = self.play(playbook, **more)
        assert play.end() == 0, play.text[-4000:]
        return " ".join(play.text.split())

    def refuses(self, playbook: str, **more: t.Any) -> str:
        play = self.play(playbook, **more)
        assert play.end() != 0, play.text[-4000:]
        return " ".join(play.text.split())

    def volume(self, state: str) -> None:
        play = hosts.Play("molecule/docker/volume.yml", {"docker_volume": DISK, "docker_state": state})
        assert play.end() == 0, play.text[-4000:]

    def start(self) -> None:
        self.run(f"docker volume create --opt type=none --opt o=bind --opt device={MOUNTED} {BOUND}")
        disks = f"--volume {MOUNTED}:/data --volume {BOUND}:/bound --volume {PLAIN}:/plain"
        self.run(f"docker run --detach --restart always --stop-timeout 1 --name {NAME} --network none {disks} {IMAGE} sh -c '{WRITES}'")
        self.run(f"docker run --detach --name {BESIDE} --network none --volume {BESIDE}:/plain {IMAGE} heartbeat -file /plain/heartbeat -sync 10")

    def is_whole(self) -> None:
        """It runs as it was made, on disks that are of one moment each, and nothing is left of a rollback."""
        assert self.run(f"docker inspect {NAME} --format '{{{{.State.Status}}}} {{{{.HostConfig.RestartPolicy.Name}}}}'") == "running always"
        beats = json.loads(self.say("heartbeat -gaps /data/heartbeat"))
        assert beats["broken"] == 0
        assert self.run(f"ls -A {POLICIES}; find /var/lib/handover/volumes {self.folder}/.. -name '*handover-*' -o -name '*rollback*'") == ""

    @property
    def folder(self) -> str:
        return self.run(f"docker volume inspect {PLAIN} --format '{{{{.Mountpoint}}}}'")

    def clone(self, state: str, **more: t.Any) -> None:
        asked = {"handover_source": self.host.name, "handover_workload": NAME, "handover_clone": CLONE, "handover_state": state, **more}
        play = hosts.Play("playbooks/clone.yml", asked)
        assert play.end() == 0, play.text[-4000:]

    def names(self) -> list[str]:
        return self.run(f"ls {SNAPSHOTS}/{NAME}").split()

    def clean(self) -> None:
        if self.host.ask(f"test -e {SNAPSHOTS}/.clones/{CLONE}.json").returncode == 0:
            self.clone("absent")
        self.host.ask(f"docker rm --force --volumes {NAME} {BESIDE}; docker volume rm --force {BOUND} {PLAIN} {BESIDE}")
        places = " ".join(f"{SNAPSHOTS}/{place}{name}" for name in (NAME, BESIDE) for place in ("", ".disks/", ".mounted/", ".brought/"))
        self.host.ask(f"{PCOPY} snapshot untrack {REPOSITORY}/{NAME}; umount {SNAPSHOTS}/.mounted/{NAME}/*/*")
        self.volume("absent")
        self.host.ask(f"{PCOPY} snapshot untrack {SNAPSHOTS}/.disks/{NAME}")
        self.host.run(f"rm --recursive --force {places} {REPOSITORY} {POLICIES} /var/lib/handover/folders {DISK_IMAGE}*")


@pytest.fixture(scope="module")
def keeper() -> t.Iterator[Keeper]:
    keeper = Keeper()
    others = keeper.run("docker ps --quiet").replace("\n", " ")  # a restart of Docker ends them
    keeper.clean()
    try:
        keeper.volume("mounted")
        keeper.start()
        yield keeper
    finally:
        keeper.clean()
        keeper.host.run(f"[ -z '{others}' ] || docker start {others}")


def test_a_snapshot_of_several_while_they_run_and_a_mistake_undone(keeper: Keeper) -> None:
    keeper.say("echo then >/data/said; echo then >/plain/said; sync")
    text = keeper.refuses("snapshot", handover_workload=f"{NAME}+{BESIDE}", handover_snapshot="before", handover_memory=True)
    assert "are 2 containers: memory is taken of one at a time" in text
    keeper.does("snapshot", handover_workload=f"{NAME}+{BESIDE}", handover_snapshot="before")
    records = [json.loads(keeper.run(f"cat {SNAPSHOTS}/{name}/before/snapshot.json")) for name in (NAME, BESIDE)]
    assert len({(record["taken"], record["paused_ms"], *record["together"]) for record in records}) == 1
    assert [record["driver"] for record in records] == ["docker", "docker"]
    keeper.is_whole()
    # The files of the plain volume are those of one moment, and so is a folder that the snapshot is mounted on.
    text = keeper.does("snapshot", handover_snapshot="before", handover_state="mounted")
    place = f"{SNAPSHOTS}/.mounted/{NAME}/before"
    one, other = (int(keeper.run(f"cat {place}/{PLAIN}/{each}")) for each in ("a", "b"))
    assert one > 0 and one - other in (0, 1)
    assert keeper.run(f"cat {place}/{DISK}/said") == "then" and f"mounted on {place}/{DISK}" in text
    keeper.does("snapshot", handover_snapshot="before", handover_state="unmounted")

    keeper.say("echo now >/data/said; echo now >/plain/said; touch /plain/later; sync")
    # No move carries its image volume, so nothing goes to the other host.
    text = keeper.refuses("rollback", handover_snapshot="before", handover_destination=keeper.there)
    assert f"{NAME} mounts the directory {MOUNTED} of {keeper.host.name}, which would stay behind" in text
    keeper.does("rollback", handover_snapshot="before")
    assert keeper.say("cat /data/said /bound/said /plain/said").split() == ["then"] * 3
    assert "later" not in keeper.say("ls /plain")
    keeper.is_whole()
    (undo,) = [name for name in keeper.names() if name.startswith("undo-")]
    keeper.does("rollback", handover_snapshot=undo)
    assert keeper.say("cat /data/said /plain/said; ls /plain/later").split() == ["now", "now", "/plain/later"]
    keeper.is_whole()


def test_a_clone_is_made_beside_it_and_removed(keeper: Keeper) -> None:
    volumes = keeper.run("docker volume ls --quiet")
    keeper.clone("present", handover_snapshot="before")
    assert keeper.say("cat /data/said /bound/said /plain/said", CLONE).split() == ["then"] * 3
    assert keeper.run(state_of(CLONE)) == "running always"
    # Each has files of its own.
    keeper.say("echo other >/data/said; echo other >/plain/said; sync", CLONE)
    assert "other" not in keeper.say("cat /data/said /bound/said /plain/said")
    keeper.is_whole()
    keeper.clone("absent")
    assert keeper.run("docker volume ls --quiet") == volumes
    assert keeper.run(f"ls -d /var/lib/handover/volumes/{CLONE}-* /var/lib/handover/mnt/{CLONE}-* 2>/dev/null || true") == ""
    keeper.is_whole()


def state_of(name: str) -> str:
    return f"docker inspect {name} --format '{{{{.State.Status}}}} {{{{.HostConfig.RestartPolicy.Name}}}}'"


def test_a_rollback_that_is_killed_is_old_or_new_and_docker_starts_nothing_meanwhile(keeper: Keeper) -> None:
    keeper.say("echo later >/data/said; sync")
    play = keeper.play("rollback", stop_at="Restore | Mount the volumes", handover_snapshot="before")
    assert play.stopped.wait(300), play.text[-4000:]
    play.kill()
    keeper.run("systemctl restart docker")
    hosts.until("Docker answers again", lambda: keeper.host.ask("docker ps").returncode == 0)
    assert keeper.run(state_of(NAME)) == "exited no"
    refused = keeper.host.ask(f"docker start {NAME}")
    assert refused.returncode != 0 and "is not mounted, and" in refused.stderr, refused.stderr
    keeper.does("rollback", handover_snapshot="before")
    assert keeper.say("cat /data/said /plain/said").split() == ["then", "then"]
    keeper.is_whole()


def test_a_container_whose_plain_volume_is_on_its_way_back_does_not_start(keeper: Keeper) -> None:
    folder = keeper.run(f"docker volume inspect {BESIDE} --format '{{{{.Mountpoint}}}}'")
    keeper.run(f"docker stop --time 0 {BESIDE} && echo later >{folder}/later && mv {folder} {folder}.handover-rollback")
    refused = keeper.host.ask(f"docker start {BESIDE}")
    assert refused.returncode != 0 and "no such file or directory" in refused.stderr, refused.stderr
    keeper.does("rollback", handover_workload=BESIDE, handover_snapshot="before")
    assert keeper.run(state_of(BESIDE)) == "running no"
    assert "later" not in keeper.say("ls /plain", BESIDE)


def test_a_backup_is_gone_back_to_and_a_lost_container_is_made_again(keeper: Keeper) -> None:
    asked = {"handover_repository": REPOSITORY, "handover_hosts": "lab"}
    for word in ("first", "second"):
        keeper.say(f"echo {word} >/data/said; echo {word} >/plain/said; sync")
        text = keeper.does("backup", handover_repository=REPOSITORY)
        assert f"{DISK} {'full' if word == 'first' else 'marks'}" in text, text[-2000:]
    keeper.say("rm /data/said /plain/said; sync")
    keeper.does("backup_restore", **asked)
    assert keeper.say("cat /data/said /plain/said").split() == ["second", "second"]
    keeper.is_whole()
    assert not [name for name in keeper.names() if name.startswith("backup-")]
    # Lost, with its volumes in place: they may have newer data, and nothing is touched.
    keeper.run(f"docker rm --force {NAME}")
    assert "go back to the backup then" in keeper.refuses("backup_restore", **asked)
    assert keeper.run(f"cat {MOUNTED}/said") == "second"
    assert not [name for name in keeper.names() if name.startswith("backup-")]
    # Another one is made beside them.
    keeper.does("backup_restore", handover_clone=CLONE, **asked)
    assert keeper.say("cat /data/said /bound/said /plain/said", CLONE).split() == ["second"] * 3
    keeper.clone("absent")
    # Without them it comes back whole.
    keeper.run(f"docker volume rm {BOUND} {PLAIN}; {PCOPY} snapshot untrack {REPOSITORY}/{NAME}")
    keeper.volume("absent")
    keeper.does("backup_restore", **asked)
    assert keeper.say("cat /data/said /bound/said /plain/said").split() == ["second"] * 3
    keeper.is_whole()
    assert not [name for name in keeper.names() if name.startswith("backup-")]
    # The next backup of it is taken as of any other.
    keeper.does("backup", handover_repository=REPOSITORY)
