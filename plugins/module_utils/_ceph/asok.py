# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A Ceph daemon's admin socket, spoken to directly: `ceph daemon` costs a third of a second of Python each time.

A request is one JSON object and a zero byte; the answer is its length, four bytes in network order, and the text.
"""

from __future__ import annotations

import json
import socket
import struct
import typing as t
from dataclasses import dataclass

from .._core.runtime import HandoverError


class NoAnswer(HandoverError):
    """No process answers on the socket: the daemon does not run, or only begins to."""


class Refused(HandoverError):
    """The daemon answered that it will not or cannot."""


@dataclass(frozen=True)
class AdminSocket:
    """The socket of one daemon."""

    path: str
    timeout: float = 10.0

    def call(self, prefix: str, **arguments: t.Any) -> t.Any:
        """The answer to one command."""
        text = self._exchange(json.dumps({"prefix": prefix, "format": "json", **arguments}).encode() + b"\0")
        try:
            return json.loads(text) if text.strip() else None
        except ValueError as exc:
            raise Refused(f"{self.path}: '{prefix}' was answered with: {text.strip()[:200]}") from exc

    def knows(self, prefix: str) -> bool:
        """Whether the daemon has this command; while it starts, it has not all of them, and complains in its log of unknown ones."""
        return prefix in (self.call("help") or {})

    def _exchange(self, request: bytes) -> str:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(self.timeout)
                connection.connect(self.path)
                connection.sendall(request)
                (length,) = struct.unpack(">I", _read(connection, 4))
                return _read(connection, length).decode("utf-8", "replace")
        except OSError as exc:
            raise NoAnswer(f"{self.path} does not answer ({exc.strerror or exc}): is the daemon running?") from exc


def _read(connection: socket.socket, length: int) -> bytes:
    parts = []
    while length:
        part = connection.recv(min(length, 1 << 16))
        if not part:
            raise OSError("the daemon closed the connection")
        parts.append(part)
        length -= len(part)
    return b"".join(parts)
