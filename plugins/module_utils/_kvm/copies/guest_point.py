# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One point in time of a KVM guest, in a store: a backup, or a snapshot.

Of a guest that runs libvirt serves the disks as they were at one moment, or has QEMU write them. Of one that is off QEMU's own servers do, and nothing writes
them meanwhile.
"""

from __future__ import annotations

import json
import os
import tempfile
import typing as t
from dataclasses import dataclass, replace

from ansible.module_utils.basic import AnsibleModule

from ..._core import host
from ..._core.backups import GUEST, RECORD, Row, seconds
from ..._core.disk_store import CONFIGURATION, DiskStore, is_elsewhere
from ..._core.move import SPARE_DISK
from ..._core.runtime import HandoverError, Runtime
from ..._core.sizes import format_size
from ..libvirt import Libvirt
from . import backup_xml, copy_mode, guest_checks
from .disk_marks import marks_of
from .freeze import Freeze
from .guest_checks import Kind
from .guest_files import ARCHIVES, archive
from .guest_look import RUNNING, GuestFacts
from .guest_moment import GuestMoment, NotBegun, end, is_ours
from .push_moment import PushMoment, clear, go_on
from .still_moment import StillMoment


@dataclass(frozen=True)
class Hooks:
    """Commands of the host around the moment, and the seconds that each may take."""

    before: str | None = None
    after: str | None = None
    seconds: int = 60


class GuestPoint:
    """Takes points of one guest into one store."""

    def __init__(self, module: AnsibleModule, libvirt: Libvirt, store: DiskStore, kind: Kind, hooks: Hooks = Hooks()) -> None:
        self.module, self.libvirt, self.store, self.kind, self.hooks = module, libvirt, store, kind, hooks
        self.runtime: Runtime = libvirt.runtime
        self.track: bool = module.params["track"]
        self.mode = copy_mode.PULL

    def look(self, facts: GuestFacts, listed: t.Sequence[Row], place: str) -> list[str]:
        """An error with all that is in the way. Returns the parts that are left out. `place` is the folder of the stores."""
        guest_checks.demand(facts, self.kind)
        # The settings of an earlier timer have none.
        asked = self.module.params.get("mode") or copy_mode.AUTO
        self.mode = copy_mode.choose(self.libvirt, facts, place, asked, self.kind, self.module.warn)
        self._look_for_room(facts, listed, place)
        outside = guest_checks.left_out(facts)
        for each in outside:
            self.module.warn(f"a {self.kind.noun} of {facts.name} leaves out {each}")
        return outside

    def alone(self, facts: GuestFacts) -> GuestFacts:
        """A backup that a killed run has left at work is ended: this one has the lock."""
        if not facts.job or not is_ours(self.libvirt, facts.name):
            return facts
        if not self.module.check_mode:
            end(self.libvirt, facts.name)
        return replace(facts, job="")

    def take(self, name: str, facts: GuestFacts, listed: t.Sequence[Row], outside: t.Sequence[str]) -> Row:
        """The point, as the helper tells of it."""
        if not is_elsewhere(self.store.folder):
            clear(self.runtime, facts.uuid, self.store.folder)
        moment = self._moment(facts)
        marks = self.marks(listed)
        freeze = self._freeze(facts)
        try:
            self._begin(moment, facts, marks, freeze)
            taken = self._bring(name, moment, facts, outside, freeze is not None)
        except BaseException as exc:
            try:
                stopped = self._end(moment, facts, freeze)
            finally:
                # Its bitmap goes to the one before, which then has all since the point before.
                if moment.checkpoint:
                    self.libvirt.virsh("checkpoint-delete", "--domain", facts.name, moment.checkpoint, accept=range(256))
            if stopped and isinstance(exc, HandoverError):
                raise HandoverError(f"{exc}. And {stopped}") from exc
            raise
        if stopped := self._end(moment, facts, freeze):
            self.module.warn(stopped)
        # The one before, and those of points that came to nothing.
        stay = moment.keep_only(moment.checkpoint)
        if stay:
            self.module.warn(f"libvirt does not remove the checkpoint {stay[0]} of {facts.name}, which costs writes: try `virsh checkpoint-delete`")
        return taken

    def _end(self, moment: GuestMoment | StillMoment, facts: GuestFacts, freeze: Freeze | None) -> str:
        """Returns a sentence of a guest that a push has stopped."""
        moment.end()
        stopped = go_on(self.libvirt, facts.name) if self.mode == copy_mode.PUSH else ""
        if freeze:
            freeze.settle()
        return stopped

    def _look_for_room(self, facts: GuestFacts, listed: t.Sequence[Row], place: str) -> None:
        """For the first point; what a later one needs is known when it is written. QEMU pushes a disk whole of which it does not know what was written.

        A store that is full stops a guest whose disks are pushed, so some is to be free for each push.
        """
        if is_elsewhere(place) or listed and self.mode == copy_mode.PULL:
            return
        plans = backup_xml.plan(guest_checks.kept(facts), self.marks(listed), facts.checkpoints, self.track)
        whole = [each.disk for each in plans if not each.since]
        if not whole and self.mode == copy_mode.PULL:
            return
        need = sum(disk.size for disk in whole) + SPARE_DISK
        free = host.free_space(place)
        if need > free:
            if not whole:
                raise HandoverError(
                    f"QEMU pushes what {facts.name} has written into {place}, where {format_size(free)} is free: free {format_size(need - free)} there"
                )
            disks = ", ".join(disk.target for disk in whole)
            which = f"a {self.kind.noun} of {facts.name} has {disks} whole, which" if listed else f"the first {self.kind.noun} of {facts.name}"
            raise HandoverError(
                f"{which} takes {format_size(need - SPARE_DISK)}, and {format_size(free)} is free in {place}: free {format_size(need - free)} there"
            )

    def _moment(self, facts: GuestFacts) -> GuestMoment | StillMoment:
        if self.mode == copy_mode.PUSH:
            return PushMoment(self.runtime, self.libvirt, facts, self.store)
        if facts.state == RUNNING:
            return GuestMoment(self.runtime, self.libvirt, facts, self.store.folder)
        return StillMoment(self.runtime, facts)

    def marks(self, listed: t.Sequence[Row]) -> dict[str, str]:
        """The checkpoint that the current point has left, by disk."""
        return marks_of(self.store, listed)

    def _freeze(self, facts: GuestFacts) -> Freeze | None:
        if not facts.has_agent or facts.state != RUNNING:
            return None
        freeze = Freeze(self.runtime, self.libvirt, facts.name, facts.uuid)
        if freeze.answers():
            return freeze
        self.module.warn(f"the agent of {facts.name} does not answer, so its {self.kind.noun} is as after a loss of power: start qemu-guest-agent in the guest")
        return None

    def _begin(self, moment: GuestMoment | StillMoment, facts: GuestFacts, marks: t.Mapping[str, str], freeze: Freeze | None) -> None:
        disks = guest_checks.kept(facts)
        plans = backup_xml.plan(disks, marks, facts.checkpoints, self.track)
        self._hook(self.hooks.before)
        try:
            try:
                moment.begin(plans, freeze)
            except NotBegun as exc:
                if not exc.is_of_a_checkpoint() or not any(each.since for each in plans):
                    raise
                # Nothing is lost by reading everything.
                broken = sorted({each.since for each in plans if each.since})
                left = moment.keep_only("")
                moment.forget(left)
                why = f"libvirt cannot use the checkpoint {', '.join(broken)} ({exc})"
                moment.begin([backup_xml.without(each, why) for each in plans], freeze)
        finally:
            self._hook(self.hooks.after)

    def _hook(self, command: str | None) -> None:
        """A command that hangs is ended."""
        if command:
            self.runtime.run(["/bin/sh", "-c", command], timeout=self.hooks.seconds)

    def _bring(self, name: str, moment: GuestMoment | StillMoment, facts: GuestFacts, outside: t.Sequence[str], frozen: bool) -> Row:
        with tempfile.TemporaryDirectory(prefix="handover-") as folder:
            contents = {ARCHIVES[kind]: archive(path) for kind, path in facts.files}
            documents = {CONFIGURATION: configuration(facts), RECORD: _record(facts, outside, frozen)}
            for file, document in documents.items():
                contents[file] = json.dumps(document).encode()
            moment.complete()
            for file, content in contents.items():
                with open(os.open(os.path.join(folder, file), os.O_WRONLY | os.O_CREAT, 0o600), "wb") as target:
                    target.write(content)
            request = {
                "store": self.store.folder,
                "name": name,
                "description": GUEST,
                "taken": moment.taken,
                "frozen_ms": round(moment.frozen_ms, 1),
                "disks": moment.disks(),
                "files": [{"name": file, "path": os.path.join(folder, file)} for file in sorted(contents)],
            }
            taken = self.store.pcopy.call("snapshot", moment.verb, "--json", "-", stdin=json.dumps(request))
        return {**taken, "workload": facts.name, "taken": seconds(taken["taken"]), "volumes": [{"why": "", **volume} for volume in taken["volumes"]]}


def configuration(facts: GuestFacts) -> dict[str, t.Any]:
    """All that the guest is made of again."""
    return {"kind": GUEST, "name": facts.name, "uuid": facts.uuid, "definition": facts.definition, "autostart": facts.autostart}


def _record(facts: GuestFacts, outside: t.Sequence[str], frozen: bool) -> dict[str, t.Any]:
    return {
        "kind": GUEST,
        "workload": facts.name,
        "running": facts.state == RUNNING,
        "frozen": frozen,
        "host": os.uname().nodename,
        "disks": [{"target": disk.target, "path": disk.path, "format": disk.format} for disk in guest_checks.kept(facts)],
        "files": [{"kind": kind, "path": path} for kind, path in facts.files],
        "left_out": list(outside),
    }
