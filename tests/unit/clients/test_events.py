# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The reader of events: what it calls a connection that was lost."""

from __future__ import annotations

import socket
import sys
import threading
import typing as t
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "clients"))
from events import Events

HEAD = b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


def served(*parts: bytes) -> Events:
    """A reader of a server that says this, and is gone."""
    door = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        client, _address = door.accept()
        client.recv(4096)
        for part in parts:
            client.sendall(part)
        client.close()
        door.close()

    threading.Thread(target=serve, daemon=True).start()
    reader = Events("127.0.0.1", "/events", door.getsockname()[1])
    reader.thread.join(10)
    return reader


@pytest.mark.parametrize(
    ("parts", "count", "failed"),
    [
        ([b"data: 1\n\ndata: 2\n", b"\n"], 2, "the server closed it after 2 events"),
        ([b"data: 1\n\ndata: 3\n\n"], 1, "b'data: 3\\n' came after event 1"),
        ([b"data: 1\n\ndata: 1\n\n"], 1, "b'data: 1\\n' came after event 1"),
        ([b"data: 1\n\ndata: "], 1, "b'data: ' came after event 1"),
    ],
)
def test_a_connection_that_is_lost(parts: t.Sequence[bytes], count: int, failed: str) -> None:
    reader = served(HEAD, *parts)
    assert (reader.count, reader.failed, reader.goes_on(0.1)) == (count, failed, False)


def test_a_server_that_refuses() -> None:
    with pytest.raises(ConnectionError, match="/events answers 404"):
        served(b"HTTP/1.0 404 Not Found\r\n\r\n")
