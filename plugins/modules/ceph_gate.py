#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ceph_gate

short_description: Wait until a Ceph cluster lets OSDs be stopped, or has recovered from their restart

version_added: 0.1.0

description:
  - Stands between one restart of OSDs and the next, so that never more than one failure domain of a Ceph cluster is weakened at a time.
  - Runs on a host that has the key of the cluster's administrator. It has the OSDs report first and waits until the reports have arrived; what
    C(ceph pg stat) shows may be older than a whole restart.

extends_documentation_fragment:
  - livefleet.handover._attributes
  - livefleet.handover._attributes.info_module
  - livefleet.handover._ceph

options:
  osds:
    description:
      - Numbers of the OSDs that are to be restarted together, or were.
    type: list
    elements: int
    required: true
  state:
    description:
      - With V(may_stop) no placement group may become inactive if the OSDs stop, all of them are clean, no operation is slow, and there is no
        health check that is not in O(ignore).
      - With V(recovered) the OSDs have come up again since O(up_from), all placement groups are clean, no operation is slow, and no health check
        has come up that is not in O(ignore).
    type: str
    choices: [may_stop, recovered]
    required: true
  up_from:
    description:
      - With O(state=recovered), the epoch since which each OSD was up before its restart, as RV(up_from) returned it.
    type: dict
    default: {}
  ignore:
    description:
      - Health checks that do not count, by name, as in V(OSDMAP_FLAGS).
    type: list
    elements: str
    default: []
  timeout:
    description:
      - Seconds until the cluster has to be in this state.
    type: int
    default: 600

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: See whether the OSDs may be stopped
  livefleet.handover.ceph_gate:
    osds: [4, 5]
    state: may_stop
    timeout: 60
  register: before

- name: Restart them
  livefleet.handover.ceph_osd:
    osds: [4, 5]
    state: restarted
  delegate_to: store2

- name: Wait until the cluster has recovered
  livefleet.handover.ceph_gate:
    osds: [4, 5]
    state: recovered
    up_from: "{{ before.up_from }}"
"""

RETURN = r"""
up_from:
  description: The epoch of the cluster's map since which each of the OSDs is up. JSON has text for keys.
  returned: success
  type: dict
  sample: {"4": 118, "5": 97}
seconds:
  description: How long it took until the cluster was in this state.
  returned: success
  type: float
  sample: 4.2
health:
  description: The present health checks, with their texts, O(ignore)d ones too.
  returned: success
  type: dict
  sample: {"OSDMAP_FLAGS": "noscrub flag(s) set"}
"""

import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._ceph.cluster import EBUSY, Cluster, demand_known
from ..module_utils._ceph.gate import OF_A_RESTART, Seen, glance, look, told
from ..module_utils._core.runtime import HandoverError, Runtime

# Each command of the cluster's is a third of a second of a processor's, which recovery may wait for on a small host. Between two looks passes a share of
# the time that was waited so far, and so many seconds at least and at most.
SHARE = 0.1
PAUSE = 1.0
LONGEST_PAUSE = 5.0
# The time that a look may take beyond the limit.
SLACK = 120


class Gate:
    """The cluster, and the questions to it."""

    def __init__(self, module: AnsibleModule) -> None:
        self.params = module.params
        self.osds: list[int] = module.params["osds"]
        self.names = ", ".join(f"osd.{osd}" for osd in self.osds)
        self.ignored = set(module.params["ignore"])
        self.before = {int(osd): int(epoch) for osd, epoch in module.params["up_from"].items()}
        self.cluster = Cluster(Runtime(module, module.params["timeout"] + SLACK), module.params["command"])

    def run(self) -> dict[str, t.Any]:
        """Waits until nothing stands in the way."""
        began = time.monotonic()
        obstacle = getattr(self, "_" + self.params["state"])
        while True:
            seen = look(self.cluster)
            demand_known(self.osds, seen.osds)
            sentence = obstacle(seen)
            waited = time.monotonic() - began
            if not sentence:
                break
            if waited + PAUSE > self.params["timeout"]:
                raise HandoverError(f"{sentence}, after {waited:.0f} s")
            self._wait(began)
        return {
            "changed": False,
            "up_from": {str(osd): seen.osds[osd]["up_from"] for osd in self.osds},
            "seconds": round(waited, 2),
            "health": dict(seen.health),
        }

    def _wait(self, began: float) -> None:
        """Until it may be worth to have all OSDs report: one command each time, and not all those of a look."""
        waited = time.monotonic() - began
        while waited + PAUSE <= self.params["timeout"]:
            time.sleep(min(max(PAUSE, SHARE * waited), LONGEST_PAUSE))
            if not glance(self.cluster).unclean():
                return
            waited = time.monotonic() - began

    def _may_stop(self, seen: Seen) -> str:
        """The reasons against stopping the OSDs now; empty for none."""
        problems = seen.problems(self.ignored)
        if problems:
            return f"{self.names} may not be stopped: the cluster is not healthy ({told(problems)}); mend that, or name the checks in ignore"
        return self._not_calm(seen, f"{self.names} may not be stopped") or self._not_ok_to_stop()

    def _not_calm(self, seen: Seen, beginning: str) -> str:
        if seen.silent:
            return f"{beginning}: {', '.join(f'osd.{osd}' for osd in seen.silent)} did not answer"
        if seen.unclean():
            groups = ", ".join(f"{count} {state}" for state, count in sorted(seen.unclean().items()))
            return f"{beginning}: not all placement groups are active+clean ({groups})"
        if "SLOW_OPS" in seen.health:
            return f"{beginning}: {seen.health['SLOW_OPS']}"
        return ""

    def _not_ok_to_stop(self) -> str:
        completed = self.cluster.run("osd", "ok-to-stop", *map(str, self.osds), accept=(0, EBUSY))
        if completed.rc == 0:
            return ""
        reason = completed.stderr.strip().splitlines()[-1].removeprefix("Error EBUSY: ") if completed.stderr.strip() else "the cluster says no"
        return f"{self.names} may not be stopped: {reason} (a pool whose min_size is its size never lets an OSD stop)"

    def _recovered(self, seen: Seen) -> str:
        """The reasons to think that the OSDs are not back; empty for none."""
        for osd in self.osds:
            now = seen.osds[osd]
            if not now["up"]:
                return f"osd.{osd} has not come up"
            if now["up_from"] <= self.before.get(osd, 0):
                return f"osd.{osd} is up, but was not seen to go down and come up again"
        sentence = self._not_calm(seen, f"the cluster has not recovered from the restart of {self.names}")
        passing = {check: text for check, text in seen.problems(self.ignored).items() if check in OF_A_RESTART - {"OSD_FLAGS"}}
        if sentence or passing:
            return sentence or f"the cluster has not recovered from the restart of {self.names} ({told(passing)})"
        # These do not pass by waiting.
        new = seen.problems(self.ignored | OF_A_RESTART)
        if new:
            raise HandoverError(f"{self.names} came back, but the cluster is not healthy any more ({told(new)}): mend that before the next OSD is restarted")
        return ""


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "osds": {"type": "list", "elements": "int", "required": True},
            "state": {"type": "str", "choices": ["may_stop", "recovered"], "required": True},
            "up_from": {"type": "dict", "default": {}},
            "ignore": {"type": "list", "elements": "str", "default": []},
            "command": {"type": "list", "elements": "str", "default": []},
            "timeout": {"type": "int", "default": 600},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(**Gate(module).run())
    except HandoverError as exc:
        module.fail_json(msg=str(exc))


if __name__ == "__main__":
    main()
