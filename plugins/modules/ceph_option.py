#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ceph_option

short_description: Set options in the configuration database of a Ceph cluster for a limited time

version_added: 0.1.0

description:
  - Sets options, each for one kind of daemon or for one daemon, as C(ceph config set) does, and takes them back. If the configuration database had a
    value for one before, that is put back; if it had none, it has none again.
  - An option that this module sets has a lease, a systemd timer on this host. When its time is up the option is put back even if the play has
    died, or this host was rebooted since. While no monitor answers, that is tried again and again.
  - A daemon's own C(ceph.conf) takes precedence over the configuration database. There this module changes nothing.
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
      - Setting the same value again prolongs its lease, which is not a change.

options:
  options:
    description:
      - The options.
    type: list
    elements: dict
    required: true
    suboptions:
      who:
        description:
          - The section of the configuration database, such as C(mon), C(osd), C(osd.3) or C(osd/class:hdd).
        type: str
        required: true
      name:
        description:
          - The option. One of a module of the manager has the module in its name, as in C(mgr/balancer/active), and C(mgr) for its section.
        type: str
        required: true
      value:
        description:
          - Its value. Needed for O(state=set).
        type: str
  state:
    description:
      - With V(set) each option has its value.
      - With V(restored) each option is as it was before V(set). One that was never set by this module is left alone.
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
- name: Have the monitors agree ten times a second, and switch the balancer off unless it was off before, for half an hour
  livefleet.handover.ceph_option:
    options:
      - {who: mon, name: paxos_propose_interval, value: "0.1"}
      - {who: mgr, name: mgr/balancer/active, value: "false"}
    seconds: 1800

- name: Leave both as they were
  livefleet.handover.ceph_option:
    options:
      - {who: mon, name: paxos_propose_interval}
      - {who: mgr, name: mgr/balancer/active}
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
options:
  description: The result for each option, in the order of O(options).
  returned: success
  type: list
  elements: dict
  contains:
    who:
      description: Its section.
      type: str
      sample: mon
    name:
      description: Its name.
      type: str
      sample: paxos_propose_interval
    leased:
      description: Whether it was set by this module, and is to be put back.
      type: bool
      sample: true
    value:
      description: Its value in the configuration database afterwards; null for none, and for one that was not looked at, as it is not ours.
      type: str
      sample: "0.100000"
"""

import re
import shlex
import typing as t
from dataclasses import dataclass

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._ceph.cluster import CONNECT_SECONDS, Cluster
from ..module_utils._ceph.lease import Lease, Leases
from ..module_utils._core.runtime import HandoverError, Runtime

# How often an option is taken back whose end the monitors have not seen.
_ATTEMPTS = 3


_PREFIX = "handover-option-"
# The values in the configuration database, by section and name.
Values = t.Dict["Option", t.Optional[str]]


@dataclass(frozen=True)
class Option:
    """One option in one section."""

    who: str
    name: str

    @property
    def lease(self) -> str:
        """The name of its units, which are files."""
        return re.sub(r"[^\w.-]", "-", f"{_PREFIX}{self.who}-{self.name}")

    def __str__(self) -> str:
        return f"{self.name} of {self.who}"


class Options:
    """Some options of a cluster."""

    def __init__(self, module: AnsibleModule) -> None:
        self.params = module.params
        self.check_mode = module.check_mode
        self.wanted = {Option(each["who"], each["name"]): each["value"] for each in module.params["options"]}
        runtime = Runtime(module, module.params["timeout"])
        self.cluster = Cluster(runtime, module.params["command"])
        self.leases = Leases(runtime, module.params["units"])
        self.reasons: list[str] = []

    def run(self) -> dict[str, t.Any]:
        """Sets them, or puts them back."""
        held = set(self.leases.held(_PREFIX))
        return getattr(self, "_" + self.params["state"])([option for option in self.wanted if option.lease in held])

    def _set(self, leased: t.Sequence[Option]) -> dict[str, t.Any]:
        before = self._values()
        differing = [option for option, value in self.wanted.items() if before[option] is None or not _same(t.cast(str, before[option]), value)]
        for option in differing:
            was = before[option]
            self.reasons.append(f"{option.who} has {'no' if was is None else f'{was} as'} {option.name}{' of its own' if was is None else ''}")
        # A value that was already as requested is not ours.
        ours = [option for option in self.wanted if option in differing or option in leased]
        if not self.check_mode:
            # First the leases: an option without one would stay if we ended here.
            self.leases.grant([Lease(option.lease, str(option), self._undo(option, before[option])) for option in ours], self.params["seconds"])
            for option in differing:
                self.cluster.run("config", "set", option.who, option.name, self.wanted[option])
        return self._result(before, {**before, **{option: self.wanted[option] for option in differing}}, ours)

    def _restored(self, leased: t.Sequence[Option]) -> dict[str, t.Any]:
        # Where there is nothing to take back the cluster need not be asked; it may not even answer.
        if not leased:
            return self._result({}, {}, [])
        self.reasons += [f"{option} was set by this module" for option in leased]
        if self.check_mode:
            return self._result(self._values(), {}, leased)
        before: Values = {}
        silent = None
        undo = {option: self.leases.undo(option.lease) for option in leased}
        try:
            before = self._values()
        except HandoverError as exc:
            silent = exc  # The leases are ended all the same: they try again and again.
        try:
            self.leases.take_back([option.lease for option in leased])
        except HandoverError as exc:
            held = set(self.leases.held(_PREFIX))
            left = ", ".join(str(option) for option in leased if option.lease in held)
            raise HandoverError(f"{silent or exc}; this host puts {left} back by itself as soon as the cluster answers") from exc
        return self._result(before, self._undone(undo), [])

    def _undone(self, undo: t.Mapping[Option, tuple[str, ...]]) -> Values:
        """The options' values afterwards. Monitors agree about the key and about the configuration made of it one after the other: a command that comes
        in between is answered as if it had done what it was to do. The lease is over then, so only this module would notice."""
        left = self._values()
        for _attempt in range(_ATTEMPTS):
            forgotten = [option for option in undo if not _took(undo[option], left[option])]
            if not forgotten:
                return left
            for option in forgotten:
                self.cluster.runtime.run(undo[option])
            left = self._values()
        for option in undo:
            if not _took(undo[option], left[option]):
                now = f"{option} is {left[option] or 'unset'}"
                again = shlex.join(undo[option])
                raise HandoverError(f"{now} after {again}, which the monitors accepted: run it again, and look at ceph config dump")
        return left

    def _undo(self, option: Option, before: str | None) -> tuple[str, ...]:
        words = ("config", "rm", option.who, option.name) if before is None else ("config", "set", option.who, option.name, before)
        return (*self.cluster.command, f"--connect-timeout={CONNECT_SECONDS}", *words)

    def _values(self) -> Values:
        """The values in the configuration database for just these sections."""
        found: Values = dict.fromkeys(self.wanted)
        for each in self.cluster.ask("config", "dump"):
            option = Option("/".join(filter(None, (each["section"], each.get("mask")))), each["name"])
            if option in found:
                found[option] = each["value"]
        return found

    def _result(self, before: Values, after: Values, leased: t.Sequence[Option]) -> dict[str, t.Any]:
        names = {"before": before, "after": after}
        return {
            "changed": bool(self.reasons),
            "reasons": self.reasons,
            "options": [{"who": each.who, "name": each.name, "leased": each in leased, "value": after.get(each)} for each in self.wanted],
            "diff": {when: {str(option): value for option, value in values.items()} for when, values in names.items()},
        }


def _took(undo: tuple[str, ...], left: str | None) -> bool:
    """Whether that command leaves this value: `config rm` nothing, `config set` its last word."""
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
            "options": {
                "type": "list", "elements": "dict", "required": True,
                "options": {"who": {"type": "str", "required": True}, "name": {"type": "str", "required": True}, "value": {"type": "str"}},
            },
            "state": {"type": "str", "choices": ["set", "restored"], "default": "set"},
            "seconds": {"type": "int", "default": 1800},
            "units": {"type": "path", "default": "/etc/systemd/system"},
            "command": {"type": "list", "elements": "str", "default": []},
            "timeout": {"type": "int", "default": 120},
        },
        supports_check_mode=True,
    )
    valueless = [f"{each['name']} of {each['who']}" for each in module.params["options"] if each["value"] is None]
    if module.params["state"] == "set" and valueless:
        module.fail_json(msg=f"{', '.join(valueless)} is to be set and has no value: give it one")
    try:
        module.exit_json(**Options(module).run())
    except HandoverError as exc:
        module.fail_json(msg=str(exc))


if __name__ == "__main__":
    main()
