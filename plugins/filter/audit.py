# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

Seen = t.Mapping[str, t.Optional[t.Mapping[str, t.Any]]]


def audit_hosts(seen: Seen) -> list[str]:
    """The hosts that have answered."""
    return sorted(host for host, answer in seen.items() if (answer or {}).get("guests") is not None)


def audit_rows(seen: Seen) -> list[dict[str, t.Any]]:
    """A row a disk, of all guests of these hosts."""
    return [_row(host, guest, disk) for host in audit_hosts(seen) for guest in (seen[host] or {})["guests"] for disk in guest["disks"]]


def _row(host: str, guest: t.Mapping[str, t.Any], disk: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    return {
        "host": host,
        "guest": guest["name"],
        "state": guest["state"],
        "disk": disk["target"],
        "source": disk["source"],
        "bus": disk["bus"],
        "format": disk["format"],
        "cache": disk["cache"] + ("" if disk["cache_set"] else " (default)"),
        "io": disk["io"],
        "discard": disk["discard"],
        "shared": disk["shared"],
        "flushes": guest["flushes"]["verdict"],
        "flushes_why": guest["flushes"]["reason"],
        "power_loss": disk["power_loss"]["verdict"],
        "power_loss_why": disk["power_loss"]["reason"],
        "live_migration": disk["live_migration"]["verdict"],
        "live_migration_why": disk["live_migration"]["reason"],
        "faster": disk["faster"]["mode"],
        "faster_why": disk["faster"]["reason"],
    }


class FilterModule:
    """The audit of guests' disks."""

    def filters(self) -> dict[str, t.Callable]:
        """Name → filter."""
        return {"audit_hosts": audit_hosts, "audit_rows": audit_rows}
