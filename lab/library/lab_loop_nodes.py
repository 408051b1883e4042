# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ansible module: device nodes of loop devices."""

from __future__ import annotations

DOCUMENTATION = r"""
module: lab_loop_nodes
short_description: Keep nodes for loop devices in a folder
description:
  - A host has no udev, so it sees only the nodes that are bound into it when it starts. They are the fleet's own, in a folder of its own.
    Those of the machine come and go with what others do, and a node that goes while it is bound into a host takes more with it than the device -
    libvirt there starts no guest any more.
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
options:
  count:
    description: How many nodes there should be, from C(loop0) on.
    type: int
    default: 64
  folder:
    description: Where. It has to be on a file system that is not mounted with C(nodev).
    type: path
    required: true
"""

RETURN = r"""
nodes:
  description: Nodes that were made.
  type: list
  returned: always
  sample: [/var/lib/handover-lab/dev/loop0, /var/lib/handover-lab/dev/loop1]
"""

EXAMPLES = r"""
- name: Keep nodes for loop devices
  lab_loop_nodes:
    count: 64
    folder: /var/lib/handover-lab/dev
"""

import os
import stat

from ansible.module_utils import lab_machine
from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={"count": {"type": "int", "default": 64}, "folder": {"type": "path", "required": True}},
        supports_check_mode=True,
    )
    folder = module.params["folder"]
    if not os.path.exists("/dev/loop-control"):
        module.run_command(["modprobe", "loop"])
    if not os.path.exists("/dev/loop-control"):
        module.fail_json(msg="/dev/loop-control is missing: this kernel has no loop devices")
    missing = {number: f"{folder}/loop{number}" for number in range(module.params["count"]) if not os.path.exists(f"{folder}/loop{number}")}
    try:
        if missing and not module.check_mode:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            if os.statvfs(folder).f_flag & os.ST_NODEV:
                module.fail_json(msg=f"{folder} is on a file system mounted with nodev, where no device node works: put lab_state somewhere else")
            for number, node in missing.items():
                os.mknod(node, stat.S_IFBLK | 0o660, os.makedev(lab_machine.LOOP_MAJOR, number))
    except OSError as error:
        module.fail_json(msg=f"loop device nodes: {error}")
    module.exit_json(changed=bool(missing), nodes=list(missing.values()))


if __name__ == "__main__":
    main()
