#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: controller_files

short_description: Write text files on the controller, or on a host that keeps them

version_added: 0.1.0

description:
  - Writes files on the controller without starting a module there. With many hosts that each leave a report, that is most of what a report costs.

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
  directory:
    description:
      - Where the files are. It is made if it is not there.
    type: str
    required: true
  files:
    description:
      - Name of each file → the text that is to be in it.
    type: dict
    required: true
  required:
    description:
      - Whether the task fails where a file cannot be written. With V(false) it is a warning, as for a report of finished work.
    type: bool
    default: true
  on_host:
    description:
      - Write them on the task's host, or on the one that it is delegated to, instead of on the controller.
      - An execution environment is thrown away after its job, and each file in it.
    type: bool
    default: false

notes:
  - This is an action plugin. It runs on the controller, as the user that Ansible runs as. It asks no host, unless O(on_host) is set.

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Leave a report
  livefleet.handover.controller_files:
    directory: reports
    files:
      shop.json: "{{ report | ansible.builtin.to_nice_json }}\n"
"""

RETURN = r"""
written:
  description: Whether all of the files hold their text, or in check mode would.
  returned: success
  type: bool
  sample: true
paths:
  description: Where the files are, each behind the host's name and a colon if it is not on the controller. Empty where they could not be written.
  returned: success
  type: list
  elements: str
  sample:
    - /var/lib/reports/shop.json
reasons:
  description: Why something was changed, or in check mode would be.
  returned: success
  type: list
  elements: str
  sample:
    - shop.json is new, or holds something else
"""
