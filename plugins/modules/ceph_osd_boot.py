#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ceph_osd_boot

short_description: Read an OSD's metadata into memory when its host boots

version_added: 0.1.0

description:
  - After a boot nothing is in memory, and an OSD that starts reads its database here and there. With this module a systemd unit goes before the OSD's own
    and reads it in the order of the disk and in large pieces.
  - Of a BlueStore OSD that is where its database lies on the devices; they are held open for ten minutes, since the kernel throws the pages of a block
    device away when it is closed for the last time.
  - Of a FileStore it is the files at O(paths), but of an object map in RocksDB only the part that a start reads, which is the logs of its placement groups and
    the end of each table, and data written after this module has looked. It looks each time that it is called, through maps of no more than 4 GiB, which
    takes a processor 4 seconds for each GiB. O(livefleet.handover.ceph_osd#module:state=compacted) before has these logs lie together.
  - The OSD waits for that O(seconds) at most, and starts in any case. It runs once for each boot, and not when the OSD is restarted otherwise.

extends_documentation_fragment:
  - livefleet.handover._attributes

attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full

options:
  osd:
    description:
      - Number of the OSD, which is on this host. It may run or not, but its folder has to be filled.
      - An OSD in a container is refused with O(state=present), since the tools that know its layout are in there.
    type: int
    required: true
  state:
    description:
      - Whether something is read when the host boots.
    type: str
    choices: [present, absent]
    default: present
  seconds:
    description:
      - The longest that the OSD waits for the reading. It reads the rest itself.
      - A disk that does 150 MiB/s reads 4.4 GiB in 30 seconds. Of a larger database of a BlueStore a part is read, in vain in the worst case.
    type: int
    default: 30
  paths:
    description:
      - Of a FileStore, folders and files below its own folder whose files are read.
    type: list
    elements: str
    default: [current/omap]

requirements:
  - the helper pcopy on the host, which the role P(livefleet.handover.pcopy#role) installs
  - C(ceph-bluestore-tool) on the host

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Have the database of osd.2 in memory whenever this host boots
  livefleet.handover.ceph_osd_boot:
    osd: 2

- name: No more
  livefleet.handover.ceph_osd_boot:
    osd: 2
    state: absent
"""

RETURN = r"""
unit:
  description: The systemd unit that reads.
  returned: success
  type: str
  sample: handover-boot-osd.2.service
files:
  description: The files that were written or removed, or in check mode would be.
  returned: success
  type: list
  elements: str
  sample:
    - /etc/systemd/system/handover-boot-osd.2.service
    - /etc/systemd/system/ceph-osd@2.service.d/handover-boot.conf
"""

import os
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._ceph.boot import Boot
from ..module_utils._ceph.osd import find_osd
from ..module_utils._core.host import read_text
from ..module_utils._core.runtime import HandoverError, Runtime

SECONDS = 60


def run(module: AnsibleModule) -> dict[str, t.Any]:
    """Has the files as they are to be."""
    runtime = Runtime(module, SECONDS)
    boot = Boot(runtime, find_osd(runtime, module.params["osd"]))
    there = {path: read_text(path) for path in (boot.unit, boot.drop_in) if os.path.exists(path)}
    wanted = {}
    if module.params["state"] == "present":
        if module.params["seconds"] < 1:
            raise HandoverError(f"seconds: {module.params['seconds']} is no time: give at least 1, or have it absent")
        wanted = boot.files(module.params["seconds"], module.params["paths"])
    # The mark is of this boot alone: after the next it is not there, and all is as it was asked for.
    different = [path for path in (boot.unit, boot.drop_in) if there.get(path) != wanted.get(path)]
    if not module.check_mode:
        if wanted:
            # Each time, and no change: the map itself has changed.
            boot.look()
        if different and wanted:
            boot.write(wanted)
        elif different:
            boot.remove()
    return {
        "changed": bool(different),
        "unit": boot.name,
        "files": different,
        "diff": [{"before_header": path, "after_header": path, "before": there.get(path, ""), "after": wanted.get(path, "")} for path in different],
    }


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "osd": {"type": "int", "required": True},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "seconds": {"type": "int", "default": 30},
            "paths": {"type": "list", "elements": "str", "default": ["current/omap"]},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(**run(module))
    except HandoverError as exc:
        module.fail_json(msg=str(exc))


if __name__ == "__main__":
    main()
