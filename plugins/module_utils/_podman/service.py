# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The unit of systemd that starts and stops a container: what it is, what it consists of, and why it cannot move.

There are two ways to take over a container that came by a move (`adoption`):

- `inside`: conmon is the unit's main process and in its cgroup, as podman run with --sdnotify=conmon leaves it (quadlets, and
  `podman generate systemd --new`). Over there the container is restored in that cgroup.
- `start`: the unit's command is `podman start`, which does nothing to a container that runs.

A pod's unit has a third (`pod`): its main process is conmon of the infra container, by the file that it names (`PIDFile=`).
"""

from __future__ import annotations

import os
import re
import typing as t

from .._core.runtime import Runtime
from .._core.units import RUNNING, show
from . import service_files as files_of
from .workload import asked

Document = t.Mapping[str, t.Any]

INSIDE, START, POD = "inside", "start", "pod"
QUADLET, UNIT = "quadlet", "unit"

# By property, the word for what another unit does with this one.
_BEHIND = {"RequiredBy": "requires it", "RequisiteOf": "requires it", "BoundBy": "is bound to it", "ConsistsOf": "is a part of it", "UpheldBy": "keeps it up"}
_NEEDED = ("Requires", "Requisite", "BindsTo")
# Each host has these of its own.
_OF_EVERY_HOST = (".target", ".slice", ".mount", ".automount", ".swap", ".device")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"|(\S+)')
_ENABLED = ("enabled", "enabled-runtime", "disabled", "static", "indirect", "generated")


def facts(runtime: Runtime, names: t.Sequence[str], inspect: Document, running: bool) -> dict[str, t.Any]:
    """The unit of a container, by the units that act on it; empty where there is none."""
    if not names:
        return {}
    shown = show(runtime, names[0])
    read = files_of.Reader(shown)
    if read.in_pod:
        # The members' units go along, and whether each can is asked of the pod.
        read.explained.update(_units(show(runtime, read.in_pod).get("BoundBy") or ""))
    found = described(names, shown, inspect, read.kind, read.companions)
    cannot = [*found.pop("cannot"), *obstacles(names, shown, found, running, read), *read.problems]
    return {**found, "files": read.documents, "cannot": cannot, "in_pod": read.in_pod}


def described(names: t.Sequence[str], shown: Document, inspect: Document, kind: str, companions: t.Sequence[str]) -> dict[str, t.Any]:
    """The unit in the words of this collection."""
    config, host = inspect.get("Config") or {}, inspect.get("HostConfig") or {}
    command = list(config.get("CreateCommand") or [])
    adoption, cannot = adoption_of(shown, config)
    return {
        "unit": names[0],
        "kind": kind,
        "adoption": adoption,
        "active": shown.get("ActiveState") in RUNNING,
        "enabled": shown.get("UnitFileState") or "disabled",
        "slice": shown.get("Slice") or "system.slice",
        "id": inspect.get("Id") or "",
        "auto_remove": bool(host.get("AutoRemove")),
        # A container that its unit makes anew at each start.
        "made_by_unit": adoption == INSIDE,
        "split": host.get("CgroupMode") == "split" or "split" in asked(command, "cgroups"),
        "cidfile": next(iter(asked(command, "cidfile")), "") if adoption == INSIDE else "",
        "companions": list(companions),
        "cannot": cannot,
    }


def adoption_of(shown: Document, config: Document) -> tuple[str, list[str]]:
    """How the unit can take over its container, or why it cannot."""
    words = re.findall(r"argv\[\]=(.*?) ;", shown.get("ExecStart") or "")
    last = words[-1] if words else ""
    starts = [word for word in last.split() if not word.startswith("-")][1:3]
    if (starts[:1] == ["start"] or starts == ["container", "start"]) and shown.get("Type") in ("forking", "simple", "exec"):
        return START, []
    if shown.get("Type") == "notify" and config.get("sdNotifyMode") == "conmon":
        return INSIDE, []
    return "", [
        "is of Type={0}{1}, and systemd could not take a container over that came by a move: use a quadlet without Notify=, or Type=notify with "
        "`podman run --detach --sdnotify=conmon`".format(
            shown.get("Type") or "simple", "" if shown.get("Type") != "notify" else " and waits for the container's own word"
        )
    ]


def obstacles(names: t.Sequence[str], shown: Document, found: Document, running: bool, read: files_of.Reader) -> t.Iterator[str]:
    """Why a unit cannot move with its container, each with the cure; the unit's name stands before it."""
    yield from common_obstacles(names, shown)
    if running and found["adoption"] == INSIDE and not found["active"]:
        yield "is {0} though its container runs: start that by its unit, with `systemctl restart {1}`".format(shown.get("ActiveState") or "unknown", names[0])
    yield from others(shown, read.companions, read.explained)


def common_obstacles(names: t.Sequence[str], shown: Document) -> t.Iterator[str]:
    """Those of any unit."""
    if len(names) > 1:
        yield "is not the only unit that starts it ({0} as well): leave one of them".format(", ".join(names[1:]))
    if "@" in names[0]:
        yield "is an instance of a template, which others may have, too: write a unit of its own for it"
    if shown.get("NeedDaemonReload") == "yes":
        yield "was changed since systemd read it: run `systemctl daemon-reload`, and see that it is as you want it"
    if shown.get("Transient") == "yes":
        yield "was made by systemd-run and has no file: write one, or a quadlet"
    if (shown.get("UnitFileState") or "disabled") not in _ENABLED:
        yield "is {0}: enable it or disable it".format(shown["UnitFileState"])
    triggers = (shown.get("TriggeredBy") or "").split()
    if triggers:
        yield "is started by {0}, which would stay behind: disable and remove that first".format(", ".join(triggers))


def others(shown: Document, companions: t.Iterable[str], explained: t.Container[str]) -> t.Iterator[str]:
    """Other units that need it, or that it needs, and that do not go along."""
    for key, does in _BEHIND.items():
        behind = [unit for unit in _units(shown.get(key) or "") if not unit.endswith(_OF_EVERY_HOST) and unit not in explained]
        if behind:
            yield "cannot leave {0}, which {1}: take that out of its [Unit] section".format(", ".join(behind), does)
    needed = {unit for key in _NEEDED for unit in _units(shown.get(key) or "")}
    missing = sorted(unit for unit in needed - set(companions) if not unit.endswith(_OF_EVERY_HOST) and unit not in explained)
    if missing:
        yield "requires {0}, which would stay behind: take that out of its [Unit] section, or say Wants= for it".format(", ".join(missing))


def _units(text: str) -> list[str]:
    """The units of a list: systemd quotes one whose name has a backslash, as a mount's of a path with a hyphen."""
    return [re.sub(r"\\(.)", r"\1", quoted) if quoted else plain for quoted, plain in _QUOTED.findall(text)]


def units_there(label: str, acting: t.Iterable[str]) -> list[str]:
    """The units that act on a container, the one that made it first."""
    others = sorted(set(acting) - {label})
    return [label, *others] if label else others


def own_folder(path: str) -> str:
    """The unit's cgroup as a folder."""
    return os.path.join("/sys/fs/cgroup", path.lstrip("/"))
