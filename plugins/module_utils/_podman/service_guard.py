# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a move adds to a container's unit, so that the unit starts it on one host only.

On the source:

- The guard asks the session before each start. It outlives a boot: after the release the unit starts nothing there, whatever happens.
- While the move lasts, the unit does not act when the container ends. That is for this boot only: after another, nothing of it is frozen.

On the destination everything is for this boot only, until the container has settled there: after another boot nothing is left that could start
it. A live container comes into the cgroup of a stand-in for the unit, which has its name and no command. Then the unit itself takes that over.
"""

from __future__ import annotations

import contextlib
import os
import typing as t

from .._core.runtime import HandoverError
from . import service_files as files_of

PCOPY = "/usr/local/libexec/handover/pcopy"
LASTING, PASSING = "/etc/systemd/system", "/run/systemd/system"
GUARD, HOLD = files_of.OURS + "guard.conf", files_of.OURS + "move.conf"
_MADE = "# made for it: "
_HEADER = "# Written by livefleet.handover while the container of this unit is being moved.\n"


def guard(role: str, session: str) -> str:
    """No start without the session's leave."""
    return "{0}[Service]\nExecCondition={1} internal unit-may-start {2} {3}\n".format(_HEADER, PCOPY, role, session)


def hold(live: bool) -> str:
    """The container's end is no reason to start it again. One that is frozen is not stopped, nor removed, either."""
    if not live:
        return "{0}[Service]\nRestart=no\n".format(_HEADER)
    return "{0}[Unit]\nRefuseManualStart=yes\nRefuseManualStop=yes\n\n[Service]\nRestart=no\nExecStop=\nExecStopPost=\nKillMode=none\n".format(_HEADER)


def takes_over(nothing: str) -> str:
    """The unit of a pod that is here already starts none."""
    return "{0}[Service]\nExecStartPre=\nExecStart=\nExecStart={1}\n".format(_HEADER, nothing)


def stand_in(unit: str, slice_name: str, sleep: str) -> str:
    """A unit that has the cgroup and no command: the container comes into it, and it is active when that has been taken over."""
    return """{0}[Unit]
Description=Awaits the container of {1} from another host
RefuseManualStop=yes

[Service]
Type=notify
NotifyAccess=all
ExecStart={3} infinity
TimeoutStartSec=infinity
Restart=no
KillMode=none
Delegate=yes
Slice={2}
""".format(_HEADER, unit, slice_name, sleep)


def drop_in(folder: str, unit: str, name: str) -> str:
    """The path of an addition to a unit."""
    return os.path.join(folder, unit + ".d", name)


def additions(unit: str, role: str, session: str, live: bool, made: t.Iterable[str] = ()) -> dict[str, str]:
    """By path, what a move adds to the unit on a host where the unit itself is. Files that were made for it are noted there."""
    if role == "destination":
        return {drop_in(PASSING, unit, GUARD): guard(role, session) + "".join("{0}{1}\n".format(_MADE, path) for path in made)}
    return {drop_in(LASTING, unit, GUARD): guard(role, session), drop_in(PASSING, unit, HOLD): hold(live)}


def add(texts: t.Mapping[str, str]) -> bool:
    """Writes them; whether anything was missing."""
    changed = False
    for path, text in texts.items():
        try:
            with open(path, encoding="utf-8") as opened:
                if opened.read() == text:
                    continue
        except OSError:
            pass
        try:
            os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
            files_of.write_text(path, text.encode())
        except OSError as exc:
            raise HandoverError("{0} cannot be written on this host: {1}".format(path, exc.strerror)) from exc
        changed = True
    return changed


def added(unit: str) -> list[str]:
    """Those of any move that are on this host."""
    paths = [drop_in(folder, unit, name) for folder in (PASSING, LASTING) for name in (HOLD, GUARD)]
    own = os.path.join(PASSING, unit)
    with contextlib.suppress(OSError), open(own, encoding="utf-8") as opened:
        if opened.readline() == _HEADER:
            paths.append(own)
    return [path for path in paths if os.path.lexists(path)]


def made_for(unit: str) -> list[str]:
    """Files that were made for a unit that is not settled here, by its guard."""
    with contextlib.suppress(OSError), open(drop_in(PASSING, unit, GUARD), encoding="utf-8") as opened:
        return [line[len(_MADE) :].rstrip("\n") for line in opened if line.startswith(_MADE)]
    return []


def remove(paths: t.Iterable[str]) -> None:
    """Removes files, and folders for a unit's additions that are empty then."""
    for path in paths:
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            folder = os.path.dirname(path)
            if folder.endswith(".d"):
                with contextlib.suppress(OSError):
                    os.rmdir(folder)
                    folder = os.path.dirname(folder)
            if os.path.isdir(folder):
                files_of.sync_folder(folder)
        except OSError as exc:
            raise HandoverError("{0} cannot be removed: {1}".format(path, exc.strerror)) from exc
