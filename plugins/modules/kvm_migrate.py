#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kvm_migrate

short_description: Migrate a KVM guest to another host

version_added: 0.1.0

description:
  - Runs on the host that has the guest, and has libvirt migrate it to another one, with its definition.
  - The guest arrives paused, and is let run only when libvirt has taken it from the source. So a lost answer never leaves it running
    twice. Both sides are asked for the outcome, and O(state=resolved) does that alone, at any time later.
  - Refuses a guest that a person has paused, a guest of the same name on the destination that has another UUID, and disks that would be
    read with old data on the destination.
  - In check mode it makes all checks, changes nothing, and returns the plan.

extends_documentation_fragment:
  - livefleet.handover._attributes
  - livefleet.handover._libvirt

attributes:
  check_mode:
    support: full
    details:
      - Makes all checks and returns RV(plan).
  diff_mode:
    support: none
  idempotent:
    support: full
    details:
      - A guest that is on the destination and not on the source any more has been migrated; nothing is done then.

options:
  guest:
    description: Name of the guest.
    type: str
    required: true
  destination_uri:
    description:
      - How the source's libvirt reaches the destination's, as in V(qemu+ssh://node2/system).
    type: str
    required: true
  state:
    description:
      - V(migrated) migrates the guest.
      - V(resolved) finishes or undoes an earlier migration, by the answers of both sides, and migrates nothing. One that is still under
        way is waited for.
      - V(cancelled) gives up one that is under way, and the guest stays where it is, unless it has just arrived.
    type: str
    choices: [migrated, resolved, cancelled]
    default: migrated
  mode:
    description:
      - V(live) keeps the guest running.
      - V(postcopy) switches early and fetches the rest of the memory afterwards. It always ends, but from the switch on the guest needs
        both hosts, and is lost if either fails.
      - V(offline) moves the definition of a guest that does not run. libvirt leaves its disks alone; RV(plan.images) lists the files to copy
        before.
    type: str
    choices: [live, postcopy, offline]
    default: live
  storage:
    description:
      - V(shared) leaves the disks where they are, where both hosts reach them.
      - V(copy) copies them whole, V(incremental) only the layers above a backing file that both hosts have. The images have to exist on the
        destination, with the right size.
    type: str
    choices: [shared, copy, incremental]
    default: shared
  disks:
    description: Targets of the disks to copy, as in V(vda). All that can be written if empty.
    type: list
    elements: str
    default: []
  compression:
    description:
      - How memory is packed. V(auto) packs with zstd where the link is slower than the idle processors pack.
      - V(qatzip), V(qpl) and V(uadk) need hardware and a QEMU built for it.
    type: str
    choices: [auto, none, zstd, zlib, xbzrle, qatzip, qpl, uadk]
    default: auto
  connections:
    description: Connections that memory travels over. V(0) chooses with O(compression=auto), and is one otherwise.
    type: int
    default: 0
  link_mbit:
    description: Speed of the link between the hosts. Read from the network interface if not given.
    type: int
  bandwidth:
    description: MiB per second at most; V(0) is no limit.
    type: int
    default: 0
  max_downtime_ms:
    description: How long the guest may stand still at the switch; V(0) is QEMU's own default.
    type: int
    default: 0
  auto_converge:
    description: Let QEMU slow the guest's processors down where its memory changes faster than it travels.
    type: bool
    default: false
  tls:
    description: Encrypt the migration with the certificates of QEMU (C(/etc/pki/qemu) or C(/etc/pki/libvirt-migrate)).
    type: bool
    default: false
  synchronous_writes:
    description: While disks are copied, have the guest's writes wait for the destination, so that the copy always ends.
    type: bool
    default: false
  hold:
    description:
      - Whether the guest arrives paused and is let run by this module. Only a lock on its disks (virtlockd, sanlock) is as safe.
      - Not with O(mode=postcopy), where the guest runs on the destination before the source is done.
    type: bool
    default: true
  listen:
    description: Address that the destination listens on.
    type: str
  migrate_uri:
    description: Where the memory goes, as in V(tcp://10.0.0.2). Chosen by libvirt if not given.
    type: str
  postcopy_after:
    description: With O(mode=postcopy), the number of passes after which the switch is made.
    type: int
    default: 1
  zero_pages:
    description:
      - The part of QEMU that looks for pages that are zero. V(default) leaves that as it is; V(multifd) has the connections do it, each on its own, V(legacy)
        the one thread that walks through memory, and with V(none) they travel like all others.
      - Said to QEMU past libvirt, which notes so in the guest's log. A guest that stays where it was has it as before.
    type: str
    choices: [default, multifd, legacy, none]
    default: default
  require:
    description:
      - Features of QEMU that the migration has to have and that are not this module's to turn on. One that cannot be had is refused with the way
        around it.
      - V(zero_page_detection) and V(pause_before_switchover) every migration has; V(dirty_limit) and V(free_page_hinting) libvirt does not offer.
    type: list
    elements: str
    choices: [zero_page_detection, pause_before_switchover, dirty_limit, free_page_hinting]
    default: []
  ignore:
    description:
      - Checks that are made and not heeded, by the names that the refusals say. V(element:) and a path, for a part of the definition that is not
        known. The checks are listed in docs/kvm-inventory.md.
    type: list
    elements: str
    default: []
  cdrom:
    description:
      - Of media in drives of which the destination has no equal file. V(refuse) leaves the guest where it is, V(eject) empties the drives,
        V(carry) returns the files in RV(plan.brought), which have to be copied before.
      - A drive is filled again if the guest stays.
    type: str
    choices: [refuse, eject, carry]
    default: refuse
  shared_disks:
    description:
      - Targets of disks that both hosts reach in the same place, where nothing proves it. They stay where they are, for any O(storage).
      - A disk that is named here and is another one on the destination is lost with all its data.
    type: list
    elements: str
    default: []
  here:
    description:
      - The findings of M(livefleet.handover.kvm_look_info) on this host, with O(guest), and as C(disks) those that M(livefleet.handover.kvm_disks_info) has
        seen. A guest that needs to be looked at is refused without.
    type: dict
  there:
    description: Its findings on the destination.
    type: dict
  run:
    description:
      - The run that has the guest, as M(livefleet.handover.kvm_lock) was told. While the module works it holds the guest's lock on this host, and is
        refused if another run has the guest.
    type: str
    default: ""
  timeout:
    description:
      - Seconds after which the migration is given up, and the guest stays where it is. With O(state=resolved), how long a migration that is
        still under way is waited for.
    type: int
    default: 3600

requirements:
  - libvirt's Python binding (Debian's package python3-libvirt)

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Migrate a guest and its disks
  livefleet.handover.kvm_migrate:
    guest: web1
    destination_uri: qemu+ssh://node2/system
    storage: copy
    auto_converge: true

- name: Give up a migration that takes too long
  livefleet.handover.kvm_migrate:
    guest: web1
    destination_uri: qemu+ssh://node2/system
    state: cancelled

- name: Find out the outcome of an interrupted migration
  livefleet.handover.kvm_migrate:
    guest: web1
    destination_uri: qemu+ssh://node2/system
    state: resolved
"""

RETURN = r"""
moved:
  description: Whether the guest is on the destination now.
  returned: not in check mode
  type: bool
  sample: true
outcome:
  description: Why it is where it is.
  returned: not in check mode
  type: str
  sample: the source has let the guest go, and the destination has it
plan:
  description: The steps that are done, or would be.
  returned: with O(state=migrated), unless it has been migrated already
  type: dict
  contains:
    flags:
      description: libvirt's flags.
      type: list
      elements: str
      sample: [VIR_MIGRATE_PEER2PEER, VIR_MIGRATE_LIVE, VIR_MIGRATE_PAUSED]
    parameters:
      description: libvirt's parameters.
      type: dict
      sample: {compression: zstd, parallel.connections: 2}
    why:
      description: Why memory travels as it does.
      type: str
      sample: 1000 Mbit/s and 2.0 idle processors, 2 threads of zstd fill more than the link
    images:
      description: The images that have to exist on the destination, with their C(path), C(format) and C(size) in bytes.
      type: list
      elements: dict
      sample: [{path: /var/lib/libvirt/images/web1.qcow2, format: qcow2, size: 8589934592}]
    memory:
      description: Bytes of memory that travel; nothing of a guest that is off.
      type: int
      sample: 536870912
    told:
      description: Sentences on things that do not travel, and keep no guest from moving.
      type: list
      elements: str
      sample: []
    brought:
      description: Media that have to be copied to the destination, with O(cdrom=carry).
      type: list
      elements: dict
      sample: [{what: medium, path: /srv/iso/install.iso, mark: ""}]
    state:
      description: >-
        Files and folders beside the disks (variables of the firmware, state of a TPM). With O(mode=offline) they have to be copied before, with
        C(mark) beside them.
      type: list
      elements: dict
      sample: [{what: nvram, path: /var/lib/libvirt/qemu/nvram/web1_VARS.fd, mark: /var/lib/libvirt/qemu/nvram/web1_VARS.fd.web1.arriving}]
foretold:
  description: The pause, the bytes and the number of checks, one sentence each.
  returned: in check mode, with O(state=migrated), unless it has been migrated already
  type: list
  elements: str
  sample:
    - It would stand still when the rest of its memory takes 300 ms or less (kvm_migrate_max_downtime_ms).
    - 512 MiB of memory and disks of up to 8 GiB would be sent.
    - 48 checks of both hosts found nothing in the way.
images:
  description: The images of a guest that had been migrated already, as in RV(plan).
  returned: with O(state=migrated), if it has been migrated already
  type: list
  elements: dict
  sample: []
state:
  description: Its files beside the disks, as in RV(plan).
  returned: with O(state=migrated), if it has been migrated already
  type: list
  elements: dict
  sample: []
figures:
  description: libvirt's figures. Bytes, and milliseconds where the name says so.
  returned: when it was migrated now
  type: dict
  sample: {total_ms: 812, downtime_ms: 88, ram_total: 151003136, ram_transferred: 40912896, iterations: 3, disk_total: 268435456, disk_transferred: 268435456}
effects:
  description: The features in effect that may make a migration quicker, or its guest slower.
  returned: when it was migrated now
  type: list
  elements: str
  sample: [2 connections, pages packed with zstd, 27114 zero pages left out]
held_ms:
  description: How long the guest waited on the destination until it was let run. Part of the time it stood still, beside C(downtime_ms).
  returned: when it was migrated now and held
  type: float
  sample: 6.1
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from ..module_utils._core.runtime import HandoverError
from ..module_utils._kvm import findings, foretold, lock
from ..module_utils._kvm.findings import Looks
from ..module_utils._kvm.migration import Wish
from ..module_utils._kvm.mover import Mover
from ..module_utils._kvm.sides import load_libvirt


def wish(params: t.Mapping[str, t.Any]) -> Wish:
    """The request of the options."""
    same = ("mode", "storage", "compression", "connections", "bandwidth", "auto_converge", "tls", "synchronous_writes", "listen", "migrate_uri", "zero_pages")
    asked: dict[str, t.Any] = {name: params[name] for name in same}
    listed: dict[str, t.Any] = {name: tuple(params[name]) for name in ("disks", "shared_disks", "require")}
    return Wish(**asked, **listed, hold=params["hold"] and params["mode"] == "live")


def run(module: AnsibleModule, libvirt: t.Any) -> dict[str, t.Any]:
    """The result of the module."""
    params = module.params
    forward = params["state"] == "migrated"
    if module.check_mode or params["state"] == "cancelled":
        return act(module, libvirt)
    with lock.hold(params["guest"], params["run"], 0.0 if forward else params["timeout"], forward):
        return act(module, libvirt)


def act(module: AnsibleModule, libvirt: t.Any) -> dict[str, t.Any]:
    """The requested state, under the lock that keeps other runs out."""
    params = module.params
    with Mover(libvirt, params["guest"], params["uri"], params["destination_uri"]) as mover:
        if params["state"] == "resolved":
            return mover.resolve(params["timeout"], module.check_mode)
        if params["state"] == "cancelled":
            claim = None if module.check_mode else lock.give_up(params["guest"])
            ended = mover.cancel(params["timeout"], module.check_mode)
            if claim and not ended["changed"] and not ended["moved"]:
                return {**ended, "changed": True, "outcome": "the move had not come to the migration yet, and ends with the step that it is at"}
            return ended
        if mover.has_moved():
            there = {"moved": True, "outcome": "the guest is on the destination, and the source has none"}
            return {"changed": False, **there, "images": mover.arrived(wish(params)), "state": mover.beside()}
        looks = Looks(params["here"], params["there"], params["cdrom"])
        plan = mover.plan(wish(params), params["link_mbit"], frozenset(params["ignore"]), looks)
        if module.check_mode:
            checks = len(set(findings.CHECKS) - set(params["ignore"]))
            return {"changed": True, "plan": plan.as_dict(), "foretold": foretold.lines(plan.memory, plan.images, params["max_downtime_ms"], checks)}
        return {"changed": True, "plan": plan.as_dict(), **mover.migrate(plan, params["max_downtime_ms"], params["postcopy_after"], params["timeout"])}


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "guest": {"type": "str", "required": True},
            "destination_uri": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["migrated", "resolved", "cancelled"], "default": "migrated"},
            "mode": {"type": "str", "choices": ["live", "postcopy", "offline"], "default": "live"},
            "storage": {"type": "str", "choices": ["shared", "copy", "incremental"], "default": "shared"},
            "disks": {"type": "list", "elements": "str", "default": []},
            "compression": {"type": "str", "choices": ["auto", "none", "zstd", "zlib", "xbzrle", "qatzip", "qpl", "uadk"], "default": "auto"},
            "connections": {"type": "int", "default": 0},
            "link_mbit": {"type": "int"},
            "bandwidth": {"type": "int", "default": 0},
            "max_downtime_ms": {"type": "int", "default": 0},
            "auto_converge": {"type": "bool", "default": False},
            "tls": {"type": "bool", "default": False},
            "synchronous_writes": {"type": "bool", "default": False},
            "hold": {"type": "bool", "default": True},
            "listen": {"type": "str"},
            "migrate_uri": {"type": "str"},
            "postcopy_after": {"type": "int", "default": 1},
            "zero_pages": {"type": "str", "choices": ["default", "multifd", "legacy", "none"], "default": "default"},
            "require": {
                "type": "list",
                "elements": "str",
                "choices": ["zero_page_detection", "pause_before_switchover", "dirty_limit", "free_page_hinting"],
                "default": [],
            },
            "ignore": {"type": "list", "elements": "str", "default": []},
            "cdrom": {"type": "str", "choices": ["refuse", "eject", "carry"], "default": "refuse"},
            "shared_disks": {"type": "list", "elements": "str", "default": []},
            "here": {"type": "dict"},
            "there": {"type": "dict"},
            "run": {"type": "str", "default": ""},
            "uri": {"type": "str", "default": "qemu:///system"},
            "timeout": {"type": "int", "default": 3600},
        },
        supports_check_mode=True,
    )
    libvirt = load_libvirt()
    if libvirt is None:
        module.fail_json(msg=missing_required_lib("libvirt", reason="to migrate guests; Debian's package is python3-libvirt"))
    try:
        module.exit_json(**run(module, libvirt))
    except HandoverError as exc:
        module.fail_json(msg=str(exc))


if __name__ == "__main__":
    main()
