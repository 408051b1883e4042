# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.modules import kvm_disks_info


class LibvirtError(Exception):
    def __init__(self, code):
        super().__init__("libvirt says no")
        self.code = code

    def get_error_code(self):
        return self.code


class Libvirt:
    """A host's libvirt without guests, or one that answers nothing."""

    libvirtError = LibvirtError
    VIR_ERR_NO_DOMAIN = 42

    def __init__(self, code=42):
        self.code = code
        self.closed = 0

    def open(self, _uri):
        return self

    def close(self):
        self.closed += 1

    def lookupByName(self, _name):
        raise LibvirtError(self.code)


ASKED = {"guest": "web1", "digests": False, "look": None, "unstamp": {}, "uri": "qemu:///system"}


def test_a_guest_that_is_not_here_has_no_disks():
    libvirt = Libvirt()
    result = kvm_disks_info.run(ASKED, libvirt)
    assert not result["changed"]
    assert (result["seen"]["guest"], result["seen"]["disks"], result["seen"]["images"]) == ("web1", [], {})
    assert libvirt.closed == 1


def test_another_error_of_libvirt_is_one_and_the_connection_ends():
    libvirt = Libvirt(code=1)
    with pytest.raises(LibvirtError):
        kvm_disks_info.run(ASKED, libvirt)
    assert libvirt.closed == 1


def test_stamps_are_taken_away_without_libvirt(tmp_path):
    image = tmp_path / "web1.qcow2"
    image.write_bytes(b"")
    stamps = kvm_disks_info.disk_look.stamp([str(image)])
    assert kvm_disks_info.disk_look.stamped(str(image), stamps[str(image)])
    assert kvm_disks_info.run({**ASKED, "guest": None, "unstamp": stamps}, None) == {"changed": False}
    assert [each.name for each in tmp_path.iterdir()] == ["web1.qcow2"]
