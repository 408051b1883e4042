#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: alias_host

short_description: Give a host of the inventory another name in this run

version_added: 0.1.0

description:
  - Adds a host to the inventory in memory that is reached in the same way as one that is there, and is in the same groups.
  - A play does one thing at a time on a host. With a name for each workload, it moves several workloads off a host side by side.

extends_documentation_fragment:
  - livefleet.handover._attributes

attributes:
  check_mode:
    support: full
    details:
      - The name is given in check mode too, so that the plays that follow have a host to ask.
  diff_mode:
    support: none
  idempotent:
    support: full

options:
  name:
    description:
      - The other name.
    type: str
    required: true
  of:
    description:
      - The host that it is a name of.
    type: str
    required: true
  groups:
    description:
      - Further groups of the new name.
    type: list
    elements: str
    default: []
  variables:
    description:
      - Variables of the new name.
    type: dict
    default: {}

notes:
  - This is an action plugin. It runs on the controller, and asks no host.
  - With C(--limit) the plays that follow leave the new name out, as they do with M(ansible.builtin.add_host).

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Have the shop's move go its own way
  livefleet.handover.alias_host:
    name: shop@node1
    of: node1
    groups: [moves]
    variables:
      workload: shop
"""

RETURN = r""" # """
