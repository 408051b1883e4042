#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: move_report

short_description: Report a move that has succeeded

version_added: 1.0.0

description:
  - Writes the record of a move as JSON, draws a page from it, and shows its times as a table.
  - Files that cannot be written are a warning, and the table is shown all the same. The workload has moved.

extends_documentation_fragment:
  - livefleet.handover._attributes

attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full

options:
  record:
    description:
      - The record, as in docs/reference/move-report.schema.json.
    type: dict
    required: true
  told:
    description:
      - Sentences that the operator has to know, from M(livefleet.handover.preflight).
    type: list
    elements: str
    default: []
  templates:
    description:
      - The folder of the page's template on the controller.
    type: path
    required: true
  directory:
    description:
      - Where the files are. It is made if it is not there.
    type: str
    required: true
  on_host:
    description:
      - Write them on the task's host, or on the one that it is delegated to, instead of on the controller.
    type: bool
    default: false

notes:
  - This is an action plugin. It runs on the controller, and asks no host, unless O(on_host) is set.

seealso:
  - module: livefleet.handover.controller_files

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Report the move
  livefleet.handover.move_report:
    record: "{{ record }}"
    templates: "{{ role_path }}/templates"
    directory: /srv/reports
"""

RETURN = r"""
written:
  description: Whether the files are there.
  returned: success
  type: bool
  sample: true
paths:
  description: Where the files are. Before those on a host stand its name and a colon.
  returned: success
  type: list
  elements: str
  sample: [/srv/reports/shop-20260101t000000z.json, /srv/reports/shop-20260101t000000z.html]
reasons:
  description: Why something was changed, or in check mode would be.
  returned: success
  type: list
  elements: str
  sample: [shop-20260101t000000z.json is new, or holds something else]
"""
