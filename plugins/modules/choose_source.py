#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: choose_source

short_description: Find the one host that a workload is to leave

version_added: 1.0.0

description:
  - From the answers of M(livefleet.handover.workload_info) on several hosts, finds the host that has the workload, and puts it into a group for the
    next play.
  - A workload that is on its destination already is told, and is left as a result for the next playbook; the group stays empty. One that is
    nowhere, or on several hosts, is a failure.

extends_documentation_fragment:
  - livefleet.handover._attributes

attributes:
  check_mode:
    support: full
    details:
      - The host is found in check mode too, so that the plays that follow have a host to ask.
  diff_mode:
    support: none
  idempotent:
    support: full

options:
  asked:
    description:
      - The request, as M(livefleet.handover.options) has read it. C(workload), C(destination) and C(source) count.
    type: dict
    required: true
  answers:
    description:
      - A host's name → its answer.
    type: dict
    required: true
  group:
    description:
      - The group for the host.
    type: str
    required: true

notes:
  - This is an action plugin. It runs on the controller, and asks no host.

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Choose the source
  livefleet.handover.choose_source:
    asked: {workload: shop, destination: node2}
    answers: "{{ ['node1', 'node2'] | livefleet.handover.told(hostvars, 'found') }}"
    group: source
"""

RETURN = r"""
source:
  description: The host. Empty where nothing is left to do.
  returned: success
  type: str
  sample: node1
"""
