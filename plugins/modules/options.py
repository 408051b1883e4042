#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: options

short_description: Read the variables of one of this collection's playbooks

version_added: 0.1.0

description:
  - Reads the variables C(handover_*) and those of roles that a playbook of this collection was given, on the command line, by a survey,
    or in the inventory, and returns them with their types.
  - A number may come as text, a list as JSON, with commas or with a line for each entry, and an empty answer counts as none.
  - Fails with a sentence for each variable that is missing, is wrong, or that nothing would read.
  - All variables are in the collection's page C(docs/variables.md).

extends_documentation_fragment:
  - livefleet.handover._attributes
  - livefleet.handover._attributes.info_module

options:
  playbook:
    description:
      - The playbook's name, as V(migrate).
    type: str
    required: true

notes:
  - This is an action plugin. It runs on the controller, and asks no host.

seealso:
  - plugin: livefleet.handover.hosts
    plugin_type: lookup

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Read what is asked for
  livefleet.handover.options:
    playbook: migrate
  register: __handover
"""

RETURN = r"""
asked:
  description: The values, by the names of the variables without C(handover_). None where nothing was said and there is no default.
  returned: success
  type: dict
  sample: {workload: shop, destination: node2, source: null, max_frozen: 300, auto_converge: false}
problems:
  description: All that is wrong, a sentence each.
  returned: failure
  type: list
  elements: str
  sample: ["there is no variable handover_max_frozn: did you mean handover_max_frozen?"]
"""
