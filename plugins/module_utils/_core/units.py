# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The units of systemd on this host whose commands start a container, by its name or as a part of its project of compose.

Such a unit would start it here again after it has moved away: systemd acts by the unit's text, and knows nothing of moves.
"""

from __future__ import annotations

import os
import re
import typing as t

from .host import read_text
from .runtime import Runtime

Document = t.Mapping[str, t.Any]

# The first that has a unit's file counts.
UNIT_FOLDERS = ("/etc/systemd/system", "/run/systemd/system", "/run/systemd/generator", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system")
PROBE_SECONDS = 10.0
RUNNING = ("active", "activating", "reloading")

PROPERTIES = (
    "Id", "LoadState", "FragmentPath", "SourcePath", "DropInPaths", "UnitFileState", "ActiveState", "SubState", "MainPID", "ControlGroup", "Slice", "Type",
    "NeedDaemonReload", "Transient", "ExecStart", "EnvironmentFiles", "TriggeredBy", "RequiredBy", "RequisiteOf", "BoundBy", "ConsistsOf", "UpheldBy",
    "Requires", "Requisite", "BindsTo", "Wants", "PIDFile",
)  # fmt: skip

# Both docker compose and podman-compose write them.
_PROJECT = ("com.docker.compose.project", "io.podman.compose.project")
_PLACES = ("com.docker.compose.project.working_dir", "com.docker.compose.project.config_files")
_COMPOSE = re.compile(r"\b(?:docker|podman)[- ]compose\b.*\b(?:up|start|restart|run|create)\b")


def units_of(engine: str, name: str, identifier: str, folders: t.Sequence[str] = UNIT_FOLDERS) -> list[str]:
    """Names of the units whose commands have the engine's program start or run this container."""
    # A name ends where none of its letters follows, and is no part of a path or of an image's; podman generate systemd writes the ID where it was
    # not asked for names.
    ours = re.compile(r"(?<![\w.:/-])(?:{0}|{1})(?![\w.:/-])".format(re.escape(name), re.escape(identifier)))
    starts = re.compile(r"\b{0}\b(?![- ]compose\b).*\b(?:start|run|restart)\b".format(re.escape(engine)))
    return [unit for unit, text in _texts(folders) if any(starts.search(command) and ours.search(command) for command in _commands(text))]


def of_project(labels: t.Mapping[str, str], folders: t.Sequence[str] = UNIT_FOLDERS) -> list[str]:
    """Names of the units that start the project of compose which a container with these labels is of."""
    project = next((labels[label] for label in _PROJECT if labels.get(label)), "")
    if not project:
        return []
    places = [place.rstrip("/") for label in _PLACES for place in (labels.get(label) or "").split(",") if place.startswith("/")]
    named = r"(?:--project-name[ =]|-p[ =]?|\bCOMPOSE_PROJECT_NAME=)[\"']?{0}(?![\w.-])".format(re.escape(project))
    means = re.compile("|".join([named, *(r"(?<![\w.-]){0}/?(?![\w./-])".format(re.escape(place)) for place in places)]))
    return [unit for unit, text in _texts(folders) if any(map(_COMPOSE.search, _commands(text))) and means.search(text)]


def project_units(runtime: Runtime, labels: t.Mapping[str, str]) -> list[dict[str, t.Any]]:
    """Those that will start the project again: `unit`, and whether it `runs`. One whose command has ended, and that is not enabled, is harmless."""
    states = {name: show(runtime, name) for name in of_project(labels)}
    running = {name: shown.get("ActiveState") in RUNNING and shown.get("SubState") != "exited" for name, shown in states.items()}
    return [{"unit": name, "runs": running[name]} for name, shown in states.items() if running[name] or at_boot(shown)]


def unit_exists(unit: str, folders: t.Iterable[str] = UNIT_FOLDERS) -> bool:
    """Whether systemd has a file for a unit; one of a template counts as its instances do."""
    stem, _dot, kind = unit.rpartition(".")
    template = "{0}@.{1}".format(stem.partition("@")[0], kind)
    return any(os.path.exists(os.path.join(folder, name)) for folder in folders for name in (unit, template))


def show(runtime: Runtime, unit: str) -> dict[str, str]:
    """What systemd says of a unit."""
    systemctl = runtime.tool("systemctl", "systemd")
    return parse(runtime.run([systemctl, "show", "--property=" + ",".join(PROPERTIES), unit], timeout=PROBE_SECONDS).stdout)


def parse(text: str) -> dict[str, str]:
    """The answer of `systemctl show`: a property that is there more than once has all of its values."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, _equals, value = line.partition("=")
        found[name] = found[name] + "\n" + value if name in found else value
    return found


def acting(runtime: Runtime, names: t.Iterable[str]) -> list[str]:
    """Those of these units that systemd runs or will at the next boot."""
    states = {name: show(runtime, name) for name in names}
    return [name for name, shown in states.items() if shown.get("ActiveState") not in ("inactive", "failed", "", None) or at_boot(shown)]


def at_boot(shown: Document) -> bool:
    return (shown.get("UnitFileState") or "").startswith(("enabled", "generated"))


def _texts(folders: t.Sequence[str]) -> t.Iterator[tuple[str, str]]:
    """Each service with its text and that of its drop-ins; of a template, each instance that some unit wants."""
    files = {file: os.path.join(folder, file) for folder in reversed(folders) for file in _listed(folder) if file.endswith(".service")}
    wanted = {link for folder in folders for below in _listed(folder) if below.endswith((".wants", ".requires")) for link in _listed(folder, below)}
    for file in sorted(files):
        stem, at, _suffix = file.partition("@.")
        for unit in sorted(each for each in wanted if each.startswith(stem + "@") and each not in files) if at else [file]:
            names = [name + ".d" for name in dict.fromkeys((file, unit))]
            drop_ins = [os.path.join(folder, name, each) for folder in folders for name in names for each in _listed(folder, name)]
            yield unit, _expanded(unit, "".join(read_text(path) + "\n" for path in (files[file], *drop_ins)))


def _listed(*folder: str) -> list[str]:
    try:
        return sorted(os.listdir(os.path.join(*folder)))
    except OSError:
        return []


def _expanded(unit: str, text: str) -> str:
    """The text with the unit's own names in it, and its long lines whole."""
    stem = unit.rpartition(".")[0]
    prefix, _at, instance = stem.partition("@")
    names = {"%n": unit, "%N": stem, "%p": prefix, "%P": prefix, "%i": instance, "%I": instance}
    return re.sub("|".join(names), lambda match: names[match.group()], text.replace("\\\n", " "))


def _commands(text: str) -> list[str]:
    return re.findall(r"^Exec\w+=(.*)$", text, re.MULTILINE)
