#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kvm_look_info

short_description: Look at the things of a host that a KVM guest's definition names

version_added: 0.1.0

description:
  - Files with their digests, folders, network devices, addresses and ports, processors, huge pages, devices, libvirt's hooks.
  - Run on the source with O(guest) it returns RV(wanted) as well. Run on the destination with these, it looks at the same there. The module
    M(livefleet.handover.kvm_migrate) holds both answers against each other.

extends_documentation_fragment:
  - livefleet.handover._attributes
  - livefleet.handover._attributes.info_module
  - livefleet.handover._libvirt

options:
  guest:
    description: Name of a guest of this host, at whose things to look. One that is not here has none.
    type: str
  places:
    description: Paths to look for.
    type: list
    elements: str
    default: []
  files:
    description: Files of which the digest is read, too.
    type: list
    elements: str
    default: []
  trees:
    description: Files and folders of which owner, mode, label and digest of all that is below are read.
    type: list
    elements: str
    default: []
  parts:
    description: Parts of a definition, as paths of its elements and attributes, that this host's libvirt is to know.
    type: list
    elements: str
    default: []

requirements:
  - libvirt's Python binding (Debian's package python3-libvirt), with O(guest)

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Look at everything that the guest names, on its host
  livefleet.handover.kvm_look_info:
    guest: web1
  register: here

- name: Look at the same on another host
  livefleet.handover.kvm_look_info:
    places: "{{ here.wanted.places }}"
    files: "{{ here.wanted.files }}"
    trees: "{{ here.wanted.trees }}"
    parts: "{{ here.wanted.parts }}"
  delegate_to: node2
"""

RETURN = r"""
wanted:
  description: The paths that the guest names, by the option that they are given to.
  returned: with O(guest)
  type: dict
  sample: {places: [/dev/random], files: [/srv/iso/install.iso], trees: [/var/lib/libvirt/qemu/nvram/web1_VARS.fd]}
seen:
  description: The findings.
  returned: success
  type: dict
  sample: {places: {/dev/random: {exists: true, kind: character}}, links: {br0: bridge}, addresses: [10.0.0.2], ports: [0.0.0.0 22]}
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from ..module_utils._kvm.findings import wanted
from ..module_utils._kvm.host_look import look
from ..module_utils._kvm.libvirt_schema import unknown
from ..module_utils._kvm.sides import load_libvirt

LISTS = ("places", "files", "trees", "parts")


def run(params: t.Mapping[str, t.Any], libvirt: t.Any) -> dict[str, t.Any]:
    """The result of the module."""
    asked = {name: set(params[name]) for name in LISTS}
    result: dict[str, t.Any] = {"changed": False}
    if params["guest"]:
        result["wanted"] = _wanted(params["guest"], params["uri"], libvirt)
        for name in LISTS:
            asked[name].update(result["wanted"][name])
    seen = look(sorted(asked["places"]), sorted(asked["files"]), sorted(asked["trees"]))
    return {**result, "seen": {**seen, "unknown_parts": unknown(asked["parts"])}}


def _wanted(guest: str, uri: str, libvirt: t.Any) -> dict[str, list[str]]:
    connection = libvirt.open(uri)
    try:
        return wanted(libvirt, connection.lookupByName(guest))
    except libvirt.libvirtError as exc:
        if exc.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
            return {name: [] for name in LISTS}
        raise
    finally:
        connection.close()


def main() -> None:
    """Entry point."""
    paths = {"type": "list", "elements": "str", "default": []}
    module = AnsibleModule(
        argument_spec={"guest": {"type": "str"}, "uri": {"type": "str", "default": "qemu:///system"}, **{name: dict(paths) for name in LISTS}},
        supports_check_mode=True,
    )
    libvirt = load_libvirt()
    if libvirt is None and module.params["guest"]:
        module.fail_json(msg=missing_required_lib("libvirt", reason="to look at guests; Debian's package is python3-libvirt"))
    try:
        module.exit_json(**run(module.params, libvirt))
    except OSError as exc:
        module.fail_json(msg=f"{exc.filename} cannot be read: {exc.strerror}")
    except Exception as exc:
        if libvirt is None or not isinstance(exc, libvirt.libvirtError):
            raise
        module.fail_json(msg=f"libvirt of this host cannot be asked ({exc}): try `virsh --connect {module.params['uri']} list`, as root")


if __name__ == "__main__":
    main()
