# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A plain volume becomes an image volume: its files are copied while its container runs, which then stands still for the last of them.

The order keeps it whole wherever it ends. Files and folders, the volume being `shop`:

1. `shop.img.converting` notes what was begun, and that the container ran. Its lock is this run's.
2. `shop.img.filling` is the image. The helper fills it, has CRIU dump the container, copies the rest, and renames podman's folder: from then on nothing
   can start, as the folder of its volume is missing. Then the helper proves that nothing was touched since, and only then CRIU ends the container: until
   then it runs on where it stood. One whose memory cannot be kept is stopped instead, before the rest is copied.
3. The image gets its own name: it has all files. Until then the folder is the volume, and gets its name back if anything fails.
4. The image is mounted, podman's book says that the volume is bound to it, and only then podman's folder is there again, empty, to be bound over.
5. The container runs on from its dump, or starts, and the note goes. One that cannot be restored there goes back to the folder, and is restored there.

A run that finds the note goes on from where the other one ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
import time
import typing as t
from dataclasses import dataclass, field, replace

from ..._core.pcopy import Pcopy
from ..._core.runtime import HandoverError, Runtime
from .. import book, conversion, guard, inode_flags, volume, volume_files as files
from ..conversion_look import cgroup_of, record_of
from ..podman import Podman
from ..rollback import remove
from ..volume_actions import VolumeActions
from .memory_left import ContainerReturn, NotRestoredError, dump_words

# The steps from the stop on have this of their own, however long the copying took.
_AFTERWARDS = 180.0
# A unit's stop may take this longer than its container's.
_STOP_MORE = 90


@dataclass
class Converter:
    """Converts one volume."""

    actions: VolumeActions
    plain: conversion.Plain
    keep_plain: bool
    restart: bool = False  # whether it may stop and start, if it cannot be dumped
    _facts: dict[str, t.Any] = field(default_factory=dict)
    _comes: ContainerReturn | None = None

    @property
    def wanted(self) -> volume.Wanted:
        """The image volume."""
        return self.actions.wanted

    @property
    def draft(self) -> str:
        """The image's name until it has all files."""
        return self.wanted.image + conversion.DRAFT

    def run(self, units: bool) -> dict[str, t.Any]:
        """Does it, or what is left of it; `units` says whether units mount the volume at boot afterwards."""
        os.makedirs(os.path.dirname(self.wanted.image), mode=0o700, exist_ok=True)
        with self._noted() as record:
            self._facts = {"bytes": 0, "stop_ms": 0, "last_ms": 0, "start_ms": 0, "paused_ms": None, "container": record["container"] or None}
            self._facts.update(memory=None, anew="")
            stopped = None
            self._refuse_if_filled()
            try:
                if not os.path.lexists(self.wanted.image):
                    stopped = self._fill(record, units)
                elif units:
                    self.actions.write_units()
            except (HandoverError, OSError) as exc:
                self._take_back(record, units, exc)
            self._late()
            self._look_at_files()
            try:
                self._swap()
                running = self._run_again(record) if record["running"] else None
            except NotRestoredError as exc:
                self._go_back(record, units, exc)
            except (HandoverError, OSError) as exc:
                down = f", and {record['container']} is down until then" if record["running"] else ""
                raise HandoverError(f"{exc}: all files of {self.plain.name} are in {self.wanted.image}: run this again, which ends it{down}") from exc
            if stopped is not None and running is not None:
                self._facts["paused_ms"] = round(1000 * (running - stopped))
            self._forget()
        return self._result()

    # The note

    @contextlib.contextmanager
    def _noted(self) -> t.Iterator[dict[str, t.Any]]:
        path = self.wanted.image + conversion.RECORD
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as exc:
                raise HandoverError(f"{self.wanted.image} is being filled by another run at this moment: wait for it") from exc
            yield self._note(descriptor)
        finally:
            os.close(descriptor)

    def _note(self, descriptor: int) -> dict[str, t.Any]:
        earlier, user = record_of(self.wanted.image) or {}, self.plain.user
        unit, memory = next(iter(user.units), "") if user else "", earlier.get("memory")
        if user and user.running:
            # A unit that awaits its container, after a kill, does not say any more which one it is.
            service = (memory or {}).get("service") or user.service
            memory = None if user.unkept or user.state != "running" else ContainerReturn.note_of(self.actions.seen.podman, user.name, service, self.plain.name)
        record = {
            "container": user.name if user else earlier.get("container", ""),
            "unit": unit or earlier.get("unit", ""),
            # One that an earlier run has stopped has to run again.
            "running": bool(user and user.running) or bool(earlier.get("running")),
            # How it runs on from its dump; none: it is stopped and started.
            "memory": memory,
        }
        self._write_note(descriptor, record)
        files.sync_directory(os.path.dirname(self.wanted.image))
        return record

    def _write_note(self, descriptor: int, record: t.Mapping[str, t.Any]) -> None:
        """One write, over all of an earlier and longer note: a kill leaves no half of it."""
        os.pwrite(descriptor, json.dumps(record).encode().ljust(os.fstat(descriptor).st_size), 0)
        os.fsync(descriptor)

    def _forget(self) -> None:
        with contextlib.suppress(FileNotFoundError):  # another run, which waited for this one's lock, had no more to do
            os.unlink(self.wanted.image + conversion.RECORD)
        files.sync_directory(os.path.dirname(self.wanted.image))

    # The copy

    def _refuse_if_filled(self) -> None:
        """The helper works on when this module is killed. It has a lock on the image."""
        with contextlib.suppress(FileNotFoundError), files.open_image(self.draft) as descriptor:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as exc:
                raise HandoverError(f"the helper still copies to {self.draft}, for a run that was ended: run this again when it has finished") from exc

    def _fill(self, record: dict[str, t.Any], units: bool) -> float | None:
        """The image has all files afterwards. It returns since when the container is stopped, if this stopped it."""
        plain, user = self.plain, self.plain.user
        begun = not os.path.lexists(plain.folder) and os.path.lexists(plain.aside)
        again = begun and os.path.lexists(self.draft)
        # A helper that was killed before CRIU had its answer has left it running, on the folder under its other name.
        if begun and (not again or user and user.running):
            self._rename(plain.aside, plain.folder)
            begun = False
        if not begun:
            remove(self.draft)
            self.actions.make(self.draft, conversion.inodes(plain, self.wanted))
        if units:  # before the pause: systemd takes a second to read units again
            self.actions.write_units()
        os.makedirs(self.wanted.mountpoint, exist_ok=True)
        guard.mark(self.wanted.mountpoint)
        source = plain.aside if begun else plain.folder
        words = [source, "--type", self.wanted.fstype, *(["--again"] if begun else ["--away", plain.aside])]
        ends = bool(user and user.running and not begun)
        dumps = ends and record["memory"]
        answer = self._dumped(record, words) if dumps else None
        if answer is None:
            # The passes before a dump that failed have filled it.
            answer = self._stopped(record, [*words, *(["--again"] if dumps else [])], ends)
        self._facts.update(bytes=answer["bytes"], stop_ms=round(answer["stop_ms"]), last_ms=round(answer["last_ms"]))
        os.rename(self.draft, self.wanted.image)
        files.sync_directory(os.path.dirname(self.wanted.image))
        return answer["ended"] - (answer["stop_ms"] + answer["last_ms"]) / 1000 if ends else None

    def _filled(self, *words: str) -> dict[str, t.Any]:
        answer = Pcopy(self.actions.runtime).call("image", "fill", self.draft, *words)
        return {**answer, "ended": time.monotonic()}

    def _dumped(self, record: dict[str, t.Any], words: t.Sequence[str]) -> dict[str, t.Any] | None:
        """The helper's answer, when the container has ended with its dump; none where it runs on and may be stopped."""
        comes = self._return_of(record)
        try:
            with comes.leaving() as more:
                return self._filled(*words, *more)
        except HandoverError as exc:
            if not self.restart or os.path.lexists(self.plain.aside) or not self._runs(record["container"]):
                raise
            self.actions.warn(f"{record['container']} is stopped and started, and loses its memory and connections: {exc}")
        comes.resume()  # its unit would not stop it
        record["memory"] = None
        with open(self.wanted.image + conversion.RECORD, "r+b") as note:  # another run has no dump to go back to
            self._write_note(note.fileno(), record)
        return None

    def _stopped(self, record: t.Mapping[str, t.Any], words: t.Sequence[str], ends: bool) -> dict[str, t.Any]:
        """The same for one that is stopped, or does not run."""
        user = self.plain.user
        cgroup = cgroup_of(user) if user and ends else ""
        more = ["--cgroup", cgroup] if cgroup else []
        if user and ends:
            more += ["--stop", shlex.join(self._stop_command(record)), "--stop-limit", str(user.patience + _STOP_MORE)]
        answer = self._filled(*words, *more)
        if not cgroup:  # else the helper has looked
            self._refuse_if_it_runs(record)
        return answer

    def _return_of(self, record: t.Mapping[str, t.Any]) -> ContainerReturn:
        if self._comes is None:
            self._comes = ContainerReturn(self.actions.runtime, self.actions.seen.podman, record["container"], record["memory"])
        return self._comes

    def _stop_command(self, record: t.Mapping[str, t.Any]) -> list[str]:
        if record["unit"]:
            return [self.actions.runtime.tool("systemctl", "systemd"), "stop", record["unit"]]
        return [self.actions.seen.podman.path, "stop", record["container"]]

    def _refuse_if_it_runs(self, record: t.Mapping[str, t.Any]) -> None:
        if record["container"] and self._runs(record["container"]):
            raise HandoverError(f"{record['container']} runs again right after it was stopped: find what starts it, and stop that first")

    def _runs(self, container: str) -> bool:
        return any(container in (each.get("Names") or []) and each.get("State") == "running" for each in self.actions.seen.podman.containers())

    def _rename(self, one: str, other: str) -> None:
        os.rename(one, other)
        for path in (one, other):
            files.sync_directory(os.path.dirname(path))

    # The swap

    def _late(self) -> None:
        """From now on nothing is ended by the time that the copying took."""
        runtime = Runtime(self.actions.runtime.module, _AFTERWARDS)
        self.actions = replace(self.actions, seen=replace(self.actions.seen, runtime=runtime, podman=Podman(runtime)))
        if self._comes is not None:
            self._comes.runtime, self._comes.podman = runtime, Podman(runtime)

    def _look_at_files(self) -> None:
        if not os.path.lexists(self.plain.aside):
            raise HandoverError(
                f"{self.plain.aside} is missing, which had the files of {self.plain.name} while they were copied: see that {self.wanted.image} has them, "
                f"and remove {self.wanted.image}{conversion.RECORD} if so"
            )

    def _swap(self) -> None:
        loops = self.actions.seen.loops()
        mounts, _occupant = self.actions.seen.mounts(loops)
        if not mounts:
            if not loops:
                self.actions.attach()
            self.actions.mount()
        why = book.bound_to(self.plain.root, self.plain.name, self.wanted.mountpoint) or self._disagreement(volume.bound_options(self.wanted.mountpoint))
        if why:
            raise HandoverError(f"podman's volume {self.plain.name} cannot be bound to {self.wanted.mountpoint}: {why}")
        # Not before podman itself says so: it starts nothing while the folder is missing, and would start on an empty one.
        os.makedirs(self.plain.folder, mode=0o755, exist_ok=True)

    def _disagreement(self, options: t.Mapping[str, str]) -> str:
        """Why podman does not know what was written."""
        found = next((each.get("Options") for each in self.actions.seen.podman.volumes() if each["Name"] == self.plain.name), None)
        return "" if (found or {}) == options else f"podman says that its options are {json.dumps(found)}"

    def _run_again(self, record: t.Mapping[str, t.Any], anew: str = "") -> float:
        """It runs on, or begins anew if it has no dump, or for the reason `anew`; one that runs goes on. It returns when that was done."""
        began = time.monotonic()
        ended: list[float] = []
        if not record["memory"]:
            self._start(record)
        else:
            comes = self._return_of(record)
            if not comes.dumped and self._runs(record["container"]):
                comes.resume()
            elif lost := anew or comes.lost():
                comes.start()
                self._facts["anew"] = lost
            else:
                comes.restore(lambda: ended.append(time.monotonic()))
                self._facts["memory"] = True
        ended.append(time.monotonic())
        self._facts["start_ms"] = round(1000 * (ended[0] - began))
        if not self._runs(record["container"]):
            raise HandoverError(f"{record['container']} was started and does not run: see its log, with `podman logs {record['container']}`")
        return ended[0]

    def _start(self, record: t.Mapping[str, t.Any]) -> None:
        if record["unit"]:
            self.actions.runtime.run([self.actions.runtime.tool("systemctl", "systemd"), "start", record["unit"]])
        else:
            self.actions.seen.podman.run("start", record["container"])

    def _go_back(self, record: t.Mapping[str, t.Any], units: bool, why: Exception) -> t.NoReturn:
        """It has not come back from its dump on the image volume: the folder, of the same moment, is the volume again, and it is restored there.

        Until the image has lost its name it is the volume, and another run goes on with it.
        """
        try:
            os.rmdir(self.plain.folder)  # from now on nothing starts
            self.actions.unmount()
            self.actions.detach()
            left = book.unbound(self.plain.root, self.plain.name, self.wanted.mountpoint) or self._disagreement({})
            if left:
                raise HandoverError(f"podman's volume {self.plain.name} stays bound to {self.wanted.mountpoint}: {left}")
            os.rename(self.wanted.image, self.draft)
            files.sync_directory(os.path.dirname(self.draft))
        except (HandoverError, OSError) as second:
            down = f"{record['container']} is down until then"
            raise HandoverError(f"{why}; and its volume could not be taken back: {second}: run this again, and {down}") from why
        self._take_back(record, units, why)

    # The way back, while the folder is the volume

    def _take_back(self, record: t.Mapping[str, t.Any], units: bool, why: Exception) -> t.NoReturn:
        """The volume is as it was, and its container runs again; the error that led here is told."""
        if os.path.lexists(self.wanted.image):
            raise why  # it has all files: another run goes on from there
        self._late()
        try:
            self._await_stop(record)
            if not os.path.lexists(self.plain.folder) and os.path.lexists(self.plain.aside):
                self._rename(self.plain.aside, self.plain.folder)
            remove(self.draft)
            if units:
                self.actions.remove_units()
            guard.unmark(self.wanted.mountpoint)
            if record["running"]:
                self._run_as_before(record)
            self._forget()
        except (HandoverError, OSError) as second:
            raise HandoverError(f"{why}; and podman's volume {self.plain.name} could not be taken back: {second}: run this again") from why
        how = f" anew, without its memory ({self._facts['anew']})" if self._facts["anew"] else ""
        runs = f", and {record['container']} runs{how}" if record["running"] else ""
        raise HandoverError(f"{why}; podman's volume {self.plain.name} is a plain one as before{runs}") from why

    def _run_as_before(self, record: t.Mapping[str, t.Any]) -> None:
        """If it cannot be restored here either, it begins anew."""
        try:
            self._run_again(record)
        except NotRestoredError as exc:
            self._run_again(record, anew=str(exc))

    def _await_stop(self, record: t.Mapping[str, t.Any]) -> None:
        """The command that stops it, or dumps it, works on when the helper is killed, and would end what is started now."""
        words = tuple(dump_words(record["container"]) if record["memory"] else self._stop_command(record)[1:])
        if record["running"] and not self.actions.runtime.wait_for(lambda: not _at_work(words), _AFTERWARDS):
            raise HandoverError(f"{shlex.join(words)} has not ended")

    # Afterwards

    def _result(self) -> dict[str, t.Any]:
        if not self.keep_plain:
            remove_plain(self.plain.aside)
        facts = {**self._facts, "kept": self.plain.aside if os.path.lexists(self.plain.aside) else None}
        return {**facts, "summary": conversion.told(self.plain, facts)}


def remove_plain(aside: str) -> None:
    """Removes the folder of the plain volume that was."""
    inode_flags.unlock(aside)
    remove(aside)
    with contextlib.suppress(OSError):
        os.rmdir(os.path.dirname(aside))


def _at_work(words: t.Sequence[str]) -> bool:
    """Whether a process has these last words in its command."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as source:
            if tuple(source.read().split("\0")[:-1])[-len(words) :] == tuple(words):
                return True
    return False
