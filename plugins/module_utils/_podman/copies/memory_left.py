# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A container is dumped and ends with that, and runs again from its dump: on other files in the place of its volume, or on those that it had.

As a snapshot with memory dumps it, with the helper's word after which CRIU ends it (`pcopy image fill --memory`). Until then it runs on where it stood,
whatever fails.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import typing as t

from ..._core import host
from ..._core.runtime import HandoverError, Runtime
from .. import workload
from ..conversion import RATE
from ..halted import ESTABLISHED, go_on
from ..podman import Podman, network_backend
from ..processes import processes_of
from .memory_halt import INVENTORY
from .memory_in_place import SPEC, Facts, MemoryInPlace, cgroup_of, why_halted
from .unit_return import UnitReturn

DUMP_SECONDS = 60
_OF_UNIT = ("unit", "made_by_unit", "split", "cidfile", "active", "auto_remove", "adoption", "id")


def boot() -> str:
    """The host's boot: a dump is not gone back to after another."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as source:
        return source.read().strip()


# The first line of CRIU's log with an error has the reason, and podman names the file alone.
_ERROR = re.compile(r"Error \([^)]*\): (.*)")


def _reason(facts: Facts) -> str:
    found = _ERROR.search(host.read_text(os.path.join(facts["static_dir"], "restore.log")))
    return "CRIU: " + found.group(1) if found else ""


class NotRestoredError(HandoverError):
    """It has not come back from its dump, which is there still."""


class MemoryLeft(MemoryInPlace):
    """Of one container that ends with its dump. What CRIU and podman have laid down stays where it is."""

    def __init__(self, runtime: Runtime, podman: Podman, facts: Facts, cgroup: str, watcher: int, places: t.Sequence[str]) -> None:
        super().__init__(runtime, podman, facts, cgroup)
        self.watcher = watcher
        self.places = places  # where files get other inodes, as the container names them

    def _forget(self) -> None:
        """The dump of one that has ended is all that is left of it."""
        if self._runs():
            super()._forget()

    def _texts(self) -> dict[str, str]:
        spec = json.loads(super()._texts()[SPEC])
        spec["dump"].update(argv=[self.podman.path, *dump_words(self.name)], timeout=dump_seconds(processes_of(self.facts["pid"]).memory))
        spec.update(layers=[], archives=[], beside=[], databases=[*self.places], ends=True, watcher=self.watcher, watches=self.facts["id"])
        return {SPEC: json.dumps(spec)}


def places_of(inspect: Facts, volume: str) -> list[str]:
    """Where a container has a volume of podman's, as it names the folders."""
    return [mount["Destination"] for mount in inspect.get("Mounts") or [] if mount.get("Name") == volume]


def dump_seconds(memory: int) -> int:
    """How long each step of a dump may take: the container stands still in it, and the module's whole time is for the files."""
    return DUMP_SECONDS + memory // RATE


def dump_words(name: str) -> list[str]:
    """podman's words. Its process beside the container does not act when that ends, so neither the unit nor podman starts or removes it."""
    return ["container", "checkpoint", "--keep", *ESTABLISHED, name]


def stopped_conmons(identifier: str, proc: str = "/proc") -> list[int]:
    """podman's processes beside a container, as far as a signal has stopped them."""
    found = []
    for pid in filter(str.isdigit, os.listdir(proc)):
        name, _bracket, state = host.read_text(os.path.join(proc, pid, "stat")).rpartition(") ")
        if name.endswith("(conmon") and state.startswith("T") and identifier in host.read_text(os.path.join(proc, pid, "cmdline")).split("\0"):
            found.append(int(pid))
    return found


class ContainerReturn:
    """Of one container, by the note that is made of it while it runs."""

    def __init__(self, runtime: Runtime, podman: Podman, name: str, note: Facts) -> None:
        self.runtime = runtime
        self.podman = podman
        self.name = name
        self.note = note
        self.dumped = False  # by this process, which has looked at all that it needs for the restore before
        self._facts: dict[str, t.Any] = {}
        self._network: dict[str, str] | None = None

    @staticmethod
    def note_of(podman: Podman, name: str, service: Facts, volume: str) -> dict[str, t.Any]:
        """What has to be known of it when it has ended, and where the volume is that gets other files."""
        inspect = podman.inspect(name)
        unit = {key: service[key] for key in _OF_UNIT} if service.get("unit") else {}
        return {"boot": boot(), "id": inspect["Id"], "started": inspect["State"]["StartedAt"], "service": unit, "places": places_of(inspect, volume)}

    @property
    def unit(self) -> UnitReturn | None:
        """Its unit, if it has one."""
        return UnitReturn(self.runtime, self.note["service"]) if self.note.get("service") else None

    @contextlib.contextmanager
    def leaving(self) -> t.Iterator[list[str]]:
        """The helper's words, by which it ends with its dump. Should it not, it runs on."""
        inspect = self.podman.inspect(self.name)
        facts = workload.facts_of(inspect, ())
        why = why_halted(self.podman, facts)
        if why:
            raise HandoverError("{0} cannot be dumped: {1}".format(self.name, why))
        self._facts, self._network = facts, network_backend(self.podman.info())
        unit = self.unit
        if unit is not None:
            unit.expect()
        conmon = int(inspect["State"].get("ConmonPid") or 0)
        with MemoryLeft(self.runtime, self.podman, facts, cgroup_of(facts), conmon, self.note["places"]) as memory:
            yield memory.options(0)
        self.dumped = True

    def lost(self) -> str:
        """Why it cannot come back from its dump; empty: it can."""
        return "" if self.dumped else self._lost()

    def _lost(self) -> str:
        if self.note["boot"] != boot():
            return "the host has booted since"
        if workload.find(self.podman.containers(), self.name) is None:
            return "it is not there any more"
        inspect = self.podman.inspect(self.name)
        state = inspect["State"]
        if inspect["Id"] != self.note["id"] or state["StartedAt"] != self.note["started"]:
            return "it was started by another hand"
        if not state.get("Checkpointed") or not os.path.exists(os.path.join(workload.facts_of(inspect, ())["checkpoint_dir"], INVENTORY)):
            return "its dump was not ended"
        return ""

    def restore(self, ran: t.Callable[[], None]) -> None:
        """It runs on from its dump, and its unit has it again. `ran` is called as soon as it runs."""
        self._free_conmon()
        facts = self._facts or workload.facts_of(self.podman.inspect(self.name), ())
        self.dumped = False  # from now on it is looked at

        def come(within: str) -> None:
            # A run that goes on from a dump has not asked before.
            go_on(self.runtime, self.name, facts, within, self._network or network_backend(self.podman.info()))
            ran()

        unit = self.unit
        try:
            if unit is None:
                come("")
            else:
                unit.hand_over(self.name, come)
        except HandoverError as exc:
            if not self._lost():
                raise NotRestoredError("{0} cannot be restored: {1}".format(self.name, _reason(facts) or exc)) from exc
            raise

    def start(self) -> None:
        """It begins anew, and its dump is of no use: podman would restore it whenever it is asked."""
        self._free_conmon()
        unit = self.unit
        if unit is not None:
            unit.start()
        else:
            self.podman.run("start", self.name)
        if workload.find(self.podman.containers(), self.note["id"]):  # else a unit has made another
            shutil.rmtree(workload.facts_of(self.podman.inspect(self.note["id"]), ())["checkpoint_dir"], ignore_errors=True)

    def resume(self) -> None:
        """It runs: its unit acts again."""
        self._free_conmon()
        unit = self.unit
        if unit is not None:
            unit.resume(self.name)

    def _free_conmon(self) -> None:
        """A helper that was killed as it ended has left podman's process beside it stopped: that acts again, or ends, as the helper would have had it."""
        listed = workload.find(self.podman.containers(), self.note["id"]) or {}
        for pid in stopped_conmons(self.note["id"]):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT if listed.get("State") == "running" else signal.SIGKILL)
