#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kvm_lock

short_description: Have one run at a time move a KVM guest

version_added: 0.1.0

description:
  - Takes the lock of a guest on a host for a run, or gives it back. Another run that is at work is refused in a sentence that says whose the move is
    and since when.
  - Steps of the move hold the lock while they work, and outlive the play if they must. The lock of a run whose play has ended is waited for, and then
    taken over.
  - With C(--check) it only looks.

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
  guest:
    description: Name of the guest.
    type: str
    required: true
  state:
    description: V(taken) or V(released). V(seen) only returns whose it is.
    type: str
    choices: [taken, released, seen]
    default: taken
  claim:
    description:
      - The lock's record of the run. C(run) is its name, C(by) the result of P(livefleet.handover.operator#lookup), C(destination) the host that the guest
        goes to.
    type: dict
    default: {}
  over:
    description: The run that the guest may be taken from. The action plugin finds it out.
    type: str
    default: ""
  timeout:
    description: Seconds to wait for a step whose play has ended.
    type: int
    default: 3600

notes:
  - This is an action plugin with a module. It looks on the controller whether the other run is still there.

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Have the guest for this run
  livefleet.handover.kvm_lock:
    guest: web1
    claim:
      run: 8f14e45fceea167a
      by: "{{ lookup('livefleet.handover.operator') }}"
      destination: node2

- name: Give it back
  livefleet.handover.kvm_lock:
    guest: web1
    claim: {run: 8f14e45fceea167a}
    state: released
"""

RETURN = r"""
claim:
  description: The lock's record of the run that has the guest. Null where none has.
  returned: with O(state=seen)
  type: dict
  sample: {run: 8f14e45fceea167a, destination: node2, since: "2026-11-26T00:10:20Z"}
held:
  description: Whether a process works on the guest right now.
  returned: with O(state=seen)
  type: bool
  sample: false
stopped:
  description: The processes that work on it and are stopped (SIGSTOP). A run that finds one does not wait for it.
  returned: with O(state=seen)
  type: list
  elements: int
  sample: []
idle:
  description: Seconds since the last step.
  returned: with O(state=seen)
  type: float
  sample: 1.5
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._core.runtime import HandoverError
from ..module_utils._kvm import lock


def run(params: t.Mapping[str, t.Any], check_mode: bool) -> dict[str, t.Any]:
    """The result of the module."""
    guest, claim = params["guest"], params["claim"]
    if params["state"] == "seen" or check_mode:
        return {"changed": False, **lock.look(guest)}
    if not claim.get("run"):
        raise HandoverError("claim has no run: give it a name that no other run has")
    if params["state"] == "released":
        return {"changed": lock.release(guest, claim["run"])}
    lock.take(guest, dict(claim), params["over"])
    return {"changed": True}


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "guest": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["taken", "released", "seen"], "default": "taken"},
            "claim": {"type": "dict", "default": {}},
            "over": {"type": "str", "default": ""},
            "timeout": {"type": "int", "default": 3600},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(**run(module.params, module.check_mode))
    except HandoverError as exc:
        module.fail_json(msg=str(exc))
    except OSError as exc:
        module.fail_json(msg=f"the lock of {module.params['guest']} cannot be used ({exc.filename}): {exc.strerror}")


if __name__ == "__main__":
    main()
