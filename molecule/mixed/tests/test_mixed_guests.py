# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guests between Debian 12 and Debian 13, running and off, with their disks and without; and the check's sentences where that cannot be.

In the order of this file: each test finds the guest that runs where the one before it left it.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import typing as t
from pathlib import Path

import pytest
import yaml

SCENARIO = Path(__file__).resolve().parent.parent
CHECKOUT = SCENARIO.parent.parent
# Another fleet of such hosts may be named.
os.environ.setdefault("FAULTS_INVENTORY", str(CHECKOUT / "lab" / "mixed" / "inventory.yml"))
os.environ.setdefault("FAULTS_PARAMETERS", str(CHECKOUT / "lab" / "mixed" / "parameters.yml"))
sys.path.insert(0, str(CHECKOUT / "tests" / "faults"))

import fleet as hosts

VARIABLES = yaml.safe_load((SCENARIO / "vars.yml").read_text(encoding="utf-8"))
IMAGES = VARIABLES["guest_folder"]
(RUNNING,) = VARIABLES["guests"]
NUMBER = 61  # the end of its address
# Images, and the notes of a move.
LEFT = f"ls -A {IMAGES} /var/lib/handover/guests /var/lib/handover/guest-notes 2>/dev/null | grep -v ':$' | xargs"


class Guests:
    """The host of the older release, and that of the newer one."""

    def __init__(self, reports: Path) -> None:
        self.older, self.newer = sorted(hosts.Fleet(reports).hosts, key=lambda host: host.name)
        self.address = f"{self.older.address.rpartition('.')[0]}.{NUMBER}"

    def other(self, host: hosts.Host) -> hosts.Host:
        return self.newer if host == self.older else self.older

    def standing(self, guest: str) -> dict[str, str]:
        """Host → libvirt's word for the guest there; a host without it is left out."""
        said = {host.name: host.ask(f"virsh --quiet domstate {guest}").stdout.strip() for host in (self.older, self.newer)}
        return {name: state for name, state in said.items() if state}

    def move(self, guest: str, source: hosts.Host, *words: str, **variables: t.Any) -> tuple[int, str]:
        asked = {"handover_workload": guest, "handover_source": source.name, "handover_destination": self.other(source).name, **variables}
        play = hosts.Play("playbooks/kvm_migrate.yml", asked, words=words)
        return play.end(), " ".join(play.text.split())

    def moved(self, guest: str, source: hosts.Host, **variables: t.Any) -> None:
        before = self.standing(guest)[source.name]
        status, text = self.move(guest, source, **variables)
        assert status == 0, text[-4000:]
        assert self.standing(guest) == {self.other(source).name: before}

    def refused(self, guest: str, source: hosts.Host, *named: str, **variables: t.Any) -> None:
        """By the check and by the move, in the same words, and nothing is touched."""
        before = self.standing(guest), [host.run(LEFT) for host in (self.older, self.newer)]
        for words in (("--check",), ()):
            status, text = self.move(guest, source, *words, **variables)
            assert status != 0, text[-4000:]
            assert [each for each in named if each not in text] == [], text[-4000:]
        assert (self.standing(guest), [host.run(LEFT) for host in (self.older, self.newer)]) == before

    def beats(self) -> dict[str, t.Any] | None:
        """The account that the heartbeat in the running guest gives of its disk; None while nobody answers."""
        with contextlib.suppress(OSError, AssertionError, ValueError):
            return t.cast("dict[str, t.Any]", json.loads(hosts.inside(self.address, "sync; echo 3 >/proc/sys/vm/drop_caches; heartbeat -gaps /beat", 60)))
        return None


@pytest.fixture(name="guests", scope="module")
def both_hosts(tmp_path_factory: pytest.TempPathFactory) -> Guests:
    return Guests(tmp_path_factory.mktemp("reports"))


def test_a_running_guest_moves_to_the_newer_release_and_back_if_one_says_so(guests: Guests) -> None:
    before = hosts.until("the guest has booted", guests.beats, 240)
    guests.moved(RUNNING, guests.older, kvm_migrate_storage="copy", kvm_migrate_remove_source=True)
    after = hosts.until("the guest answers", guests.beats, 60)
    assert after["beats"] > before["beats"]
    assert (after["missed"], after["broken"]) == (0, 0)
    guests.refused(RUNNING, guests.newer, "the destination has an older libvirt", "kvm_migrate_ignore=versions", kvm_migrate_storage="copy")
    back = {"kvm_migrate_ignore": ["versions"], "kvm_migrate_connections": 2, "kvm_migrate_remove_source": True}
    guests.moved(RUNNING, guests.newer, kvm_migrate_storage="copy", **back)
    now = hosts.until("the guest answers", guests.beats, 60)
    assert now["beats"] > after["beats"]
    assert (now["missed"], now["broken"]) == (0, 0)
    assert [host.run(LEFT).split() for host in (guests.older, guests.newer)] == [[f"{RUNNING}.raw"], []]


def test_packed_memory_is_refused_where_a_release_cannot(guests: Guests) -> None:
    named = "libvirt (9.0.0) cannot have QEMU pack memory on several connections", "choose kvm_migrate_compression=none"
    guests.refused(RUNNING, guests.older, *named, kvm_migrate_storage="copy", kvm_migrate_compression="zstd")


@contextlib.contextmanager
def guest(guests: Guests, host: hosts.Host, machine: str, devices: str = "", os: str = "") -> t.Iterator[str]:
    """A guest that is off, without a kernel. Afterwards nothing of it is on either host."""
    name = "other"
    xml = (
        f"<domain type='qemu'><name>{name}</name><memory unit='MiB'>64</memory><os {os}><type arch='x86_64' machine='{machine}'>hvm</type></os>"
        f"<features><acpi/></features><devices>{devices}</devices></domain>"
    )
    try:
        host.run(f"cat >/run/{name}.xml <<'EOF'\n{xml}\nEOF\nvirsh --quiet define /run/{name}.xml")
        yield name
    finally:
        for each in (guests.older, guests.newer):
            each.ask(f"virsh destroy {name}; virsh undefine --nvram --tpm {name}; rm -f /run/{name}.xml")
            each.ask("rm -rf /var/lib/libvirt/swtpm/*.migrated /var/lib/libvirt/qemu/nvram/*.migrated")


@contextlib.contextmanager
def disk_of_both(host: hosts.Host) -> t.Iterator[str]:
    """A disk that both hosts reach over the network."""
    unit, image = "other-storage", "/run/other.raw"
    try:
        serve = f"qemu-nbd --persistent --shared=4 --format=raw --export-name=other --bind={host.address} --port=10809 {image}"
        host.run(f"truncate --size=16M {image}; systemd-run --quiet --unit={unit} --collect {serve}")
        yield (
            f"<disk type='network' device='disk'><driver name='qemu' type='raw' cache='none'/><source protocol='nbd' name='other'><host name='{host.address}' "
            "port='10809'/></source><target dev='vda' bus='virtio'/></disk>"
        )
    finally:
        host.ask(f"systemctl stop {unit}; rm -f {image}")


def test_variables_keys_and_a_shared_disk_between_the_releases(guests: Guests) -> None:
    """The newer libvirt writes words and devices into every definition that the older one does not know, and that say nothing new to it."""
    read = "cd /var/lib/libvirt && find qemu/nvram swtpm -type f -exec sha256sum {} + | sort"
    tpm = "<tpm model='tpm-crb'><backend type='emulator' version='2.0'/></tpm>"
    with disk_of_both(guests.newer) as disk, guest(guests, guests.newer, "pc-q35-7.2", disk + tpm, "firmware='efi'") as name:
        guests.newer.run(f"virsh --quiet start {name}; virsh --quiet destroy {name}")
        definition = guests.newer.run(f"virsh dumpxml {name}")
        assert all(word in definition for word in ("templateFormat='raw'", "model='itco'"))
        before = guests.newer.run(read).splitlines()
        guests.moved(name, guests.newer, kvm_migrate_mode="offline")
        assert [line for line in before if line not in guests.older.run(read).splitlines()] == []
        guests.older.run(f"virsh --quiet start {name}")
        guests.moved(name, guests.older)
        assert "templateFormat" in guests.newer.run(f"virsh dumpxml {name}")


@pytest.mark.parametrize(
    ("to_newer", "machine", "devices", "named"),
    [
        pytest.param(False, "pc-q35-10.0", "", ["machine pc-q35-10.0", "give it a machine that both have, as pc-q35-7.2"], id="machine of the newer"),
        pytest.param(True, "pc-i440fx-2.1", "", ["machine pc-i440fx-2.1", "give it a machine that both have, as pc-i440fx-7.2"], id="machine of the older"),
        pytest.param(
            False, "pc-q35-7.2", "<sound model='virtio'/>", ["the destination's libvirt does not take the definition", "virtio"], id="device of the newer"
        ),
    ],
)
def test_what_a_release_does_not_have_is_said_by_the_check(guests: Guests, to_newer: bool, machine: str, devices: str, named: list[str]) -> None:
    host = guests.older if to_newer else guests.newer
    with guest(guests, host, machine, devices) as name:
        guests.refused(name, host, *named, kvm_migrate_mode="offline")
