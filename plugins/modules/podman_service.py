#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: podman_service

short_description: Bring the systemd unit of a podman container from one host to another

version_added: 0.1.0

description:
  - The steps of a move that concern the unit that starts and stops the container, a quadlet's or another. At each moment the unit can start
    the container on one host only.
  - On the source the unit is held while the container is moved, and put aside or freed in the end. On the destination it is prepared, and
    has its container when it is settled.

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
  service:
    description:
      - The unit, as M(livefleet.handover.workload_info) described it on the source as C(workload.service).
    type: dict
    required: true
  state:
    description:
      - With V(dumpable) podman dumps the container on the source, also one that it removes by itself.
      - With V(held) the unit on the source does not act when the container ends, and starts it by leave of O(session) alone.
      - With V(freed) the unit on the source is as it was before.
      - With V(aside) the unit on the source is disabled, and its files are renamed to their names and C(.migrated).
      - With V(prepared) the destination has all that the unit needs, and nothing there can start the container without O(session).
      - With V(withdrawn) the destination has nothing of the unit.
      - With V(settled) the destination has the unit, enabled as it was, with the container.
    type: str
    choices: [dumpable, held, freed, aside, prepared, withdrawn, settled]
    required: true
  container:
    description:
      - Name of the container.
      - Needed for O(state=prepared) and O(state=settled).
    type: str
  session:
    description:
      - The folder of the session on this host.
      - Needed for O(state=held) and O(state=prepared).
    type: path
  mode:
    description:
      - How the container moves.
    type: str
    choices: [live, offline]
    default: live
  running:
    description:
      - For O(state=prepared), whether the container runs on the source.
    type: bool
    default: true
  start:
    description:
      - For O(state=freed) and O(state=settled), whether a unit that was active is started where its container does not run.
    type: bool
    default: false
  timeout:
    description:
      - Seconds that the whole module may take.
    type: int
    default: 120

requirements:
  - systemd 243 or later

seealso:
  - module: livefleet.handover.podman_workload

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Have the unit on the source wait for the session
  livefleet.handover.podman_service:
    service: "{{ here.workload.service }}"
    state: held
    session: /var/lib/handover/sessions/shop-20261121t041500z

- name: Give it its container on the destination
  livefleet.handover.podman_service:
    service: "{{ here.workload.service }}"
    state: settled
    container: shop
  delegate_to: node2
"""

RETURN = r"""
reasons:
  description: Why something was changed, or in check mode would be. One sentence for each step, in order.
  returned: success
  type: list
  elements: str
  sample: [shop.service acts when its container ends]
cgroup:
  description: The folder of the unit's cgroup, if the container is to be restored in it.
  returned: when O(state=prepared)
  type: str
  sample: /sys/fs/cgroup/system.slice/shop.service
cgroups:
  description: The same of a pod's members, by their names.
  returned: when O(state=prepared), of a pod
  type: dict
  sample: {front-db: /sys/fs/cgroup/system.slice/front-db.service}
"""

from ..module_utils._core.step import alone
from ..module_utils._podman.steps.podman_service import STEP


def main() -> None:
    """Entry point."""
    alone(STEP)


if __name__ == "__main__":
    main()
