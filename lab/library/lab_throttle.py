# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ansible module: how fast a host's disks are."""

from __future__ import annotations

DOCUMENTATION = r"""
module: lab_throttle
short_description: Make the disks of a host of the lab as slow as asked for
description:
  - Limits how often a second the host may read from each loop device, by the cgroup that all of the host is in. A long read counts as
    one, so that reading in order is quick and reading here and there is slow, as with a hard disk.
  - That goes for all that the machine has, as the host may take one that is free at any time, and give back one that it has. Of one that is another
    host's it reads nothing.
  - One that is on another loop device has no limit of its own, as a partition has none.
  - Runs on the machine, not on the host.
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
options:
  host:
    description: The host's name.
    type: str
    required: true
  state_dir:
    description: The lab's state folder.
    type: path
    required: true
  file:
    description: Only loop devices that have a file of this name, whichever host's.
    type: path
  read_iops:
    description: Reads a second from each device. V(0) for no limit.
    type: int
    default: 0
"""

RETURN = r"""
devices:
  description: The machine's loop devices that are limited for the host.
  type: list
  elements: str
  returned: always
  sample: [/dev/loop3, /dev/loop4]
"""

EXAMPLES = r"""
- name: Give the host hard disks
  lab_throttle:
    host: ceph1
    state_dir: /var/lib/handover-ceph
    read_iops: 100
"""

import glob
import os
import re

from ansible.module_utils import lab_machine
from ansible.module_utils.basic import AnsibleModule

# The file of the cgroup, how a limit is written there, and how "no limit" is: cgroup v1 and v2.
FILES = {
    "blkio.throttle.read_iops_device": ("{device} {limit}", "0"),
    "io.max": ("{device} riops={limit}", "max"),
}

IS_LOOP = re.compile(r"/dev/loop\d+$")


class Throttle:
    """The disks of one host."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.host = module.params["host"]
        self.state_dir = module.params["state_dir"]

    def apply(self) -> dict:
        """Limits every device that is not limited so, or lifts that."""
        file = self._file()
        line, unlimited = FILES[os.path.basename(file)]
        devices = self._devices()
        changed = False
        for number, wanted in devices.values():
            if self._found(file, number) == wanted:
                continue
            changed = True
            if not self.module.check_mode:
                with open(file, "w", encoding="ascii") as target:
                    target.write(line.format(device=number, limit=wanted or unlimited))
        return {"changed": changed, "devices": sorted(name for name, (_number, wanted) in devices.items() if wanted)}

    def _file(self) -> str:
        for path in lab_machine.cgroups(self.state_dir, self.host):
            for name in FILES:
                if os.path.exists(os.path.join(path, name)):
                    return os.path.join(path, name)
        return self.module.fail_json(
            msg=f"{self.host} has no cgroup in which reads can be limited: bring it up, on a kernel with CONFIG_BLK_DEV_THROTTLING"
        )

    def _devices(self) -> dict[str, tuple[str, str]]:
        """Number and limit of each, empty for none, by its name."""
        file, limit = self.module.params["file"] or "", str(self.module.params["read_iops"] or "")
        found = {}
        for path in glob.glob("/sys/block/loop*"):
            backing = read(f"{path}/loop/backing_file")
            # As the machine sees it, the name may begin with where the host's files are.
            if backing.endswith(file):
                found[f"/dev/{os.path.basename(path)}"] = (read(f"{path}/dev"), "" if IS_LOOP.search(backing) else limit)
        return found

    @staticmethod
    def _found(file: str, number: str) -> str:
        """The limit that a device has now, empty for none."""
        with open(file, encoding="ascii") as source:
            match = re.search(rf"^{number} (?:.*\briops=)?(\d+|max)", source.read(), re.MULTILINE)
        return match[1].replace("max", "") if match else ""


def read(path: str) -> str:
    """What the kernel says; nothing, of a device that has no file."""
    try:
        with open(path, encoding="utf-8") as source:
            return source.read().strip()
    except FileNotFoundError:
        return ""


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "state_dir": {"type": "path", "required": True},
            "file": {"type": "path"},
            "read_iops": {"type": "int", "default": 0},
        },
        supports_check_mode=True,
    )
    module.exit_json(**Throttle(module).apply())


if __name__ == "__main__":
    main()
