# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a container has made in its network namespace by itself.

Addresses, routes, rules for routes and tables of nftables go along: the helper makes them again. What else there can be is found here, and
nobody makes it on the other host.
"""

from __future__ import annotations

import re
import typing as t

from .._core.host import read_text
from .._core.runtime import HandoverError, Runtime

Documents = t.Sequence[t.Mapping[str, t.Any]]

PROBE_SECONDS = 10.0
# The helper's, and CRIU's own lock, which bears the ID of the dump from CRIU 4.2 on.
_OUR_TABLES = re.compile(r"(?:handover|CRIU(?:-.*)?)$")
# A discipline that somebody has chosen has a number.
_BY_DEFAULT = "0:"


class OwnNetwork:
    """One namespace, by a process in it."""

    def __init__(self, runtime: Runtime, pid: int, proc: str = "/proc") -> None:
        self.runtime = runtime
        self.proc = "{0}/{1}".format(proc, pid)
        self.enter = [runtime.tool("nsenter", "util-linux"), "--net={0}/ns/net".format(self.proc)]
        self.ip = runtime.tool("ip", "iproute2")
        self.tc = runtime.find("tc")

    def left_behind(self, interfaces: t.Collection[str]) -> list[str]:
        """All that would be missing on the other host, in words. Without the names of its interfaces these are not looked at."""
        links = self._ask(self.ip, "-json", "link")
        known = set(interfaces) or {link.get("ifname", "") for link in links}
        return [
            *foreign_links(links, known),
            *neighbours(self._ask(self.ip, "-json", "neigh", "show", "nud", "permanent")),
            *disciplines(self._ask(self.tc, "-json", "qdisc", "show") if self.tc else []),
            *["the next hop {0}".format(hop.get("id")) for hop in self._ask(self.ip, "-json", "nexthop")],
            *ipsec(self._say(self.ip, "xfrm", "state"), self._say(self.ip, "xfrm", "policy")),
            *by_iptables(self.tables()[1]),
            *legacy(read_text(self.proc + "/net/ip_tables_names"), read_text(self.proc + "/net/ip6_tables_names")),
        ]

    def mtus(self) -> dict[str, int]:
        """The MTU of each interface but the loopback, which goes along."""
        return {link.get("ifname", ""): link.get("mtu", 0) for link in self._ask(self.ip, "-json", "link") if link.get("ifname") != "lo"}

    def mtus_by_address(self) -> dict[str, tuple[str, int]]:
        """The interface and the MTU of each address but the loopback's."""
        links = [link for link in self._ask(self.ip, "-json", "address") if link.get("ifname") != "lo"]
        return {each.get("local", ""): (link.get("ifname", ""), link.get("mtu", 0)) for link in links for each in link.get("addr_info") or []}

    def tables(self) -> tuple[list[str], str]:
        """The tables of nftables that are its own, and what nft warns of."""
        nft = self.runtime.find("nft")
        if not nft:
            return [], ""
        listed = self.runtime.run([*self.enter, nft, "list", "ruleset"], timeout=PROBE_SECONDS)
        found = re.findall(r"^table (\S+ (\S+)) \{", listed.stdout, re.MULTILINE)
        return [table for table, name in found if not _OUR_TABLES.match(name)], listed.stdout + listed.stderr

    def _ask(self, *words: str) -> Documents:
        return self.runtime.run_json([*self.enter, *words]) or []

    def _say(self, *words: str) -> str:
        try:
            return self.runtime.run([*self.enter, *words], timeout=PROBE_SECONDS).stdout
        except HandoverError:  # a kernel without IPsec
            return ""


def foreign_links(links: Documents, known: t.Container[str]) -> list[str]:
    names = [link.get("ifname", "") for link in links]
    return ["the interface {0}".format(name) for name in names if name != "lo" and name not in known]


def neighbours(listed: Documents) -> list[str]:
    return ["the neighbour {0} on {1}".format(each.get("dst"), each.get("dev")) for each in listed]


def disciplines(listed: Documents) -> list[str]:
    return [
        "the queueing discipline {0} on {1}".format(each.get("kind"), each.get("dev"))
        for each in listed
        if each.get("handle", _BY_DEFAULT) != _BY_DEFAULT
    ]


def ipsec(state: str, policy: str) -> list[str]:
    return ["IPsec's {0}".format(name) for name, text in (("keys", state), ("policies", policy)) if text.strip()]


def by_iptables(said: str) -> list[str]:
    """Tables that nft says to be kept by iptables, in words that nft cannot read."""
    return ["the table {0} of iptables".format(table) for table in sorted(set(re.findall(r"table (\S+ \S+) is managed by iptables", said)))]


def legacy(*names: str) -> list[str]:
    """Tables of the older kind of iptables that were used in the namespace."""
    return ["the table {0} of iptables-legacy".format(name) for name in sorted({name for text in names for name in text.split()})]
