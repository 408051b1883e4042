# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One lock for each guest on a host, which says whose the move is.

The file says which run has the guest, and the run keeps it from step to step. While a process works for that run, the kernel holds the file's lock for
it, and for the copiers that it has started: so the lock ends with the last of them, even if the play is gone. A step of a run that has lost the
guest to another one touches nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
import typing as t
from urllib.parse import quote

from .._core.runtime import HandoverError

# Goes with a start of the host, as every process does.
FOLDER = "/run/handover/guests"
POLL_SECONDS = 0.2
# A run that cannot be examined from here counts as working for so long after its last step.
PATIENCE = 300.0

Claim = t.Dict[str, t.Any]


class Busy(HandoverError):
    """Another run has the guest."""


def sentence(guest: str, claim: t.Mapping[str, t.Any] | None) -> str:
    """Whose it is, since when, and the way out."""
    if not claim:
        return f"another process on this host works on {guest}, such as a move or a backup: wait until that has ended"
    by = claim.get("by") or {}
    who = f" by {by['who']} on {by['on']}" if by.get("who") and by.get("on") else ""
    return (
        f"{guest} is being moved to {claim.get('destination') or 'another host'}{who} since {claim.get('since')} (run {claim.get('run')}): "
        "wait until that has ended, or give it up with kvm_migrate_state=cancelled"
    )


def standing(guest: str, stopped: t.Iterable[int]) -> str:
    """A step that does not end by itself, and the way out."""
    pids = " ".join(map(str, stopped))
    return (
        f"{guest} is held by a step of an earlier move that somebody has stopped (process {pids} on this host, SIGSTOP): it does not end by itself. "
        f"Let it go on with `kill -CONT {pids}`, or end it with `kill -KILL {pids}`, and run this again"
    )


def path_of(guest: str, folder: str | None = None) -> str:
    return os.path.join(folder or FOLDER, quote(guest, safe="") + ".lock")


def look(guest: str, folder: str | None = None) -> dict[str, t.Any]:
    """Whose it is, whether a process works on it and is stopped, and for how many seconds nothing has been done. Changes nothing."""
    path = path_of(guest, folder)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return {"claim": None, "held": False, "stopped": [], "idle": 0.0}
    try:
        held = not _lock(descriptor)
        stopped = _stopped(os.fstat(descriptor)) if held else []
        return {"claim": _read(descriptor), "held": held, "stopped": stopped, "idle": max(0.0, time.time() - os.fstat(descriptor).st_mtime)}
    finally:
        os.close(descriptor)


def take(guest: str, claim: Claim, over: str = "", folder: str | None = None) -> None:
    """The guest is this run's from now on. `over` is the run that it may be taken from."""
    with _locked(guest, 0.0, folder) as descriptor:
        with _alone(descriptor):
            found = _read(descriptor)
            if found and found.get("run") not in (claim["run"], over):
                raise Busy(sentence(guest, found))
            if found and found.get("run") == claim["run"] and found.get("given_up"):
                claim = {**claim, "given_up": True}
            _write(descriptor, claim)


@contextlib.contextmanager
def hold(guest: str, run: str = "", patience: float = 0.0, forward: bool = True, folder: str | None = None) -> t.Iterator[int]:
    """While a step works. Yields the descriptor, for the processes that work along. `patience`, in seconds, is for another process.

    `forward` is a step that a run does no more that was given up. One without a run of its own heeds the run that has the guest for as long as that
    may be at work; if it is not forward, not at all.
    """
    with _locked(guest, patience, folder) as descriptor:
        found = _read(descriptor)
        anothers = found is not None and found["run"] != run
        if anothers and not run:
            anothers = forward and time.time() - os.fstat(descriptor).st_mtime < PATIENCE
        if anothers:
            raise Busy(sentence(guest, found))
        if forward and found and found.get("given_up"):
            raise HandoverError(f"the move of {guest} was given up from elsewhere (kvm_migrate_state=cancelled)")
        os.utime(descriptor)
        try:
            yield descriptor
        finally:
            if not found:
                _unlink(guest, folder)


def release(guest: str, run: str, folder: str | None = None) -> bool:
    """The guest is free again, if it was this run's, and nothing works on it any more."""
    if not os.path.lexists(path_of(guest, folder)):
        return False
    with contextlib.suppress(Busy), _locked(guest, 0.0, folder) as descriptor:
        found = _read(descriptor)
        if not found or found.get("run") == run:
            _unlink(guest, folder)
            return bool(found)
    return False


def give_up(guest: str, folder: str | None = None) -> Claim | None:
    """Has the run that has the guest end at its next step, and its copier at once. Returns whose it was."""
    try:
        descriptor = os.open(path_of(guest, folder), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        # A step holds the lock of the file, so this cannot wait for that.
        with _alone(descriptor):
            found = _read(descriptor)
            if found:
                _write(descriptor, {**found, "given_up": True})
        return found
    finally:
        os.close(descriptor)


def given_up(descriptor: int) -> bool:
    """Whether an operator has given up the move, as a step sees it that holds the lock."""
    return bool((_read(descriptor) or {}).get("given_up"))


@contextlib.contextmanager
def _locked(guest: str, patience: float, folder: str | None) -> t.Iterator[int]:
    path, until = path_of(guest, folder), time.monotonic() + patience
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            if _lock(descriptor):
                # One that was released since has no name any more.
                if not _named(descriptor, path):
                    continue
                yield descriptor
                return
            if time.monotonic() >= until:
                raise Busy(sentence(guest, _read(descriptor)))
        finally:
            # Closing gives the lock back, unless a copier still has the descriptor.
            os.close(descriptor)
        time.sleep(POLL_SECONDS)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def _alone(descriptor: int) -> t.Iterator[None]:
    """While the claim is read and written: another kind of lock, that nobody holds for longer."""
    fcntl.lockf(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.lockf(descriptor, fcntl.LOCK_UN)


def _stopped(lock: os.stat_result) -> list[int]:
    """The processes that have the file open and are stopped."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            folder = f"/proc/{pid}/fd"
            if any(_is(f"{folder}/{number}", lock) for number in os.listdir(folder)):
                with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                    # The name in parentheses may have spaces.
                    if file.read().rpartition(")")[2].split()[0] == "T":
                        found.append(int(pid))
    return found


def _is(path: str, lock: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path), lock)
    except OSError:
        return False


def _named(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _read(descriptor: int) -> Claim | None:
    try:
        found = json.loads(os.pread(descriptor, 1 << 16, 0).decode("utf-8"))
    except ValueError:
        return None
    return found if isinstance(found, dict) and found.get("run") else None


def _write(descriptor: int, claim: Claim) -> None:
    text = json.dumps(claim).encode("utf-8")
    # A reader during this sees the old or the new, as the rest of a longer one is blank.
    length = max(len(text), os.fstat(descriptor).st_size)
    os.pwrite(descriptor, text.ljust(length), 0)


def _unlink(guest: str, folder: str | None) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path_of(guest, folder))
