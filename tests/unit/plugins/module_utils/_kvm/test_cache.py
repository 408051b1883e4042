# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import runtime
from ansible_collections.livefleet.handover.plugins.module_utils._core.loop import Mount
from ansible_collections.livefleet.handover.plugins.module_utils._kvm import cache as kvm_cache, domain_xml, host
from ansible_collections.livefleet.handover.plugins.module_utils._kvm.cache import Place

DEFINITION = """
<domain type='kvm'>
  <name>web1</name><uuid>d1aca664-1e79-4319-8217-ea0aa1004a5c</uuid>
  <memory unit='GiB'>2</memory><vcpu placement='static'>4</vcpu>
  <os><type arch='x86_64' machine='pc-q35-10.0'>hvm</type></os>
  <cpu mode='custom'><model fallback='forbid'>Skylake-Server</model></cpu>
  <devices>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2' io='native' cache='none' discard='unmap'/>
      <source file='/srv/web1.qcow2'/>
      <backingStore type='file'><format type='qcow2'/><source file='/srv/golden.qcow2'/><backingStore/></backingStore>
      <target dev='vda' bus='virtio'/>
    </disk>
    <disk type='network' device='disk'>
      <driver name='qemu' type='raw'/><source protocol='rbd' name='pool/web1'/><target dev='vdb' bus='virtio'/>
    </disk>
    <disk type='file' device='cdrom'><target dev='sda' bus='sata'/><readonly/></disk>
    <interface type='bridge'><mac address='52:54:00:00:00:01'/><source bridge='br0'/><model type='virtio'/></interface>
    <channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>
  </devices>
</domain>
"""


def test_a_definition_is_read():
    guest = domain_xml.parse(DEFINITION)
    assert (guest.name, guest.memory, guest.vcpus, guest.machine, guest.cpu) == ("web1", 2 << 30, 4, "pc-q35-10.0", "Skylake-Server")
    assert guest.has_agent
    image, network, drive = guest.disks
    assert (image.source, image.format, image.cache, image.cache_set, image.discard) == ("/srv/web1.qcow2", "qcow2", "none", True, "unmap")
    assert image.backing == ("/srv/golden.qcow2",)
    assert (network.source, network.cache, network.cache_set) == ("rbd:pool/web1", "writeback", False)
    assert (drive.source, drive.read_only) == (None, True)
    assert guest.interfaces[0].source == "br0"


@pytest.mark.parametrize("text", ["<domain", "<network/>"])
def test_what_is_no_guest_is_refused(text):
    with pytest.raises(runtime.HandoverError):
        domain_xml.parse(text)


def disk(**change):
    plain = domain_xml.Disk(
        target="vda", bus="virtio", device="disk", kind="file", source="/srv/a.qcow2", format="qcow2", cache="writeback", cache_set=True,
        io="threads", discard="ignore", read_only=False, shareable=False,
    )  # fmt: skip
    return dataclasses.replace(plain, **change)


@pytest.mark.parametrize(
    ("cache", "flushes", "verdict"),
    [
        ("none", "yes", "yes"),
        ("none", "unknown", "unknown"),
        ("none", "no", "no"),
        ("writeback", "yes", "yes"),
        ("writeback", "no", "no"),
        ("writethrough", "no", "yes"),
        ("directsync", "unknown", "yes"),
        ("unsafe", "yes", "no"),
    ],
)
def test_what_is_left_after_the_power_went(cache, flushes, verdict):
    assert kvm_cache.power_loss(disk(cache=cache), flushes).verdict == verdict


OLD, NEW = (2, 12, 0), (10, 0, 3)


@pytest.mark.parametrize(
    ("change", "place", "qemu", "verdict"),
    [
        pytest.param({"cache": "none"}, Place("ext4"), NEW, "no", id="a file of this host alone"),
        pytest.param({"cache": "none"}, Place("nfs4"), OLD, "yes", id="shared, and nothing cached"),
        pytest.param({}, Place("nfs4"), OLD, "no", id="shared, cached, and QEMU cannot drop it"),
        pytest.param({}, Place("nfs4"), NEW, "yes", id="shared, cached, and QEMU drops it"),
        pytest.param({}, Place("ocfs2"), OLD, "yes", id="coherent"),
        pytest.param({"kind": "network", "source": "rbd:pool/a"}, Place(), OLD, "yes", id="network"),
        pytest.param({"kind": "nvme", "cache": "none"}, Place(), NEW, "no", id="nvme"),
        pytest.param({"kind": "block", "cache": "directsync"}, Place(), OLD, "unknown", id="a device, which may be this host's own"),
        pytest.param({"kind": "volume", "source": "fast/web1", "cache": "none"}, Place(), NEW, "unknown", id="a pool's volume"),
        pytest.param({"kind": "vhostuser", "cache": "none"}, Place(), NEW, "unknown", id="a socket's disk"),
        pytest.param({"read_only": True}, Place("ext4"), OLD, "unknown", id="only read, and the other host may not have it"),
        pytest.param({"read_only": True}, Place("nfs4"), OLD, "yes", id="only read, on shared storage"),
        pytest.param({"source": None}, Place(), OLD, "yes", id="an empty drive"),
        pytest.param({"shareable": True, "kind": "block"}, Place(), OLD, "unknown", id="shareable"),
        pytest.param({"kind": "block", "read_only": True}, Place(), OLD, "unknown", id="a device that is only read, and may not be there"),
    ],
)
def test_libvirts_rule_for_live_migration(change, place, qemu, verdict):
    assert kvm_cache.live_migration(disk(**change), place, qemu).verdict == verdict


@pytest.mark.parametrize(
    ("mounts", "verdict"),
    [
        (None, "unknown"),
        ([("tmpfs", "rw"), ("ext4", "rw,relatime")], "yes"),
        ([("ext4", "rw"), ("ext4", "rw,nobarrier")], "no"),
        ([("xfs", "rw,barrier=0"), ("btrfs", "rw,nobarrier")], "no"),
        ([("zfs", "rw")], "unknown"),
    ],
)
def test_whether_a_guest_flushes(mounts, verdict):
    assert kvm_cache.flushes(mounts).verdict == verdict


@pytest.mark.parametrize(
    ("place", "available", "flushes", "mode"),
    [
        (Place("ext4", rotational=True), 0.6, "yes", "writeback"),
        (Place("ext4", rotational=True), 0.1, "yes", "none"),
        (Place("ext4", rotational=True), 0.6, "unknown", "none"),
        (Place("ext4", rotational=False), 0.6, "yes", "none"),
        (Place("ext4"), 0.6, "yes", "directsync"),
    ],
)
def test_which_mode_is_likely_faster(place, available, flushes, mode):
    assert kvm_cache.faster_mode(disk(cache="directsync"), place, available, flushes)[0] == mode


@pytest.mark.parametrize("place", [Place(), Place("ext4"), Place("ext4", rotational=False), Place("ext4", rotational=True), Place("nfs4")])
@pytest.mark.parametrize("kind", ["file", "block", "network"])
@pytest.mark.parametrize("flushes", ["yes", "no", "unknown"])
def test_what_loses_data_is_never_advised(place, kind, flushes):
    assert kvm_cache.faster_mode(disk(cache="unsafe", kind=kind), place, 0.6, flushes)[0] != "unsafe"


def test_memory_with_and_without_what_is_only_cache():
    seen = host.memory(
        "MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 600 kB\nBuffers: 50 kB\nCached: 500 kB\nShmem: 20 kB\nSReclaimable: 30 kB\n"
        "SwapTotal: 10 kB\nSwapFree: 4 kB\nHugePages_Total: 0\n"
    )
    assert seen == {
        "total": 1000 << 10, "used_with_cache": 900 << 10, "used": 340 << 10, "available": 600 << 10, "cache": 560 << 10, "swap_used": 6 << 10,
    }  # fmt: skip


def test_page_sharing_where_the_kernel_has_it(tmp_path):
    for name, value in {"run": 1, "pages_shared": 3, "pages_sharing": 10, "full_scans": 2}.items():
        (tmp_path / name).write_text(f"{value}\n")
    assert host.page_sharing(str(tmp_path))["saved"] == 10 * host.PAGE
    assert host.page_sharing(str(tmp_path / "nowhere"))["supported"] is False


def test_an_image_is_where_the_nearest_mount_is(tmp_path):
    (tmp_path / "images").mkdir()
    image = tmp_path / "images" / "a.raw"
    image.touch()
    mounts = [Mount("8:1", "/", "ext4", "/dev/a"), Mount("0:9", str(tmp_path / "images"), "xfs", "b"), Mount("0:7", str(tmp_path / "images"), "nfs4", "c")]
    assert host.place_of(str(image), mounts).fstype == "nfs4"
    assert host.place_of(str(tmp_path / "gone"), mounts) == Place()


@pytest.mark.parametrize(
    ("conf", "exported"),
    (
        ("", False),
        ('#shared_filesystems = [\n#  "{folder}"\n#]\n', False),
        ('lock_manager = "lockd"\nshared_filesystems = [ "/else", "{folder}/" ]\n', True),
        ("shared_filesystems = [\n  # what the others mount\n  '{folder}',\n]\n", True),
        ('shared_filesystems = [ "{folder}-too" ]\n', False),
    ),
)
def test_a_folder_that_libvirt_is_told_is_exported_is_shared(tmp_path, conf, exported):
    folder = tmp_path / "images"
    folder.mkdir()
    (folder / "a.raw").touch()
    settings = tmp_path / "qemu.conf"
    settings.write_text(conf.format(folder=folder))
    place = host.place_of(str(folder / "a.raw"), [Mount("8:1", "/", "ext4", "/dev/a")], conf=str(settings))
    assert (place.exported, place.shared) == (exported, exported)
    assert not host.place_of(str(folder / "a.raw"), [], conf=str(tmp_path / "none")).exported
