# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The locks on an image that both hosts reach as a file, libvirt's (virtlockd) and QEMU's own: a second start is refused, also one by hand."""

from __future__ import annotations

import typing as t

import pytest
from conftest import Guests

FOLDER = "/srv/shared"
LEASED = f"""
<domain type='qemu'><name>leased</name><uuid>6d1a2f64-59b1-4d0e-9b2c-0c1f3c8e7a55</uuid><memory unit='MiB'>32</memory>
<os><type arch='x86_64' machine='q35'>hvm</type></os>
<devices><disk type='file' device='disk'><driver name='qemu' type='raw' cache='none'/>
<source file='{FOLDER}/leased.raw'/><target dev='vda' bus='virtio'/></disk></devices>
</domain>
"""
SETTINGS = "/etc/libvirt/qemu.conf"
LOCKS = f"""
cp {SETTINGS} {SETTINGS}.before
printf '%s\\n' 'lock_manager = "lockd"' 'shared_filesystems = ["{FOLDER}"]' >>{SETTINGS}
systemctl start virtlockd.socket
systemctl restart libvirtd.service
"""
NO_LOCKS = f"""
virsh destroy leased; virsh undefine leased
test ! -e {SETTINGS}.before || {{ mv {SETTINGS}.before {SETTINGS} && systemctl restart libvirtd.service; }}
systemctl stop virtlockd.service virtlockd.socket
rm -f {FOLDER}/leased.raw /run/leased.xml
"""


@pytest.fixture(name="locks")
def locks_on_both(guests: Guests) -> t.Iterator[None]:
    """With a guest without a system, which runs all the same: what counts is who has its disk."""
    first, *others = guests.hosts.values()
    try:
        for host in guests.hosts.values():
            host.run(LOCKS)
            host.run(f"cat >/run/leased.xml <<'EOF'\n{LEASED}\nEOF")
        first.run(f"truncate -s 8M {FOLDER}/leased.raw && virsh define /run/leased.xml && virsh start leased")
        yield
    finally:
        for host in guests.hosts.values():
            host.ask(NO_LOCKS)


def leases(guests: Guests) -> list[str]:
    """The hosts whose virtlockd has the image's lock, by the kernel's account."""
    asked = f"grep \"POSIX .* $(pidof virtlockd) .*:$(stat --format=%i {FOLDER}/leased.raw) \" /proc/locks"
    return [name for name, host in guests.hosts.items() if host.ask(asked).returncode == 0]


def test_a_guest_moves_with_its_lock(guests: Guests, locks: None) -> None:
    here, there = guests.hosts.values()
    assert leases(guests) == [here.name]
    assert "disks travelled   none" in guests.moved("leased", here.name)
    assert leases(guests) == [there.name]
    again = here.ask("virsh define /run/leased.xml && virsh start leased")
    assert again.returncode != 0, "it was started a second time"
    # QEMU's own lock is asked for first, libvirt's when the guest is about to run.
    assert 'Failed to get "write" lock' in again.stderr
    assert guests.running_on("leased") == leases(guests) == [there.name]
