# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ansible module: device nodes of loop devices."""

from __future__ import annotations

DOCUMENTATION = r"""
module: lab_loop_nodes
short_description: Keep enough nodes for loop devices in /dev
description:
  - A host has no udev, so it sees only the nodes that are bound into it when it starts. Makes those that are
    missing, and writes their numbers down so that V(absent) removes these and no others.
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
options:
  count:
    description: How many nodes there should be, from C(/dev/loop0) on.
    type: int
    default: 64
  record:
    description: File in which the numbers of the nodes made are kept.
    type: path
    required: true
  state:
    description: Whether the nodes should be there. V(absent) leaves a node that something else uses by now.
    type: str
    choices: [present, absent]
    default: present
"""

RETURN = r"""
nodes:
  description: Nodes that were made or removed.
  type: list
  returned: always
  sample: [/dev/loop16, /dev/loop17]
"""

EXAMPLES = r"""
- name: Keep nodes for loop devices
  lab_loop_nodes:
    count: 64
    record: /var/lib/handover-lab/loop-nodes
"""

import fcntl
import os
import stat

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils import lab_machine


def present(module: AnsibleModule) -> list[str]:
    """Makes the nodes that are missing."""
    if not os.path.exists("/dev/loop-control"):
        module.run_command(["modprobe", "loop"])
    if not os.path.exists("/dev/loop-control"):
        module.fail_json(msg="/dev/loop-control is missing: this kernel has no loop devices")
    missing = [number for number in range(module.params["count"]) if not os.path.exists(node(number))]
    if missing and not module.check_mode:
        # Written first: a run that ends between the two leaves no node behind unknown.
        with open(module.params["record"], "a", encoding="ascii") as record:
            record.writelines(f"{number}\n" for number in missing)
        for number in missing:
            os.mknod(node(number), stat.S_IFBLK | 0o660, os.makedev(lab_machine.LOOP_MAJOR, number))
    return [node(number) for number in missing]


def absent(module: AnsibleModule) -> list[str]:
    """Removes the nodes that were made."""
    made = lab_machine.made_loop_nodes(module.params["record"])
    busy = {number for number in made if os.path.exists(f"/sys/block/loop{number}/loop/backing_file")}
    if busy:
        module.warn(f"left in place, for something other than this lab uses them: {', '.join(map(node, sorted(busy)))}")
    gone = [number for number in made if number not in busy]
    if not module.check_mode:
        for number in gone:
            remove(number)
        if os.path.exists(module.params["record"]):
            os.unlink(module.params["record"])
    return [node(number) for number in gone]


def remove(number: int) -> None:
    """Removes a loop device from the kernel, if it is there, and its node."""
    if os.path.exists(f"/sys/block/loop{number}"):
        control = os.open("/dev/loop-control", os.O_RDWR)
        try:
            fcntl.ioctl(control, lab_machine.LOOP_CTL_REMOVE, number)
        finally:
            os.close(control)
    if os.path.exists(node(number)):
        os.unlink(node(number))


def node(number: int) -> str:
    """The path of a loop device."""
    return f"/dev/loop{number}"


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "count": {"type": "int", "default": 64},
            "record": {"type": "path", "required": True},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        },
        supports_check_mode=True,
    )
    act = {"present": present, "absent": absent}[module.params["state"]]
    try:
        nodes = act(module)
    except OSError as error:
        module.fail_json(msg=f"loop device nodes: {error}")
    module.exit_json(changed=bool(nodes), nodes=nodes)


if __name__ == "__main__":
    main()
