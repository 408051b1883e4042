# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import runtime as _runtime
from ansible_collections.livefleet.handover.plugins.module_utils._core.loop import Mount
from ansible_collections.livefleet.handover.plugins.module_utils._kvm import guests as _guests

DEFINITION = """
<domain type='kvm'><name>{name}</name><memory unit='MiB'>256</memory><devices>
  {disk}
  <disk type='file' device='cdrom'><source file='/srv/c.iso'/><target dev='sda'/><readonly/></disk>
</devices></domain>
"""
OWN = "<disk type='file'><source file='{path}'/><target dev='vda'/></disk>"
NETWORK = "<disk type='network'><source protocol='rbd' name='pool/a'/><target dev='vdb'/></disk>"
# Its medium is looked at by itself, and carried where one says so.
FLOPPY = "<disk type='file' device='floppy'><source file='{path}'/><target dev='fda'/></disk>"


class Runtime:
    """virsh with these guests, and a libvirtd that may not answer."""

    def __init__(self, guests, answers=True):
        self.guests, self.answers = guests, answers

    def tool(self, tool, _package):
        return tool

    def find(self, tool):
        return "/usr/sbin/libvirtd" if tool == "libvirtd" and self.guests is not None else None

    def run(self, argv, accept=(0,), **_rest):
        if not self.answers:
            raise _runtime.HandoverError("virsh failed: error: failed to connect to the hypervisor")
        verb, name = argv[4], argv[-1]
        text = {
            "list": lambda: "\n".join(self.guests),
            "dumpxml": lambda: self.guests[name][0],
            "domstate": lambda: self.guests[name][1] + "\n",
        }[verb]()
        return _runtime.Completed(tuple(argv), 0, text, "")


def test_what_is_of_this_host_alone_has_to_be_copied(tmp_path):
    image = tmp_path / "a.raw"
    image.write_bytes(bytes(range(256)) * 64)
    runtime = Runtime(
        {
            "own": (DEFINITION.format(name="own", disk=OWN.format(path=image) + NETWORK + FLOPPY.format(path=image)), "running"),
            "shared": (DEFINITION.format(name="shared", disk=NETWORK), "shut off"),
        }
    )
    own, shared = _guests.workloads(runtime, [Mount("8:1", "/", "ext4", "/dev/a")])
    assert (own["kind"], own["running"], own["memory"], own["storage"], own["disks"]) == ("guest", True, 256 << 20, "copy", ["vda"])
    assert own["disk"] == image.stat().st_blocks * 512 > 0
    assert (shared["running"], shared["memory"], shared["storage"], shared["disks"], shared["disk"]) == (False, 0, "shared", [], 0)
    (own, _shared) = _guests.workloads(runtime, [Mount("0:9", str(tmp_path), "nfs4", "server:/")])
    assert own["storage"] == "shared"


def test_a_libvirt_that_does_not_answer_is_no_empty_host():
    assert _guests.has_libvirt(Runtime({}))
    assert not _guests.has_libvirt(Runtime(None))
    with pytest.raises(_runtime.HandoverError):
        _guests.workloads(Runtime({}, answers=False), [])


def test_moves_that_were_begun(tmp_path):
    assert _guests.unfinished(set(), str(tmp_path / "none")) == []
    for name in ("here", "gone"):
        (tmp_path / f"{name}.json").write_text(json.dumps({"guest": name, "destination": "node2", "storage": "copy", "disks": ["vda"]}))
    (tmp_path / "torn.json").write_text('{"guest": "to')
    found = {each["workload"]: each for each in _guests.unfinished({"here"}, str(tmp_path))}
    assert {name: each["state"] for name, each in found.items()} == {"here": "presync", "gone": "in_doubt"}
    assert (found["gone"]["destination"], found["gone"]["kind"], found["gone"]["storage"]) == ("node2", "guest", "copy")
