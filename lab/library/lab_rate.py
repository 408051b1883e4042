# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ansible module: a limit on what a network device sends."""

from __future__ import annotations

DOCUMENTATION = r"""
module: lab_rate
short_description: Limit the rate at which a network device sends
description:
  - Puts a token bucket in front of the device, or takes it away.
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
options:
  device:
    description: The network device.
    type: str
    required: true
  rate:
    description: Bits per second, such as V(1gbit) or V(200mbit). Without it the device is not limited.
    type: str
  burst_kib:
    description: How much may be sent at once after a pause.
    type: int
    default: 256
  latency_ms:
    description: How long a packet may wait before it is dropped instead.
    type: int
    default: 50
"""

RETURN = r"""
before:
  description: The limit that was there, in bits per second; 0 is none.
  type: int
  returned: always
  sample: 0
"""

EXAMPLES = r"""
- name: Make the uplink a gigabit link
  lab_rate:
    device: host0
    rate: 1gbit
"""

import json
import re

from ansible.module_utils.basic import AnsibleModule

UNITS = {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
# tc keeps bytes as times and times as bytes, and gives back a little less than it was given.
TOLERANCE = 0.05


class Limit:
    """The limit of one device."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.device = module.params["device"]

    def apply(self) -> dict:
        """Makes the device's limit what was asked for."""
        rate = self._wanted()
        found = self._found()
        before = found["rate"] * 8 if found else 0
        if rate == before and (not rate or self._same_shape(found)):
            return {"changed": False, "before": before}
        if not self.module.check_mode:
            if rate:
                self._tc("qdisc", "replace", "dev", self.device, "root", "tbf", "rate", f"{rate}bit",
                         "burst", f"{self.module.params['burst_kib']}kb", "latency", f"{self.module.params['latency_ms']}ms")
            else:
                self._tc("qdisc", "delete", "dev", self.device, "root")
        return {"changed": True, "before": before}

    def _wanted(self) -> int:
        rate = self.module.params["rate"]
        if not rate:
            return 0
        match = re.fullmatch(r"(\d+)(kbit|mbit|gbit)", rate)
        if not match:
            self.module.fail_json(msg=f"'{rate}' is no rate: write a whole number and kbit, mbit or gbit, as in 1gbit")
        return int(match[1]) * UNITS[match[2]]

    def _found(self) -> dict | None:
        for queue in json.loads(self._tc("-json", "qdisc", "show", "dev", self.device) or "[]"):
            if queue["kind"] == "tbf" and queue.get("root"):
                return queue["options"]
        return None

    def _same_shape(self, found: dict) -> bool:
        wanted = {"burst": self.module.params["burst_kib"] * 1024, "lat": self.module.params["latency_ms"] * 1000}
        return all(abs(found[key] - value) < value * TOLERANCE for key, value in wanted.items())

    def _tc(self, *words: str) -> str:
        status, out, error = self.module.run_command(["tc", *words])
        if status:
            self.module.fail_json(msg=f"tc {' '.join(words)}: {error.strip()}")
        return out


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "device": {"type": "str", "required": True},
            "rate": {"type": "str"},
            "burst_kib": {"type": "int", "default": 256},
            "latency_ms": {"type": "int", "default": 50},
        },
        supports_check_mode=True,
    )
    module.exit_json(**Limit(module).apply())


if __name__ == "__main__":
    main()
