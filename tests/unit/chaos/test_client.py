# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import socket
import sys
import threading
import time
import typing as t
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TESTS / "chaos"), str(TESTS / "faults")]
import client


@pytest.fixture
def workload(monkeypatch: pytest.MonkeyPatch) -> t.Iterator[t.Callable[[list[bytes]], client.Client]]:
    """A client of a workload that answers so, and then closes the connection."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        monkeypatch.setattr(client, "PORT", door.getsockname()[1])

        def serve(answers: list[bytes]) -> None:
            connection, _address = door.accept()
            with connection:
                for answer in answers:
                    connection.recv(2)
                    connection.sendall(answer)

        def begin(answers: list[bytes]) -> client.Client:
            threading.Thread(target=serve, args=(answers,), daemon=True).start()
            return client.Client("127.0.0.1", patience=5)

        yield begin


def ended(asking: client.Client) -> str:
    end = time.monotonic() + 5
    while not asking.broken and time.monotonic() < end:
        time.sleep(0.01)
    return asking.broken


def test_it_keeps_what_was_acknowledged(workload):
    asking = workload([b"3\n", b"9\n"])
    assert ended(asking) and asking.acknowledged == 9
    assert not asking.answers()


@pytest.mark.parametrize("second", (b"3\n", b"2\n"))
def test_a_number_that_comes_twice_is_seen(workload, second: bytes):
    assert "was acknowledged after 3" in ended(workload([b"3\n", second]))


def test_its_own_end_is_no_fault(workload):
    asking = workload([b"1\n"])
    asking.end()
    assert not asking.broken
