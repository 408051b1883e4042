#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kvm_load

short_description: Have KVM guests work, and measure their host in that time

version_added: 0.1.0

description:
  - Runs a script in each of several guests at the same time, through their agents, and tells how long each took.
  - Until the last has ended it looks at the host's processors, memory, page sharing and one disk.
  - The work of the scripts is up to their author. The module changes nothing on the host.

extends_documentation_fragment:
  - livefleet.handover._attributes
  - livefleet.handover._libvirt

attributes:
  check_mode:
    support: none
  diff_mode:
    support: none
  idempotent:
    support: none
    details:
      - The guests work each time.

options:
  guests:
    description: The guests and their work.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the guest.
        type: str
        required: true
      load:
        description: The name of its work.
        type: str
        required: true
      prepare:
        description: A script for C(/bin/sh) that is not timed. The work begins when all guests are through with theirs.
        type: str
        default: ""
      run:
        description: The script that is timed.
        type: str
        required: true
  folder:
    description: The folder of the guests' images. The disk that it is on is the one that is looked at.
    type: path
    required: true
  interval:
    description: Seconds between two looks at the host.
    type: float
    default: 1.0
  timeout:
    description: Seconds that all of it may take. Guests that still work then are left alone, and the module fails.
    type: int
    default: 1800

requirements:
  - C(virsh), from Debian's package libvirt-clients
  - QEMU's guest agent in the guests, allowed to run programs

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Copy files in one guest while another one writes with care
  livefleet.handover.kvm_load:
    folder: /var/lib/libvirt/images
    guests:
      - {name: files, load: file copy, run: cp -r /usr/share /copy && sync}
      - {name: mails, load: mail, run: "for n in $(seq 100); do dd if=/dev/urandom of=/mail.$n bs=56k count=1 conv=fsync; done"}
"""

RETURN = r"""
seconds:
  description: From the beginning to the end of the last.
  returned: success
  type: float
  sample: 41.2
loads:
  description: Kind of work → seconds that it took, the mean of the guests that did it.
  returned: success
  type: dict
  sample: {file copy: 41.2, mail: 12.9}
host:
  description:
    - The host's figures in that time. C(user), C(system) and C(wait) are parts of its processors, C(utilisation) of the disk's time; rates are bytes a
      second, C(memory) leaves out mere cache and C(memory_with_cache) does not. Of a disk that the kernel does not count for there is none.
  returned: success
  type: dict
  sample:
    {user: 0.31, system: 0.12, wait: 0.2, read_rate: 1048576, write_rate: 20971520, utilisation: 0.71, await_ms: 3.2, memory: 2147483648,
     memory_with_cache: 6442450944, swap: 0, ksm_saved: 0}
"""

import os
import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._core.loop import major_minor
from ..module_utils._core.runtime import HandoverError, Runtime
from ..module_utils._kvm import consolidation
from ..module_utils._kvm.libvirt import Libvirt

# How often a guest is asked whether it is done, in seconds.
POLL_SECONDS = 0.25


class Load:
    """Some guests at work."""

    def __init__(self, runtime: Runtime, libvirt: Libvirt, params: t.Mapping[str, t.Any]) -> None:
        self.runtime, self.libvirt = runtime, libvirt
        self.guests, self.interval = params["guests"], params["interval"]
        try:
            self.device = major_minor(os.stat(params["folder"]).st_dev)
        except OSError as exc:
            raise HandoverError(f"there is no folder {params['folder']}: name the one that holds the guests' images") from exc
        self.looks: list[dict[str, t.Any]] = []

    def run(self) -> dict[str, t.Any]:
        self._all("prepare", watched=False)
        began = time.monotonic()
        took = self._all("run", watched=True)
        seconds = time.monotonic() - began
        loads: dict[str, list[float]] = {}
        for guest in self.guests:
            loads.setdefault(guest["load"], []).append(took[guest["name"]])
        return {
            "changed": True,
            "seconds": round(seconds, 2),
            "loads": {load: round(sum(each) / len(each), 2) for load, each in loads.items()},
            "host": consolidation.between(self.looks, seconds),
        }

    def _all(self, script: str, watched: bool) -> dict[str, float]:
        """Runs it in all guests, and waits until they are through: guest → seconds."""
        began = time.monotonic()
        working = {guest["name"]: self.libvirt.execute(guest["name"], guest[script]) for guest in self.guests if guest[script]}
        took: dict[str, float] = {}
        looked = began - self.interval
        while working:
            if watched and time.monotonic() - looked >= self.interval:
                looked = time.monotonic()
                self.looks.append(consolidation.look(self.device))
            for name, number in list(working.items()):
                if self.libvirt.has_ended(name, number):
                    took[name] = time.monotonic() - began
                    del working[name]
            if self.runtime.remaining() <= 0:
                raise HandoverError(f"{sorted(working)[0]} was not through within {self.runtime.timeout:g} s: give it less to do, or more time (timeout)")
            time.sleep(POLL_SECONDS)
        if watched:
            self.looks.append(consolidation.look(self.device))
        return took


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "guests": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "name": {"type": "str", "required": True},
                    "load": {"type": "str", "required": True},
                    "prepare": {"type": "str", "default": ""},
                    "run": {"type": "str", "required": True},
                },
            },
            "folder": {"type": "path", "required": True},
            "interval": {"type": "float", "default": 1.0},
            "uri": {"type": "str", "default": "qemu:///system"},
            "timeout": {"type": "int", "default": 1800},
        },
    )
    params = module.params
    try:
        runtime = Runtime(module, params["timeout"])
        module.exit_json(**Load(runtime, Libvirt(runtime, params["uri"]), params).run())
    except HandoverError as exc:
        module.fail_json(msg=str(exc))


if __name__ == "__main__":
    main()
