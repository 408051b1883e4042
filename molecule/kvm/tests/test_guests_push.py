# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""QEMU writes a guest's disks into the store itself. A writer in the guest numbers what it writes, so a disk of no moment is seen."""

from __future__ import annotations

import json
import typing as t

import fleet as hosts
import pytest
from conftest import IMAGES, Guests
from test_guests_backup import ADDRESS, PCOPY, REPOSITORY
from test_guests_snapshot import Snapshotted

BLOCKS = 512  # of 64 KiB, on vdb
# Each round writes its number into each block, in their order, and waits for the disk.
WRITER = (
    f"round=0; while :; do round=$((round+1)); at=0; while [ $at -lt {BLOCKS} ]; do "
    "printf '%08d %08d\\n' $round $at | dd of=/dev/vdb bs=64k seek=$at conv=sync oflag=direct 2>/dev/null; at=$((at+1)); done; done"
)
# As soon as QEMU has begun to push it is stopped, so that what is struck is struck in the middle.
STRIKE = """
qemu=$(cat /run/libvirt/qemu/kept.pid)
begins() {{ found=$(pgrep -f '[v]irsh.* backup-begin' | head -n 1) && [ -n "$found" ]; }}
for n in $(seq 6000); do begins && break; sleep 0.01; done
module=$(ps -o ppid= -p $found)
while begins; do :; done
kill -STOP $qemu
virsh backup-dumpxml kept 2>/dev/null | grep -q handover-push && echo in the middle
{0}
kill -CONT $qemu 2>/dev/null
wait
"""
QEMU = "kill -KILL $qemu"
MODULE = "kill -KILL $module"
DAEMON = "systemctl kill --signal=KILL --kill-whom=main libvirtd"
# QEMU, which is stopped, has libvirt's word waiting at its monitor.
ABORT = "virsh domjobabort kept & until ss -xH | awk '/-kept\\/monitor.sock/ && $3 > 0 { found = 1 } END { exit !found }'; do sleep 0.01; done"
# A file system of its own, which a command of the backup fills when all has been looked at.
SMALL = "/srv/guest-small"


class Pushed(Snapshotted):
    """The guest, and its backups and snapshots that QEMU writes."""

    def remove(self) -> None:
        self.host.ask(f"umount {REPOSITORY}")
        super().remove()
        self.host.ask(f"umount /run/handover-push/*; umount {SMALL}; rm -rf {SMALL} {SMALL}.img")

    def slow(self) -> None:
        """The store is on a file system that waits for the disk with each write, so that there is a middle."""
        self.host.run(f"truncate -s 2G {SMALL}.img && mkfs.ext4 -q -F {SMALL}.img && mkdir -p {REPOSITORY} && mount -o loop,sync {SMALL}.img {REPOSITORY}")

    def backup(self) -> dict[str, tuple[str, int, str]]:
        found = super().backup()
        self.nothing_left()
        return found

    def play(self, playbook: str, status: int = 0, **variables: t.Any) -> str:
        mode = {"backup": {"backup_mode": "push"}, "snapshot": {"snapshot_mode": "push"}, "rollback": {"snapshot_mode": "push"}}
        return super().play(playbook, status, **{**mode.get(playbook, {}), **variables})

    def nothing_left(self) -> None:
        assert self.host.run("ls -A /run/handover-push; grep -c handover-push /proc/mounts || true").split() == ["0"]
        assert self.host.run(f"ls {IMAGES} | grep -c 'handover-' || true; ls -d {REPOSITORY}/*/push 2>/dev/null | wc -l").split() == ["0", "0"]
        assert "Job type:         None" in self.host.run("virsh domjobinfo kept") or self.state() == "shut off"

    def latest(self) -> str:
        return self.shown()["images"]["vdb"]

    def is_of_one_moment(self, image: str) -> int:
        """The round that was being written. Blocks before a place have it, and all behind have the one before."""
        said = self.host.run(
            f"qemu-img convert -f qcow2 -O raw {image} /run/moment.raw && for at in $(seq 0 {BLOCKS - 1}); do"
            " dd if=/run/moment.raw bs=64k skip=$at count=1 2>/dev/null | head -c 17 | tr -d '\\0'; echo; done; rm /run/moment.raw",
            240,
        )
        rows = [line.split() for line in said.splitlines()]
        assert len(rows) == BLOCKS and all(int(at) == number for number, (_round, at) in enumerate(rows))
        rounds = [int(each) for each, _at in rows]
        assert rounds == sorted(rounds, reverse=True) and rounds[0] - rounds[-1] in (0, 1), rounds
        return rounds[0]

    def struck(self, strike: str) -> bool:
        """Whether there is a backup by a play that was struck. What is there is whole in any case."""
        before = self.shown()["id"]
        self.writes("vdb", 0, 400)
        asked = {"handover_workload": "kept", "handover_source": self.name, "handover_repository": REPOSITORY, "backup_mode": "push"}
        play = hosts.Play("playbooks/backup.yml", asked)
        assert "in the middle" in self.host.run(STRIKE.format(strike), 180)
        failed = play.end() != 0
        assert (self.shown()["id"] == before) == failed, play.text[-3000:]
        self.verified()
        return not failed

    def verified(self) -> None:
        said = json.loads(self.host.run(f"{PCOPY} snapshot verify --json {REPOSITORY}/kept"))
        assert said["faults"] == []
        for image in self.shown()["images"].values():
            self.host.run(f"qemu-img check -q {image}")


@pytest.fixture(scope="module")
def kept(guests: Guests) -> t.Iterator[Pushed]:
    found = Pushed(guests)
    found.remove()
    try:
        found.make()
        yield found
    finally:
        found.remove()


def test_under_a_writer_it_is_whole_and_then_incremental(kept: Pushed) -> None:
    kept.writes("vdc", 3, 10)
    number = "printf '%08d %08d\\n' 0 $at | dd of=/dev/vdb bs=64k seek=$at conv=sync 2>/dev/null"
    hosts.inside(ADDRESS, f"for at in $(seq 0 {BLOCKS - 1}); do {number}; done; sync", 300)
    hosts.inside(ADDRESS, f"({WRITER}) >/dev/null 2>&1 </dev/null & echo $! >/run/writer", 60)
    assert {how for how, _read, _why in kept.backup().values()} == {"full"}
    first = kept.is_of_one_moment(kept.latest())
    assert kept.shown()["frozen_ms"] > 0, "its agent froze the file systems"
    assert kept.backup()["vdb"][0] == "marks"
    assert kept.is_of_one_moment(kept.latest()) >= first
    hosts.inside(ADDRESS, "kill $(cat /run/writer); sleep 1; sync", 60)
    kept.backup()
    kept.is_in_the_backup()

    kept.writes("vdb", 100, 3)
    kept.writes("vdc", 4, 1)
    found = kept.backup()
    assert found["vdb"] == ("marks", 3 * 65536, "") and found["vda"][0] == "marks" and found["vdc"][0] == "digests"
    assert {each["name"]: each["stored"] for each in kept.shown()["volumes"]}["vdc"] == 65536
    kept.is_in_the_backup()
    kept.verified()
    # The next one is pulled, and goes by the same checkpoint.
    kept.writes("vdb", 200, 1)
    kept.play("backup", backup_mode="pull")
    assert {each["name"]: (each["how"], each["read"]) for each in kept.shown()["volumes"]}["vdb"] == ("marks", 65536)
    kept.is_in_the_backup()
    beats = json.loads(hosts.inside(ADDRESS, "sync; heartbeat -gaps /beat", 60))
    assert (beats["missed"], beats["broken"]) == (0, 0)


def test_a_full_store_takes_no_backup_and_loses_no_bitmap(kept: Pushed) -> None:
    kept.host.run(f"truncate -s 2G {SMALL}.img && mkfs.ext4 -q {SMALL}.img && mkdir -p {SMALL} && mount -o loop {SMALL}.img {SMALL}")
    kept.play("backup", handover_repository=SMALL)
    kept.writes("vdb", 300, 40)
    full = f"fallocate -l $(($(stat -f -c '%a*%S' {SMALL})-65536*8)) {SMALL}/filled"
    said = kept.play("backup", 1, handover_repository=SMALL, backup_before=full)
    assert "QEMU did not write the disks of kept" in said, said
    kept.host.run(f"rm {SMALL}/filled")
    kept.nothing_left()
    kept.play("backup", handover_repository=SMALL)
    points = json.loads(kept.host.run(f"{PCOPY} snapshot list --json {SMALL}/kept"))["snapshots"]
    shown = json.loads(kept.host.run(f"{PCOPY} snapshot show --json {SMALL}/kept {points[-1]['id']}"))
    assert len(points) == 2 and {each["name"]: (each["how"], each["read"]) for each in shown["volumes"]}["vdb"] == ("marks", 40 * 65536)
    said = kept.host.run(f"qemu-img compare --force-share -f qcow2 -F qcow2 {IMAGES}/kept-data.qcow2 {shown['images']['vdb']}")
    assert "Images are identical" in said


def test_struck_it_is_not_there_and_the_next_one_is_whole(kept: Pushed) -> None:
    kept.host.ask(f"umount {SMALL}")
    kept.slow()
    kept.backup()
    for strike in (ABORT, DAEMON, MODULE):
        taken = kept.struck(strike)
        for _again in range(4 if strike == ABORT else 0):  # QEMU, which goes on, may be at its end before it reads libvirt's word
            taken = taken and kept.struck(strike)
        assert not taken or strike == DAEMON, "libvirt goes on with a job when it is started anew"
        assert kept.backup()["vdb"][0] == "marks", strike
        kept.is_in_the_backup()
    assert not kept.struck(QEMU)
    kept.host.run("virsh start kept")
    kept.boots(ADDRESS)
    kept.writes("vdb", 7, 3)
    assert kept.backup()["vdb"][0] == "digests", "QEMU could not close its bitmaps"
    kept.is_in_the_backup()
    kept.verified()


def test_a_snapshot_that_was_pushed_is_gone_back_to_with_another_definition(kept: Pushed) -> None:
    kept.snapshot("one", snapshot_track=True)
    kept.is_as_in("one", "vdb", "vdc")
    kept.writes("vdb", 100, 3)
    kept.snapshot("two", snapshot_track=True)
    assert kept.how("two")["vdb"] == ("marks", 3 * 65536)
    kept.host.run("virsh dumpxml kept --inactive | sed 's|</memory>|</memory><title>after</title>|' >/run/kept.xml && virsh define /run/kept.xml")
    kept.back("one", snapshot_configuration=False)
    kept.is_as_in("one", "vdb", "vdc")
    assert "<title>after</title>" in kept.host.run("virsh dumpxml kept --inactive")
    kept.boots(ADDRESS)
    kept.back("two", snapshot_keep=False)
    kept.is_as_in("two", "vdb", "vdc")
    assert "<title>after</title>" not in kept.host.run("virsh dumpxml kept --inactive")


def test_push_is_for_folders_of_the_host(kept: Pushed) -> None:
    there = f"{kept.other.address}:{REPOSITORY}"
    assert "is on another host, and QEMU pushes into folders of this one" in kept.play("backup", 1, handover_repository=there)
    kept.nothing_left()
