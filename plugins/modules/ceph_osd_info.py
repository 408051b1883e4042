#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ceph_osd_info

short_description: Tell which OSDs a host has

version_added: 0.1.0

description:
  - Returns the OSDs of this host, how they were deployed, their object stores, and whether their caches can be carried over a restart.
  - Knows OSDs of Ceph's own packages (C(ceph-osd@N)), of ceph-ansible in containers, and of cephadm.

extends_documentation_fragment:
  - livefleet.handover._attributes
  - livefleet.handover._attributes.info_module

options:
  timeout:
    description:
      - Seconds that the whole module may take.
    type: int
    default: 60

requirements:
  - systemd on the host

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Look for OSDs
  livefleet.handover.ceph_osd_info:
  register: found

- name: Name those that keep nothing in the page cache
  ansible.builtin.debug:
    msg: "{{ found.osds | rejectattr('buffered') | map(attribute='id') }}"
"""

RETURN = r"""
osds:
  description: The OSDs, by number.
  returned: success
  type: list
  elements: dict
  contains:
    id:
      description: Number of the OSD.
      type: int
      sample: 2
    deployment:
      description: How it was deployed, V(packaged), V(ceph-ansible) (in a container) or V(cephadm).
      type: str
      sample: packaged
    unit:
      description: The systemd unit that it is.
      type: str
      sample: ceph-osd@2.service
    running:
      description: Whether its process runs.
      type: bool
      sample: true
    store:
      description: V(bluestore) or V(filestore); empty while its disks are not there.
      type: str
      sample: bluestore
    home:
      description: Its folder, as this host sees it.
      type: str
      sample: /var/lib/ceph/osd/ceph-2
    devices:
      description: BlueStore's block devices.
      type: dict
      sample: {"block": "/dev/dm-3", "block.db": "/dev/nvme0n1p2"}
    buffered:
      description:
        - Whether BlueStore reads its database through the page cache, which is the option C(bluefs_buffered_io).
        - None if that is not known, because the OSD does not run, or is no BlueStore.
      type: bool
      sample: true
    version:
      description: Ceph's release, None if the OSD does not run.
      type: str
      sample: 16.2.15
lacks:
  description: A sentence for each program that this host needs to keep the metadata of its OSDs in memory, and does not have.
  returned: success
  type: list
  elements: str
  sample: ["the helper /usr/local/libexec/handover/pcopy is missing: apply the role livefleet.handover.pcopy to this host"]
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._ceph.asok import NoAnswer
from ..module_utils._ceph.osd import Osd, find_osds
from ..module_utils._core.pcopy import Pcopy
from ..module_utils._core.runtime import HandoverError, Runtime


def describe(osd: Osd) -> dict[str, t.Any]:
    """One entry of the answer."""
    store = osd.store()
    try:
        version = osd.socket.call("version")["version"]
        buffered = osd.socket.call("config get", var="bluefs_buffered_io")["bluefs_buffered_io"] == "true" if store == "bluestore" else None
    except NoAnswer:
        version = buffered = None
    return {
        "id": osd.id,
        "deployment": osd.layout.deployment,
        "unit": osd.unit,
        "running": osd.pid() is not None,
        "store": store,
        "home": osd.home,
        "devices": osd.devices() if store == "bluestore" else {},
        "buffered": buffered,
        "version": version,
    }


def lacks(runtime: Runtime, stores: t.Container[str]) -> list[str]:
    """The missing part here to hold the metadata of such stores: the helper for a BlueStore, vmtouch for a FileStore."""
    sentences = []
    if "bluestore" in stores:
        try:
            Pcopy(runtime).check_installed()
        except HandoverError as exc:
            sentences.append(str(exc))
    if "filestore" in stores and runtime.find("vmtouch") is None:
        sentences.append("vmtouch is missing: install the package vmtouch on this host")
    return sentences


def main() -> None:
    """Entry point."""
    module = AnsibleModule(argument_spec={"timeout": {"type": "int", "default": 60}}, supports_check_mode=True)
    try:
        runtime = Runtime(module, module.params["timeout"])
        osds = [describe(osd) for osd in find_osds(runtime)]
        module.exit_json(changed=False, osds=osds, lacks=lacks(runtime, {osd["store"] for osd in osds}))
    except HandoverError as exc:
        module.fail_json(msg=str(exc))


if __name__ == "__main__":
    main()
