#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kvm_cache_info

short_description: Report the effect of the cache modes of KVM guests' disks

version_added: 0.1.0

description:
  - Reads the guests of this host from libvirt, and says of each disk whether it is safe when the power goes, whether libvirt would
    migrate the guest live with it, and which cache mode is likely the faster one, each with the reason.
  - Reports the host's memory in use with and without mere cache, the savings of page sharing (KSM), and by how much its
    memory is promised to guests.

extends_documentation_fragment:
  - livefleet.handover._attributes
  - livefleet.handover._attributes.info_module
  - livefleet.handover._libvirt

options:
  guests:
    description:
      - Names of the guests. All of this host if not given.
    type: list
    elements: str
  timeout:
    description:
      - Seconds that the whole module may take.
    type: int
    default: 120

requirements:
  - C(virsh), from Debian's package libvirt-clients

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Look at the guests of this host
  livefleet.handover.kvm_cache_info:
  register: audit

- name: Name the guests that would lose data
  ansible.builtin.debug:
    msg: "{{ item.0.name }}, {{ item.1.target }}: {{ item.1.power_loss.reason }}"
  loop: "{{ audit.guests | subelements('disks') }}"
  when: item.1.power_loss.verdict == 'no'
"""

RETURN = r"""
guests:
  description: The guests, by name.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: The guest's name.
      type: str
      sample: web1
    state:
      description: As virsh calls it.
      type: str
      sample: running
    memory:
      description: Bytes of memory that it was promised.
      type: int
      sample: 1073741824
    flushes:
      description: Whether the guest flushes (its file systems' barriers are on), as C(verdict) (V(yes), V(no), V(unknown)) and C(reason).
      type: dict
      sample: {verdict: "yes", reason: barriers are on in all of its file systems (ext4)}
    disks:
      description: Its disks.
      type: list
      elements: dict
      contains:
        target:
          description: The device's name in the guest's definition.
          type: str
          sample: vda
        source:
          description: File, device or network volume. Null for an empty drive.
          type: str
          sample: /var/lib/libvirt/images/web1.qcow2
        kind:
          description: The kind of the source, as libvirt calls it.
          type: str
          sample: file
        bus:
          description: How the guest sees it.
          type: str
          sample: virtio
        format:
          description: The image's format.
          type: str
          sample: qcow2
        cache:
          description: The mode that takes effect.
          type: str
          sample: writeback
        cache_set:
          description: Whether the definition names it; otherwise it is QEMU's default.
          type: bool
          sample: false
        io:
          description: How QEMU reads and writes.
          type: str
          sample: threads
        discard:
          description: The treatment of the guest's discards.
          type: str
          sample: unmap
        backing:
          description: The backing files of the image, nearest first.
          type: list
          elements: str
          sample: []
        fstype:
          description: The file system that holds an image file.
          type: str
          sample: ext4
        shared:
          description: Whether other hosts reach the same data (V(yes), V(no), V(unknown)).
          type: str
          sample: "no"
        coherent:
          description: Whether the file system keeps the caches of its hosts the same.
          type: bool
          sample: false
        power_loss:
          description: Whether it is safe when the power goes.
          type: dict
          sample: {verdict: "yes", reason: "cache=writeback passes the guest's flushes on, and the guest flushes"}
        live_migration:
          description: Whether libvirt would migrate the guest live and leave this disk where it is.
          type: dict
          sample: {verdict: "no", reason: "the image is on a file system of this host alone: migrate with the storage (NBD copy), or put it on shared storage"}
        faster:
          description: The mode that is likely the faster one, as C(mode) and C(reason).
          type: dict
          sample: {mode: none, reason: "the disk underneath does not seek: the page cache would cost a copy and gain little"}
host:
  description: The host.
  returned: success
  type: dict
  contains:
    qemu:
      description: Version of QEMU.
      type: str
      sample: 10.0.3
    memory:
      description:
        - Bytes of memory. C(used) leaves out mere cache, C(used_with_cache) does not.
      type: dict
      sample: {total: 25282600960, used_with_cache: 9871548416, used: 2147483648, available: 22883532800, cache: 7724064768, swap_used: 0}
    ksm:
      description: Kernel samepage merging; C(saved) and C(shared) in bytes.
      type: dict
      sample: {supported: true, running: false, saved: 0, shared: 0, full_scans: 0}
    promised:
      description: Bytes of memory that were promised to the guests that run.
      type: int
      sample: 4294967296
    overcommit:
      description: C(promised) as a part of the host's memory.
      type: float
      sample: 0.17
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._core.loop import read_mounts
from ..module_utils._core.runtime import HandoverError, Runtime
from ..module_utils._kvm import cache as kvm_cache, host
from ..module_utils._kvm.domain_xml import Disk, Guest
from ..module_utils._kvm.libvirt import Libvirt


class Audit:
    """One look at a host and its guests."""

    def __init__(self, libvirt: Libvirt) -> None:
        self.libvirt = libvirt
        self.qemu = libvirt.qemu_version()
        self.mounts = read_mounts()
        with open("/proc/meminfo", encoding="ascii") as source:
            self.memory = host.memory(source.read())

    def run(self, names: list[str] | None) -> dict[str, t.Any]:
        known = self.libvirt.names()
        unknown = sorted(set(names or ()) - set(known))
        if unknown:
            raise HandoverError(f"this host has no guest {unknown[0]}: `virsh list --all` names those it has ({', '.join(sorted(known)) or 'none'})")
        guests = [self._guest(name) for name in sorted(names if names is not None else known)]
        promised = sum(guest["memory"] for guest in guests if guest["state"] in ("running", "paused"))
        return {
            "changed": False,
            "guests": guests,
            "host": {
                "qemu": ".".join(map(str, self.qemu)),
                "memory": self.memory,
                "ksm": host.page_sharing(),
                "promised": promised,
                "overcommit": round(promised / self.memory["total"], 3),
            },
        }

    def _guest(self, name: str) -> dict[str, t.Any]:
        guest, state = self.libvirt.guest(name), self.libvirt.state(name)
        asked = guest.has_agent and state == "running"
        flushes = kvm_cache.flushes(self.libvirt.mounts_inside(name) if asked else None)
        return {
            "name": name,
            "state": state,
            "memory": guest.memory,
            "flushes": flushes.as_dict(),
            "disks": [self._disk(disk, flushes.verdict) for disk in self._disks(guest)],
        }

    @staticmethod
    def _disks(guest: Guest) -> list[Disk]:
        return sorted(guest.disks, key=lambda disk: disk.target)

    def _disk(self, disk: Disk, flushes: str) -> dict[str, t.Any]:
        local = disk.source is not None and disk.kind in ("file", "block")
        place = host.place_of(t.cast(str, disk.source), self.mounts) if local else kvm_cache.Place()
        mode, why = kvm_cache.faster_mode(disk, place, self.memory["available"] / self.memory["total"], flushes)
        return {
            "target": disk.target,
            "source": disk.source,
            "kind": disk.kind,
            "bus": disk.bus,
            "format": disk.format,
            "cache": disk.cache,
            "cache_set": disk.cache_set,
            "io": disk.io,
            "discard": disk.discard,
            "backing": list(disk.backing),
            "fstype": place.fstype,
            "shared": kvm_cache.is_shared(disk, place),
            "coherent": place.coherent,
            "power_loss": kvm_cache.power_loss(disk, flushes).as_dict(),
            "live_migration": kvm_cache.live_migration(disk, place, self.qemu).as_dict(),
            "faster": {"mode": mode, "reason": why},
        }


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "guests": {"type": "list", "elements": "str"},
            "uri": {"type": "str", "default": "qemu:///system"},
            "timeout": {"type": "int", "default": 120},
        },
        supports_check_mode=True,
    )
    try:
        libvirt = Libvirt(Runtime(module, module.params["timeout"]), module.params["uri"])
        module.exit_json(**Audit(libvirt).run(module.params["guests"]))
    except HandoverError as exc:
        module.fail_json(msg=str(exc))


if __name__ == "__main__":
    main()
