# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action scripts (CTID.mount and the like): the bind mounts that they make, and nothing else of them, can be had by other means.

A mount script that does nothing but bind mounts is understood. Any other line may do anything, and is named.
"""

from __future__ import annotations

import posixpath
import re
import shlex
import typing as t

# Lines that every such script has: they find the container's root, and do nothing with it.
_IDLE = re.compile(
    r"""\s*(?:\#.*|set\ -e|exit\ 0|(?:\.|source)\s+/etc/(?:sysconfig/)?vz(?:/vz\.conf)?|(?:\.|source)\s+["']?\$\{?VE_CONFFILE\}?["']?|:)?\s*$""", re.VERBOSE
)
# The gate of this collection's own driver: podman's start hook takes its place.
GATE = "/usr/local/libexec/handover/openvz/premount"
_ROOT = re.compile(r"^\$\{?(?:VE_ROOT|ROOT)\}?/")
_SET = re.compile(r"\s*([A-Za-z_]\w*)=([^\s;|&`$]*|\"[^`\"$]*\")\s*$")
_FLAGS = frozenset(("-n", "--bind"))


def bind_mounts(text: str) -> tuple[list[str], list[str]]:
    """The mounts as `source:place[:ro]`, and the lines that are not understood."""
    mounts: list[str] = []
    strange: list[str] = []
    variables: dict[str, str] = {}
    for line in text.splitlines():
        if _IDLE.match(line) or asks_the_helper(line):
            continue
        assigned = _SET.match(line)
        if assigned and assigned.group(1) not in ("VE_ROOT", "ROOT"):
            variables[assigned.group(1)] = assigned.group(2).strip('"')
            continue
        found = _mount(line, variables)
        if found:
            mounts.append(found)
        else:
            strange.append(line.strip())
    return mounts, strange


def _mount(line: str, variables: t.Mapping[str, str]) -> str:
    """`mount -n --bind SOURCE ${VE_ROOT}/PLACE`, or with `-o bind`; empty for any other line."""
    for name, value in variables.items():
        line = line.replace("${" + name + "}", value) if name not in ("VE_ROOT", "ROOT") else line
        line = re.sub(r"\$" + name + r"\b", value.replace("\\", r"\\"), line) if name not in ("VE_ROOT", "ROOT") else line
    try:
        words = shlex.split(line)
    except ValueError:
        return ""
    if not words or posixpath.basename(words[0]) != "mount":
        return ""
    options: list[str] = []
    places: list[str] = []
    rest = iter(words[1:])
    for word in rest:
        if word in ("-o", "--options"):
            options += next(rest, "").split(",")
        elif word == "--bind":
            options.append("bind")
        elif word.startswith("-") and word not in _FLAGS:
            return ""
        elif word not in _FLAGS:
            places.append(word)
    read_only = "ro" in options
    if len(places) != 2 or "bind" not in options or set(options) - {"bind", "ro", "rw", "noatime", "nosuid", "nodev", "noexec"}:
        return ""
    source, place = places[0], _ROOT.sub("/", places[1])
    if not _ROOT.match(places[1]) or not source.startswith("/") or re.search(r"[`$:;|&<>]", source + place):
        return ""
    return f"{source}:{place}" + (":ro" if read_only else "")


def asks_the_helper(line: str, gate: str = GATE) -> bool:
    """Whether the line ends the script where the helper says no."""
    return line.strip() in (f"exec {gate}", f"{gate} || exit 1")


def unknown_lines(text: str, name: str) -> list[str]:
    """The lines of another script that are not understood: after an unmount script, podman has unmounted already."""
    done = re.compile(r"\s*(?:/bin/)?umount\s+(?:-[nlf]+\s+)?[\"']?\$\{?(?:VE_ROOT|ROOT)\}?/[^;|&`$]*$") if name.endswith("umount") else None
    return [line.strip() for line in text.splitlines() if not _IDLE.match(line) and not (done and done.match(line))]
