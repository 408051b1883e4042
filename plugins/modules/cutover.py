#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cutover

short_description: Freeze a workload here and resume it there

version_added: 0.1.0

description:
  - Run on the source. Asks the session's helper to hand the workload over, and returns when the outcome is known. Everything
    between the freeze and the resume happens inside this one call, between the two helpers.
  - Fails if the workload does not run on the destination afterwards, and says where it is then.
  - Run again for a session that has ended, it tells the outcome and changes nothing.

extends_documentation_fragment:
  - livefleet.handover._attributes
  - livefleet.handover._sessions

attributes:
  check_mode:
    support: full
    details:
      - Says whether the session would be cut over.
  diff_mode:
    support: none
  idempotent:
    support: full

options:
  session:
    description:
      - Name of the session.
    type: str
    required: true
  wave:
    description:
      - Names of sessions on this host that are handed over as one, O(session) among them. All are frozen at the same moment, and none is
        released before all are restored; if one of them fails before that, none is moved. The first caller does it for all.
    type: list
    elements: str
    default: []
  source:
    description:
      - How messages should call this host.
    type: str
    default: the source
  destination:
    description:
      - How messages should call the other one.
    type: str
    default: the destination
  timeout:
    description:
      - Seconds that the whole module may take. The helper goes on if this is too short, and the outcome can be asked for again.
    type: int
    default: 300

requirements:
  - the helper pcopy on the host, which the role P(livefleet.handover.pcopy#role) installs

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Freeze on the source, resume on the destination
  livefleet.handover.cutover:
    session: shop-20261121t041500z
    source: node1
    destination: node2
  register: cutover

- name: Tell the pause
  ansible.builtin.debug:
    msg: "{{ cutover.status.frozen_ms }} ms"
"""

RETURN = r"""
reasons:
  description: Why something was changed, or in check mode would be.
  returned: always
  type: list
  elements: str
  sample:
    - shop runs on node1 and is to run on node2
status:
  description: How the session ended; see M(livefleet.handover.session_info).
  returned: when the helper could be asked
  type: dict
  contains:
    state:
      description: V(done) if the workload has moved.
      type: str
      sample: done
    frozen_ms:
      description: Milliseconds from the moment in which the workload is told to stop to the resume on the destination.
      type: float
      sample: 402.7
    stages:
      description: The duration of each stage. C(start_ms) counts from the moment in which the workload is told to stop; stages overlap.
      type: list
      elements: dict
      sample:
        - {stage: freeze, start_ms: 0.0, ms: 1.1}
        - {stage: dump, start_ms: 1.1, ms: 41.0}
"""

from ..module_utils._core.step import alone
from ..module_utils._podman.steps.cutover import STEP


def main() -> None:
    """Entry point."""
    alone(STEP)


if __name__ == "__main__":
    main()
