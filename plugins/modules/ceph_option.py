#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ceph_option

short_description: Set an option in the configuration database of a Ceph cluster for a limited time

version_added: 0.1.0

description:
  - Sets one option for one kind of daemon, or one daemon, as C(ceph config set) does, and takes it back. If the configuration database had a value
    for it before, that is put back; if it had none, it has none again.
  - What this module sets has a lease, which is a systemd timer on this host; when its time is up the option is put back whatever became of the play,
    also if this host was rebooted meanwhile. While no monitor answers, that is tried again and again.
  - What a daemon's own C(ceph.conf) says goes before the configuration database. There this module changes nothing.
  - Runs on a host that has the key of the cluster's administrator, and always on the same.

extends_documentation_fragment:
  - livefleet.handover._attributes

attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
    details:
      - To set again what this module has set prolongs its lease, which is not a change.

options:
  who:
    description:
      - The section of the configuration database, such as C(mon), C(osd), C(osd.3) or C(osd/class:hdd).
    type: str
    required: true
  name:
    description:
      - The option. One of a module of the manager has the module in its name, as in C(mgr/balancer/active), and C(mgr) for O(who).
    type: str
    required: true
  value:
    description:
      - Its value. Needed for O(state=set).
    type: str
  state:
    description:
      - With V(set) the option has the value.
      - With V(restored) the option is as it was before V(set). One that was never set by this module is left alone.
    type: str
    choices: [set, restored]
    default: set
  seconds:
    description:
      - How long the lease is.
    type: int
    default: 1800
  units:
    description:
      - The directory for the units of the lease. One that is lost in a reboot loses the lease too.
    type: path
    default: /etc/systemd/system
  command:
    description:
      - How C(ceph) is called on this host. Found by itself if not given.
    type: list
    elements: str
    default: []
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
- name: Have the monitors agree ten times a second for half an hour
  livefleet.handover.ceph_option:
    who: mon
    name: paxos_propose_interval
    value: "0.1"
    seconds: 1800

- name: Have the balancer move nothing meanwhile, unless somebody had it off before
  livefleet.handover.ceph_option:
    who: mgr
    name: mgr/balancer/active
    value: "false"
    seconds: 1800

- name: Leave the monitors as they were
  livefleet.handover.ceph_option:
    who: mon
    name: paxos_propose_interval
    state: restored
"""

RETURN = r"""
reasons:
  description: Why something was changed, or in check mode would be.
  returned: success
  type: list
  elements: str
  sample:
    - mon has no paxos_propose_interval of its own
leased:
  description: Whether the option was set by this module, and is to be put back.
  returned: success
  type: bool
  sample: true
value:
  description: What the configuration database has for it afterwards; null for nothing.
  returned: success
  type: str
  sample: "0.100000"
"""

import re
import shlex
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.livefleet.handover.plugins.module_utils._ceph import (
    CONNECT_SECONDS,
    Cluster,
)
from ansible_collections.livefleet.handover.plugins.module_utils._ceph_lease import (
    Lease,
    Leases,
)
from ansible_collections.livefleet.handover.plugins.module_utils._runtime import (
    HandoverError,
    Runtime,
)


# How often an option is taken back whose end the monitors have not seen.
_ATTEMPTS = 3


class Option:
    """One option in one section."""

    def __init__(self, module: AnsibleModule) -> None:
        self.params = module.params
        self.check_mode = module.check_mode
        self.who, self.name = module.params["who"], module.params["name"]
        runtime = Runtime(module, module.params["timeout"])
        self.cluster = Cluster(runtime, module.params["command"])
        self.leases = Leases(runtime, module.params["units"])
        # The names of systemd's units are files.
        self.lease = re.sub(r"[^\w.-]", "-", f"handover-option-{self.who}-{self.name}")
        self.reasons: list[str] = []

    def run(self) -> dict[str, t.Any]:
        """Sets the option, or puts it back."""
        return getattr(self, "_" + self.params["state"])(self.lease in self.leases.held(self.lease))

    def _set(self, leased: bool) -> dict[str, t.Any]:
        before, wanted = self._value(), self.params["value"]
        differs = before is None or not _same(before, wanted)
        if differs:
            self.reasons.append(f"{self.who} has {'no' if before is None else f'{before} as'} {self.name}{' of its own' if before is None else ''}")
        # What was found as it is asked for is somebody else's.
        ours = differs or leased
        if ours and not self.check_mode:
            # First the lease: an option without one would stay if we ended here.
            self.leases.grant([Lease(self.lease, f"{self.name} of {self.who}", self._undo(before))], self.params["seconds"])
            if differs:
                self.cluster.run("config", "set", self.who, self.name, wanted)
        return self._result(before, wanted if differs else before, ours)

    def _restored(self, leased: bool) -> dict[str, t.Any]:
        # Where there is nothing to take back the cluster need not be asked, which may be what does not answer.
        if not leased:
            return self._result(None, None, False)
        self.reasons.append(f"{self.name} of {self.who} was set by this module")
        if self.check_mode:
            return self._result(self._value(), None, True)
        before, silent = None, None
        undo = self.leases.undo(self.lease)
        try:
            before = self._value()
        except HandoverError as exc:
            silent = exc  # The lease is ended all the same: it tries again and again.
        try:
            self.leases.take_back(self.lease)
        except HandoverError as exc:
            raise HandoverError(f"{silent or exc}; this host puts {self.name} of {self.who} back by itself as soon as the cluster answers") from exc
        return self._result(before, self._undone(undo), False)

    def _undone(self, undo: tuple[str, ...]) -> t.Optional[str]:
        """What the option is afterwards. Monitors agree about the key and about the configuration made of it one after the other: a command that comes
        in between is answered as if it had done what it was to do. The lease is over then, so nobody but us would notice."""
        left = self._value()
        for _attempt in range(_ATTEMPTS):
            if _took(undo, left):
                return left
            self.cluster.runtime.run(undo)
            left = self._value()
        if not _took(undo, left):
            again = shlex.join(undo)
            now = f"{self.name} of {self.who} is {left or 'unset'}"
            raise HandoverError(f"{now} after {again}, which the monitors accepted: run it again, and look at ceph config dump")
        return left

    def _undo(self, before: t.Optional[str]) -> tuple[str, ...]:
        words = ("config", "rm", self.who, self.name) if before is None else ("config", "set", self.who, self.name, before)
        return (*self.cluster.command, f"--connect-timeout={CONNECT_SECONDS}", *words)

    def _value(self) -> t.Optional[str]:
        """What the configuration database has for just this section."""
        for each in self.cluster.ask("config", "dump"):
            who = "/".join(filter(None, (each["section"], each.get("mask"))))
            if (who, each["name"]) == (self.who, self.name):
                return each["value"]
        return None

    def _result(self, before: t.Optional[str], after: t.Optional[str], leased: bool) -> dict[str, t.Any]:
        return {
            "changed": bool(self.reasons),
            "reasons": self.reasons,
            "leased": leased,
            "value": after,
            "diff": {"before": {self.name: before}, "after": {self.name: after}},
        }


def _took(undo: tuple[str, ...], left: t.Optional[str]) -> bool:
    """Whether this is what that command leaves: `config rm` nothing, `config set` its last word."""
    if undo[-4:-2] == ("config", "rm"):
        return left is None
    return left is not None and _same(left, undo[-1])


def _same(one: str, other: str) -> bool:
    """The database writes numbers in its own way: 0.1 is 0.100000."""
    try:
        return float(one) == float(other)
    except ValueError:
        return one == other


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "who": {"type": "str", "required": True},
            "name": {"type": "str", "required": True},
            "value": {"type": "str"},
            "state": {"type": "str", "choices": ["set", "restored"], "default": "set"},
            "seconds": {"type": "int", "default": 1800},
            "units": {"type": "path", "default": "/etc/systemd/system"},
            "command": {"type": "list", "elements": "str", "default": []},
            "timeout": {"type": "int", "default": 120},
        },
        required_if=[("state", "set", ["value"])],
        supports_check_mode=True,
    )
    try:
        module.exit_json(**Option(module).run())
    except HandoverError as exc:
        module.fail_json(msg=str(exc))


if __name__ == "__main__":
    main()
