#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kvm_job_info

short_description: Tell how far the migration of a KVM guest has come

version_added: 0.1.0

description:
  - Returns libvirt's facts about the job that is under way for a guest on this host.

extends_documentation_fragment:
  - livefleet.handover._attributes
  - livefleet.handover._attributes.info_module
  - livefleet.handover._libvirt

options:
  guest:
    description: Name of the guest.
    type: str
    required: true
  async_job:
    description: The C(ansible_job_id) of the task that migrates it, to be told whether that is still at work.
    type: str

requirements:
  - libvirt's Python binding (Debian's package python3-libvirt)

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: See how far it has come
  livefleet.handover.kvm_job_info:
    guest: web1
"""

RETURN = r"""
job:
  description: The figures of the job, as M(livefleet.handover.kvm_migrate) names them. Null where none is under way, or there is no such guest.
  returned: success
  type: dict
  sample: {total_ms: 412, ram_total: 151003136, ram_transferred: 20912896, ram_remaining: 90112000, iterations: 1, ram_rate: 118489088}
at_work:
  description: Whether a process of O(async_job) is there. One that was killed never writes that it has ended.
  returned: if O(async_job) is given
  type: bool
  sample: true
"""

import contextlib
import os

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from ..module_utils._kvm.migration import figures
from ..module_utils._kvm.sides import load_libvirt


def at_work(job: str, proc: str = "/proc") -> bool:
    """Whether Ansible's wrapper of a job is there. It was started with the part of the job's id that is before its process number."""
    given = job.partition(".")[0].encode()
    for entry in filter(str.isdigit, os.listdir(proc)):
        with contextlib.suppress(OSError), open(os.path.join(proc, entry, "cmdline"), "rb") as source:
            words = source.read().split(b"\0")
            if given in words and any(word.endswith(b"async_wrapper.py") for word in words):
                return True
    return False


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "guest": {"type": "str", "required": True},
            "async_job": {"type": "str"},
            "uri": {"type": "str", "default": "qemu:///system"},
        },
        supports_check_mode=True,
    )
    libvirt = load_libvirt()
    if libvirt is None:
        module.fail_json(msg=missing_required_lib("libvirt", reason="to ask for a guest's job; Debian's package is python3-libvirt"))
    try:
        connection = libvirt.openReadOnly(module.params["uri"])
        stats = connection.lookupByName(module.params["guest"]).jobStats()
    except libvirt.libvirtError:
        stats = {}
    under_way = stats.get("type", libvirt.VIR_DOMAIN_JOB_NONE) != libvirt.VIR_DOMAIN_JOB_NONE
    job = module.params["async_job"]
    more = {"at_work": at_work(job)} if job else {}
    module.exit_json(changed=False, job=figures(stats) if under_way else None, **more)


if __name__ == "__main__":
    main()
