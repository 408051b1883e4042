#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kvm_migrate_wait

short_description: Wait for the migration of a KVM guest, and show how far it has come

version_added: 0.1.0

description:
  - Waits for M(livefleet.handover.kvm_migrate) that was started with C(async) and C(poll=0), shows a line when something has changed, and
    returns its result.

extends_documentation_fragment:
  - livefleet.handover._attributes
  - livefleet.handover._attributes.info_module

options:
  guest:
    description: Name of the guest.
    type: str
    required: true
  job:
    description: The C(ansible_job_id) of the task that migrates it.
    type: str
    required: true
  uri:
    description: How libvirt on the source is reached.
    type: str
    default: qemu:///system
  interval:
    description: Seconds between two looks.
    type: float
    default: 1.0
  timeout:
    description: Seconds to wait at most.
    type: int
    default: 3600

notes:
  - This is an action plugin. It asks the host again and again, and runs on the controller.

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Migrate the guest
  livefleet.handover.kvm_migrate:
    guest: web1
    destination_uri: qemu+ssh://node2/system
  async: 3600
  poll: 0
  register: started

- name: Wait for it
  livefleet.handover.kvm_migrate_wait:
    guest: web1
    job: "{{ started.ansible_job_id }}"
"""

RETURN = r"""
moved:
  description: As M(livefleet.handover.kvm_migrate) returned it, like everything else in the result.
  returned: success
  type: bool
  sample: true
"""
