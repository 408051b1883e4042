#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: session_wait

short_description: Wait for a handover, and show how it goes

version_added: 0.1.0

description:
  - Waits until a session has converged or ended, and shows a line whenever something has changed.
  - Asks M(livefleet.handover.session_info) on the host again and again, so the connection may break in between.

extends_documentation_fragment:
  - livefleet.handover._attributes
  - livefleet.handover._attributes.info_module
  - livefleet.handover._sessions

attributes:
  check_mode:
    support: full

options:
  session:
    description:
      - Name of the session.
    type: str
    required: true
  until:
    description:
      - With V(converged) so little is left to copy that the workload can be cut over. A session that ends before fails the task.
      - With V(ended) nothing more will happen, however it ended. A session whose records were removed has ended too.
    type: str
    choices: [converged, ended]
    default: converged
  interval:
    description:
      - Seconds between two questions.
    type: float
    default: 1.0
  timeout:
    description:
      - Seconds to wait.
    type: int
    default: 3600
  known:
    description:
      - The answer of M(livefleet.handover.session_info) from just now. It stands for the first question if it is about this session.
    type: dict
    default: {}

notes:
  - This is an action plugin. It runs on the controller, and the questions run on the host.

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Copy until little is left
  livefleet.handover.session_wait:
    session: shop-20261121t041500z
    timeout: 7200
"""

RETURN = r"""
status:
  description: Where the session stands; see M(livefleet.handover.session_info). None if its records were removed.
  returned: success
  type: dict
  sample:
    id: shop-20261121t041500z
    state: presync
    converged: true
    pass: 3
    dirty_bytes: 1310720
waited:
  description: Seconds that it took.
  returned: success
  type: float
  sample: 4.2
"""
