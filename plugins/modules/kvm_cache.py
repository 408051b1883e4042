#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kvm_cache

short_description: Change the cache mode of a KVM guest's disks

version_added: 0.1.0

description:
  - Changes the mode in the guest's definition, and reads it back. A guest that runs keeps the mode it has until it is shut down and started;
    a reboot from within is not enough. libvirt changes no cache mode of a disk that is in use (it answers C(cannot modify field 'cache' of the
    disk)), and going past it to QEMU's monitor would leave libvirt with a wrong picture of the guest.
  - Refuses a mode by which data could be lost that was safe before, as writeback for a guest that does not flush, or of which that is not
    known. Whether a guest flushes is asked of its agent, so it has to run for that.

extends_documentation_fragment:
  - livefleet.handover._attributes
  - livefleet.handover._libvirt

attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full

options:
  guest:
    description: Name of the guest.
    type: str
    required: true
  mode:
    description: The cache mode, as libvirt calls it.
    type: str
    choices: [none, writeback, writethrough, directsync, unsafe]
    required: true
  disks:
    description: Targets of the disks, as in V(vda). All that can be written if empty.
    type: list
    elements: str
    default: []
  accept_data_loss:
    description:
      - Change it also where the guest may then lose its last writes, when the power goes.
    type: bool
    default: false
  timeout:
    description: Seconds that the whole module may take.
    type: int
    default: 60

requirements:
  - C(virsh), from Debian's package libvirt-clients

seealso:
  - module: livefleet.handover.kvm_cache_info

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Keep nothing of a guest's disks in this host's page cache
  livefleet.handover.kvm_cache:
    guest: web1
    mode: none

- name: Let the page cache serve a scratch disk, which may be lost when the power goes
  livefleet.handover.kvm_cache:
    guest: build7
    mode: unsafe
    disks: [vdb]
    accept_data_loss: true
"""

RETURN = r"""
disks:
  description: The disks that were changed, or would be.
  returned: success
  type: list
  elements: dict
  contains:
    target:
      description: The device's name in the guest's definition.
      type: str
      sample: vda
    before:
      description: The mode that it had there.
      type: str
      sample: none
    after:
      description: The mode that it has there now.
      type: str
      sample: writeback
    io:
      description: How QEMU reads and writes, where that had to change along. C(io=native) goes with V(none) and V(directsync) alone.
      type: str
      sample: threads
pending:
  description: The disks of a guest that runs which still have another mode, until it is shut down and started.
  returned: success
  type: list
  elements: str
  sample: [vda]
"""

import typing as t
from dataclasses import replace

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._core.runtime import HandoverError, Runtime
from ..module_utils._kvm import cache as kvm_cache
from ..module_utils._kvm.domain_xml import Disk, Guest, parse, set_driver
from ..module_utils._kvm.libvirt import Libvirt


class Change:
    """One guest, and the mode that its disks are to have."""

    def __init__(self, libvirt: Libvirt, name: str, mode: str) -> None:
        self.libvirt, self.name, self.mode = libvirt, name, mode
        known = libvirt.names()
        if name not in known:
            raise HandoverError(f"this host has no guest {name}: `virsh list --all` names those it has ({', '.join(sorted(known)) or 'none'})")
        self.running = libvirt.state(name) == "running"

    def run(self, targets: list[str], accept_data_loss: bool, check_mode: bool) -> dict[str, t.Any]:
        text = self.libvirt.definition(self.name)
        guest = parse(text)
        chosen = self._chosen(guest, targets)
        changing = [disk for disk in chosen if disk.cache != self.mode]
        if changing and not accept_data_loss:
            self._refuse(guest, changing)
        wanted = {disk.target: self._options(disk) for disk in changing}
        if changing and not check_mode:
            self.libvirt.define(set_driver(text, wanted))
            after = {disk.target: disk.cache for disk in self.libvirt.defined(self.name).disks}
            failed = [target for target in wanted if after.get(target) != self.mode]
            if failed:
                raise HandoverError(f"libvirt took the definition of {self.name}, and {failed[0]} still has cache={after.get(failed[0])}: see `virsh dumpxml`")
        disks = [{"target": disk.target, "before": disk.cache, "after": self.mode, "io": wanted[disk.target].get("io")} for disk in changing]
        return {
            "changed": bool(changing),
            "disks": disks,
            "pending": self._pending({disk.target for disk in chosen}),
            "diff": {"before": self._lines(changing), "after": self._lines([self._changed(disk) for disk in changing])},
        }

    def _chosen(self, guest: Guest, targets: list[str]) -> list[Disk]:
        writable = {disk.target: disk for disk in guest.disks if disk.source is not None and not disk.read_only}
        unknown = [target for target in targets if target not in writable]
        if unknown:
            raise HandoverError(f"{self.name} has no disk {unknown[0]} that it writes to: it has {', '.join(sorted(writable)) or 'none'}")
        return [disk for target, disk in sorted(writable.items()) if not targets or target in targets]

    def _refuse(self, guest: Guest, disks: list[Disk]) -> None:
        asked = guest.has_agent and self.running
        flushes = kvm_cache.flushes(self.libvirt.mounts_inside(self.name) if asked else None)
        if not self.running:
            flushes = replace(flushes, reason="the guest does not run, and cannot be asked")
        for disk in disks:
            reason = kvm_cache.risk(disk, self.mode, flushes)
            if reason:
                raise HandoverError(
                    f"{disk.target} of {self.name} is not changed from cache={disk.cache} to {self.mode}: {reason}. "
                    "If the guest may lose what it has written last when the power goes, say so with kvm_cache_accept_data_loss"
                )

    def _options(self, disk: Disk) -> dict[str, str]:
        options = {"cache": self.mode}
        if disk.io == "native" and self.mode not in kvm_cache.NATIVE_IO_MODES:
            options["io"] = "threads"
        return options

    def _changed(self, disk: Disk) -> Disk:
        options = self._options(disk)
        return replace(disk, cache=options["cache"], io=options.get("io", disk.io))

    def _lines(self, disks: list[Disk]) -> str:
        return "".join(f"{self.name} {disk.target}: cache={disk.cache} io={disk.io}\n" for disk in disks)

    def _pending(self, targets: set[str]) -> list[str]:
        if not self.running:
            return []
        return sorted(disk.target for disk in self.libvirt.guest(self.name).disks if disk.target in targets and disk.cache != self.mode)


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "guest": {"type": "str", "required": True},
            "mode": {"type": "str", "choices": ["none", "writeback", "writethrough", "directsync", "unsafe"], "required": True},
            "disks": {"type": "list", "elements": "str", "default": []},
            "accept_data_loss": {"type": "bool", "default": False},
            "uri": {"type": "str", "default": "qemu:///system"},
            "timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    params = module.params
    try:
        libvirt = Libvirt(Runtime(module, params["timeout"]), params["uri"])
        module.exit_json(**Change(libvirt, params["guest"], params["mode"]).run(params["disks"], params["accept_data_loss"], module.check_mode))
    except HandoverError as exc:
        module.fail_json(msg=str(exc))


if __name__ == "__main__":
    main()
