# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guests there and back. In the order in which they stand: each test begins where the one before left the guests."""

from __future__ import annotations

import csv
import typing as t

import pytest
from conftest import IMAGES, Guests
from fleet import Play, sentences

NOTHING: dict[str, dict[str, str]] = {"kn1": {}, "kn2": {}}


def test_it_has_moved(guests: Guests) -> None:
    assert guests.standing("own") == {"kn2": "running"}
    assert "Persistent:     yes" in guests.hosts["kn2"].run("virsh dominfo own")
    assert guests.left_over() == {"kn1": {"images": "own.raw.migrated"}, "kn2": {}}
    assert guests.hosts["kn1"].ask(f"test -e {IMAGES}/own.raw").returncode == 1
    guests.is_whole("own")


def test_asking_again_changes_nothing(guests: Guests) -> None:
    said = guests.moved("own", "kn1", kvm_migrate_storage="copy")
    assert "changed=0" in next(line for line in said.splitlines() if line.startswith("kn1 "))
    assert guests.standing("own") == {"kn2": "running"}


def test_a_check_touches_nothing(guests: Guests) -> None:
    play = guests.begin("own", "kn2", "--check", kvm_migrate_storage="copy")
    assert play.end() == 0, play.text[-4000:]
    assert "own can go from kn2 to kn1" in play.text
    assert guests.standing("own") == {"kn2": "running"}
    assert guests.left_over()["kn1"] == {"images": "own.raw.migrated"}


def test_back_with_its_disk_and_nothing_kept(guests: Guests) -> None:
    said = guests.moved("own", "kn2", kvm_migrate_storage="copy", kvm_migrate_remove_source=True, kvm_migrate_synchronous_writes=True)
    assert "own has moved from kn2 to kn1 (live)" in said
    assert guests.standing("own") == {"kn1": "running"}
    guests.hosts["kn1"].run(f"rm {IMAGES}/own.raw.migrated")
    assert guests.left_over() == NOTHING
    assert guests.hosts["kn2"].ask(f"test -e {IMAGES}/own.raw").returncode == 1
    guests.is_whole("own")


@pytest.mark.parametrize("variables", [{}, {"kvm_migrate_compression": "zstd", "kvm_migrate_connections": 2}], ids=["as it is", "packed"])
def test_a_disk_that_both_hosts_reach_stays_where_it_is(guests: Guests, variables: dict[str, t.Any]) -> None:
    (source,) = guests.running_on("shared")
    said = guests.moved("shared", source, **variables)
    assert "disks travelled   none" in said
    assert f"memory was sent   {variables.get('kvm_migrate_compression', 'as it is')}" in said
    assert list(guests.standing("shared")) == [guests.other(source)]
    guests.is_whole("shared")
    assert guests.left_over() == NOTHING


def test_the_guest_never_ran_on_both(guests: Guests) -> None:
    numbers = guests.numbers("own")
    assert all(numbers.values()), "it has been on both hosts"
    assert not set(numbers["kn1"]) & set(numbers["kn2"])


@pytest.mark.parametrize(
    ("before", "variables", "text", "after"),
    [
        pytest.param("", {}, "vda as it is: the image is on a file system of this host alone: migrate with the storage", "", id="a disk of one host"),
        pytest.param("", {"kvm_migrate_mode": "offline"}, "own runs, and kvm_migrate_mode=offline moves guests that do not", "", id="offline and running"),
        pytest.param("virsh suspend own", {"kvm_migrate_storage": "copy"}, "own is paused, and would be let run", "virsh resume own", id="paused"),
        pytest.param("", {"handover_destination": "kn9"}, "handover_destination: kn9 is not in the inventory", "", id="no such host"),
        pytest.param("", {"handover_workload": "shop"}, "this host has no guest shop", "", id="no such guest"),
        pytest.param("", {"kvm_migrate_uri": "qemu+ssh://10.217.0.99/system"}, "libvirt on the destination cannot be reached", "", id="no answer"),
    ],
)
def test_what_is_in_the_way_is_named(guests: Guests, before: str, variables: dict[str, t.Any], text: str, after: str) -> None:
    guests.hosts["kn1"].run(before or "true")
    try:
        assert text in guests.refused("own", "kn1", **variables)
        assert guests.left_over() == NOTHING
    finally:
        guests.hosts["kn1"].run(after or "true")


@pytest.mark.parametrize(
    ("before", "text", "after"),
    [
        pytest.param(
            f"touch {IMAGES}/own.raw", "own.raw is on the destination already, and the disk vda of own", f"rm {IMAGES}/own.raw", id="image"
        ),
        pytest.param(
            "echo '<domain type=\"qemu\"><name>own</name><memory>1024</memory><os><type>hvm</type></os></domain>' | virsh define /dev/stdin",
            "the destination has another guest own, with the UUID",
            "virsh undefine own",
            id="namesake",
        ),
    ],
)
def test_what_is_on_the_destination_is_not_touched(guests: Guests, before: str, text: str, after: str) -> None:
    guests.hosts["kn2"].run(before)
    try:
        play = guests.begin("own", "kn1", kvm_migrate_storage="copy")
        assert play.end() != 0, play.text[-4000:]
        assert text in sentences(play.text)
        assert guests.running_on("own") == ["kn1"]
    finally:
        guests.hosts["kn2"].run(after)
    assert guests.left_over() == NOTHING


def test_a_device_whose_cache_stays_behind_is_refused(guests: Guests) -> None:
    """Both hosts see the device, and libvirt would migrate."""
    kn1 = guests.hosts["kn1"]
    device = kn1.run("truncate -s 16M /run/lun.img && losetup --find --show /run/lun.img").strip()
    xml = (
        "<domain type='qemu'><name>lun</name><memory unit='MiB'>32</memory><os><type arch='x86_64' machine='q35'>hvm</type></os><devices>"
        f"<disk type='block' device='disk'><driver name='qemu' type='raw' cache='unsafe'/><source dev='{device}'/><target dev='vda' bus='virtio'/></disk>"
        "</devices></domain>"
    )
    try:
        kn1.run(f"cat >/run/lun.xml <<'EOF'\n{xml}\nEOF\nvirsh define /run/lun.xml && virsh start lun")
        assert "cache=unsafe ignores flushes, also QEMU's own at the switch" in guests.refused("lun", "kn1")
    finally:
        kn1.ask(f"virsh destroy lun; virsh undefine lun; losetup --detach {device}; rm -f /run/lun.img /run/lun.xml")


def test_the_audit_asks_the_guest(guests: Guests) -> None:
    play = Play("playbooks/kvm_audit.yml", {"handover_hosts": "lab", "handover_report_dir": str(guests.reports)})
    assert play.end() == 0, play.text[-4000:]
    with (guests.reports / "kvm-audit.csv").open(encoding="utf-8", newline="") as table:
        rows = {row["guest"]: row for row in csv.DictReader(table)}
    assert rows["own"]["flushes_why"] == "barriers are on in all of its file systems (ext4)"
    assert (rows["own"]["power_loss"], rows["own"]["live_migration"], rows["shared"]["live_migration"]) == ("yes", "no", "yes")


def test_a_mode_is_changed_for_the_next_start(guests: Guests) -> None:
    (host,) = guests.running_on("shared")
    asked = {"handover_source": host, "handover_workload": "shared"}
    refused = Play("playbooks/kvm_cache.yml", {**asked, "kvm_cache_mode": "unsafe"})
    assert refused.end() != 0
    assert "cache=unsafe ignores the guest's flushes" in sentences(refused.text)
    play = Play("playbooks/kvm_cache.yml", {**asked, "kvm_cache_mode": "writeback"})
    assert play.end() == 0, play.text[-4000:]
    assert "vda has cache=writeback when the guest was shut down and started" in play.text
    assert "cache='writeback'" in guests.hosts[host].run("virsh dumpxml --inactive shared")
    assert "cache='none'" in guests.hosts[host].run("virsh dumpxml shared")
