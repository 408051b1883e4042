#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ceph_osd

short_description: Restart, start or stop OSDs of a host, and wait until they are up

version_added: 0.1.0

description:
  - Restarts, starts or stops OSDs of this host by their systemd units, and returns when each of them has told the monitors that it is up and they have
    agreed. A process that runs is not an OSD that is up.
  - A restart is one systemd job. It finishes even if the play or its connection dies.
  - Reports how long each OSD was away, and how often it read from its disks in that time.

extends_documentation_fragment:
  - livefleet.handover._attributes

attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: partial
    details:
      - O(state=restarted) always restarts, O(state=compacted) always compacts, and O(state=tidy) always tells the OSDs that run.

options:
  osds:
    description:
      - Numbers of the OSDs, which are on this host. They are restarted side by side.
    type: list
    elements: int
    required: true
  state:
    description:
      - Desired state of the OSDs.
      - With V(tidy) nothing is stopped or started. The orderly stop of a FileStore by O(tidy_stop) is only prepared in those that run, for another
        program to stop them, such as the host when it is rebooted. That goes with their processes, and until then it changes nothing. Not so the
        preparation of a BlueStore, which would compact its log at every occasion until then; so nothing is done there.
      - With V(compacted) nothing is stopped or started either, and FileStores that run rewrite their object maps, as O(compact) says. Data that were
        written of late RocksDB merges with the rest as soon as it is opened again, and reads hundreds of megabytes for that. A BlueStore is compacted by
        M(livefleet.handover.ceph_osd_pin), and not here.
    type: str
    choices: [restarted, started, stopped, tidy, compacted]
    default: restarted
  compact:
    description:
      - With O(state=compacted), whether that is done. An object map that does not fit beside itself is left as it is, which is a warning with V(auto) and an
        error with V(always).
      - With V(auto) it is done if the object map is no larger than O(compact_limit).
    type: str
    choices: [auto, always, never]
    default: auto
  compact_limit:
    description:
      - See O(compact).
    type: str
    default: 4G
  tidy_stop:
    description:
      - Before a BlueStore OSD stops, whether BlueFS is to compact its log. An OSD reads all of it when it starts, past the page cache, and a busy OSD's has
        megabytes. Older releases do that only when they shut down in order instead of ending at once (C(osd_fast_shutdown)), which takes a second longer;
        they are told to.
      - Before a FileStore OSD stops, whether it is to write out its journal, by shutting down in order. One that ends at once leaves some seconds of writes in
        there, and reads each of them when it starts, past the page cache, to do it again.
      - With V(auto) that is done for a FileStore, and for a BlueStore if the log has more than 4 MiB.
    type: str
    choices: [auto, always, never]
    default: auto
  timeout:
    description:
      - Seconds that each of the OSDs may take until it is up, or with O(state=compacted) until its object map is written.
    type: int
    default: 300

requirements:
  - systemd on the host

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Restart an OSD
  livefleet.handover.ceph_osd:
    osds: [2]
  register: restarted
"""

RETURN = r"""
reasons:
  description: Why something was changed, or in check mode would be.
  returned: success
  type: list
  elements: str
  sample:
    - osd.2 is to be restarted
osds:
  description: The result for each OSD.
  returned: success, not in check mode
  type: list
  elements: dict
  contains:
    id:
      description: Number of the OSD.
      type: int
      sample: 2
    stop_seconds:
      description:
        - This and the following values but RV(osds[].tidy) are missing with O(state=tidy) or O(state=compacted).
        - From the order until its unit had stopped. For an OSD in a container that includes the work after its process has ended.
      type: float
      sample: 0.71
    up_seconds:
      description: From then until it was up. That includes the work before the process starts.
      type: float
      sample: 3.96
    reads:
      description: How often it read from its disks in both.
      type: int
      sample: 14
    read_bytes:
      description: How much that was.
      type: int
      sample: 2371584
    tidy:
      description: Whether it was shut down in order, so that BlueFS compacts its log, or a FileStore writes out its journal.
      type: bool
      sample: true
    compact_seconds:
      description: How long it took to rewrite its object map, with O(state=compacted) only.
      type: float
      sample: 8.07
"""

import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._ceph.asok import NoAnswer
from ..module_utils._ceph.compact import has_room, object_map_size
from ..module_utils._ceph.osd import Osd, find_osd
from ..module_utils._ceph.restart import Restart
from ..module_utils._core.runtime import HandoverError, Runtime
from ..module_utils._core.sizes import format_size, parse_size

# The time that the module may take beside waiting.
SLACK = 120
# States that are no participle.
STATES = {"tidy": "told to leave little behind when it stops", "compacted": "told to write its object map anew"}


class Osds:
    """Some OSDs of this host."""

    def __init__(self, module: AnsibleModule) -> None:
        self.params = module.params
        self.check_mode = module.check_mode
        self.runtime = Runtime(module, 2 * module.params["timeout"] + SLACK)
        self.osds = [Restart(self.runtime, find_osd(self.runtime, number)) for number in module.params["osds"]]
        self.reasons: list[str] = []
        try:
            self.compact_limit = parse_size(module.params["compact_limit"])
        except ValueError as exc:
            raise HandoverError(f"compact_limit: {exc}") from exc

    def run(self) -> dict[str, t.Any]:
        """Does it, and waits."""
        state = self.params["state"]
        chosen = [each for each in self.osds if state == "restarted" or each.running() is not (state == "started")]
        if state in STATES:
            chosen = [each for each in chosen if each.osd.store() == "filestore"]
        if state == "compacted":
            chosen = [each for each in chosen if self._may_compact(each.osd)]
        self.reasons += [f"osd.{each.osd.id} is to be {STATES.get(state, state)}" for each in chosen]
        result = {"changed": bool(chosen), "reasons": self.reasons}
        if not self.check_mode:
            result["osds"] = self._act(state, chosen) if chosen else []
        return result

    def _may_compact(self, osd: Osd) -> bool:
        """Whether that is asked for, and can be done."""
        policy, size, otherwise = self.params["compact"], object_map_size(osd), "merges what is new in it when it starts"
        if policy == "auto" and size > self.compact_limit:
            self.runtime.module.warn(f"the object map of osd.{osd.id} has {format_size(size)}: it is not compacted, and {otherwise}")
            return False
        try:
            return policy != "never" and has_room(self.runtime, osd, size, policy, otherwise)
        except NoAnswer as exc:
            # That may be the reason for its restart.
            self.runtime.module.warn(f"{exc}; it is not compacted")
            return False

    def _act(self, state: str, chosen: list[Restart]) -> list[dict[str, t.Any]]:
        if state == "compacted":
            return [each.compact(self.params["timeout"]) for each in chosen]
        if state != "started":
            for each in chosen:
                each.tidy(self.params["tidy_stop"])
        if state == "tidy":
            return [each.told() for each in chosen]
        units = [each.osd.unit for each in chosen]
        for each in chosen:
            each.begin()
        systemctl = self.runtime.tool("systemctl", "systemd")
        # Some units may be started three times in half an hour only, and others may have done so.
        self.runtime.run([systemctl, "reset-failed", *units], accept=(0, 1))
        verb = {"restarted": "restart", "started": "start", "stopped": "stop"}[state]
        done = self.runtime.run([systemctl, verb, *units], accept=range(256))
        if done.rc != 0:
            for each in chosen:
                each.untidy()
            raise HandoverError(f"`systemctl {verb} {' '.join(units)}` failed: {done.last_words}; look at `journalctl -u {units[0]}`")
        if state == "stopped":
            return [each.away() for each in chosen]
        deadline = time.monotonic() + self.params["timeout"]
        return [each.wait(deadline, self.params["timeout"]) for each in chosen]


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "osds": {"type": "list", "elements": "int", "required": True},
            "state": {"type": "str", "choices": ["restarted", "started", "stopped", "tidy", "compacted"], "default": "restarted"},
            "tidy_stop": {"type": "str", "choices": ["auto", "always", "never"], "default": "auto"},
            "compact": {"type": "str", "choices": ["auto", "always", "never"], "default": "auto"},
            "compact_limit": {"type": "str", "default": "4G"},
            "timeout": {"type": "int", "default": 300},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(**Osds(module).run())
    except HandoverError as exc:
        module.fail_json(msg=str(exc))


if __name__ == "__main__":
    main()
