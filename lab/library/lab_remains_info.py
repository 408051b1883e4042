# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ansible module: what a lab has on this machine."""

from __future__ import annotations

DOCUMENTATION = r"""
module: lab_remains_info
short_description: List what a lab has on this machine
description:
  - Reads the live system, and the lab's state folder if it is there; needs nothing from an earlier run.
  - After a tear-down every list must be empty.
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
options:
  state_dir:
    description: The lab's state folder.
    type: path
    required: true
  bridge:
    description: The lab's bridge.
    type: str
    required: true
  networks:
    description: The lab's networks; no address of this machine may be in them after a tear-down.
    type: list
    elements: str
    default: []
  cache:
    description: Folder of base images, for C(cache_users).
    type: path
"""

RETURN = r"""
hosts:
  description: Names of all hosts that something is left of.
  type: list
  returned: always
  sample: [node1, node2]
remains:
  description: One sentence for each thing that is there.
  type: list
  returned: always
  sample: ["process 4711: systemd-nspawn of node1", "mount /var/lib/handover-lab/hosts/node1/root"]
cache_users:
  description: Roots of hosts, of this lab or another, that stand on a base image in the cache.
  type: list
  returned: when a cache was named
  sample: [/var/lib/handover-lab/hosts/node1/root]
"""

EXAMPLES = r"""
- name: Look for what the lab left
  lab_remains_info:
    state_dir: /var/lib/handover-lab
    bridge: handover0
  register: found
"""

import glob
import ipaddress
import json
import os
import shutil
from typing import Iterator

from ansible.module_utils import lab_machine
from ansible.module_utils.basic import AnsibleModule


class Remains:
    """What there is of one lab."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.state_dir = module.params["state_dir"]
        self.bridge = module.params["bridge"]

    def hosts(self) -> list[str]:
        """Every host with a folder, a process or a cgroup."""
        prefix = lab_machine.cgroup_name(self.state_dir, "")
        found = {os.path.basename(path) for path in glob.glob(f"{self.state_dir}/hosts/*")}
        found |= set(lab_machine.running_hosts(self.state_dir))
        found |= {os.path.basename(path)[len(prefix):] for path in lab_machine.cgroups(self.state_dir)}
        return sorted(found)

    def remains(self) -> list[str]:
        """One sentence for each thing."""
        return [*self._processes(), *self._mounts(), *self._loops(), *self._cgroups(), *self._network(), *self._files()]

    def _processes(self) -> Iterator[str]:
        nspawn = lab_machine.running_hosts(self.state_dir)
        for name, pid in nspawn.items():
            yield f"process {pid}: systemd-nspawn of {name}"
        for path in lab_machine.cgroups(self.state_dir):
            for pid in sorted(lab_machine.cgroup_members(path) - set(nspawn.values())):
                yield f"process {pid} in the cgroup {path}"
        for pid, socket in lab_machine.ssh_masters(self.state_dir).items():
            yield f"process {pid}: shared ssh connection {socket}"

    def _mounts(self) -> Iterator[str]:
        points = lab_machine.mounts_below(self.state_dir)
        for name in self.hosts():
            points += lab_machine.mounts_below(f"/run/systemd/nspawn/unix-export/{name}")
            points += lab_machine.mounts_below(f"/run/systemd/nspawn/propagate/{name}")
        for point in points:
            yield f"mount {point}"

    def _loops(self) -> Iterator[str]:
        for folder in glob.glob(f"{self.state_dir}/hosts/*"):
            for loop in lab_machine.loops(folder):
                yield f"loop device {loop.device} on {loop.backing}"

    def _cgroups(self) -> Iterator[str]:
        for path in lab_machine.cgroups(self.state_dir):
            yield f"cgroup {path}"

    def _network(self) -> Iterator[str]:
        if os.path.exists(f"/sys/class/net/{self.bridge}"):
            yield f"bridge {self.bridge}"
        for port in sorted(os.listdir("/sys/class/net")):
            if os.path.basename(os.path.realpath(f"/sys/class/net/{port}/master")) == self.bridge:
                yield f"link {port} on {self.bridge}"
        networks = [ipaddress.ip_network(network) for network in self.module.params["networks"]]
        for link in self._query("address", "show"):
            for entry in link.get("addr_info", []):
                address = ipaddress.ip_address(entry["local"])
                if any(address in network for network in networks):
                    yield f"address {address} on {link['ifname']}"
        for tool in ("iptables-save", "ip6tables-save"):
            if shutil.which(tool):
                for line in self.module.run_command([tool, "-t", "filter"])[1].splitlines():
                    if f" {self.bridge} " in line:
                        yield f"firewall rule {line}"

    def _files(self) -> Iterator[str]:
        if os.path.exists(self.state_dir):
            yield f"folder {self.state_dir}"

    def _query(self, *words: str) -> list:
        return json.loads(self.module.run_command(["ip", "-json", *words])[1] or "[]")


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "state_dir": {"type": "path", "required": True},
            "bridge": {"type": "str", "required": True},
            "networks": {"type": "list", "elements": "str", "default": []},
            "cache": {"type": "path"},
        },
        supports_check_mode=True,
    )
    remains = Remains(module)
    result = {"changed": False, "hosts": remains.hosts(), "remains": remains.remains()}
    if module.params["cache"]:
        result["cache_users"] = lab_machine.overlays_above(module.params["cache"])
    module.exit_json(**result)


if __name__ == "__main__":
    main()
