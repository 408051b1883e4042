# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Everything of a guest is accounted for: a guest under KVM, one with variables and a TPM, and one with all that can be in the way."""

from __future__ import annotations

import contextlib
import shlex
import typing as t

import pytest
from conftest import Guests
from fleet import sentences

NOTHING: dict[str, dict[str, str]] = {"kn1": {}, "kn2": {}}
# Without an option ROM: in a virtual machine KVM gives up on some of its instructions.
INTERFACE = "<interface type='bridge'><source bridge='br0'/><model type='virtio'/><rom enabled='no'/></interface>"
FIRMWARE = "<firmware><feature enabled='no' name='secure-boot'/></firmware>"
TPM = "<tpm model='tpm-crb'><backend type='emulator' version='2.0'/></tpm>"
# What the name of a guest may be. Nothing of it is for a shell.
ODD = "it's \"a\" näme; -x"


@contextlib.contextmanager
def guest(guests: Guests, name: str, kind: str, os: str = "<os>", devices: str = INTERFACE, cpu: str = "") -> t.Iterator[t.Callable[..., str]]:
    """A guest on kn1, and a way to have virsh do something with it there. Afterwards nothing of it is on either host."""
    quoted = shlex.quote(name)
    escaped = name.replace("&", "&amp;").replace("<", "&lt;")
    xml = (
        f"<domain type='{kind}'><name>{escaped}</name><memory unit='MiB'>64</memory>{os}<type arch='x86_64' machine='q35'>hvm</type></os>{cpu}"
        f"<features><acpi/></features><devices>{devices}</devices></domain>"
    )
    kn1 = guests.hosts["kn1"]

    def virsh(command: str) -> str:
        return kn1.run(f"LC_ALL=C.UTF-8 virsh --quiet {command} --domain {quoted}")

    try:
        kn1.run(f"cat >/run/accounted.xml <<'EOF'\n{xml}\nEOF\nvirsh --quiet define /run/accounted.xml")
        yield virsh
    finally:
        for host in guests.hosts.values():
            host.ask(f"LC_ALL=C.UTF-8 virsh destroy --domain {quoted}; virsh managedsave-remove --domain {quoted}")
            host.ask(f"LC_ALL=C.UTF-8 virsh undefine --nvram --tpm --snapshots-metadata --domain {quoted}; rm -f /run/accounted.xml")
            host.ask("rm -rf /var/lib/libvirt/swtpm/*.migrated /var/lib/libvirt/qemu/nvram/*.migrated")


def test_a_guest_under_kvm(guests: Guests) -> None:
    cpu = "<cpu mode='host-model'><feature policy='disable' name='arch-capabilities'/></cpu>"
    with guest(guests, ODD, "kvm", cpu=cpu) as virsh:
        virsh("start")
        virsh("autostart")
        said = guests.begin(ODD, "kn1", "--check")
        assert said.end() == 0, said.text[-4000:]
        play = guests.begin(ODD, "kn1")
        assert play.end() == 0, play.text[-6000:]
        there = guests.hosts["kn2"].run(f"LC_ALL=C.UTF-8 virsh dominfo --domain {shlex.quote(ODD)}")
        assert all(word in there for word in ("running", "Autostart:      enable")), there
    assert guests.left_over() == NOTHING


def test_variables_and_keys_go_along(guests: Guests) -> None:
    """libvirt's own offline migration takes neither, and removes the TPM's keys with the definition."""
    read = "cd /var/lib/libvirt && find qemu/nvram swtpm -type f -exec sha256sum {} + | sort; find qemu/nvram swtpm -printf '%p %u %g %m\\n' | sort"
    with guest(guests, "keys", "qemu", os=f"<os firmware='efi'>{FIRMWARE}", devices=TPM) as virsh:
        virsh("start")
        virsh("destroy")
        before = [line for line in guests.hosts["kn1"].run(read).splitlines() if line.count("/") > 1]
        assert len(before) >= 4
        play = guests.begin("keys", "kn1", kvm_migrate_mode="offline", kvm_migrate_storage="copy")
        assert play.end() == 0, play.text[-6000:]
        assert set(before) <= set(guests.hosts["kn2"].run(read).splitlines())
        aside = guests.hosts["kn1"].run("ls -d /var/lib/libvirt/qemu/nvram/* /var/lib/libvirt/swtpm/*").split()
        assert [name for name in aside if not name.endswith(".migrated")] == []
        guests.hosts["kn2"].run("virsh --quiet start keys")
    assert guests.left_over() == NOTHING


HERE_ALONE = (
    "<disk type='file' device='cdrom'><source file='/run/seed.iso'/><target dev='sda' bus='sata'/><readonly/></disk>"
    "<interface type='bridge'><source bridge='br-of-kn1'/><model type='virtio'/></interface>"
)
# With these a guest cannot be saved, or not started.
AND_MORE = (
    "<graphics type='vnc' autoport='no' port='22' listen='10.217.0.11'/>"
    "<filesystem type='mount'><source dir='/srv/of-kn1'/><target dir='own'/></filesystem>"
)
NAMED = ["the cdrom sda holds /run/seed.iso, which is not on the destination", "the bridge br-of-kn1 does not exist on the destination", "kvm_migrate_ignore="]


@pytest.mark.parametrize(
    ("devices", "before", "named"),
    [
        pytest.param(HERE_ALONE, ["start", "managedsave"], [*NAMED, "virsh managedsave-remove"], id="saved"),
        pytest.param(
            HERE_ALONE + AND_MORE, [], [*NAMED, "10.217.0.11, which is no address of the destination", "/srv/of-kn1, which is not on the destination"], id="off"
        ),
    ],
)
def test_all_that_is_in_the_way_is_said_by_the_check_too(guests: Guests, devices: str, before: list[str], named: list[str]) -> None:
    kn1 = guests.hosts["kn1"]
    kn1.run("echo seed >/run/seed.iso; mkdir -p /srv/of-kn1; ip link add br-of-kn1 type bridge")
    try:
        with guest(guests, "bound", "qemu", devices=devices) as virsh:
            for command in before:
                virsh(command)
            for how in (["--check"], []):
                play = guests.begin("bound", "kn1", *how, kvm_migrate_mode="offline", kvm_migrate_storage="copy")
                assert play.end() != 0, play.text[-4000:]
                said = " ".join(sentences(play.text).split())
                assert [words for words in named if words not in said] == [], said
            assert guests.standing("bound") == {"kn1": "shut off"}
            assert guests.left_over() == NOTHING
    finally:
        kn1.ask("ip link delete br-of-kn1; rm -rf /run/seed.iso /srv/of-kn1")
