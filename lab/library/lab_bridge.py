# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ansible module: a bridge with addresses of this machine."""

from __future__ import annotations

DOCUMENTATION = r"""
module: lab_bridge
short_description: Keep a bridge with its addresses on this machine
description:
  - Makes a bridge, gives it addresses and takes it up, or removes it.
  - Refuses addresses whose network this machine already reaches another way.
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
options:
  name:
    description: The bridge.
    type: str
    required: true
  state:
    description: Whether it should be there.
    type: str
    choices: [present, absent]
    default: present
  addresses:
    description: Addresses with their prefix length, IPv4 and IPv6. IPv6 is left out on a machine without it.
    type: list
    elements: str
    default: []
"""

RETURN = r"""
commands:
  description: What was run, or would be run in check mode.
  type: list
  returned: always
  sample: ["link add handover0 type bridge", "address add 10.213.0.1/24 dev handover0"]
"""

EXAMPLES = r"""
- name: Make the network
  lab_bridge:
    name: handover0
    addresses: [10.213.0.1/24]
"""

import ipaddress
import json
import os

from ansible.module_utils.basic import AnsibleModule


class Bridge:
    """One bridge on this machine."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.name = module.params["name"]
        self.commands: list[str] = []

    def present(self) -> None:
        """Makes what is missing of the bridge."""
        link = self._link()
        if link and link.get("linkinfo", {}).get("info_kind") != "bridge":
            self.module.fail_json(msg=f"{self.name} is there and is no bridge: set lab_bridge to another name")
        wanted = [ipaddress.ip_interface(address) for address in self.module.params["addresses"]]
        if not os.path.exists("/proc/sys/net/ipv6/conf"):
            wanted = [address for address in wanted if address.version == 4]
        held = self._addresses()
        missing = [address for address in wanted if address not in held]
        for address in missing:
            self._refuse_overlap(address)
        if not link:
            self._run("link", "add", self.name, "type", "bridge")
        for address in missing:
            # Nobody else is on this bridge yet: no need to ask for duplicates.
            extra = ["nodad"] if address.version == 6 else []
            self._run("address", "add", str(address), "dev", self.name, *extra)
        if not link or "UP" not in link["flags"]:
            self._run("link", "set", self.name, "up")

    def absent(self) -> None:
        """Removes the bridge; its addresses and routes go with it."""
        if self._link():
            self._run("link", "delete", self.name)

    def _link(self) -> dict | None:
        if not os.path.exists(f"/sys/class/net/{self.name}"):
            return None
        return self._query("-details", "link", "show", "dev", self.name)[0]

    def _addresses(self) -> set:
        if not os.path.exists(f"/sys/class/net/{self.name}"):
            return set()
        held = self._query("address", "show", "dev", self.name)[0].get("addr_info", [])
        return {ipaddress.ip_interface(f"{entry['local']}/{entry['prefixlen']}") for entry in held if "local" in entry}

    def _refuse_overlap(self, address) -> None:
        routes = self._query(f"-{address.version}", "route", "show", "table", "main")
        for route in routes:
            destination, device = route.get("dst", ""), route.get("dev")
            if destination == "default" or device == self.name:
                continue
            if ipaddress.ip_network(destination, strict=False).overlaps(address.network):
                self.module.fail_json(
                    msg=f"{address.network} overlaps {destination}, which this machine reaches through {device}: "
                    "choose other addresses for the lab"
                )

    def _query(self, *words: str) -> list:
        status, out, error = self.module.run_command(["ip", "-json", *words])
        if status:
            self.module.fail_json(msg=f"ip {' '.join(words)}: {error.strip()}")
        return json.loads(out or "[]")

    def _run(self, *words: str) -> None:
        self.commands.append(" ".join(words))
        if not self.module.check_mode:
            status, _output, error = self.module.run_command(["ip", *words])
            if status:
                self.module.fail_json(msg=f"ip {' '.join(words)}: {error.strip()}")


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "addresses": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    bridge = Bridge(module)
    getattr(bridge, module.params["state"])()
    module.exit_json(changed=bool(bridge.commands), commands=bridge.commands)


if __name__ == "__main__":
    main()
