#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: podman_secrets

short_description: Copy podman's secrets to another host, so that nobody reads them on the way

version_added: 0.1.0

description:
  - The host that is to have the secrets offers a key, the one that has them seals them for it, and the first opens that and makes them.
  - What goes over the controller is encrypted for the other host (X25519, AES-256-GCM). No value is on a command line, in a file other than
    podman's own, or in a result.

extends_documentation_fragment:
  - livefleet.handover._attributes

attributes:
  check_mode:
    support: full
    details:
      - Nothing is made. What is sealed cannot be told before it is.
  diff_mode:
    support: none
  idempotent:
    support: partial
    details:
      - A key is for one time, and so is what was sealed for it.

options:
  state:
    description:
      - With V(offered) the host has a key for one envelope, of which RV(key) is told.
      - With V(sealed) the secrets of this host are in RV(sealed), which only the host can open that has offered O(key).
      - With V(present) the secrets in O(sealed) are made here. None may be there before.
      - With V(absent) the secrets that this move has made are gone, and a key that was offered. A secret of another origin stays, whatever its name.
      - With V(kept) the secrets stay, and the record that this move has made them is gone.
    type: str
    choices: [offered, sealed, present, absent, kept]
    required: true
  session:
    description:
      - The name of the move. What was sealed for one move cannot be opened in another.
    type: str
    required: true
  names:
    description:
      - Names of the secrets, for O(state=sealed) and O(state=absent).
    type: list
    elements: str
    default: []
  key:
    description:
      - For O(state=sealed), the public key that the other host has offered.
    type: str
  sealed:
    description:
      - For O(state=present), what the other host has sealed.
    type: str
  timeout:
    description:
      - Longest time for all commands together, in seconds.
    type: int
    default: 60

seealso:
  - module: livefleet.handover.podman_secrets_info

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Offer a key
  livefleet.handover.podman_secrets:
    state: offered
    session: shop-20261126
  delegate_to: node2
  register: offered

- name: Seal the secrets of the shop for node2
  livefleet.handover.podman_secrets:
    state: sealed
    session: shop-20261126
    names: [token]
    key: "{{ offered.key }}"
  register: taken
  no_log: true

- name: Make them on node2
  livefleet.handover.podman_secrets:
    state: present
    session: shop-20261126
    sealed: "{{ taken.sealed }}"
  delegate_to: node2
  no_log: true
"""

RETURN = r"""
key:
  description: The public key, in hexadecimal.
  returned: when O(state=offered)
  type: str
  sample: 735c2020194446045b37cdc92137d35332dd61d8420e5be02e3ab900d3c8dc69
sealed:
  description: The secrets, encrypted for one host and one move.
  returned: when O(state=sealed)
  type: str
  sample: q83vEjRW…
msg:
  description: The secrets that this move may have made, and that stay since its record is gone.
  returned: when O(state=absent) and there are any
  type: str
  sample: the secret token may have been made by this move and stays
names:
  description: Names of the secrets that were made or removed.
  returned: when O(state=present) or O(state=absent)
  type: list
  elements: str
  sample: [token]
"""

import base64
import json
import os
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._core.pcopy import Pcopy
from ..module_utils._core.runtime import HandoverError, Runtime
from ..module_utils._podman.podman import Podman
from ..module_utils._podman.secrets import Made, Secrets

ENVELOPE = ("internal", "envelope")
RECORDS = "/run/handover/secrets"
LEFT = "the secret {0} may have been made by this move and stays, since this host was restarted: remove it with `podman secret rm {0}` if nothing uses it"


class PodmanSecrets:
    """Secrets on their way from host to host."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.params = module.params
        runtime = Runtime(module, module.params["timeout"])
        self.pcopy = Pcopy(runtime)
        self.secrets = Secrets(runtime, Podman(runtime))
        self.made = Made(os.path.join(RECORDS, module.params["session"] + ".json"))

    def run(self) -> dict[str, t.Any]:
        """Brings them to the state asked for."""
        if self.module.check_mode:
            return {"changed": True}
        states = {"offered": self._offer, "sealed": self._seal, "present": self._make, "absent": self._remove, "kept": self._keep}
        return states[self.params["state"]]()

    def _offer(self) -> dict[str, t.Any]:
        key = self.pcopy.call(*ENVELOPE, "offer", self.params["session"])["key"]
        self.made.write({})
        return {"changed": True, "key": key}

    def _seal(self) -> dict[str, t.Any]:
        plain = json.dumps(self.secrets.take(self.params["names"])).encode()
        return {"changed": False, "sealed": self.pcopy.call(*ENVELOPE, "seal", self.params["session"], self.params["key"], stdin=plain)["sealed"]}

    def _make(self) -> dict[str, t.Any]:
        opened = self.pcopy.call(*ENVELOPE, "open", self.params["session"], stdin=self.params["sealed"].encode())
        made = self.secrets.make(json.loads(base64.b64decode(opened["base64"])), self.made)
        return {"changed": bool(made), "names": made}

    def _remove(self) -> dict[str, t.Any]:
        self.pcopy.events(*ENVELOPE, "forget", self.params["session"])
        gone, left = self.secrets.remove(self.params["names"], self.made)
        self.made.forget()
        told = {"msg": "; ".join(map(LEFT.format, left))} if left else {}
        return {"changed": bool(gone), "names": gone, **told}

    def _keep(self) -> dict[str, t.Any]:
        kept = self.made.exists()
        self.made.forget()
        return {"changed": kept}


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["offered", "sealed", "present", "absent", "kept"], "required": True},
            "session": {"type": "str", "required": True},
            "names": {"type": "list", "elements": "str", "default": []},
            # A public key, and what nobody else can open.
            "key": {"type": "str", "no_log": False},
            "sealed": {"type": "str"},
            "timeout": {"type": "int", "default": 60},
        },
        required_if=[("state", "sealed", ["key"]), ("state", "present", ["sealed"])],
        supports_check_mode=True,
    )
    try:
        module.exit_json(**PodmanSecrets(module).run())
    except HandoverError as exc:
        module.fail_json(msg=str(exc))


if __name__ == "__main__":
    main()
