# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A relay for one session whose hosts cannot see each other: socat, as a transient systemd unit.

Its traffic is TLS between the two helpers, whose keys it does not have: it can cut the connection, and nothing else.
socat takes each connection in a child of its own and says in its log how that ended; so the log is read before the unit goes.
"""

from __future__ import annotations

import functools
import ipaddress
import re
import socket
import typing as t
from dataclasses import dataclass

from .._core.runtime import HandoverError, Runtime
from .._core.transient_unit import begin

# Another program may take the port between the look and the grip.
ATTEMPTS = 5
# A helper makes up to 16 connections, and again as many when they break.
CHILDREN = 40
BUFFER = 1 << 18
# One side may have said all it has to while the other still answers.
HALF_CLOSED_SECONDS = 30
# In which one that has begun listens.
READY_SECONDS = 10
KEEPALIVE = "nodelay,keepalive,keepidle=10,keepintvl=5,keepcnt=4"
# Nothing on the host is needed but two sockets.
SANDBOX = (
    "DynamicUser=yes",
    "CapabilityBoundingSet=",
    "AmbientCapabilities=",
    "NoNewPrivileges=yes",
    "ProtectSystem=strict",
    "ProtectHome=yes",
    "PrivateDevices=yes",
    "RestrictAddressFamilies=AF_INET AF_INET6",
    "SystemCallFilter=@system-service",
    "MemoryMax=256M",
    "LimitCORE=0",
)
# `2026/11/21 16:44:57 socat[11050] E connect(5, AF=2 10.1.0.12:40123, 16): Connection refused`: of a child, before it ends with status 1.
_NOT_WELL = re.compile(r"socat\[\d+\] [WEF] (?!exiting on signal 15$)(.+)$")


@dataclass(frozen=True)
class Endpoint:
    """An address and a port."""

    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    port: int

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """`10.0.0.2:4711` or `[fd00::2]:4711`."""
        host, _colon, port = text.rpartition(":")
        try:
            found = cls(ipaddress.ip_address(host.strip("[]")), int(port))
        except ValueError as exc:
            raise HandoverError("'{0}' is not IP:PORT, as in 10.0.0.2:4711 or [fd00::2]:4711".format(text)) from exc
        if not 0 < found.port < 65536:
            raise HandoverError("'{0}' names a port that there is not".format(text))
        return found

    @property
    def host(self) -> str:
        return "[{0}]".format(self.address) if self.address.version == 6 else str(self.address)

    def __str__(self) -> str:
        return "{0}:{1}".format(self.host, self.port)


def parse_address(text: str, what: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        return ipaddress.ip_address(text)
    except ValueError as exc:
        raise HandoverError("{0}: '{1}' is not an IP address".format(what, text)) from exc


def socat_argv(socat: str, here: Endpoint, there: Endpoint, allow: str) -> list[str]:
    """The relay's command. Nothing in it is secret."""
    listen = "TCP{0}-LISTEN:{1},bind={2},reuseaddr,fork,max-children={3},{4}".format(here.address.version, here.port, here.host, CHILDREN, KEEPALIVE)
    if allow:
        only = parse_address(allow, "allow")
        # socat writes a range of IPv6 in brackets.
        listen += ",range={0}".format("[{0}]/128".format(only) if only.version == 6 else "{0}/32".format(only))
    connect = "TCP{0}:{1}:{2},connect-timeout=10,{3}".format(there.address.version, there.host, there.port, KEEPALIVE)
    return [socat, "-d", "-b", str(BUFFER), "-t", str(HALF_CLOSED_SECONDS), listen, connect]


def failures(log: str) -> list[str]:
    """The reasons in a relay's log of connections that failed, each once."""
    said = (_NOT_WELL.search(line.strip()) for line in log.splitlines())
    return list(dict.fromkeys(found.group(1).strip() for found in said if found))


@dataclass(frozen=True)
class Relay:
    """The relay of one session on this host."""

    runtime: Runtime
    session: str

    @property
    def unit(self) -> str:
        return "handover-{0}-relay.service".format(self.session)

    def _systemctl(self, *words: str, accept: t.Container[int] = (0,)) -> str:
        return self.runtime.run([self.runtime.tool("systemctl", "systemd"), *words], accept=accept).stdout

    def shown(self) -> dict[str, str]:
        """systemd's facts about the unit."""
        text = self._systemctl("show", "--property=LoadState,ActiveState,SubState,Result,NRestarts,ExecMainStatus,Description", self.unit)
        return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)

    def address(self) -> str | None:
        """Where it listens, if it runs: its description says so."""
        shown = self.shown()
        found = re.search(r"\((\S+) to (\S+)\)$", shown.get("Description", ""))
        return found.group(1) if found and shown.get("ActiveState") in ("active", "activating") else None

    def check(self, bind: str, to: str, allow: str) -> None:
        """Whether it could be started; it raises the reason why not."""
        for tool, package in (("socat", "socat"), ("systemd-run", "systemd"), ("ss", "iproute2")):
            self.runtime.tool(tool, package)
        socat_argv("socat", Endpoint(parse_address(bind, "listen"), free_port(bind)), Endpoint.parse(to), allow)

    def start(self, bind: str, to: str, allow: str, lifetime: int) -> str:
        """Starts it and waits until it listens; the address at which it does."""
        socat = self.runtime.tool("socat", "socat")
        there = Endpoint.parse(to)
        for attempt in range(ATTEMPTS):
            here = Endpoint(parse_address(bind, "listen"), free_port(bind))
            self._run(socat_argv(socat, here, there, allow), here, there, lifetime)
            if self.runtime.wait_for(functools.partial(self._listens, here), READY_SECONDS):
                return str(here)
            self.stop()
            reasons = failures(self.log())
            if attempt + 1 == ATTEMPTS or not any("in use" in reason for reason in reasons):
                raise HandoverError("{0} did not start: {1}".format(self.unit, "; ".join(reasons) or "socat said nothing"))
        raise AssertionError("unreachable")

    def _run(self, argv: t.Sequence[str], here: Endpoint, there: Endpoint, lifetime: int) -> None:
        begin(
            self.runtime,
            self.unit,
            [
                "--description=Handover session {0}, relay ({1} to {2})".format(self.session, here, there),
                "--property=Type=exec",
                "--property=Restart=on-failure",
                "--property=RestartSec=1",
                # However the controller fares: it does not stay.
                "--property=RuntimeMaxSec={0}".format(lifetime),
                *("--property=" + line for line in SANDBOX),
                "--",
                *argv,
            ],
        )

    def _listens(self, here: Endpoint) -> bool:
        """Whether the unit runs and the port is taken: nothing connects, since a connection would be one to the destination."""
        if self.shown().get("SubState") != "running":
            return False
        ss = self.runtime.tool("ss", "iproute2")
        listening = self.runtime.run([ss, "--no-header", "--listening", "--tcp", "--numeric", "sport = :{0}".format(here.port)]).stdout
        return any(str(here) in line.split() for line in listening.splitlines())

    def log(self) -> str:
        """socat's output, as far as there is a journal."""
        journalctl = self.runtime.find("journalctl")
        if journalctl is None:
            return ""
        said = self.runtime.run([journalctl, "--quiet", "--no-pager", "--output=cat", "--lines=200", "--unit=" + self.unit], accept=range(256))
        return said.stdout

    def stop(self) -> None:
        """Ends it, and lets systemd forget how."""
        self._systemctl("stop", self.unit, accept=(0, 5))
        self._systemctl("reset-failed", self.unit, accept=(0, 1))


def free_port(address: str) -> int:
    """A free port of this address."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError as exc:
            raise HandoverError("listen: {0} is no address of this host ({1}): name one of its own".format(address, exc.strerror)) from exc
        return probe.getsockname()[1]
