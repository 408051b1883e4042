# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Settings of a network namespace: those that a container was created with, and those that a host knows."""

from __future__ import annotations

import os
import typing as t

from .workload import asked

# Settings with a folder for each interface: its names depend on the container, and not on the host.
_BY_INTERFACE = ("conf", "neigh")


def named(command: t.Sequence[str]) -> list[str]:
    """The settings of its network namespace that a container was created with, as name=value."""
    return sorted(value for value in asked(command, "sysctl") if value.startswith("net."))


def known(proc: str = "/proc") -> list[str]:
    """The names of a host's settings, by the name that `--sysctl` takes."""
    top = os.path.join(proc, "sys")
    return sorted(
        os.path.relpath(os.path.join(folder, name), top).replace("/", ".")
        for folder, _folders, names in os.walk(os.path.join(top, "net"))
        for name in names
        if not set(_BY_INTERFACE) & set(folder.split("/"))
    )


def missing(settings: t.Iterable[str], names: t.Container[str]) -> list[str]:
    """Those of a container's settings that a host does not know."""
    found = (setting.partition("=")[0] for setting in settings)
    return [name for name in found if not set(_BY_INTERFACE) & set(name.split(".")) and name not in names]
