#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: openvz_import

short_description: Carry out a step of the import of an OpenVZ container

version_added: 0.1.0

description:
  - Works on the host that the container goes to, and reaches the OpenVZ host by ssh with a key that is made for this import.
  - The container never runs on both hosts. It is stopped and locked (C(DISABLED)) on the source before it is made here, and is gone here before it is
    unlocked there.
  - Each step can be repeated. A record in C(/var/lib/handover/import) says how far the import is.

extends_documentation_fragment:
  - livefleet.handover._attributes

attributes:
  check_mode:
    support: none
    details:
      - M(livefleet.handover.openvz_import_info) makes the plan without a change.
  diff_mode:
    support: none
  idempotent:
    support: partial
    details:
      - A step that is repeated does what is left of it.

options:
  plan:
    description:
      - The plan of M(livefleet.handover.openvz_import_info).
    type: dict
    required: true
  state:
    description:
      - V(keyed) makes the key, and returns the line for the source's C(authorized_keys).
      - V(cleared) takes the volume of an earlier attempt out of the way. It has to be unmounted. One that the container has run on is kept, under another
        name.
      - V(begun) copies a first time, beside the container if it runs. The volume of a directory container has to be mounted.
      - V(switched) stops and locks the container on the source, and copies the rest. A ploop disk becomes the volume's image, which is mounted. Then the
        root file system is mended, container and unit are made, and the container is started if it ran.
      - V(undone) removes container and unit here, then unlocks the container on the source, and starts it if it ran. The volume stays.
      - V(keyless) forgets the key.
    type: str
    choices: [keyed, cleared, begun, switched, undone, keyless]
    required: true
  address:
    description:
      - With O(state=keyed), the source's address.
    type: str
  port:
    description:
      - With O(state=keyed), the source's port for ssh.
    type: int
    default: 22
  host_keys:
    description:
      - With O(state=keyed), the source's public host keys, one a line.
    type: str
  offer:
    description:
      - With O(state=switched), the RV(livefleet.handover.openvz_import_info#module:offer) of this host.
    type: dict
    default: {}
  ignore:
    description:
      - With O(state=switched), names of refusals that are left out.
    type: list
    elements: str
    default: []
  listens_on:
    description:
      - With O(state=switched), the TCP port on which the container has to listen before it counts as running. 0 for none.
    type: int
    default: 0
  wait:
    description:
      - With O(state=switched), the seconds that it may need for that.
    type: int
    default: 60
  timeout:
    description:
      - Seconds that the step may take.
    type: int
    default: 3600

seealso:
  - module: livefleet.handover.openvz_import_info

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Stop it there, copy the rest, and start it here
  livefleet.handover.openvz_import:
    plan: "{{ planned.plan }}"
    offer: "{{ planned.offer }}"
    state: switched
"""

RETURN = r"""
public_key:
  description: The line for the source's C(authorized_keys).
  returned: with O(state=keyed)
  type: str
times:
  description: Seconds that parts of the step took. C(downtime_s) is from the order to stop to the running container.
  returned: success
  type: dict
  sample: {stop_s: 2.1, second_pass_s: 0.9}
kept:
  description: The new name of the volume's image, if the container had run on it.
  returned: with O(state=cleared), of such a volume
  type: str
fstype:
  description: The file system of the volume.
  returned: with O(state=switched), of a ploop container
  type: str
mends:
  description: The mends that were made, each with its reason and the files that it changed.
  returned: with O(state=switched)
  type: list
  elements: dict
record:
  description: How far the import is.
  returned: success
  type: dict
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._core.runtime import HandoverError, Runtime
from ..module_utils._core.step import in_turn
from ..module_utils._openvz.importer import Importer
from ..module_utils._podman.steps import image_volume


def switch_off(module: AnsibleModule, importer: Importer) -> dict[str, t.Any]:
    """Nothing runs from here on until the start. A ploop disk is a volume only now."""
    told = importer.stop()
    if "fstype" in told:
        plan = importer.plan
        size = {"size": str(plan["size"])} if plan["size"] else {}
        wanted = {"name": plan["name"], "state": "mounted", "podman_volume": "", "fstype": told["fstype"], **size}
        done = in_turn(module, {"image_volume": lambda: image_volume.STEP}, [{"image_volume": wanted}])
        if "msg" in done:
            raise HandoverError(done["msg"])
    return told


def step(module: AnsibleModule) -> dict[str, t.Any]:
    """What the step has to tell."""
    params = module.params
    importer = Importer(Runtime(module, params["timeout"]), params["plan"])
    state = params["state"]
    if state == "keyed":
        told: dict[str, t.Any] = {
            "public_key": importer.source.make_key(importer.name, params["address"], params["port"], params["host_keys"]),
        }
    elif state == "keyless":
        importer.source.forget_key()
        told = {}
    elif state == "switched":
        told = {} if importer.came_up else switch_off(module, importer)
        told.update(importer.start(params["offer"], params["ignore"], params["listens_on"], params["wait"]))
    else:
        told = {"cleared": importer.clear, "begun": importer.begin, "undone": importer.undo}[state]()
    times = {key: value for key, value in told.items() if key.endswith("_s")}
    return {**{key: value for key, value in told.items() if key not in times}, "times": times, "record": importer.record}


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "plan": {"type": "dict", "required": True},
            "state": {"type": "str", "required": True, "choices": ["keyed", "cleared", "begun", "switched", "undone", "keyless"]},
            "address": {"type": "str"},
            "port": {"type": "int", "default": 22},
            "host_keys": {"type": "str", "no_log": False},
            "offer": {"type": "dict", "default": {}},
            "ignore": {"type": "list", "elements": "str", "default": []},
            "listens_on": {"type": "int", "default": 0},
            "wait": {"type": "int", "default": 60},
            "timeout": {"type": "int", "default": 3600},
        },
        required_if=[("state", "keyed", ("address", "host_keys"))],
    )
    try:
        module.exit_json(changed=True, **step(module))
    except HandoverError as exc:
        module.fail_json(msg=str(exc))
    except OSError as exc:
        module.fail_json(msg=f"{exc.filename or module.params['plan'].get('name')}: {exc.strerror or exc}")


if __name__ == "__main__":
    main()
