#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kvm_disks_info

short_description: Look at the disks of a KVM guest

version_added: 0.1.0

description:
  - Each image and all that it stands on, as the images say themselves, with links resolved. The identity of devices, the room of file systems, and other
    guests and processes that use the same images.
  - Run on the source with O(guest), then on the destination with the result of that. The module M(livefleet.handover.kvm_migrate) holds both
    answers against each other.
  - With O(guest) it puts a small file beside each image, the stamp. Whether the other host sees it tells whether both hosts have the same storage.
    Run with O(unstamp) it takes the stamps away. A stamp that is left is removed by the next look after an hour.

extends_documentation_fragment:
  - livefleet.handover._attributes
  - livefleet.handover._attributes.info_module
  - livefleet.handover._libvirt

options:
  guest:
    description: Name of a guest of this host. One that is not here has no disks.
    type: str
  digests:
    description: Whether the digests of images that others stand on are read. It takes as long as reading them.
    type: bool
    default: false
  look:
    description: The source's result, RV(seen), where this host is the destination.
    type: dict
  unstamp:
    description: The stamps to take away, as C(stamps) in RV(seen).
    type: dict
    default: {}

requirements:
  - libvirt's Python binding (Debian's package python3-libvirt)
  - qemu-img (Debian's package qemu-utils)

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Look at the disks of a guest
  livefleet.handover.kvm_disks_info:
    guest: web1
  register: here

- name: Look at the same on another host
  livefleet.handover.kvm_disks_info:
    look: "{{ here.seen }}"
  delegate_to: node2

- name: Take the stamps away
  livefleet.handover.kvm_disks_info:
    unstamp: "{{ here.seen.stamps }}"
"""

RETURN = r"""
seen:
  description: The findings. Of the source with C(disks) and C(stamps), of the destination with C(stamped) and C(ours).
  returned: without O(unstamp)
  type: dict
  sample:
    uuid: 4dea22b3-1d52-d8f3-2516-782e98ab3fa0
    disks: [{target: vda, kind: file, path: /srv/web1.qcow2, chain: [{path: /srv/web1.qcow2, format: qcow2}]}]
    images: {/srv/web1.qcow2: {exists: true, kind: file, real: /srv/web1.qcow2, size: 196624, free: 1073741824}}
    users: {}
    holders: {}
"""

import os
import typing as t

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from ..module_utils._core.runtime import HandoverError
from ..module_utils._kvm import disk_look
from ..module_utils._kvm.findings import definitions
from ..module_utils._kvm.sides import load_libvirt


def here(libvirt: t.Any, connection: t.Any, name: str, digests: bool) -> dict[str, t.Any]:
    """The source's view."""
    try:
        domain = connection.lookupByName(name)
    except libvirt.libvirtError as exc:
        if exc.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
            raise
        return {"guest": name, "uuid": "", "disks": [], "images": {}, "stamps": {}, "users": {}, "holders": {}, "digests": []}
    found: dict[tuple[str, str, str], dict[str, t.Any]] = {}
    for root in definitions(libvirt, domain):
        for disk in disk_look.disks(root):
            disk = disk_look.resolve(libvirt, connection, disk)
            found.setdefault((disk["target"], disk["path"], disk["volume"]), {**disk, "chain": [], "problem": ""})
    for disk in found.values():
        _read_chain(disk)
    layers = [layer["path"] for disk in found.values() for layer in disk["chain"] if layer["path"].startswith("/")]
    bases = sorted({layer["path"] for disk in found.values() for layer in disk["chain"][1:] if layer["path"].startswith("/")}) if digests else []
    paths = sorted(set(layers))
    return {
        "guest": name,
        "uuid": domain.UUIDString(),
        "disks": list(found.values()),
        "images": {path: disk_look.image(path, path in bases) for path in paths},
        "stamps": disk_look.stamp(paths),
        "users": disk_look.users(libvirt, connection, domain.UUIDString(), paths),
        "holders": disk_look.holders(name, paths),
        "digests": bases,
    }


def _read_chain(disk: dict[str, t.Any]) -> None:
    if not disk["path"].startswith("/"):
        return
    disk["chain"] = [{"path": disk["path"], "format": disk["format"]}]
    if os.path.exists(disk["path"]):
        try:
            disk["chain"] = disk_look.chain(disk["path"], disk["format"])
        except HandoverError as exc:
            disk["problem"] = str(exc)


def there(libvirt: t.Any, connection: t.Any, look: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The destination's view of the same."""
    paths = sorted(look["images"])
    mark = f".{look['guest']}.arriving"
    return {
        "images": {path: disk_look.image(path, path in look["digests"]) for path in paths},
        "stamped": [path for path, name in look["stamps"].items() if disk_look.stamped(path, name)],
        "ours": [path for path in paths if os.path.lexists(path + mark)],
        "users": disk_look.users(libvirt, connection, look["uuid"], paths),
        "holders": disk_look.holders(look["guest"], paths),
    }


def run(params: t.Mapping[str, t.Any], libvirt: t.Any) -> dict[str, t.Any]:
    """The result of the module."""
    if params["unstamp"]:
        disk_look.unstamp(params["unstamp"])
        return {"changed": False}
    connection = libvirt.open(params["uri"])
    try:
        if params["look"] is not None:
            return {"changed": False, "seen": there(libvirt, connection, params["look"])}
        return {"changed": False, "seen": here(libvirt, connection, params["guest"], params["digests"])}
    finally:
        connection.close()


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "guest": {"type": "str"},
            "digests": {"type": "bool", "default": False},
            "look": {"type": "dict"},
            "unstamp": {"type": "dict", "default": {}},
            "uri": {"type": "str", "default": "qemu:///system"},
        },
        required_one_of=[("guest", "look", "unstamp")],
        mutually_exclusive=[("guest", "look")],
        supports_check_mode=True,
    )
    libvirt = load_libvirt()
    if libvirt is None:
        module.fail_json(msg=missing_required_lib("libvirt", reason="to look at guests; Debian's package is python3-libvirt"))
    try:
        module.exit_json(**run(module.params, libvirt))
    except HandoverError as exc:
        module.fail_json(msg=str(exc))
    except OSError as exc:
        module.fail_json(msg=f"{exc.filename} cannot be read: {exc.strerror}")
    except libvirt.libvirtError as exc:
        module.fail_json(msg=f"libvirt of this host cannot be asked ({exc}): try `virsh --connect {module.params['uri']} list`, as root")


if __name__ == "__main__":
    main()
