#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: host_steps

short_description: Run several modules of this collection on a host, in one call

version_added: 1.0.0

description:
  - Runs the steps one after the other, up to the first that fails. All options of all steps are checked before the first begins.
  - A call costs the controller a process and the host the start of Python, whatever it does. A move is many small steps on two hosts.

extends_documentation_fragment:
  - livefleet.handover._attributes

attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
    details:
      - Those of the steps.

options:
  steps:
    description:
      - "Each is the name of one module and its options, as in C({session_info: {session: shop}})."
      - Possible are M(livefleet.handover.cutover), M(livefleet.handover.image_volume), M(livefleet.handover.podman_service),
        M(livefleet.handover.podman_workload), M(livefleet.handover.session), M(livefleet.handover.session_info), and M(livefleet.handover.workload_info).
    type: list
    elements: dict
    required: true

notes:
  - A task of one of these modules is also sent to the host as a call of this one. Ansible puts a module together once in a run, which takes longer
    than the call, and so it does that once for all of them.

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Take the workload and its volume off this host
  livefleet.handover.host_steps:
    steps:
      - podman_workload: {name: shop, state: absent}
      - image_volume: {name: shopdata, state: absent, force: true}
"""

RETURN = r"""
results:
  description: The result of each step that ran, as its module would return it. That of a step that failed has C(msg).
  returned: when a step ran
  type: list
  elements: dict
  sample:
    - {changed: true, reasons: ["there is a container named shop, which is exited"]}
last:
  description: The name of a module → its last result.
  returned: when a step ran
  type: dict
  sample:
    podman_workload: {changed: true, reasons: ["there is a container named shop, which is exited"]}
reasons:
  description: Why the steps changed something, or in check mode would.
  returned: when a step ran
  type: list
  elements: str
  sample:
    - there is a container named shop, which is exited
"""

from ..module_utils._core.runtime import HandoverError
from ..module_utils._core.step import discreet, in_turn
from ..module_utils._drivers.steps import STEPS


def main() -> None:
    """Entry point."""
    module = discreet(argument_spec={"steps": {"type": "list", "elements": "dict", "required": True}}, supports_check_mode=True)
    try:
        result = in_turn(module, STEPS, module.params["steps"])
    except HandoverError as exc:
        module.fail_json(msg=str(exc))
    if "msg" in result:
        module.fail_json(**result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
