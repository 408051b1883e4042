#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: system_container_info

short_description: Plan containers with a whole system

version_added: 0.1.0

description:
  - Says for each container with a whole system what is to be done on this host, or why it is refused. The role C(livefleet.handover.system_container)
    carries the plan out.
  - The init is found in the image. Whether the container could move live is asked of the checks that a move asks, as far as one host can answer them.
  - Nothing is touched. Images are mounted for a look.

extends_documentation_fragment:
  - livefleet.handover._attributes
  - livefleet.handover._attributes.info_module

options:
  containers:
    description:
      - The containers.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description:
          - Name of the container.
        type: str
        required: true
      state:
        description:
          - V(started) makes it and starts it. V(present) makes it, and neither starts nor stops it. V(absent) removes it with the system in it.
        type: str
        choices: [started, present, absent]
        default: started
      image:
        description:
          - Its image. Required unless O(containers[].state=absent).
        type: str
      archive:
        description:
          - A file of this host's with that image, as C(podman save) writes it. It is loaded where the image is missing.
        type: path
      init:
        description:
          - The init that the image has to have.
        type: str
        choices: [auto, systemd, sysvinit]
        default: auto
      hostname:
        description:
          - Its host name. Its own name if not given.
        type: str
      networks:
        description:
          - Networks of podman's that it is on. None if not given.
        type: list
        elements: dict
        default: []
        suboptions:
          name:
            description:
              - Name of the network.
            type: str
            required: true
          ip:
            description:
              - Its IPv4 address there.
            type: str
          ip6:
            description:
              - Its IPv6 address there.
            type: str
          mac:
            description:
              - Its hardware address there. Made from the address if not given, and so always the same.
            type: str
          interface:
            description:
              - Name of its interface there.
            type: str
      volumes:
        description:
          - Image volumes for its data. M(livefleet.handover.image_volume) makes them.
        type: list
        elements: dict
        default: []
        suboptions:
          name:
            description:
              - Name of the volume.
            type: str
            required: true
          path:
            description:
              - Where the container has it.
            type: path
            required: true
          size:
            description:
              - Size of the volume, as V(10G). Required to make it.
            type: str
          fstype:
            description:
              - File system of the volume.
            type: str
            choices: [ext4, xfs]
            default: ext4
      memory:
        description:
          - Most memory that it may use, as V(2G).
        type: str
      cpus:
        description:
          - Most processors that it may use, as V(1.5).
        type: float
      pids_limit:
        description:
          - Most processes that it may have; -1 for no limit. podman's own default if not given.
        type: int
      environment:
        description:
          - Variables of its init.
        type: dict
        default: {}
      capabilities:
        description:
          - Capabilities beside podman's own and C(SYS_BOOT), as V(NET_ADMIN). Those that reach the host are refused.
        type: list
        elements: str
        default: []
      authorized_keys:
        description:
          - Public keys by which root may log in. They take the place of those in the image. Without any these stay.
        type: list
        elements: str
        default: []
      boot:
        description:
          - Whether it starts when the host boots.
        type: bool
        default: true
      stop_timeout:
        description:
          - Seconds that its services have to end.
        type: int
        default: 120
      force:
        description:
          - With O(containers[].state=absent), lose the system in it. Required then.
        type: bool
        default: false
      remove_volumes:
        description:
          - With O(containers[].state=absent), remove its volumes and the data in them, too.
        type: bool
        default: false
  host:
    description:
      - This host's name for people.
    type: str
    required: true
  ignore:
    description:
      - Names of checks of a live move that do not count, as C(connections).
    type: list
    elements: str
    default: []
  timeout:
    description:
      - Seconds that the whole module may take.
    type: int
    default: 300

seealso:
  - module: livefleet.handover.system_container_files
  - module: livefleet.handover.image_volume

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Plan a container with a whole Debian
  livefleet.handover.system_container_info:
    host: "{{ inventory_hostname }}"
    containers:
      - name: box
        image: localhost/debian:13
        networks:
          - {name: lan, ip: 192.0.2.20}
  register: planned
"""

RETURN = r"""
refused:
  description: A sentence for each thing that is in the way.
  returned: success
  type: list
  elements: str
told:
  description: A sentence for each thing that has to be known before.
  returned: success
  type: list
  elements: str
loads:
  description: The archives of images that are loaded first.
  returned: success
  type: list
  elements: str
containers:
  description: What is done for each container. Empty if something is refused.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Its name.
      type: str
    init:
      description: Its init; empty if its image has not come yet.
      type: str
    make:
      description: Whether it is made.
      type: bool
    remove:
      description: Whether it is removed.
      type: bool
    load:
      description: The archive that its image is loaded from; empty for none.
      type: str
    unit:
      description: The unit that starts it.
      type: str
    options:
      description: podman's options.
      type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._core.runtime import HandoverError, Runtime
from ..module_utils._podman.systems import plan
from ..module_utils._podman.systems.look import Look
from ..module_utils._podman.systems.request import ARGUMENTS


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "containers": {"type": "list", "elements": "dict", "required": True, "options": ARGUMENTS},
            "host": {"type": "str", "required": True},
            "ignore": {"type": "list", "elements": "str", "default": []},
            "timeout": {"type": "int", "default": 300},
        },
        supports_check_mode=True,
    )
    params = module.params
    try:
        facts = Look(Runtime(module, params["timeout"])).facts(params["containers"])
        module.exit_json(changed=False, **plan.make(params["containers"], facts, params["host"], params["ignore"]))
    except HandoverError as exc:
        module.fail_json(msg=str(exc))


if __name__ == "__main__":
    main()
