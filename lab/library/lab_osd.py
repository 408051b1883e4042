# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ansible module: one OSD of the lab's Ceph cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: lab_osd
short_description: Make one OSD of the lab's Ceph cluster, on files
description:
  - Makes the files that are an OSD's disks, makes it known to the monitors, and formats its object store. An OSD that was made is left alone.
    Its disks are C(lab-osd-disk@N), the daemon is C(ceph-osd@N); neither is started here, but the disks are there afterwards.
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
options:
  id:
    description: The OSD's number.
    type: int
    required: true
  disks:
    description: Size in bytes by name, V(block), V(block.db) or V(filestore).
    type: dict
    required: true
"""

RETURN = r"""
reason:
  description: Why something was changed.
  type: str
  returned: changed
  sample: osd.2 was not made
"""

EXAMPLES = r"""
- name: Make the OSD
  lab_osd:
    id: 2
    disks: {block: 4294967296}
"""

import json
import os
import uuid

from ansible.module_utils.basic import AnsibleModule

IMAGES = "/var/lib/handover/ceph"
HOMES = "/var/lib/ceph/osd"
BOOTSTRAP = "/var/lib/ceph/bootstrap-osd/ceph.keyring"


class Osd:
    """One OSD."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.id = str(module.params["id"])
        self.images = os.path.join(IMAGES, f"osd-{self.id}")
        self.home = os.path.join(HOMES, f"ceph-{self.id}")

    def make(self) -> dict:
        """Makes what is not there."""
        # Written last: whatever an earlier run did not finish begins again.
        done = os.path.join(self.images, "made")
        if os.path.exists(done):
            return {"changed": False}
        if not self.module.check_mode:
            self._disks()
            self._format()
            with open(done, "w", encoding="ascii"):
                pass
        return {"changed": True, "reason": f"osd.{self.id} was not made"}

    def _disks(self) -> None:
        self._run("systemctl", "stop", f"lab-osd-disk@{self.id}")
        os.makedirs(self.images, exist_ok=True)
        for name, size in self.module.params["disks"].items():
            path = os.path.join(self.images, f"{name}.img")
            with open(path, "wb") as image:
                image.truncate(int(size))
            if name == "filestore":
                # Attributes of objects have their place in the inode.
                self._run("mkfs.xfs", "-q", "-f", "-i", "size=2048", path)
        self._run("systemctl", "start", f"lab-osd-disk@{self.id}")

    def _format(self) -> None:
        number = str(uuid.uuid4())
        key = self._run("ceph-authtool", "--gen-print-key").strip()
        self._run("ceph", "--name", "client.bootstrap-osd", "--keyring", BOOTSTRAP, "osd", "new", number, self.id, "-i", "-",
                  data=json.dumps({"cephx_secret": key}))
        self._run("ceph-authtool", os.path.join(self.home, "keyring"), "--create-keyring", "--name", f"osd.{self.id}", "--add-key", key)
        self._run("chown", "--recursive", "--no-dereference", "ceph:ceph", self.home)
        self._run("ceph-osd", "--id", self.id, "--mkfs", "--osd-uuid", number, "--setuser", "ceph", "--setgroup", "ceph")

    def _run(self, *words: str, data: str | None = None) -> str:
        status, out, error = self.module.run_command(list(words), data=data)
        if status:
            self.module.fail_json(msg=f"osd.{self.id}: {' '.join(words)}: {(error or out).strip()[-1000:]}")
        return out


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={"id": {"type": "int", "required": True}, "disks": {"type": "dict", "required": True}},
        supports_check_mode=True,
    )
    module.exit_json(**Osd(module).make())


if __name__ == "__main__":
    main()
