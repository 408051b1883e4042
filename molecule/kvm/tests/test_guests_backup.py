# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A guest that runs is backed up, and comes back. Whether an image is the same is QEMU's own word."""

from __future__ import annotations

import json
import re
import typing as t

import fleet as hosts
import pytest
from conftest import IMAGES, VARIABLES, Guests

REPOSITORY = "/srv/guest-backups"
PCOPY = "/usr/local/libexec/handover/pcopy"
NETWORK = VARIABLES["guests"]["own"]["address"].rpartition(".")[0]
ADDRESS, ADDRESS_THEN = f"{NETWORK}.53", f"{NETWORK}.54"
DISKS = {"vda": ("qcow2", "kept.qcow2"), "vdb": ("qcow2", "kept-data.qcow2"), "vdc": ("raw", "kept-raw.raw")}

DISK = "<disk type='file' device='disk'><driver name='qemu' type='{0}'/><source file='{1}/{2}'/><target dev='{3}' bus='virtio'/></disk>"
DOMAIN = """<domain type='{kind}'>
  <name>kept</name><memory unit='MiB'>128</memory><vcpu>1</vcpu>
  <os>
    <type arch='x86_64' machine='q35'>hvm</type><kernel>/srv/guests/small/vmlinuz</kernel><initrd>/srv/guests/small/initrd</initrd>
    <cmdline>quiet no_timer_check mitigations=off console=ttyS0 root=/dev/vda handover.name=kept handover.address={address}/24</cmdline>
  </os>
  <features><acpi/></features>
  <devices>{disks}
    <interface type='bridge'><source bridge='br0'/><model type='virtio'/></interface>
    <serial type='file'><source path='/var/log/kept.console' append='on'/></serial>
    <channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>
  </devices>
</domain>"""


class Kept:
    """The guest that is backed up, and its host."""

    def __init__(self, guests: Guests) -> None:
        self.guests = guests
        self.name, self.there = sorted(guests.hosts)[:2]
        self.host, self.other = guests.hosts[self.name], guests.hosts[self.there]

    def make(self) -> None:
        disks = "".join(DISK.format(kind, IMAGES, file, target) for target, (kind, file) in DISKS.items())
        self.host.run(
            f"cd {IMAGES} && qemu-img convert -f raw -O qcow2 /srv/guests/small/disk.raw kept.qcow2 &&"
            " qemu-img create -q -f qcow2 kept-data.qcow2 32M && qemu-img create -q -f raw kept-raw.raw 16M &&"
            f" cat >/run/kept.xml <<'END'\n{DOMAIN.format(kind=VARIABLES['guest_kind'], address=ADDRESS, disks=disks)}\nEND\n"
            "virsh define /run/kept.xml && virsh start kept"
        )
        self.boots(ADDRESS)

    def remove(self) -> None:
        for host in self.guests.hosts.values():
            host.ask("for guest in kept kept-then; do virsh destroy $guest; virsh undefine $guest --checkpoints-metadata; done")
            host.ask(f"podman rm --force kept; rm -rf {IMAGES}/kept* /var/log/kept.console* {REPOSITORY}")

    def boots(self, address: str) -> None:
        def up() -> bool:
            try:
                return "writes" in hosts.inside(address, "test -s /beat && echo writes")
            except (OSError, AssertionError):
                return False

        hosts.until(f"the guest at {address} has booted", up, 480)

    def writes(self, disk: str, at: int, clusters: int) -> None:
        """Clusters of 64 KiB that differ from all before."""
        hosts.inside(ADDRESS, f"dd if=/dev/urandom of=/dev/{disk} bs=64k seek={at} count={clusters} 2>/dev/null; sync", 120)

    def play(self, playbook: str, status: int = 0, **variables: t.Any) -> str:
        asked = {"handover_workload": "kept", "handover_source": self.name, "handover_repository": REPOSITORY, **variables}
        play = hosts.Play(f"playbooks/{playbook}.yml", asked)
        assert (play.end() != 0) == bool(status), play.text[-6000:]
        return hosts.sentences(play.text) if status else play.text

    def backup(self) -> dict[str, tuple[str, int, str]]:
        """By disk: how the difference was found, how many bytes were read, and why not by a checkpoint."""
        text = self.play("backup")
        rows = re.findall(r"^ +(vd[abc]) +(full|marks|digests) +(\d+) +\d+(.*)$", text, flags=re.MULTILINE)
        assert len(rows) == len(DISKS), text[-4000:]
        return {disk: (how, int(read), why.strip()) for disk, how, read, why in rows}

    def shown(self) -> dict[str, t.Any]:
        """The latest backup, as the helper tells of it."""
        points = json.loads(self.host.run(f"{PCOPY} snapshot list --json {REPOSITORY}/kept"))["snapshots"]
        return json.loads(self.host.run(f"{PCOPY} snapshot show --json {REPOSITORY}/kept {points[-1]['id']}"))

    def is_in_the_backup(self) -> None:
        """The disks that nothing writes to now are those of the latest backup."""
        images = self.shown()["images"]
        for target in ("vdb", "vdc"):
            kind, file = DISKS[target]
            said = self.host.run(f"qemu-img compare --force-share -f {kind} -F qcow2 {IMAGES}/{file} {images[target]}")
            assert "Images are identical" in said

    def checkpoints(self) -> list[str]:
        return self.host.run("virsh checkpoint-list kept --name").split()


@pytest.fixture(scope="module")
def kept(guests: Guests) -> t.Iterator[Kept]:
    found = Kept(guests)
    found.remove()
    try:
        found.make()
        yield found
    finally:
        found.remove()


def test_the_first_is_whole_and_later_ones_go_by_checkpoints(kept: Kept) -> None:
    kept.writes("vdb", 5, 20)
    kept.writes("vdc", 3, 10)
    assert {how for how, _read, _why in kept.backup().values()} == {"full"}
    kept.is_in_the_backup()
    assert kept.shown()["frozen_ms"] > 0, "its agent froze the file systems"

    kept.writes("vdb", 100, 3)
    kept.writes("vdc", 4, 1)
    found = kept.backup()
    assert found["vdb"] == ("marks", 3 * 65536, "") and found["vda"][0] == "marks"
    assert found["vdc"][0] == "digests" and found["vdc"][2] == "an image of the format raw keeps no list of what was written"
    kept.is_in_the_backup()

    (checkpoint,) = kept.checkpoints()
    kept.host.run(f"virsh checkpoint-delete kept {checkpoint} --metadata")
    kept.writes("vdb", 200, 1)
    assert kept.backup()["vdb"][::2] == ("digests", f"libvirt has lost the checkpoint of the backup before ({checkpoint})")
    kept.is_in_the_backup()
    assert len(kept.checkpoints()) == 1 and kept.host.run(f"ls {IMAGES} | grep -c 'handover-' || true").strip() == "0"

    listed = kept.play("backup_list", handover_verify=True, handover_report_dir=str(kept.guests.reports))
    assert len(re.findall(r"kept +KVM guest", listed)) == 3
    beats = json.loads(hosts.inside(ADDRESS, "sync; heartbeat -gaps /beat", 60))
    assert (beats["missed"], beats["broken"]) == (0, 0)


def test_it_comes_back_under_another_name_there_and_under_its_own_here(kept: Kept) -> None:
    from_there = {"handover_source": kept.there, "handover_repository": f"{kept.host.address}:{REPOSITORY}"}
    assert f"kept runs on {kept.name} and must not run twice" in kept.play("backup_restore", 1, **from_there)
    assert "it is 'running' here and must not run twice" in kept.play("backup_restore", 1)

    said = kept.play("backup_restore", handover_clone="kept-then", **from_there)
    assert "kept-then is as kept was at" in said and "and is off" in said
    kept.other.run(f"virsh dumpxml kept-then --inactive | sed s/{ADDRESS}/{ADDRESS_THEN}/ >/run/then.xml && virsh define /run/then.xml")
    kept.other.run("virsh start kept-then")
    kept.boots(ADDRESS_THEN)
    digest = "dd if=/dev/vdb bs=1M 2>/dev/null | sha256sum"
    assert hosts.inside(ADDRESS_THEN, digest, 120) == hosts.inside(ADDRESS, digest, 120)
    kept.other.run("virsh destroy kept-then")

    kept.writes("vdb", 5, 1)
    kept.host.run("virsh destroy kept")
    said = kept.play("backup_restore")
    assert "and runs." in said and said.count("Kept as it was: ") == len(DISKS)
    kept.boots(ADDRESS)
    assert not kept.checkpoints(), "they were of the images before"
    kept.is_in_the_backup()
    assert kept.backup()["vdb"][0] == "digests"


def test_refused_before_anything_is_touched(kept: Kept) -> None:
    before = kept.shown()["id"]
    kept.host.run("podman create --name kept localhost/handover/tools:lab")
    assert "kept is a container and a KVM guest on this host" in kept.play("backup", 1)
    kept.host.run("podman rm kept")

    job = "<domainbackup mode='pull'><server transport='unix' socket='/run/others.sock'/></domainbackup>"
    kept.host.run(f'echo "{job}" >/run/job.xml && install -d -m 777 /run/others && sed -i s,/run/others.sock,/run/others/sock, /run/job.xml')
    kept.host.run("virsh backup-begin kept /run/job.xml")
    assert "libvirt is at another job on it" in kept.play("backup", 1)
    assert "/run/others/sock" in kept.host.run("virsh backup-dumpxml kept"), "it goes on"
    kept.host.run("virsh domjobabort kept")

    kept.host.run("virsh destroy kept")
    assert "it is not running but 'shut off'" in kept.play("backup", 1)
    assert kept.shown()["id"] == before
