#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: session_info

short_description: Tell where a handover stands

version_added: 0.1.0

description:
  - Returns where one session on this host stands, or all of them.

extends_documentation_fragment:
  - livefleet.handover._attributes
  - livefleet.handover._attributes.info_module
  - livefleet.handover._sessions

options:
  session:
    description:
      - Name of the session. All of this host if not given.
    type: str
  patience:
    description:
      - Seconds to wait for the session that is asked for until so little is left to copy that the workload can be cut over, or it has failed.
    type: float
    default: 0
  timeout:
    description:
      - Seconds that the whole module may take.
    type: int
    default: 30

requirements:
  - the helper pcopy on the host, which the role P(livefleet.handover.pcopy#role) installs

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: See the moves from or to this host
  livefleet.handover.session_info:
  register: moves

- name: Name the workloads
  ansible.builtin.debug:
    msg: "{{ moves.sessions | selectattr('running') | map(attribute='workload') }}"
"""

RETURN = r"""
sessions:
  description: The sessions, by name. Empty where the one asked for does not exist.
  returned: success
  type: list
  elements: dict
  contains:
    id:
      description: Name of the session.
      type: str
      sample: shop-20261121t041500z
    role:
      description: Which side this host is.
      type: str
      sample: source
    state:
      description: The state it has come to.
      type: str
      sample: presync
    running:
      description: Whether the helper serves it now.
      type: bool
      sample: true
    ended:
      description: Whether nothing more will happen.
      type: bool
      sample: false
    converged:
      description: Whether so little is left to copy that the workload can be cut over.
      type: bool
      sample: true
    pass:
      description: Number of the pass over the dirty clusters.
      type: int
      sample: 3
    total_bytes:
      description: Size of all volumes.
      type: int
      sample: 1073741824
    sent_bytes:
      description: Bytes that have travelled.
      type: int
      sample: 298844160
    dirty_bytes:
      description: Bytes that are left, as far as is known.
      type: int
      sample: 1310720
    rate:
      description: Bytes per second at present.
      type: int
      sample: 412090368
    fenced:
      description: Whether an operator ordered the source to go on without the destination.
      type: bool
      sample: false
    restarted:
      description: Whether the host was booted since the session began.
      type: bool
      sample: false
    plan:
      description: The play's record, written on both hosts before it made anything. None if it did not come so far.
      type: dict
      sample:
        role: source
        workload: shop
        source: node1
        destination: node2
        twin:
          made: true
          volumes: [pgdata]
    error:
      description: Why it ended otherwise than it should. One sentence, or empty.
      type: str
      sample: ""
"""

from ..module_utils._core.step import alone
from ..module_utils._podman.steps.session_info import STEP


def main() -> None:
    """Entry point."""
    alone(STEP)


if __name__ == "__main__":
    main()
