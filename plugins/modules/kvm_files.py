#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kvm_files

short_description: Have the files of a KVM guest arrive, or go, for one run

version_added: 0.1.0

description:
  - On the destination, it makes images and gives copies their names, and keeps beside each file which run has made it. Nothing is written over, and
    nothing is taken away that bears no mark of a run.
  - On the source, it sends the files under names of their own, and puts them aside when the guest has left.
  - Each step holds the guest's lock, and is refused if another run has the guest.

extends_documentation_fragment:
  - livefleet.handover._attributes

attributes:
  check_mode:
    support: none
  diff_mode:
    support: none
  idempotent:
    support: partial
    details:
      - V(absent), V(settled) and V(departed) do nothing a second time.

options:
  guest:
    description: Name of the guest.
    type: str
    required: true
  run:
    description: The run that has the guest, as M(livefleet.handover.kvm_lock) was told.
    type: str
    required: true
  state:
    description:
      - V(prepared) removes the rest of earlier runs, marks the coming files, and makes images that are C(make). On the destination.
      - V(copied) sends files to the destination, under names of their own. On the source.
      - V(placed) holds the copies against C(digest) of each, and gives them their names. On the destination.
      - V(absent) removes the files that this run has made, and V(settled) takes the marks off. On the destination.
      - V(departed) puts files aside, or removes them with O(keep=false). On the source.
    type: str
    choices: [prepared, copied, placed, absent, settled, departed]
    required: true
  files:
    description: The files, each with its C(path) and its kind as C(what) (V(image), V(medium), V(nvram), V(tpm)).
    type: list
    elements: dict
    default: []
  target:
    description: The destination as rsync names it, with its colon.
    type: str
    default: ""
  rsync:
    description: More arguments of rsync.
    type: list
    elements: str
    default: []
  keep:
    description: Whether files are put aside and not removed.
    type: bool
    default: true

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Send an image
  livefleet.handover.kvm_files:
    guest: web1
    run: 8f14e45fceea167a
    state: copied
    files: [{path: /srv/web1.qcow2, what: image}]
    target: "root@node2:"
  register: sent

- name: Give it its name
  livefleet.handover.kvm_files:
    guest: web1
    run: 8f14e45fceea167a
    state: placed
    files: "{{ sent.copies }}"
  delegate_to: node2
"""

RETURN = r"""
copies:
  description: The sent files, with the digest of each.
  returned: with O(state=copied)
  type: list
  elements: dict
  sample: [{path: /srv/web1.qcow2, what: image, digest: 5feceb66ffc86f38}]
departed:
  description: The files that were put aside or removed.
  returned: with O(state=departed)
  type: list
  elements: str
  sample: [/srv/web1.qcow2]
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._core.runtime import HandoverError
from ..module_utils._kvm import lock
from ..module_utils._kvm.copy import send, somebody_reads
from ..module_utils._kvm.files import Arrival, depart

# The states that a run which was given up no longer makes.
FORWARD = ("prepared", "copied", "placed")


def run(params: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The result of the module."""
    guest, files, state = params["guest"], params["files"], params["state"]
    arrival = Arrival(guest, params["run"])
    with lock.hold(guest, params["run"], forward=state in FORWARD) as descriptor:
        if state == "copied":

            def awaited() -> bool:
                return somebody_reads() and not lock.given_up(descriptor)

            copies = [send(guest, params["run"], item, params["target"], params["rsync"], descriptor, awaited) for item in files]
            return {"changed": bool(copies), "copies": copies}
        if state == "departed":
            departed = depart(files, params["keep"])
            return {"changed": bool(departed), "departed": departed}
        if state in ("prepared", "placed"):
            (arrival.prepare if state == "prepared" else arrival.place)(files)
        else:
            (arrival.undo if state == "absent" else arrival.settle)([item["path"] for item in files])
    return {"changed": bool(files)}


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "guest": {"type": "str", "required": True},
            "run": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["prepared", "copied", "placed", "absent", "settled", "departed"], "required": True},
            "files": {"type": "list", "elements": "dict", "default": []},
            "target": {"type": "str", "default": ""},
            "rsync": {"type": "list", "elements": "str", "default": []},
            "keep": {"type": "bool", "default": True},
        },
    )
    try:
        module.exit_json(**run(module.params))
    except HandoverError as exc:
        module.fail_json(msg=str(exc))
    except OSError as exc:
        module.fail_json(msg=f"{exc.filename or 'a file'} of {module.params['guest']}: {exc.strerror or exc}")


if __name__ == "__main__":
    main()
