# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sessions of the helper on this host.

A session is a folder with the specification that the controller wrote, the journal of the helper, and its news about
itself. A transient systemd unit runs the helper: it outlives the connection of the controller, and systemd keeps its log.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import typing as t
from dataclasses import dataclass

from .._core.pcopy import SESSIONS, Pcopy, PcopyError
from .._core.runtime import HandoverError
from .._core.transient_unit import begin

ROOT = SESSIONS
# Where the helper notes that it has let a session's container start.
STARTED_NOTES = "/run/handover/started"
SPEC = "spec.json"
PLAN = "plan.json"
EVENTS = "events.jsonl"
COMMANDS = {"source": "send", "destination": "receive"}
# How far the helper has to come before the next side can go on. A trial has no other side, and is over soon.
STARTED = {"source": "presync", "destination": "listening"}
# Where a side that was not told how the other one ended waits.
UNTOLD = {"source": ("in_doubt", "resumed"), "destination": ("in_doubt", "settled")}
# The same where its process is gone.
UNTOLD_ALONE = {"source": ("released",), "destination": ("released", "resumed")}
TRIAL, ENDED = "trial", "ended"
# One for each process whose memory follows it, and for each that it has begun since.
_DESCRIPTORS = 4096
# What a side has to say before the copy on its host may go: on the source that the move is done, on the destination that its copy never ran.
REMOVABLE = {
    "source": ("done",),
    "destination": ("prepare", "presync", "barrier", "frozen", "flushed", "prepared", "refused", "fenced", "discarded", "failed"),
}
# From the source's release on, only the outcome on the destination decides.
RELEASED = ("released", "resumed", "in_doubt")


@dataclass(frozen=True)
class Sessions:
    """All sessions of this host."""

    pcopy: Pcopy
    root: str = ROOT

    def statuses(self) -> list[dict[str, t.Any]]:
        """Where each of them stands."""
        if not os.path.isdir(self.root):
            return []
        # A file beside them is none.
        sessions = map(self.session, sorted(entry.name for entry in os.scandir(self.root) if entry.is_dir()))
        return [status for status in (session.known() for session in sessions) if status is not None]

    def session(self, identifier: str) -> Session:
        return Session(self.pcopy, identifier, os.path.join(self.root, identifier))


@dataclass(frozen=True)
class Session:
    """One session."""

    pcopy: Pcopy
    identifier: str
    directory: str

    @property
    def exists(self) -> bool:
        return os.path.isdir(self.directory)

    @property
    def specified(self) -> bool:
        return os.path.isfile(self._spec_path)

    @property
    def _spec_path(self) -> str:
        return os.path.join(self.directory, SPEC)

    def status(self) -> dict[str, t.Any]:
        """Where it stands."""
        return self.pcopy.call("session", "show", self.directory)

    def known(self) -> dict[str, t.Any] | None:
        """Its state, with the plan; also if nothing came after the plan."""
        planned = self._planned() or {}
        plan = planned.get("plan")
        if self.specified:
            return dict(self.status(), plan=plan)
        if plan is None:
            return None
        fresh = {"state": "prepare", "ended": False, "running": False, "held": False, "fenced": False, "error": ""}
        return dict(fresh, restarted=planned["boot_id"] != _boot(), id=self.identifier, role=plan.get("role"), workload=plan.get("workload"), plan=plan)

    def untold(self, status: t.Mapping[str, t.Any]) -> bool:
        """Whether this side waits to be told how the other one ended."""
        if status["state"] in UNTOLD[status["role"]]:
            return status["role"] == "destination" or status.get("held", True) or not status["running"]
        return status["state"] in UNTOLD_ALONE[status["role"]] and not status["running"]

    def spec(self) -> dict[str, t.Any] | None:
        """Its specification."""
        try:
            with open(self._spec_path, encoding="utf-8") as source:
                return json.load(source)
        except FileNotFoundError:
            return None
        except ValueError as exc:
            raise HandoverError("{0} is damaged ({1}): remove the folder {2}".format(self._spec_path, exc, self.directory)) from exc

    def fingerprint(self) -> str:
        """The identity of this side, made when it is asked for first."""
        self._make_directory()
        return self.pcopy.call("identity", self.directory)["fingerprint"]

    def has_identity(self) -> bool:
        return os.path.isdir(os.path.join(self.directory, "identity"))

    def write_spec(self, spec: t.Mapping[str, t.Any]) -> None:
        """The helper's task."""
        self._write(SPEC, spec)

    def write_plan(self, plan: t.Mapping[str, t.Any]) -> None:
        """The facts that a later run of the play needs."""
        self._write(PLAN, {"boot_id": _boot(), "plan": plan})

    def _write(self, name: str, content: t.Mapping[str, t.Any]) -> None:
        """A file whole or not at all; it names keys and paths, so it is root's alone."""
        self._make_directory()
        path = os.path.join(self.directory, name)
        unfinished = path + ".new"
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as target:
            json.dump(content, target, indent=2, sort_keys=True)
            target.write("\n")
            target.flush()
            os.fsync(target.fileno())
        os.replace(unfinished, path)
        # A twin must not be on the disk without the plan that keeps it from starting.
        for folder in (self.directory, os.path.dirname(self.directory)):
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def unit(self, role: str) -> str:
        return "handover-{0}-{1}.service".format(self.identifier, role)

    def start(self, role: str) -> None:
        """Has systemd run the helper."""
        words = [
            "--description=Handover session {0} ({1})".format(self.identifier, role),
            "--collect",
            # The log of the unit is found by the session, as the helper's own notices are: journalctl HANDOVER_SESSION=…
            "--property=LogExtraFields=HANDOVER_SESSION={0}".format(self.identifier),
            "--property=Type=exec",
            # Only the helper itself may be ended with the unit: its commands hold containers.
            "--property=KillMode=process",
            # A source that was killed while it copied compares digests with the destination and goes on. In any other state it
            # refuses to begin again, and that is no reason for another try.
            "--property=Restart={0}".format("on-abnormal" if role == "source" else "no"),
            "--property=RestartSec=1",
            # With lazy pages the kernel lets tasks wait for memory by descriptors. systemd has them too, so that nothing reads as zeroes which has not
            # come when the helper is killed, until the command for that case (the next line) has ended those tasks.
            "--property=FileDescriptorStoreMax={0}".format(_DESCRIPTORS if role == "destination" else 0),
            # However it ends: its work is brought as far as it may go without asking the other side.
            "--property=ExecStopPost={0} session recover {1}{2}".format(self.pcopy.path, self.directory, " --restarts" if role == "source" else ""),
            self.pcopy.path,
            COMMANDS[role],
            "--session",
            self.directory,
        ]
        begin(self.pcopy.runtime, self.unit(role), words)

    def wait(self, until: t.Sequence[str], timeout: float) -> dict[str, t.Any]:
        """Waits for one of these states."""
        # The helper's own limit ends first, so that its sentence is the one that is read.
        return self.pcopy.call("session", "wait", self.directory, "--until", ",".join(until), "--timeout", str(int(timeout)), timeout=timeout + 10)

    def cutover(self, timeout: float, wave: t.Sequence[str] = ()) -> dict[str, t.Any]:
        """Hands over, together with the others of a wave if there are any; the folders of all of it, this one among them."""
        together = ("--wave", ",".join(wave)) if wave else ()
        return self.pcopy.call("session", "cutover", self.directory, *together, "--timeout", str(int(timeout)), timeout=timeout + 10)

    def resolve(self, outcome: str, timeout: float) -> dict[str, t.Any]:
        """Tells a source in doubt the outcome by the destination's session."""
        return self.pcopy.call("session", "resolve", self.directory, "--outcome", outcome, "--timeout", str(max(1, int(timeout))), timeout=timeout + 10)

    def recover(self, timeout: float) -> dict[str, t.Any]:
        """Brings a side whose process is gone as far as it may go."""
        return self.pcopy.call("session", "recover", self.directory, "--timeout", str(max(1, int(timeout))), timeout=timeout + 10)

    def plan(self) -> dict[str, t.Any] | None:
        """The play's record from before it made anything; None if it did not come so far, or not whole."""
        return (self._planned() or {}).get("plan")

    def planned_at(self) -> int:
        """When the plan was written, in nanoseconds; 0 for never."""
        try:
            return os.stat(os.path.join(self.directory, PLAN)).st_mtime_ns
        except FileNotFoundError:
            return 0

    def _planned(self) -> dict[str, t.Any] | None:
        try:
            with open(os.path.join(self.directory, PLAN), encoding="utf-8") as source:
                return json.load(source)
        except (FileNotFoundError, ValueError):
            return None

    def events(self) -> list[dict[str, t.Any]]:
        """The helper's own messages; a last line that it did not finish is left out."""
        found = []
        try:
            with open(os.path.join(self.directory, EVENTS), encoding="utf-8") as source:
                for each in source:
                    found.append(json.loads(each))
        except (FileNotFoundError, ValueError):
            pass
        return found

    def abort(self, timeout: float) -> dict[str, t.Any]:
        """Ends it before the release; it answers where it stands then."""
        try:
            self.pcopy.call("session", "abort", self.directory, "--timeout", str(int(timeout)), timeout=timeout + 10)
        except PcopyError:
            status = self.status()
            if not status["ended"]:
                raise
            return status
        return self.status()

    def remove(self, role: str, keep_plan: bool = False) -> None:
        """Removes the rest of an ended session: its unit, its note and its folder, or all in that but the plan."""
        runtime = self.pcopy.runtime
        systemctl = runtime.find("systemctl")
        if systemctl is not None:
            # A unit that has gone already is as good as one that is stopped: both statuses are the aim.
            runtime.run([systemctl, "stop", self.unit(role)], accept=(0, 5))
            runtime.run([systemctl, "reset-failed", self.unit(role)], accept=(0, 1))
        try:
            os.unlink(os.path.join(STARTED_NOTES, self.identifier))
        except OSError as exc:
            if exc.errno != errno.ENOENT:
                raise HandoverError("the note of session {0} in {1} cannot be removed: {2}".format(self.identifier, STARTED_NOTES, exc.strerror)) from exc
        if not (keep_plan and self._planned()):
            shutil.rmtree(self.directory)
            return
        with os.scandir(self.directory) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path)
                elif entry.name != PLAN:
                    os.unlink(entry.path)

    def _make_directory(self) -> None:
        os.makedirs(self.directory, mode=0o700, exist_ok=True)


def _boot() -> str:
    """Which boot of the host this is."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as source:
        return source.read().strip()


_NUMBERS = frozenset(
    ("size", "cluster", "timeout", "max_passes", "target_dirty", "limit", "shared", "connections", "peer_timeout", "reconnect_timeout", "hash_limit",
     "max_frozen_ms", "frozen_patience_seconds", "pause_base_ms", "memory", "at_once", "wait_timeout",
     "resume_timeout", "max_frozen", "frozen_patience", "pause_base")  # the old names of four of them
)
_FLAGS = frozenset(
    ("delta", "ignore_databases", "lazy_pages", "mounted", "place_memory", "precopy", "reserve_space", "same_device", "silent", "unlocked", "verify")
)


def begun(role: str, spec: t.Mapping[str, t.Any]) -> str:
    """The word for a session that has begun as it should."""
    return ENDED if spec.get("mode") == TRIAL else STARTED[role]


def has_moved(status: t.Mapping[str, t.Any]) -> bool:
    """Whether an ended session has handed its workload over. One without a workload only copies."""
    return bool(status.get("workload")) and status["state"] == "done"


def moved_names(of: t.Mapping[str, t.Any]) -> set[t.Any]:
    """What a plan or a session is about: a workload, and the members of one that is several containers."""
    return {of.get("workload"), *(of.get("members") or []), *((of.get("plan") or {}).get("members") or [])} - {None}


def typed(spec: t.Any, key: str = "") -> t.Any:
    """The specification with numbers as numbers: ansible-core before 2.19 turns a template's result into text."""
    if isinstance(spec, t.Mapping):
        return {name: typed(value, name) for name, value in spec.items()}
    if isinstance(spec, list):
        return [typed(value, key) for value in spec]
    if key in _NUMBERS and isinstance(spec, str) and spec.isdigit():
        return int(spec)
    if key in _FLAGS and isinstance(spec, str):
        return spec.lower() in ("true", "yes", "1")
    return spec


def outcome(status: t.Mapping[str, t.Any], source: str = "the source", destination: str = "the destination") -> str | None:
    """Of a source's session: None if the workload has moved, else its place and the way out, in one sentence."""
    workload, state, error = status.get("workload", ""), status["state"], status.get("error") or "it gave no reason"
    if state in ("done", "settled"):
        return None
    if state == "thawed":
        return "{0} was not moved and runs on {1} as before: {2}".format(workload, source, error)
    if state == "failed":
        return "{0} was not moved and was never stopped on {1}: {2}".format(workload, source, error)
    if state == "resumed":
        return "{0} runs on {1}, but that host has not said yet that its disk is safe, so {2} keeps everything: {3}".format(
            workload, destination, source, error
        )
    if state in ("released", "in_doubt"):
        return (
            "it is not known whether {0} runs on {2}, so it stays frozen on {1} and must not be started there: {3}: "
            "look at session {4} on {2}, then run the play again".format(workload, source, destination, error, status.get("id", ""))
        )
    return "{0} has not been moved yet, its session {1} on {2} is in the state {3}: {4}".format(workload, status.get("id", ""), source, state, error)
