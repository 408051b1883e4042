# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host tells of the addresses that may leave it with a workload, or come to it."""

from __future__ import annotations

import ipaddress
import os
import re
import typing as t

from .host import read_text

# Where a host is told the addresses that it has after each boot. keepalived moves its own by itself.
CONFIGURATION = (
    "/etc/network/interfaces", "/etc/network/interfaces.d", "/etc/systemd/network", "/etc/NetworkManager/system-connections", "/etc/netplan",
    "/etc/sysconfig/network-scripts", "/etc/keepalived",
)  # fmt: skip
_LITERAL = re.compile(r"(?<![0-9A-Za-z:.])(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9A-Fa-f]*:[0-9A-Fa-f:.]*)(?![0-9A-Za-z:])")
_COMMENT = re.compile(r"^\s*[#;!].*$", re.MULTILINE)


def configured(places: t.Iterable[str] = CONFIGURATION) -> dict[str, str]:
    """The addresses in the host's own network configuration, each with the first file that has it."""
    found: dict[str, str] = {}
    for place in places:
        for path in _files(place):
            for text in _LITERAL.findall(_COMMENT.sub("", read_text(path))):
                try:
                    found.setdefault(str(ipaddress.ip_address(text)), path)
                except ValueError:
                    continue
    return found


def _files(place: str) -> list[str]:
    if not os.path.isdir(place):
        return [place] if os.path.exists(place) else []
    return sorted(path for path in (os.path.join(folder, name) for folder, _below, names in os.walk(place) for name in names) if os.path.isfile(path))


def binds_anywhere(proc: str = "/proc") -> dict[str, bool]:
    """Whether a program may bind to an address that the host does not have, by the version of IP. podman does so for a port that it publishes."""
    return {version: read_text(os.path.join(proc, "sys/net", name, "ip_nonlocal_bind")).strip() == "1" for version, name in (("4", "ipv4"), ("6", "ipv6"))}


def takes_over(proc: str = "/proc") -> bool:
    """Whether a bridge of this host lets the connections pass of which the host has not seen the beginning. One that tracks none does."""
    tracked = any(read_text(os.path.join(proc, "sys/net/bridge", "bridge-nf-call-" + table)).strip() == "1" for table in ("iptables", "ip6tables"))
    return not tracked or read_text(os.path.join(proc, "sys/net/netfilter/nf_conntrack_tcp_loose")).strip() != "0"


def peers(established: t.Iterable[tuple[str, int, str]]) -> list[dict[str, t.Any]]:
    """Established connections, those of one peer to one port as one."""
    found: dict[tuple[str, int, str], int] = {}
    for each in established:
        found[each] = found.get(each, 0) + 1
    return [{"address": address, "port": port, "peer": peer, "count": count} for (address, port, peer), count in sorted(found.items())]
