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

    def with_variables_and_a_tpm(self) -> None:
        """While it is off. It boots its own kernel all the same, for which this firmware needs more memory."""
        self.host.run("cp /usr/share/OVMF/OVMF_VARS_4M.fd /var/lib/libvirt/qemu/nvram/kept_VARS.fd")
        self.host.run(
            "virsh dumpxml kept --inactive >/run/kept.xml && sed --in-place"
            f' -e "s|<kernel>|{FIRMWARE}<kernel>|" -e "s|</devices>|{TPM}</devices>|" -e "s|>131072<|>524288<|" /run/kept.xml && virsh define /run/kept.xml'
        )

    def remove(self) -> None:
        self.host.ask("virsh destroy kept; virsh undefine kept --nvram --tpm --checkpoints-metadata")
        super().remove()
        self.host.ask(f"rm -rf {ROOT}/kept {STORE} /var/lib/libvirt/qemu/nvram/kept*")

    def snapshot(self, name: str, status: int = 0, **variables: t.Any) -> str:
        return self.play("snapshot", status, handover_repository=None, handover_snapshot=name, **variables)

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

    def state(self) -> str:
        return self.host.run("virsh domstate kept").strip()

    def beside(self) -> str:
        """The variables of its firmware, and the state of its TPM."""
        return self.host.run("cd /var/lib/libvirt && sha256sum qemu/nvram/kept_VARS.fd swtpm/$(virsh domuuid kept)/tpm2/*")


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
    kept.snapshot("off")
    then = kept.beside()
    kept.is_as_in("off", *DISKS)

    kept.host.run("cd /var/lib/libvirt && echo lost >qemu/nvram/kept_VARS.fd && echo lost >swtpm/$(virsh domuuid kept)/tpm2/tpm2-00.permall")
    kept.host.run(f"qemu-io -f qcow2 -c 'write -P 7 0 4M' {IMAGES}/kept.qcow2 && virsh autostart kept")
    kept.back("off", snapshot_keep=False)
    assert kept.beside() == then and kept.state() == "shut off"
    assert "Autostart:      disable" in kept.host.run("virsh dominfo kept")
    kept.is_as_in("off", *DISKS)
    kept.host.run("virsh start kept")
    kept.boots(ADDRESS)


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
    assert "its disks are not mounted on a host" in kept.snapshot("three", 1, handover_state="mounted")
    kept.host.run("virsh suspend kept")
    assert "it is not running but 'paused'" in kept.snapshot("paused", 1)
    assert "it is 'paused': end it first" in kept.back("three", 1)
    kept.host.run("virsh resume kept && qemu-img create -q -f qcow2 /var/lib/libvirt/images/kept-more.qcow2 1M")
    kept.host.run("virsh attach-disk kept /var/lib/libvirt/images/kept-more.qcow2 vdd --driver qemu --subdriver qcow2 --live")
    assert "its disks are others than in the snapshot (vdd is" in kept.back("three", 1)
    assert kept.names() == before and kept.state() == "running"
