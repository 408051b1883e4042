#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ceph_restart_run

short_description: Remember a rolling restart of OSDs in the Ceph cluster, so that it can be resumed

version_added: 0.1.0

description:
  - Writes down in the monitors' store that a rolling restart has begun, and of which OSDs. A second run for the same OSDs then goes on where the first
    one ended.
  - The finished OSDs need no bookkeeping. The record holds the epoch of the cluster's map at the beginning; an OSD that has come up in a later epoch was
    restarted since, and is not restarted again. No clock takes part.
  - Runs on a host that has the key of the cluster's administrator.

extends_documentation_fragment:
  - livefleet.handover._attributes
  - livefleet.handover._ceph

attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full

options:
  osds:
    description:
      - Numbers of the OSDs that are to be restarted.
    type: list
    elements: int
    required: true
  hosts:
    description:
      - The OSDs of each host, if the hosts are to be put in order, too.
    type: dict
    default: {}
  state:
    description:
      - With V(begun) there is a record for these OSDs. One that covers them all is joined.
      - With V(ended) there is none any more, if all OSDs of the record were restarted.
      - With V(known) no record is looked at. The answer says which of the OSDs the cluster has.
    type: str
    choices: [begun, ended, known]
    default: begun
  unknown:
    description:
      - With V(skip) an OSD that the cluster does not have is left out, as one whose folder a purge has left on its host.
    type: str
    choices: [refuse, skip]
    default: refuse
  afresh:
    description:
      - Forget an earlier run and begin a new one.
    type: bool
    default: false
  timeout:
    description:
      - Seconds that the whole module may take.
    type: int
    default: 120

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Begin, or go on
  livefleet.handover.ceph_restart_run:
    osds: [0, 1, 2, 3]
  register: run

- name: Name the OSDs that are left
  ansible.builtin.debug:
    msg: "{{ run.order | difference(run.done) }}"
"""

RETURN = r"""
reasons:
  description: Why something was changed, or in check mode would be.
  returned: success
  type: list
  elements: str
  sample:
    - no restart of these OSDs is under way
resumed:
  description: Whether an earlier run is continued.
  returned: success
  type: bool
  sample: false
began:
  description: When the run began, as the administrator's host had it.
  returned: success
  type: str
  sample: "2026-11-21T14:02:25Z"
epoch:
  description: Epoch of the cluster's map then.
  returned: success
  type: int
  sample: 112
purged:
  description: OSDs that were asked for and that the cluster does not have.
  returned: success
  type: list
  elements: int
  sample: [99]
order:
  description: The OSDs asked for, in the order of the CRUSH tree, so that one failure domain comes after the other.
  returned: success
  type: list
  elements: int
  sample: [0, 1, 2, 3]
places:
  description: Where each of them is in the CRUSH tree.
  returned: success
  type: dict
  sample: {"0": ["root default", "host store1"]}
hosts:
  description: The hosts, in the order of the first of their OSDs in the CRUSH tree.
  returned: success
  type: list
  elements: str
  sample: [store1, store2]
done:
  description: Those of them that were restarted since the run began.
  returned: success
  type: list
  elements: int
  sample: [0]
"""

import datetime
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._ceph.cluster import Cluster, crush_order, demand_known
from ..module_utils._core.runtime import HandoverError, Runtime

KEY = "livefleet.handover/ceph_osd_restart"


class Run:
    """A rolling restart."""

    def __init__(self, module: AnsibleModule) -> None:
        self.params = module.params
        self.check_mode = module.check_mode
        self.osds: list[int] = module.params["osds"]
        self.hosts = {host: [int(osd) for osd in osds] for host, osds in module.params["hosts"].items()}
        self.cluster = Cluster(Runtime(module, module.params["timeout"]), module.params["command"])
        self.reasons: list[str] = []

    def run(self) -> dict[str, t.Any]:
        """Looks for the record, and writes or removes it."""
        osd_map = self.cluster.osd_map()
        up_from = {osd["osd"]: osd["up_from"] if osd["up"] else 0 for osd in osd_map["osds"]}
        places = crush_order(self.cluster.ask("osd", "tree"))
        skipped = sorted(set(self.osds) - set(up_from)) if self.params["unknown"] == "skip" else []
        self.osds = [osd for osd in self.osds if osd not in skipped]
        # A host on which nothing else is has no part in the run.
        left = {host: [osd for osd in osds if osd not in skipped] for host, osds in self.hosts.items()}
        self.hosts = {host: osds for host, osds in left.items() if osds or not self.hosts[host]}
        demand_known(self.osds, up_from)
        order = list(places)
        found = self.cluster.remembered(KEY) if self.params["state"] != "known" else None
        record = getattr(self, "_" + self.params["state"])(found, osd_map["epoch"], up_from)
        return {
            "changed": bool(self.reasons),
            "reasons": self.reasons,
            "resumed": record is found and found is not None,
            "began": record["began"] if record else None,
            "epoch": record["epoch"] if record else None,
            "purged": skipped,
            "order": sorted(self.osds, key=order.index),
            "hosts": sorted(self.hosts, key=lambda host: min(map(order.index, self.hosts[host]), default=len(order))),
            "places": {str(osd): places[osd] for osd in self.osds},
            "done": _done(record, self.osds, up_from) if record else [],
        }

    def _begun(self, found: dict | None, epoch: int, up_from: dict[int, int]) -> dict:
        if found and not self.params["afresh"] and set(self.osds) <= set(found["osds"]):
            return found
        left = sorted(set(found["osds"]) - set(_done(found, found["osds"], up_from))) if found else []
        # One that was interrupted behind its last OSD has nothing to continue.
        if found and left and not self.params["afresh"]:
            raise HandoverError(
                f"a restart of {_named(found['osds'])} that began at {found['began']} was not brought to its end ({_named(left)} left): "
                "ask for the same OSDs to go on, or begin afresh with ceph_osd_restart_afresh=true"
            )
        self.reasons.append("no restart of these OSDs is under way" if not found else f"the restart that began at {found['began']} is to be forgotten")
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        record = {"osds": sorted(self.osds), "epoch": epoch, "began": now}
        if not self.check_mode:
            self.cluster.remember(KEY, record)
        return record

    def _known(self, _found: dict | None, _epoch: int, _up_from: dict[int, int]) -> None:
        return None

    def _ended(self, found: dict | None, epoch: int, up_from: dict[int, int]) -> dict | None:
        if found and not set(found["osds"]) - set(_done(found, found["osds"], up_from)):
            self.reasons.append("all OSDs of the run were restarted")
            if not self.check_mode:
                self.cluster.forget(KEY)
        return found


def _done(record: dict, osds: t.Sequence[int], up_from: dict[int, int]) -> list[int]:
    return sorted(osd for osd in osds if up_from.get(osd, 0) > record["epoch"])


def _named(osds: t.Iterable[int]) -> str:
    return ", ".join(f"osd.{osd}" for osd in sorted(osds)) or "none"


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "osds": {"type": "list", "elements": "int", "required": True},
            "hosts": {"type": "dict", "default": {}},
            "state": {"type": "str", "choices": ["begun", "ended", "known"], "default": "begun"},
            "unknown": {"type": "str", "choices": ["refuse", "skip"], "default": "refuse"},
            "afresh": {"type": "bool", "default": False},
            "command": {"type": "list", "elements": "str", "default": []},
            "timeout": {"type": "int", "default": 120},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(**Run(module).run())
    except HandoverError as exc:
        module.fail_json(msg=str(exc))


if __name__ == "__main__":
    main()
