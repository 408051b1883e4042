#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: podman_secrets_info

short_description: Compare podman's secrets without showing them

version_added: 0.1.0

description:
  - Tells which of some secrets podman has on a host, and a digest of each value under a key. Two hosts that are given the same key have the
    same digest where they have the same value. Without the key nothing can be learnt from a digest.

extends_documentation_fragment:
  - livefleet.handover._attributes
  - livefleet.handover._attributes.info_module

options:
  names:
    description:
      - Names of the secrets.
    type: list
    elements: str
    required: true
  key:
    description:
      - The key for the digests, long and drawn for this one comparison.
    type: str
    required: true
  static_dir:
    description:
      - The folder that podman keeps for the container that uses them, with the values as they were when it was created. Not looked at if empty.
    type: str
    default: ""
  timeout:
    description:
      - Longest time for the questions to podman, in seconds.
    type: int
    default: 60

seealso:
  - module: livefleet.handover.podman_secrets
  - module: livefleet.handover.preflight

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Look at the secrets of the shop
  livefleet.handover.podman_secrets_info:
    names: [token]
    key: "{{ lookup('ansible.builtin.password', '/dev/null', length=43) }}"
  register: seen
  no_log: true
"""

RETURN = r"""
secrets:
  description: By name, those of the secrets that there are.
  returned: success
  type: dict
  contains:
    driver:
      description: The driver of podman's that keeps it.
      type: str
    digest:
      description: The digest of its value. Empty where the driver is another than C(file), which does not tell.
      type: str
    changed:
      description: Whether the container has still another value, which the secret had when the container was created.
      type: bool
  sample:
    token: {driver: file, digest: 5f3c0e19, changed: false}
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._core.runtime import HandoverError, Runtime
from ..module_utils._podman.podman import Podman
from ..module_utils._podman.secrets import Secrets


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "names": {"type": "list", "elements": "str", "required": True},
            "key": {"type": "str", "required": True, "no_log": True},
            "static_dir": {"type": "str", "default": ""},
            "timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    runtime = Runtime(module, module.params["timeout"])
    found = {}
    try:
        if runtime.find("podman") is not None:
            found = Secrets(runtime, Podman(runtime)).look(module.params["names"], module.params["key"], module.params["static_dir"])
    except HandoverError as exc:
        module.fail_json(msg=str(exc))
    module.exit_json(changed=False, secrets=found)


if __name__ == "__main__":
    main()
