#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ceph_noout

short_description: Keep a few OSDs of a Ceph cluster from being marked out, for a limited time

version_added: 0.1.0

description:
  - Sets the flag C(noout) for single OSDs, not for the whole cluster, and takes it back.
  - A flag that was found set stays set. One that this module sets has a lease, which is a systemd timer on this host; when its time is up the flag is
    taken back even if the play has died, or this host was rebooted since. While no monitor answers, that is tried again and again.
  - Runs on a host that has the key of the cluster's administrator, and always on the same.

extends_documentation_fragment:
  - livefleet.handover._attributes
  - livefleet.handover._ceph
  - livefleet.handover._lease

attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
    details:
      - To set a flag again that this module has set prolongs its lease, which is not a change.

options:
  osds:
    description:
      - Numbers of the OSDs.
      - With O(state=restored) and without numbers, all of which there is a lease on this host.
    type: list
    elements: int
    default: []
  state:
    description:
      - With V(set) the OSDs have the flag.
      - With V(restored) each OSD has the flag if it had it before V(set), and not otherwise.
    type: str
    choices: [set, restored]
    default: set
  timeout:
    description:
      - Seconds that the whole module may take.
    type: int
    default: 120

requirements:
  - Ceph 14.2 or later
  - systemd 244 or later on the host

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Keep the OSDs of a host in the cluster for half an hour
  livefleet.handover.ceph_noout:
    osds: [4, 5]
    seconds: 1800

- name: Leave them as they were
  livefleet.handover.ceph_noout:
    osds: [4, 5]
    state: restored
"""

RETURN = r"""
reasons:
  description: Why something was changed, or in check mode would be.
  returned: success
  type: list
  elements: str
  sample:
    - osd.4 has no noout
set:
  description: OSDs whose flag was set by this module, and is to be taken back.
  returned: success
  type: list
  elements: int
  sample: [4, 5]
found:
  description: Of the OSDs asked for, those that had the flag before and keep it.
  returned: success
  type: list
  elements: int
  sample: []
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._ceph.cluster import CONNECT_SECONDS, Cluster, demand_known
from ..module_utils._ceph.lease import Lease, Leases
from ..module_utils._core.runtime import HandoverError, Runtime

FLAG = "noout"
LEASE = "handover-noout-osd."


class Noout:
    """The flag of some OSDs."""

    def __init__(self, module: AnsibleModule) -> None:
        self.params = module.params
        self.check_mode = module.check_mode
        runtime = Runtime(module, module.params["timeout"])
        self.cluster = Cluster(runtime, module.params["command"])
        self.leases = Leases(runtime, module.params["units"])
        self.reasons: list[str] = []

    def run(self) -> dict[str, t.Any]:
        """Sets the flags, or takes them back."""
        leased = self._leased()
        wanted = self.params["osds"] or leased
        try:
            osds = self.cluster.osds()
        except HandoverError as exc:
            if self.params["state"] == "restored" and not self.check_mode:
                self._leave_it_to_the_lease([osd for osd in wanted if osd in leased], exc)
            raise
        demand_known(self.params["osds"], osds)
        flagged = _flagged(osds)
        after = getattr(self, "_" + self.params["state"])(wanted, flagged, leased)
        return {
            "changed": bool(self.reasons),
            "reasons": self.reasons,
            "set": sorted(set(wanted) & set(self._leased())),
            "found": sorted(set(wanted) & flagged - set(leased)),
            "diff": {"before": {FLAG: sorted(flagged)}, "after": {FLAG: sorted(after)}},
        }

    def _set(self, wanted: list[int], flagged: set[int], leased: list[int]) -> set[int]:
        ours = [osd for osd in wanted if osd not in flagged or osd in leased]
        missing = [osd for osd in ours if osd not in flagged]
        self.reasons += [f"osd.{osd} has no {FLAG}" for osd in missing]
        if not self.check_mode:
            # First the lease: a flag without one would stay if we ended here.
            self._grant(ours, self.params["seconds"])
            if missing:
                self.cluster.run("osd", "set-group", FLAG, *_named(missing))
                self._verify(missing, True)
        return flagged | set(missing)

    def _restored(self, wanted: list[int], flagged: set[int], leased: list[int]) -> set[int]:
        ours = [osd for osd in wanted if osd in leased]
        present = [osd for osd in ours if osd in flagged]
        self.reasons += [f"{FLAG} of osd.{osd} was set by this module" for osd in present]
        if not self.check_mode:
            if present:
                self._take_back(present)
            self.leases.end([f"{LEASE}{osd}" for osd in ours])
        return flagged - set(present)

    def _leased(self) -> list[int]:
        numbers = (name[len(LEASE) :] for name in self.leases.held(LEASE))
        return sorted(int(number) for number in numbers if number.isdecimal())

    def _grant(self, osds: list[int], seconds: int) -> None:
        undo = (*self.cluster.command, f"--connect-timeout={CONNECT_SECONDS}", "osd", "unset-group", FLAG)
        self.leases.grant([Lease(f"{LEASE}{osd}", f"{FLAG} of osd.{osd}", (*undo, f"osd.{osd}")) for osd in osds], seconds)

    def _take_back(self, osds: list[int]) -> None:
        try:
            self.cluster.run("osd", "unset-group", FLAG, *_named(osds))
        except HandoverError as exc:
            self._leave_it_to_the_lease(osds, exc)
        self._verify(osds, False)

    def _leave_it_to_the_lease(self, osds: list[int], exc: HandoverError) -> None:
        if osds:
            # Their timers go off now, and try until a monitor answers.
            self._grant(osds, 0)
            raise HandoverError(f"{exc}; this host takes {FLAG} of {', '.join(_named(osds))} back by itself as soon as the cluster answers") from exc

    def _verify(self, osds: list[int], wanted: bool) -> None:
        flagged = _flagged(self.cluster.osds())
        differing = [osd for osd in osds if (osd in flagged) is not wanted]
        if differing:
            raise HandoverError(f"{FLAG} of {', '.join(_named(differing))} is not as asked for after the cluster said it were: something else changes it")


def _flagged(osds: t.Mapping[int, t.Mapping[str, t.Any]]) -> set[int]:
    return {number for number, osd in osds.items() if FLAG in osd["state"]}


def _named(osds: list[int]) -> list[str]:
    return [f"osd.{osd}" for osd in osds]


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "osds": {"type": "list", "elements": "int", "default": []},
            "state": {"type": "str", "choices": ["set", "restored"], "default": "set"},
            "seconds": {"type": "int", "default": 1800},
            "units": {"type": "path", "default": "/etc/systemd/system"},
            "command": {"type": "list", "elements": "str", "default": []},
            "timeout": {"type": "int", "default": 120},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(**Noout(module).run())
    except HandoverError as exc:
        module.fail_json(msg=str(exc))


if __name__ == "__main__":
    main()
