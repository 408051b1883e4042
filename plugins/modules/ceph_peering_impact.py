#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ceph_peering_impact

short_description: Measure the effect of a change on the clients of a Ceph cluster

version_added: 0.1.0

description:
  - Watches a cluster for a time and returns the peering impact score, which is the number of placement groups that were peering times the seconds for
    which they were. Clients wait for a group while it peers.
  - The score is exact. It comes from counters that the OSDs keep, not from looking at C(ceph pg stat), between two looks at which a whole restart fits.
  - If a pool is named for it, small objects are written and read there in that time, at a steady rate. An operation's time counts from when it was due, so
    that those which had to wait behind a slow one count as slow, too.
  - Run it with C(async) and C(poll=0), wait for the file O(while_file), make the change to be measured, and then end it by removing that file.
  - In check mode it looks at the counters, and whether there is such a pool, and writes nothing.

extends_documentation_fragment:
  - livefleet.handover._attributes
  - livefleet.handover._attributes.info_module

options:
  seconds:
    description:
      - How long to watch at the most.
    type: float
    required: true
  while_file:
    description:
      - A file on this host that says that the cluster is watched. It is made when that begins, and when it is removed, the watch ends.
    type: path
  interval:
    description:
      - Seconds between two looks at the counters.
    type: float
    default: 0.25
  probe_pool:
    description:
      - The pool that is written to and read from. Its objects C(handover-probe-…) are removed afterwards.
    type: str
  probe_rate:
    description:
      - Operations a second.
    type: float
    default: 20
  probe_bytes:
    description:
      - Size of the objects.
    type: int
    default: 4096
  config:
    description:
      - Ceph's configuration file.
    type: path
    default: /etc/ceph/ceph.conf

requirements:
  - the key of the cluster's administrator on the host
  - python3-rados on the host
  - Ceph 15.2 or later

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Watch the cluster
  livefleet.handover.ceph_peering_impact:
    seconds: 600
    while_file: /run/ceph-is-watched
    probe_pool: probe
  async: 700
  poll: 0
  register: watch

- name: Wait until it has begun
  ansible.builtin.wait_for:
    path: /run/ceph-is-watched

- name: Restart an OSD
  livefleet.handover.ceph_osd:
    osds: [2]

- name: Watch no longer
  ansible.builtin.file:
    path: /run/ceph-is-watched
    state: absent

- name: See the result
  ansible.builtin.async_status:
    jid: "{{ watch.ansible_job_id }}"
  register: impact
  until: impact.finished
"""

RETURN = r"""
score:
  description: Placement groups times seconds.
  returned: success
  type: float
  sample: 18.53
by_osd:
  description: The score by the OSD that led the groups.
  returned: success
  type: dict
  sample: {"0": 7.81, "3": 10.72}
curve:
  description: From when on how many groups were peering, in seconds since O(seconds) began to run. The area under it is the score.
  returned: success
  type: list
  elements: list
  sample: [[12.1, 31], [12.6, 4], [13.02, 0]]
peak:
  description: The most groups that were peering at once.
  returned: success
  type: int
  sample: 31
clean_at:
  description: When a group was last seen to have become clean, in seconds as in RV(curve), within O(interval). Nothing if none has.
  returned: success
  type: float
  sample: 25.9
osds:
  description: When which OSD went down or came up, as far as its counters could be read.
  returned: success
  type: list
  elements: dict
  sample: [{"at": 11.9, "osd": 2, "up": false}, {"at": 16.4, "osd": 2, "up": true}]
probe:
  description: Seconds that operations took, if there was a pool for them.
  returned: success
  type: dict
  sample: {"operations": 1200, "p50": 0.004, "p95": 0.021, "p99": 0.31, "worst": 1.02, "worst_at": 12.1}
slow:
  description: The operations that took longest, each by when it was due and how long it took; at the most 200.
  returned: success
  type: list
  elements: list
  sample: [[12.1, 1.02], [12.15, 0.97]]
seconds:
  description: How long was watched.
  returned: success
  type: float
  sample: 61.2
"""

import contextlib
import json
import os
import threading
import time
import traceback
import typing as t

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from ..module_utils._ceph.peering import Impact, latencies
from ..module_utils._core.runtime import HandoverError

RADOS_ERROR = None
try:
    import rados
except ImportError:
    RADOS_ERROR = traceback.format_exc()

# An OSD that takes longer is as good as down.
ANSWER_SECONDS = 2
# Objects of the probe: enough for all placement groups of a pool to be hit.
OBJECTS = 512
SLOWEST = 200
# An operation that is still under way at the end may take so long.
LAST_SECONDS = 30


class Watch:
    """One watch over the cluster."""

    def __init__(self, params: dict[str, t.Any], check_mode: bool) -> None:
        self.params = params
        self.check_mode = check_mode
        self.cluster = rados.Rados(conffile=params["config"])
        self.impact = Impact()
        self.events: list[dict[str, t.Any]] = []
        self.up: dict[int, bool] = {}
        self.began = 0.0
        self.marked = False

    def run(self) -> dict[str, t.Any]:
        """Watches until the time is up or the file is there."""
        try:
            self.cluster.connect(timeout=15)
        except rados.Error as exc:
            raise HandoverError(f"the cluster cannot be reached with {self.params['config']}: {exc}") from exc
        probe = None
        try:
            numbers = self._numbers()
            probe = Probe(self.cluster, self.params) if self.params["probe_pool"] else None
            if probe and self.check_mode:
                # That there is such a pool is all that is to be seen.
                probe.pool.close()
                probe = None
            self.began = time.monotonic()
            if probe:
                probe.begin(self.began)
            self._look(numbers)
            self._mark()
            while not self._over():
                look = time.monotonic()
                self._look(numbers)
                time.sleep(max(0.0, look + self.params["interval"] - time.monotonic()))
            # The groups that left the state since then.
            self._look(numbers)
            operations = probe.end() if probe else []
        finally:
            if probe:
                probe.clean()
            self._unmark()
            self.cluster.shutdown()
        curve = self.impact.curve()
        return {
            "score": round(self.impact.score, 3),
            "by_osd": {str(osd): round(score, 3) for osd, score in sorted(self.impact.by_osd().items())},
            "curve": [[moment, level] for moment, level in curve],
            "clean_at": None if self.impact.clean_at is None else round(self.impact.clean_at, 2),
            "peak": max((level for _moment, level in curve), default=0),
            "osds": self.events,
            "probe": latencies(operations),
            "slow": sorted([round(due, 3), round(seconds, 4)] for due, seconds in sorted(operations, key=lambda each: -each[1])[:SLOWEST]),
            "seconds": round(time.monotonic() - self.began, 2),
        }

    def _mark(self) -> None:
        if self.params["while_file"] and not self.check_mode:
            with open(self.params["while_file"], "w", encoding="ascii"):
                self.marked = True

    def _over(self) -> bool:
        if self.marked and not os.path.exists(self.params["while_file"]):
            # It may be the next watch's when this one has come to its end.
            self.marked = False
            return True
        return self.check_mode or time.monotonic() - self.began > self.params["seconds"]

    def _unmark(self) -> None:
        if self.marked:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.params["while_file"])

    def _numbers(self) -> list[int]:
        status, answer, said = self.cluster.mon_command(json.dumps({"prefix": "osd ls", "format": "json"}), b"", timeout=15)
        if status:
            raise HandoverError(f"the cluster does not list its OSDs: {said}")
        return json.loads(answer)

    def _look(self, numbers: t.Sequence[int]) -> None:
        """Side by side: one OSD that does not answer must not hold the others up."""
        threads = [threading.Thread(target=self._look_at, args=(number,), daemon=True) for number in numbers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _look_at(self, osd: int) -> None:
        request = json.dumps({"prefix": "perf dump", "logger": "recoverystate_perf", "format": "json"})
        try:
            status, answer, _said = self.cluster.osd_command(osd, request, b"", timeout=ANSWER_SECONDS)
            found = None if status else json.loads(answer)["recoverystate_perf"]
        except (rados.Error, ValueError, KeyError):
            found = None
        moment = time.monotonic() - self.began
        up = found is not None
        if self.up.setdefault(osd, up) is not up:
            self.up[osd] = up
            self.events.append({"at": round(moment, 2), "osd": osd, "up": up})
        if found is None:
            self.impact.appear(osd)
        else:
            self.impact.see(moment, osd, {state: (counter["avgcount"], counter["sum"]) for state, counter in found.items()})


class Probe:
    """A client that writes and reads small objects at a steady rate, whether it gets answers or not."""

    def __init__(self, cluster: t.Any, params: dict[str, t.Any]) -> None:
        try:
            self.pool = cluster.open_ioctx(params["probe_pool"])
        except rados.ObjectNotFound as exc:
            raise HandoverError(f"the cluster has no pool {params['probe_pool']}: name one that `ceph osd pool ls` lists, for objects of a few KiB") from exc
        self.rate = params["probe_rate"]
        self.data = os.urandom(params["probe_bytes"])
        self.names = [f"handover-probe-{number}" for number in range(OBJECTS)]
        self.ended = threading.Event()
        self.under_way: dict[int, float] = {}
        self.operations: list[tuple[float, float]] = []
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.began = 0.0

    def begin(self, began: float) -> None:
        self.began = began
        self.thread.start()

    def _run(self) -> None:
        number = 0
        while not self.ended.is_set():
            due = number / self.rate
            if self.ended.wait(max(0.0, self.began + due - time.monotonic())):
                return
            self.under_way[number] = due
            name = self.names[number // 2 % OBJECTS]
            # Each object is written, and then read.
            if number % 2 == 0:
                self.pool.aio_write_full(name, self.data, oncomplete=self._answered(number))
            else:
                self.pool.aio_read(name, len(self.data), 0, self._answered(number))
            number += 1

    def _answered(self, number: int) -> t.Callable[..., None]:
        def answered(*_answer: t.Any) -> None:
            due = self.under_way.pop(number)
            self.operations.append((due, time.monotonic() - self.began - due))

        return answered

    def end(self) -> list[tuple[float, float]]:
        """All operations. One that has no answer yet counts with the time that it has waited."""
        self.ended.set()
        self.thread.join()
        deadline = time.monotonic() + LAST_SECONDS
        while self.under_way and time.monotonic() < deadline:
            time.sleep(0.05)
        now = time.monotonic() - self.began
        return [*self.operations, *((due, now - due) for due in list(self.under_way.values()))]

    def clean(self) -> None:
        """Removes the written objects."""
        self.ended.set()
        if self.thread.is_alive():
            self.thread.join()
        completions = [self.pool.aio_remove(name) for name in self.names] if not self.under_way else []
        for completion in completions:
            completion.wait_for_complete()
        self.pool.close()


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "seconds": {"type": "float", "required": True},
            "while_file": {"type": "path"},
            "interval": {"type": "float", "default": 0.25},
            "probe_pool": {"type": "str"},
            "probe_rate": {"type": "float", "default": 20},
            "probe_bytes": {"type": "int", "default": 4096},
            "config": {"type": "path", "default": "/etc/ceph/ceph.conf"},
        },
        supports_check_mode=True,
    )
    if RADOS_ERROR:
        module.fail_json(msg=missing_required_lib("rados", url="https://docs.ceph.com/en/latest/rados/api/python/"), exception=RADOS_ERROR)
    try:
        module.exit_json(changed=False, **Watch(module.params, module.check_mode).run())
    except HandoverError as exc:
        module.fail_json(msg=str(exc))


if __name__ == "__main__":
    main()
