# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Docker on this host, by its Engine API over its socket.

The twin of a container is made from what the API says of the source's, so this speaks the API itself: the command line has another form, and the SDK
would have to be installed on every host. No version is named in a path: the daemon answers with its newest.
"""

from __future__ import annotations

import http.client
import json
import socket
import typing as t
import urllib.parse

from .._core.runtime import HandoverError, Runtime

SOCKET = "/run/docker.sock"
NOT_FOUND = 404
# Of one question; a container is stopped and an image is carried by the command line, which has limits of its own.
ANSWER_SECONDS = 60.0


class _Connection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Docker:
    """The daemon on this host."""

    def __init__(self, runtime: Runtime, path: str = SOCKET) -> None:
        self.runtime = runtime
        self.path = path

    def get(self, *path: str, **query: str) -> t.Any:
        """The answer to a question; None where there is no such thing."""
        return self._call("GET", path, query, None)

    def post(self, *path: str, body: t.Any = None, **query: str) -> t.Any:
        """Has something made or done."""
        return self._call("POST", path, query, body)

    def delete(self, *path: str, **query: str) -> t.Any:
        """Has something removed; nothing happens where it is gone already."""
        return self._call("DELETE", path, query, None)

    def containers(self) -> list[dict[str, t.Any]]:
        """All containers, whether they run or not."""
        return self.get("containers", "json", all="true") or []

    def inspect(self, container: str) -> dict[str, t.Any] | None:
        """One container in full."""
        return self.get("containers", container, "json")

    def images(self) -> list[dict[str, t.Any]]:
        return self.get("images", "json") or []

    def volumes(self) -> list[dict[str, t.Any]]:
        return (self.get("volumes") or {}).get("Volumes") or []

    def networks(self) -> list[dict[str, t.Any]]:
        """All networks, each with the containers on it that run."""
        return [found for listed in self.get("networks") or [] for found in [self.get("networks", listed["Id"])] if found]

    def _call(self, method: str, path: t.Sequence[str], query: t.Mapping[str, str], body: t.Any) -> t.Any:
        address = "/" + "/".join(urllib.parse.quote(part, safe="") for part in path)
        address += "?" + urllib.parse.urlencode(query) if query else ""
        connection = _Connection(self.path, max(1.0, min(ANSWER_SECONDS, self.runtime.remaining())))
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, address, text, {"Content-Type": "application/json"} if text else {})
            answer = connection.getresponse()
            status, content = answer.status, answer.read()
        except (OSError, http.client.HTTPException) as exc:
            raise HandoverError("Docker does not answer at {0} ({1}): see `systemctl status docker`".format(self.path, exc)) from exc
        finally:
            connection.close()
        return _read(method, address, status, content)


def _read(method: str, address: str, status: int, content: bytes) -> t.Any:
    try:
        document = json.loads(content) if content.strip() else None
    except ValueError as exc:
        raise HandoverError("Docker answered {0} {1} with something that is not JSON: {2}".format(method, address, exc)) from exc
    if status == NOT_FOUND and method != "POST":
        return None
    if status >= 400:
        said = document.get("message") if isinstance(document, dict) else ""
        raise HandoverError("Docker refused {0} {1}: {2}".format(method, address, said or "status {0}".format(status)))
    return document
