# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What QEMU can besides: each feature once, and what is said of it is what libvirt has counted.

KVM_FEATURES=all runs also those that take a minute each.
"""

from __future__ import annotations

import os
import re
import typing as t
from pathlib import Path

import pytest
from conftest import IMAGES, Guests

# One certificate for each host, as server and as client, of an authority that nobody else has. QEMU reads them as a user of its own.
CERTIFICATES = """
set -e
rm -rf /run/pki && mkdir -p /run/pki /etc/pki/qemu && cd /run/pki
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj "/CN=handover test" -keyout ca-key.pem -out ca-cert.pem 2>/dev/null
openssl req -new -newkey rsa:2048 -nodes -subj "/CN=guests" -keyout server-key.pem -out request.pem 2>/dev/null
printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth,clientAuth\n' "{names}" >extensions
openssl x509 -req -days 2 -in request.pem -CA ca-cert.pem -CAkey ca-key.pem -CAcreateserial -extfile extensions -out server-cert.pem 2>/dev/null
cp server-key.pem client-key.pem && cp server-cert.pem client-cert.pem
install --mode=644 *.pem /etc/pki/qemu && rm -rf /run/pki
"""
USERFAULTFD = Path("/proc/sys/vm/unprivileged_userfaultfd")
WRITER = "heartbeat -file /run/writer -every 100ms -memory 48M -dirty 40M"


slow = pytest.mark.skipif(os.environ.get("KVM_FEATURES") != "all", reason="it takes a minute: KVM_FEATURES=all runs it")


@pytest.fixture(name="certificates")
def certificates_on_both(guests: Guests) -> t.Iterator[None]:
    names = ",".join(f"DNS:{name},IP:{host.address}" for name, host in guests.hosts.items())
    first, *others = guests.hosts.values()
    try:
        first.run(CERTIFICATES.format(names=names))
        for other in others:
            first.run(f"ssh root@{other.address} mkdir -p /etc/pki/qemu && scp -q /etc/pki/qemu/*.pem root@{other.address}:/etc/pki/qemu/")
        yield
    finally:
        for host in guests.hosts.values():
            host.ask("rm -rf /etc/pki/qemu /run/pki")


@pytest.fixture(name="userfaultfd")
def userfaultfd_for_qemu() -> t.Iterator[None]:
    """A setting of the kernel, so of the machine that the hosts are on."""
    before = USERFAULTFD.read_text(encoding="ascii")
    USERFAULTFD.write_text("1", encoding="ascii")
    try:
        yield
    finally:
        USERFAULTFD.write_text(before, encoding="ascii")


@slow
def test_memory_is_fetched_afterwards(guests: Guests, userfaultfd: None) -> None:
    (source,) = guests.running_on("shared")
    said = guests.moved("shared", source, kvm_migrate_mode="postcopy", kvm_migrate_bandwidth=12)
    assert "switched early, and pages fetched afterwards (postcopy)" in said
    guests.is_whole("shared")


@slow
def test_memory_and_disks_travel_encrypted(guests: Guests, certificates: None) -> None:
    (source,) = guests.running_on("own")
    said = guests.moved("own", source, kvm_migrate_storage="copy", kvm_migrate_remove_source=True, kvm_migrate_tls=True)
    assert "encrypted (TLS)" in said
    guests.is_whole("own")


@slow
def test_without_certificates_the_guest_stays(guests: Guests) -> None:
    (source,) = guests.running_on("shared")
    assert "shared was not migrated" in guests.refused("shared", source, kvm_migrate_tls=True)


@slow
def test_a_guest_that_writes_too_much_is_slowed_down(guests: Guests) -> None:
    (source,) = guests.running_on("shared")
    guests.inside("shared", f"{WRITER} >/dev/null 2>&1 </dev/null & echo $! >/run/writer.pid; sleep 3")
    try:
        said = guests.moved("shared", source, kvm_migrate_auto_converge=True, kvm_migrate_bandwidth=16, kvm_migrate_max_downtime_ms=100)
    finally:
        guests.inside("shared", "kill $(cat /run/writer.pid)")
    throttled = re.search(r"the guest's processors slowed down by up to ([0-9]+) % \(auto-converge\)", " ".join(said.split()))
    assert throttled and int(throttled.group(1)) >= 20
    guests.is_whole("shared")


@slow
@pytest.mark.parametrize(
    ("variables", "said", "unsaid"),
    [
        pytest.param({"kvm_migrate_compression": "xbzrle", "kvm_migrate_bandwidth": 12}, ["bytes sent as differences (xbzrle)"], [], id="differences"),
        pytest.param({"kvm_migrate_compression": "zlib", "kvm_migrate_connections": 2}, ["2 connections", "pages packed with zlib"], [], id="zlib"),
        pytest.param({"kvm_migrate_zero_pages": "none"}, [], ["zero pages left out"], id="zero pages travel"),
        pytest.param({"kvm_migrate_zero_pages": "legacy", "kvm_migrate_connections": 2}, ["2 connections", "zero pages left out"], [], id="one looks for them"),
    ],
)
def test_each_way_to_send_memory_says_what_it_did(guests: Guests, variables: dict[str, t.Any], said: list[str], unsaid: list[str]) -> None:
    (source,) = guests.running_on("shared")
    guests.inside("shared", f"{WRITER} >/dev/null 2>&1 </dev/null & echo $! >/run/writer.pid; sleep 3")
    try:
        told = " ".join(guests.moved("shared", source, **variables).split())
    finally:
        guests.inside("shared", "kill $(cat /run/writer.pid)")
    assert [sentence for sentence in said if sentence not in told] == []
    assert [sentence for sentence in unsaid if sentence in told] == []
    guests.is_whole("shared")


@slow
def test_no_more_a_second_than_asked_for(guests: Guests) -> None:
    (source,) = guests.running_on("shared")
    said = guests.moved("shared", source, kvm_migrate_bandwidth=12, kvm_migrate_compression="none")
    took, travelled = (re.search(pattern, said) for pattern in (r"took +([0-9.]+) s", r"memory travelled +([0-9.]+) MiB"))
    assert took and travelled
    # What is left when QEMU stops the guest goes as fast as it can.
    assert float(travelled.group(1)) / float(took.group(1)) < 12 * 1.25


def test_what_libvirt_cannot_ask_for_is_refused(guests: Guests) -> None:
    (source,) = guests.running_on("shared")
    assert "dirty_limit cannot be had" in guests.refused("shared", source, kvm_migrate_require=["zero_page_detection", "dirty_limit"])


def test_only_what_stands_on_the_common_image_travels(guests: Guests) -> None:
    """A guest without a system, which runs all the same: what counts is its disk."""
    source = next(iter(guests.hosts))
    here, there = guests.hosts[source], guests.hosts[guests.other(source)]
    base, layer = "/srv/guests/small/disk.raw", f"{IMAGES}/layered.qcow2"
    xml = (
        "<domain type='qemu'><name>layered</name><memory unit='MiB'>32</memory><os><type arch='x86_64' machine='q35'>hvm</type></os><devices>"
        f"<disk type='file' device='disk'><driver name='qemu' type='qcow2' cache='none'/><source file='{layer}'/><target dev='vda' bus='virtio'/></disk>"
        "</devices></domain>"
    )
    try:
        here.run(f"qemu-img create -q -f qcow2 -b {base} -F raw {layer} && qemu-io -c 'write -q -P 7 8M 8M' {layer} >/dev/null")
        here.run(f"cat >/run/layered.xml <<'EOF'\n{xml}\nEOF\nvirsh define /run/layered.xml && virsh start layered")
        # libvirt tells of disks only while they travel: slowly enough to be seen.
        said = guests.moved("layered", source, kvm_migrate_storage="incremental", kvm_migrate_remove_source=True, kvm_migrate_bandwidth=4)
        travelled = re.search(r"disks travelled +([0-9.]+) (\w+)", said)
        assert travelled and travelled.group(2) == "MiB" and float(travelled.group(1)) < 16
        there.run("virsh destroy layered")
        assert f"backing file: {base}" in there.run(f"qemu-img info {layer}")
        assert "Pattern verification failed" not in there.run(f"qemu-io -r -c 'read -P 7 8M 8M' {layer}")
    finally:
        for host in (here, there):
            host.ask(f"virsh destroy layered; virsh undefine layered; rm -f /run/layered.xml {layer} {layer}.*")
