#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: show_lines

short_description: Show lines of text as they are

version_added: 0.1.0

description:
  - Shows lines on the controller, without the quotes and braces that results are printed in. A table stays a table.

extends_documentation_fragment:
  - livefleet.handover._attributes
  - livefleet.handover._attributes.info_module

options:
  lines:
    description:
      - The lines.
    type: list
    elements: str
    required: true

notes:
  - This is an action plugin. It runs on the controller, and asks no host.

seealso:
  - plugin: livefleet.handover.times_table
    plugin_type: filter

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Print the times of a cutover
  livefleet.handover.show_lines:
    lines: "{{ cutover.status | livefleet.handover.times_table }}"
"""

RETURN = r""" # """
