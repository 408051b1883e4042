#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: relay

short_description: Relay a session between two hosts that cannot see each other

version_added: 0.1.0

description:
  - Runs socat on a host that both sides of a session can reach, as a transient systemd unit without rights of its own.
  - Its traffic is encrypted between the two sides, with keys that the relay does not have.
  - When it is ended, it is told of which connections did not end well, and why.

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
  session:
    description:
      - Name of the session.
    type: str
    required: true
  state:
    description:
      - With V(started) it listens when the module returns. With V(absent) it is gone.
    type: str
    choices: [started, absent]
    default: started
  to:
    description:
      - Where the destination's side of the session listens, as IP:PORT. Required with O(state=started).
    type: str
  listen:
    description:
      - The address of this host at which the source reaches it; the port is chosen. Required with O(state=started).
    type: str
  allow:
    description:
      - The only address that may connect, as this host sees it. If not given, any may; it comes no further than to the destination's TLS.
    type: str
    default: ""
  lifetime_seconds:
    description:
      - Seconds after which it ends in any case.
    type: int
    aliases: [lifetime]
    default: 86400
  timeout:
    description:
      - Seconds that the module may take.
    type: int
    default: 60

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Relay between the two hosts
  livefleet.handover.relay:
    session: shop-20261121t041500z
    to: 10.1.0.12:40123
    listen: 10.0.0.9
    lifetime_seconds: 7200
  delegate_to: gateway
  register: relayed

- name: End it
  livefleet.handover.relay:
    session: shop-20261121t041500z
    state: absent
  delegate_to: gateway
"""

RETURN = r"""
reasons:
  description: Why something was changed, or in check mode would be.
  returned: success
  type: list
  elements: str
  sample:
    - no relay of session shop-20261121t041500z runs on this host
address:
  description: Where the source connects to, as IP:PORT.
  returned: when O(state=started), outside of check mode
  type: str
  sample: 10.0.0.9:40517
failures:
  description: The reasons of connections through it that failed, each once. Empty where there is no journal.
  returned: when O(state=absent)
  type: list
  elements: str
  sample:
    - "connect(5, AF=2 10.1.0.12:40123, 16): Connection refused"
restarts:
  description: How often systemd had to start it again.
  returned: when O(state=absent)
  type: int
  sample: 0
"""

import re
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._core.runtime import HandoverError, Runtime
from ..module_utils._podman.relay import Relay, failures

_NAME = re.compile(r"^[a-z0-9][a-z0-9-]{0,63}$")


class OneRelay:
    """The relay of one session on this host."""

    def __init__(self, module: AnsibleModule) -> None:
        self.params = module.params
        self.check_mode = module.check_mode
        if not _NAME.match(module.params["session"]):
            raise HandoverError("session: '{0}' is not a session's name: use up to 64 small letters, digits and dashes".format(module.params["session"]))
        if module.params["lifetime_seconds"] < 1:
            raise HandoverError("lifetime_seconds: {0} is no time".format(module.params["lifetime_seconds"]))
        self.relay = Relay(Runtime(module, module.params["timeout"]), module.params["session"])

    def run(self) -> dict[str, t.Any]:
        """Brings it to the state asked for."""
        return getattr(self, "_" + self.params["state"])()

    def _started(self) -> dict[str, t.Any]:
        address = self.relay.address()
        if address is not None:
            return {"changed": False, "reasons": [], "address": address}
        result = {"changed": True, "reasons": ["no relay of session {0} runs on this host".format(self.params["session"])]}
        if self.check_mode:
            self.relay.check(self.params["listen"], self.params["to"], self.params["allow"])
            return result
        self.relay.stop()  # an earlier one's leftovers
        return dict(result, address=self.relay.start(self.params["listen"], self.params["to"], self.params["allow"], self.params["lifetime_seconds"]))

    def _absent(self) -> dict[str, t.Any]:
        shown = self.relay.shown()
        said = failures(self.relay.log())
        result = {"changed": False, "reasons": [], "failures": said, "restarts": int(shown.get("NRestarts") or 0)}
        if shown.get("LoadState") == "not-found":
            return result
        result.update(changed=True, reasons=["a relay of session {0} is on this host".format(self.params["session"])])
        if not self.check_mode:
            self.relay.stop()
        return result


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "session": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["started", "absent"], "default": "started"},
            "to": {"type": "str"},
            "listen": {"type": "str"},
            "allow": {"type": "str", "default": ""},
            "lifetime_seconds": {"type": "int", "default": 86400, "aliases": ["lifetime"]},
            "timeout": {"type": "int", "default": 60},
        },
        required_if=[("state", "started", ("to", "listen"))],
        supports_check_mode=True,
    )
    try:
        module.exit_json(**OneRelay(module).run())
    except HandoverError as exc:
        module.fail_json(msg=str(exc))


if __name__ == "__main__":
    main()
