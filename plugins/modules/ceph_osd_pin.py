#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ceph_osd_pin

short_description: Carry the cached database of a BlueStore OSD over its restart

version_added: 0.1.0

description:
  - A BlueStore OSD keeps its database in the page cache of its block devices. The kernel throws that away when the device is closed for the last time,
    so that every OSD starts with nothing in memory, however much of it there is. This module has a small process keep the devices open in that time.
  - While the old process still serves, the missing part of the database is read into memory, in the order of the disk and in large pieces. All of it is
    locked in memory, so that it stays under memory pressure too.
  - The OSD's writes to its write-ahead log between now and its stop bypass the cache. Until the OSD is released, its unit therefore has a
    drop-in that reads it in large pieces before each start.
  - By the same drop-in a daemon that is not in a container closes its devices without waiting (C(bdev_aio_poll_ms)), and comes before others on the processors
    until M(livefleet.handover.ceph_osd) has seen it up or it is released (C(Nice)). Existing settings stay.
  - The process opens the devices for reading only, takes no lock, ends after O(seconds), and is the first to be ended if memory runs out.

extends_documentation_fragment:
  - livefleet.handover._attributes

attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
    details:
      - Of an OSD that is pinned already, and serves, recent writes are read too; if nothing is missing, nothing changes. One that is down is
        left as it is.

options:
  osd:
    description:
      - Number of the OSD, which is on this host. It may run or not.
    type: int
    required: true
  state:
    description:
      - With V(pinned) the devices are kept open, and the database is in memory. V(held) is the former word for it.
      - With V(released) nothing of that is left; the drop-in is gone too.
    type: str
    choices: [pinned, released, held]
    default: pinned
  seconds:
    description:
      - After this time the devices are released, even if the play has died.
    type: int
    default: 1800
  compact:
    description:
      - Whether the OSD is told to compact its database first. That empties the write-ahead log, which a start would have to replay, and writes the
        database anew; while it lasts, the OSD is slower.
      - With V(auto) it is, if the log is larger than O(compact_log) and the database smaller than O(compact_limit).
      - It takes room, as the old tables go last, and an OSD that has none left aborts. So it has to have twice the size of its database left; if it has
        less, V(always) is an error, and V(auto) a warning and no compaction.
    type: str
    choices: [auto, always, never]
    default: auto
  compact_log:
    description:
      - See O(compact).
    type: str
    default: 64M
  compact_limit:
    description:
      - See O(compact).
    type: str
    default: 4G
  lock:
    description:
      - Whether the pages are locked in memory. If not, the kernel may give them up before the OSD starts.
    type: bool
    default: true
  limit:
    description:
      - The most of a database that may be kept in memory, as in V(16G). Refused if there is more.
    type: str
  reserve:
    description:
      - Memory that has to stay available, as in V(1G). Refused if the database would leave less.
    type: str
    default: 512M
  timeout:
    description:
      - Seconds that the whole module may take, compaction and reading included.
    type: int
    default: 1800

requirements:
  - the helper pcopy on the host, which the role P(livefleet.handover.pcopy#role) installs
  - systemd and C(ceph-bluestore-tool) on the host, the latter in the OSD's container if it is in one

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Have the database of osd.2 in memory
  livefleet.handover.ceph_osd_pin:
    osd: 2

- name: Restart it
  livefleet.handover.ceph_osd:
    osds: [2]
    state: restarted

- name: Let go
  livefleet.handover.ceph_osd_pin:
    osd: 2
    state: released
"""

RETURN = r"""
reasons:
  description: Why something was changed, or in check mode would be.
  returned: success
  type: list
  elements: str
  sample:
    - nobody keeps the devices open of osd.2
    - 421 MiB of 652 MiB are not in memory
usable:
  description: Whether this OSD gains anything by it. One that reads its database past the page cache (C(bluefs_buffered_io=false)) has nothing to pin.
  returned: success
  type: bool
  sample: true
devices:
  description: The devices that are pinned.
  returned: success
  type: list
  elements: str
  sample: [/dev/dm-3]
size:
  description: Size of the database, in bytes.
  returned: with O(state=pinned), if usable
  type: int
  sample: 683671552
wal:
  description: How much of that is its write-ahead log.
  returned: with O(state=pinned), if usable
  type: int
  sample: 3145728
resident_before:
  description: Bytes of it that were in memory before.
  returned: with O(state=pinned), if usable
  type: int
  sample: 242221056
resident:
  description: Bytes of it that are in memory now.
  returned: with O(state=pinned), if usable
  type: int
  sample: 683671552
compacted:
  description: Whether the database was compacted, or in check mode would be.
  returned: with O(state=pinned), if usable
  type: bool
  sample: true
seconds:
  description: How long that took, compaction and reading.
  returned: success
  type: float
  sample: 18.4
unit:
  description: The systemd unit that keeps the devices open.
  returned: success
  type: str
  sample: handover-pin-osd.2.service
"""

import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._ceph.asok import NoAnswer
from ..module_utils._ceph.compact import has_room
from ..module_utils._ceph.osd import Osd, find_osd
from ..module_utils._ceph.pin import Pin
from ..module_utils._core.memory import check_room
from ..module_utils._core.runtime import HandoverError, Runtime
from ..module_utils._core.sizes import format_size, parse_size


class OsdPin:
    """One OSD, and what keeps its database in memory."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.params = module.params
        self.check_mode = module.check_mode
        self.runtime = Runtime(module, module.params["timeout"])
        self.sizes = {name: self._size(name) for name in ("compact_log", "compact_limit", "limit", "reserve")}
        self.osd: Osd = find_osd(self.runtime, module.params["osd"])
        self.pin = Pin(self.runtime, self.osd)
        self.reasons: list[str] = []

    def _size(self, option: str) -> int:
        text = self.params[option]
        try:
            return 0 if text is None else parse_size(text)
        except ValueError as exc:
            raise HandoverError(f"{option}: {exc}") from exc

    def run(self) -> dict[str, t.Any]:
        """Pins, or lets go."""
        began = time.monotonic()
        result = self._released() if self.params["state"] == "released" else self._pinned()
        return {
            **result,
            "changed": bool(self.reasons),
            "reasons": self.reasons,
            "unit": self.pin.unit.service,
            "seconds": round(time.monotonic() - began, 2),
        }

    def _pinned(self) -> dict[str, t.Any]:
        name = f"osd.{self.osd.id}"
        if self.osd.store() != "bluestore":
            raise HandoverError(f"{name} is no BlueStore: what a FileStore reads are files, which livefleet.handover.vmtouch keeps in memory")
        buffered = self._buffered()
        if buffered is False:
            self.module.warn(f"{name} has bluefs_buffered_io=false and reads its database past the page cache: there is nothing to pin")
            return {"usable": False, "devices": []}
        serves = buffered is not None
        layout = self.pin.layout()
        pinned = self.pin.unit.running()
        before = self.pin.resident(layout)
        self._check_room(layout, before if pinned and self.params["lock"] else 0)
        if not pinned:
            self.reasons.append(f"nobody keeps the devices open of {name}")
        compact = not pinned and serves and self._wants_compaction(layout)
        compact = compact and has_room(self.pin.runtime, self.osd, layout.size, self.params["compact"], "replays its log when it starts")
        if compact:
            self.reasons.append(f"the write-ahead log of {name} has {format_size(layout.wal)}")
        if compact and not self.check_mode:
            self.pin.compact()
            layout = self.pin.layout()
            self._check_room(layout)
        # Of one that is down the pages are still there, and nothing writes in that time.
        missing = 0 if pinned and not serves else layout.size - self.pin.resident(layout)
        if missing:
            self.reasons.append(f"{format_size(missing)} of {format_size(layout.size)} are not in memory")
        if self.reasons and not self.check_mode:
            self.pin.begin(layout, self.params["seconds"], self.params["lock"])
        return {
            "usable": True,
            "devices": layout.devices,
            "size": layout.size,
            "wal": layout.wal,
            "resident_before": before,
            "resident": self.pin.resident(layout),
            "compacted": compact,
        }

    def _check_room(self, layout: t.Any, locked: int = 0) -> None:
        check_room(f"the database of osd.{self.osd.id}", layout.size, self.sizes["limit"] or None, self.sizes["reserve"], locked)

    def _buffered(self) -> bool | None:
        """Whether the OSD reads through the page cache; None while it does not run."""
        try:
            return self.osd.socket.call("config get", var="bluefs_buffered_io")["bluefs_buffered_io"] == "true"
        except NoAnswer:
            return None

    def _wants_compaction(self, layout: t.Any) -> bool:
        policy = self.params["compact"]
        large = layout.wal > self.sizes["compact_log"] and layout.size < self.sizes["compact_limit"]
        return policy == "always" or (policy == "auto" and large)

    def _released(self) -> dict[str, t.Any]:
        if self.pin.exists():
            self.reasons.append(f"osd.{self.osd.id} is pinned, or its unit still has the drop-in")
            if not self.check_mode:
                self.pin.end()
        return {"usable": True, "devices": []}


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "osd": {"type": "int", "required": True},
            "state": {"type": "str", "choices": ["pinned", "released", "held"], "default": "pinned"},
            "seconds": {"type": "int", "default": 1800},
            "compact": {"type": "str", "choices": ["auto", "always", "never"], "default": "auto"},
            "compact_log": {"type": "str", "default": "64M"},
            "compact_limit": {"type": "str", "default": "4G"},
            "lock": {"type": "bool", "default": True},
            "limit": {"type": "str"},
            "reserve": {"type": "str", "default": "512M"},
            "timeout": {"type": "int", "default": 1800},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(**OsdPin(module).run())
    except HandoverError as exc:
        module.fail_json(msg=str(exc))


if __name__ == "__main__":
    main()
