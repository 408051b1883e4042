#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: openvz_import_info

short_description: Plan the import of an OpenVZ container into podman

version_added: 0.1.0

description:
  - Tells of each line of a container's configuration, of its action scripts, its init and its data, whether podman on this host carries it, how it is
    translated, or why it is not done or refused. This is the plan that M(livefleet.handover.openvz_import) carries out.
  - Nothing is touched. The container's host is not asked, since it has a Python that Ansible no longer supports. O(look) is what was seen there.

extends_documentation_fragment:
  - livefleet.handover._attributes
  - livefleet.handover._attributes.info_module

options:
  look:
    description:
      - The output of the program RV(program) on the container's host. Without it only that program is returned.
    type: str
  name:
    description:
      - The container's name here. That of its configuration if not given, or C(ct) and its id.
    type: str
    default: ""
  size:
    description:
      - Size of its volume, as V(20G). Made from C(DISKSPACE) if not given.
    type: str
    default: ""
  networks:
    description:
      - The network of podman's for an interface of the container's, by the interface's name. Found by the addresses if not given.
      - An address that the configuration does not know is given with it, as in V(lan:ip=10.0.0.5).
    type: dict
    default: {}
  ignore:
    description:
      - Names of refused rows that are left out all the same.
    type: list
    elements: str
    default: []
  timeout:
    description:
      - Seconds that the whole module may take.
    type: int
    default: 120

seealso:
  - module: livefleet.handover.openvz_import
  - module: livefleet.handover.openvz_config_info

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Ask for the program
  livefleet.handover.openvz_import_info:
  register: asked

- name: Look at the container
  ansible.builtin.raw: sh -c {{ asked.program | quote }} sh 101
  delegate_to: old1
  register: looked

- name: Plan its import
  livefleet.handover.openvz_import_info:
    look: "{{ looked.stdout }}"
  register: planned
"""

RETURN = r"""
program:
  description: A program for a shell. It looks at the container that its first argument names, and changes nothing.
  returned: success
  type: str
plan:
  description: The plan, for M(livefleet.handover.openvz_import).
  returned: with O(look)
  type: dict
  contains:
    rows:
      description: A row for each thing, as of M(livefleet.handover.openvz_config_info). Rows of no line of the file have the line 0.
      type: list
      elements: dict
    refused:
      description: A sentence for each row that is refused.
      type: list
      elements: str
    options:
      description: The arguments of C(podman create).
      type: list
      elements: str
  sample: {id: "101", name: shop, layout: simfs, running: true, refused: [], options: [--hostname=shop]}
lines:
  description: The rows for people.
  returned: with O(look)
  type: list
  elements: str
offer:
  description: What this host has.
  returned: with O(look)
  type: dict
record:
  description: How far an earlier import of the container is. Empty where there was none.
  returned: with O(look)
  type: dict
"""

import os
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._core.host import free_space, read_text
from ..module_utils._core.runtime import HandoverError, Runtime
from ..module_utils._core.sizes import parse_size
from ..module_utils._openvz import importer
from ..module_utils._openvz.look import SCRIPT, parse
from ..module_utils._openvz.plan import Wishes, make, paths_of
from ..module_utils._podman.podman import Podman
from ..module_utils._podman.volume import MOUNT_ROOT, default_image, default_mountpoint


def offer_of(runtime: Runtime, looked: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """What this host has."""
    podman = Podman(runtime)
    cgroup2 = os.path.exists("/sys/fs/cgroup/cgroup.controllers")
    controllers = read_text("/sys/fs/cgroup/cgroup.controllers").split() if cgroup2 else os.listdir("/sys/fs/cgroup")
    images = os.path.dirname(default_image("x"))
    taken = {name for each in podman.containers() for name in each.get("Names") or []}
    taken |= {name[: -len(".img")] for name in (os.listdir(images) if os.path.isdir(images) else []) if name.endswith(".img")}
    return {
        "machine": os.uname().machine, "processors": os.cpu_count() or 1, "cgroup": 2 if cgroup2 else 1, "controllers": sorted(controllers),
        "vsyscall": "[vsyscall]" in read_text("/proc/self/maps"), "free": free_space(images), "taken": sorted(taken),
        "networks": [{"name": each["name"], "subnets": each.get("subnets") or []} for each in podman.networks()],
        "paths": [path for path in paths_of(looked) if os.path.exists(path)],
    }  # fmt: skip


def run(module: AnsibleModule) -> dict[str, t.Any]:
    """The result of the module."""
    params = module.params
    if params["look"] is None:
        return {"program": SCRIPT}
    looked = parse(params["look"])
    if looked["none"]:
        raise HandoverError("the source has no /etc/vz/conf: it is no host of OpenVZ's; name one in handover_source")
    if not looked["id"]:
        there = ", ".join(looked["others"]) or "none"
        raise HandoverError(f"the source has no container of that id or name: name one of those that it has ({there})")
    try:
        size = parse_size(params["size"]) if params["size"] else 0
    except ValueError as exc:
        raise HandoverError(f"import_openvz_size: {exc}") from exc
    offer = offer_of(Runtime(module, params["timeout"]), looked)
    name, record = importer.find_record(looked["id"], looked["host"])
    # A container that this import has made, and a lock that it has set, are not in its way.
    offer["taken"] = sorted({*offer["taken"], *importer.records()} - {name})
    state = record.get("state")
    ignore = [*params["ignore"], *(["DISABLED"] if state in (importer.STOPPED, importer.IMPORTED) else [])]
    wishes = Wishes(name=name or params["name"], size=size, networks=params["networks"], ignore=ignore)
    plan = make(looked, offer, wishes, MOUNT_ROOT + "/{name}")
    if state == importer.IMPORTED and plan["running"]:
        both = f"(state): it was imported as {plan['name']}, and runs on the source again: stop it there, or take the import back (import_openvz_back=true)"
        plan["refused"] = [*plan["refused"], both]
    plan.update(image=default_image(plan["name"]), mountpoint=default_mountpoint(plan["name"]))
    return {"program": SCRIPT, "plan": plan, "lines": plan["lines"], "offer": offer, "record": record}


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "look": {"type": "str"},
            "name": {"type": "str", "default": ""},
            "size": {"type": "str", "default": ""},
            "networks": {"type": "dict", "default": {}},
            "ignore": {"type": "list", "elements": "str", "default": []},
            "timeout": {"type": "int", "default": 120},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(changed=False, **run(module))
    except HandoverError as exc:
        module.fail_json(msg=str(exc))


if __name__ == "__main__":
    main()
