#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: system_container_files

short_description: Bring the files that a container with a whole system needs

version_added: 0.1.0

description:
  - In the container's own layer these are root's authorized keys. With systemd C(user@.service) is masked, since CRIU does not restore the manager of a
    user. With System V's init C(/etc/inittab) loses its terminals, and has a line by which podman can stop the container.
  - On the host it is the unit that starts the container, only with its volumes mounted. It moves along with the container.
  - The container may run. No link in it is followed.

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
  name:
    description:
      - Name of the container.
    type: str
    required: true
  init:
    description:
      - Its init.
    type: str
    choices: [systemd, sysvinit]
    required: true
  authorized_keys:
    description:
      - Public keys by which root may log in. Without any those in it stay.
    type: list
    elements: str
    default: []
  mountpoints:
    description:
      - Where its image volumes are mounted on the host.
    type: list
    elements: path
    default: []
  timeout:
    description:
      - Seconds that the whole module may take.
    type: int
    default: 300

seealso:
  - module: livefleet.handover.system_container_info

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Bring its files
  livefleet.handover.system_container_files:
    name: box
    init: systemd
    authorized_keys:
      - ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl admin@example.org
"""

RETURN = r"""
reasons:
  description: Why something was changed.
  returned: success
  type: list
  elements: str
  sample: [user@.service is not masked]
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._core.runtime import HandoverError, Runtime
from ..module_utils._podman.systems.files import Files


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "init": {"type": "str", "required": True, "choices": ["systemd", "sysvinit"]},
            "authorized_keys": {"type": "list", "elements": "str", "default": [], "no_log": False},
            "mountpoints": {"type": "list", "elements": "path", "default": []},
            "timeout": {"type": "int", "default": 300},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(**Files(Runtime(module, module.params["timeout"]), module.params, module.check_mode).run())
    except HandoverError as exc:
        module.fail_json(msg=str(exc))
    except OSError as exc:
        module.fail_json(msg=f"{exc.filename or module.params['name']}: {exc.strerror or exc}")


if __name__ == "__main__":
    main()
