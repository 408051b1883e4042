# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A guest has snapshots on its own host, and goes back to them in place. Whether an image is the same is QEMU's own word."""

from __future__ import annotations

import json
import re
import typing as t

import fleet as hosts
import pytest
from conftest import IMAGES, Guests
from test_guests_backup import ADDRESS, DISKS, PCOPY, REPOSITORY, Kept

ROOT = "/var/lib/handover/snapshots"
STORE = f"{ROOT}/.disks/kept"
FIRMWARE = "<loader readonly='yes' type='pflash'>/usr/share/OVMF/OVMF_CODE_4M.fd</loader><nvram>/var/lib/libvirt/qemu/nvram/kept_VARS.fd</nvram>"
TPM = "<tpm model='tpm-crb'><backend type='emulator' version='2.0'/></tpm>"
CLONE = {"vda": "kept-try-vda.qcow2", "vdb": "kept-try-vdb.qcow2", "vdc": "kept-try-vdc.raw"}
MAC = "52:54:00:d9:00:77"
MOUNTED = f"{ROOT}/.mounted/kept/off"
# A disk of the size of vdb with a partition table: ext4 with a file, swap space, and nothing.
PARTITIONS = r"""
set -e
cd /run && rm -rf parts && mkdir -p parts/tree && cd parts && umask 077
echo 'a file of the guest' >tree/file && truncate -s 8M one && mkfs.ext4 -q -d tree one && truncate -s 4M two && mkswap two >/dev/null
truncate -s 32M disk
printf '\0\0\0\0\x83\0\0\0\0\x08\0\0\0\x40\0\0\0\0\0\0\x82\0\0\0\0\x48\0\0\0\x20\0\0\0\0\0\0\x83\0\0\0\0\x68\0\0\0\x08\0\0' |
  dd of=disk bs=1 seek=446 conv=notrunc status=none
printf '\x55\xaa' | dd of=disk bs=1 seek=510 conv=notrunc status=none
dd if=one of=disk bs=512 seek=2048 conv=notrunc status=none && dd if=two of=disk bs=512 seek=18432 conv=notrunc status=none
"""
# The rollback's helper and the module that has called it, killed as soon as it writes.
STRIKE = """
for n in $(seq 1200); do
  pid=$(pgrep -f '[p]copy snapshot restore --json --current' | head -n 1)
  [ -n "$pid" ] && { kill -KILL $(ps -o ppid= -p $pid) $pid; echo struck; break; }
  sleep 0.05
done
"""


class Snapshotted(Kept):
    """The guest, and its snapshots."""

    # Of the files beside its disks, at the snapshot `off`.
    then: t.ClassVar[list[str]] = []

    def with_variables_and_a_tpm(self) -> None:
        """While it is off. It boots its own kernel all the same, for which this firmware needs more memory."""
        self.host.run("cp /usr/share/OVMF/OVMF_VARS_4M.fd /var/lib/libvirt/qemu/nvram/kept_VARS.fd")
        self.host.run(
            "virsh dumpxml kept --inactive >/run/kept.xml && sed --in-place"
            f' -e "s|<kernel>|{FIRMWARE}<kernel>|" -e "s|</devices>|{TPM}</devices>|" -e "s|>131072<|>524288<|" /run/kept.xml && virsh define /run/kept.xml'
        )

    def remove(self) -> None:
        self.host.ask(f"umount {MOUNTED}/*; rm -rf {MOUNTED} {ROOT}/.clones/kept-try.json; virsh destroy kept-try; virsh undefine kept-try --nvram --tpm")
        self.host.ask("virsh destroy kept; virsh undefine kept --nvram --tpm --checkpoints-metadata")
        super().remove()
        self.host.ask(f"rm -rf {ROOT}/kept {STORE} /var/lib/libvirt/qemu/nvram/kept*")

    def snapshot(self, name: str, status: int = 0, playbook: str = "snapshot", **variables: t.Any) -> str:
        return self.play(playbook, status, **{"handover_repository": None, "handover_snapshot": name, **variables})

    def back(self, name: str, status: int = 0, **variables: t.Any) -> str:
        return self.play("rollback", status, handover_repository=None, handover_snapshot=name, **variables)

    def play(self, playbook: str, status: int = 0, **variables: t.Any) -> str:
        asked = {"handover_workload": "kept", "handover_source": self.name, "handover_repository": REPOSITORY, **variables}
        play = hosts.Play(f"playbooks/{playbook}.yml", {name: value for name, value in asked.items() if value is not None})
        assert (play.end() != 0) == bool(status), play.text[-6000:]
        return hosts.sentences(play.text) if status else play.text

    def of(self, name: str) -> dict[str, t.Any]:
        """A snapshot, as the helper tells of it."""
        return json.loads(self.host.run(f"{PCOPY} snapshot show --json {STORE} {name}"))

    def how(self, name: str) -> dict[str, tuple[str, int]]:
        return {volume["name"]: (volume["how"], volume["read"]) for volume in self.of(name)["volumes"]}

    def names(self) -> list[str]:
        return self.host.run(f"ls {ROOT}/kept").split()

    def is_as_in(self, name: str, *targets: str) -> None:
        images = self.of(name)["images"]
        for target in targets:
            kind, file = DISKS[target]
            said = self.host.run(f"qemu-img compare --force-share -f {kind} -F qcow2 {IMAGES}/{file} {images[target]}")
            assert "Images are identical" in said

    def clone(self, **variables: t.Any) -> str:
        return self.snapshot("off", handover_clone="kept-try", playbook="clone", **variables)

    def state(self) -> str:
        return self.host.run("virsh domstate kept").strip()

    def digests(self, guest: str = "kept") -> list[str]:
        """Of the variables of its firmware, and the state of its TPM."""
        return self.host.run(f"cd /var/lib/libvirt && sha256sum qemu/nvram/{guest}_VARS.fd swtpm/$(virsh domuuid {guest})/tpm2/* | cut -d ' ' -f 1").split()


@pytest.fixture(scope="module")
def kept(guests: Guests) -> t.Iterator[Snapshotted]:
    found = Snapshotted(guests)
    found.remove()
    try:
        found.make()
        yield found
    finally:
        found.remove()


def test_the_second_is_incremental_and_the_way_back_is_to_the_byte(kept: Snapshotted) -> None:
    kept.writes("vdb", 5, 20)
    kept.writes("vdc", 3, 10)
    kept.snapshot("one", snapshot_track=True)
    assert {how for how, _read in kept.how("one").values()} == {"full"} and kept.of("one")["frozen_ms"] > 0
    kept.is_as_in("one", "vdb", "vdc")
    (checkpoint,) = kept.checkpoints()

    kept.writes("vdb", 100, 3)
    said = kept.snapshot("two", snapshot_track=True)
    assert re.findall(r"kept +(one|two) +[0-9TZ:-]+ +(one)? +(True|False) ", said) == [("one", "", "False"), ("two", "one", "True")]
    assert kept.how("two")["vdb"] == ("marks", 3 * 65536) and kept.how("two")["vdc"][0] == "digests"
    kept.is_as_in("two", "vdb", "vdc")
    assert len(kept.checkpoints()) == 1 and checkpoint not in kept.checkpoints()

    kept.backup()
    kept.writes("vdc", 4, 2)
    kept.back("one")
    kept.is_as_in("one", "vdb", "vdc")
    kept.boots(ADDRESS)
    assert kept.backup()["vdb"][::2] == ("marks", ""), "the backups' bitmap has the rollback's writes"
    kept.is_in_the_backup()
    (undo,) = [name for name in kept.names() if name.startswith("undo-")]
    kept.host.run("virsh destroy kept")
    kept.back(undo, snapshot_keep=False)
    kept.is_as_in(undo, "vdb", "vdc")
    assert kept.state() == "running" and kept.host.run(f"ls {IMAGES} | grep -c 'handover-' || true").strip() == "0"
    kept.snapshot("two", handover_state="absent")
    assert "two" not in kept.names()

    said = kept.play("backup_restore", handover_repository=f"{ROOT}/.disks", handover_backup="one", handover_clone="kept-then")
    assert "kept-then is as kept was at" in said and "and is off" in said
    for target, (kind, _file) in DISKS.items():
        said = kept.host.run(f"qemu-img compare -f {kind} -F qcow2 {IMAGES}/kept-then-{target}.{kind} {kept.of('one')['images'][target]}")
        assert "Images are identical" in said


def test_a_guest_that_is_off_goes_back_with_its_variables_and_its_tpm(kept: Snapshotted) -> None:
    kept.host.run("virsh destroy kept")
    kept.with_variables_and_a_tpm()
    kept.host.run("virsh start kept")
    kept.boots(ADDRESS)
    kept.host.run("virsh destroy kept")
    kept.host.run(f"{PARTITIONS}\nqemu-img convert -n -f raw -O qcow2 disk {IMAGES}/kept-data.qcow2")
    kept.snapshot("off")
    kept.then = kept.digests()
    kept.is_as_in("off", *DISKS)

    kept.host.run("cd /var/lib/libvirt && echo lost >qemu/nvram/kept_VARS.fd && echo lost >swtpm/$(virsh domuuid kept)/tpm2/tpm2-00.permall")
    kept.host.run(f"qemu-io -f qcow2 -c 'write -P 7 0 4M' {IMAGES}/kept.qcow2 && virsh autostart kept")
    kept.back("off", snapshot_keep=False)
    assert kept.digests() == kept.then and kept.state() == "shut off"
    assert "Autostart:      disable" in kept.host.run("virsh dominfo kept")
    kept.is_as_in("off", *DISKS)
    kept.host.run("virsh start kept")
    kept.boots(ADDRESS)


def test_its_partitions_are_mounted_and_all_others_told(kept: Snapshotted) -> None:
    for changed in (1, 0):
        said = kept.snapshot("off", handover_state="mounted")
        assert re.findall(r"mounted on (\S+)", said) == [f"{MOUNTED}/vda", f"{MOUNTED}/vdb1"] and f"changed={changed}" in said
        assert [line for line in ("vdb2 is swap space", "vdb3 has no file system", "vdc has no file system") if line not in said] == []
    assert kept.host.run(f"cat {MOUNTED}/vdb1/file; test -s {MOUNTED}/vda/beat && echo writes") == "a file of the guest\nwrites\n"
    assert "Read-only file system" in kept.host.ask(f"touch {MOUNTED}/vdb1/new").stderr
    assert "the snapshot off is mounted below" in kept.snapshot("off", 1, handover_state="absent")
    kept.snapshot("off", handover_state="unmounted")
    assert kept.host.run(f"ls -A {ROOT}/.mounted/kept; losetup --list --noheadings --output BACK-FILE | grep -c {ROOT} || true").split() == ["0"]


def test_a_clone_is_another_guest_with_the_files_of_that_moment(kept: Snapshotted) -> None:
    assert "kept-try is as kept@off, and is off" in kept.clone(clone_macs=[MAC])
    assert kept.digests("kept-try") == kept.then and MAC in kept.host.run("virsh domiflist kept-try")
    for target, file in CLONE.items():
        said = kept.host.run(f"qemu-img compare -f {DISKS[target][0]} -F qcow2 {IMAGES}/{file} {kept.of('off')['images'][target]}")
        assert "Images are identical" in said
    assert "changed=0" in kept.clone()
    # With the addresses of the first it may not run beside it.
    kept.host.run("virsh start kept-try --paused")
    # Other guests of the scenario may be on this host.
    assert {"kept", "kept-try"} <= set(kept.host.run("virsh list --name").split())
    kept.play("clone", handover_workload=None, handover_repository=None, handover_clone="kept-try", handover_state="absent")
    assert "kept-try" not in kept.host.run(f"virsh list --all --name; ls {IMAGES} /var/lib/libvirt/qemu/nvram /var/lib/libvirt/swtpm /var/log {ROOT}/.clones")


def test_struck_it_cannot_start_until_it_is_whole(kept: Snapshotted) -> None:
    kept.snapshot("three")
    kept.writes("vdb", 7, 200)
    play = hosts.Play("playbooks/rollback.yml", {"handover_workload": "kept", "handover_source": kept.name, "handover_snapshot": "three"})
    assert "struck" in kept.host.run(STRIKE, 90)
    assert play.end() != 0
    assert "Cannot access storage file" in kept.host.ask("virsh start kept").stderr
    assert "a rollback of kept was begun, and has not ended" in kept.snapshot("half", 1)
    kept.back("three")
    kept.is_as_in("three", "vdb", "vdc")
    kept.boots(ADDRESS)


def test_refused_before_anything_is_touched(kept: Snapshotted) -> None:
    before = kept.names()
    assert "no snapshot has its memory: leave handover_memory away" in kept.snapshot("memory", 1, handover_memory=True)
    assert "kept is the name of the guest itself" in kept.snapshot("three", 1, playbook="clone", handover_clone="kept")
    kept.host.run("virsh suspend kept")
    assert "it is not running but 'paused'" in kept.snapshot("paused", 1)
    assert "it is 'paused': end it first" in kept.back("three", 1)
    kept.host.run("virsh resume kept && qemu-img create -q -f qcow2 /var/lib/libvirt/images/kept-more.qcow2 1M")
    kept.host.run("virsh attach-disk kept /var/lib/libvirt/images/kept-more.qcow2 vdd --driver qemu --subdriver qcow2 --live")
    assert "its disks are others than in the snapshot (vdd is" in kept.back("three", 1)
    assert kept.names() == before and kept.state() == "running"
