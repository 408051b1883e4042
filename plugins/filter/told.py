# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t


def told(hosts: t.Sequence[str], hostvars: t.Mapping[str, t.Mapping[str, t.Any]], variable: str, default: t.Any = None) -> dict[str, t.Any]:
    """A host's name → its variable. A host that has it not has the default."""
    return {host: hostvars[host].get(variable, default) if host in hostvars else default for host in hosts}


class FilterModule:
    """One variable of many hosts."""

    def filters(self) -> dict[str, t.Callable]:
        """Name → filter."""
        return {"told": told}
