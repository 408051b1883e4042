# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import socket
import struct
import threading
import typing as t
from pathlib import Path

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._ceph.asok import AdminSocket, NoAnswer, Refused


class Daemon:
    """A daemon's end of its admin socket."""

    def __init__(self, path: Path, answers: dict[str, str | None]) -> None:
        self.path = path
        self.answers = answers
        self.requests: list[dict[str, t.Any]] = []
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(str(path))
        self.server.listen()
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self) -> None:
        while True:
            try:
                connection, _address = self.server.accept()
            except OSError:
                return
            with connection:
                raw = b""
                while not raw.endswith(b"\0"):
                    raw += connection.recv(4096)
                self.requests.append(json.loads(raw[:-1]))
                answer = self.answers[self.requests[-1]["prefix"]]
                if answer is not None:
                    connection.sendall(struct.pack(">I", len(answer)) + answer.encode())


@pytest.fixture
def daemon(tmp_path: Path) -> t.Iterator[t.Callable[..., Daemon]]:
    started: list[Daemon] = []

    def start(**answers: str | None) -> Daemon:
        started.append(Daemon(tmp_path / "osd.asok", {key.replace("_", " "): value for key, value in answers.items()}))
        return started[-1]

    yield start
    for each in started:
        each.server.close()


def test_a_command_and_its_answer(daemon) -> None:
    osd = daemon(config_get='{"osd_fast_shutdown": "true"}')
    assert AdminSocket(str(osd.path)).call("config get", var="osd_fast_shutdown") == {"osd_fast_shutdown": "true"}
    assert osd.requests == [{"prefix": "config get", "format": "json", "var": "osd_fast_shutdown"}]


def test_a_long_answer_comes_in_pieces(daemon) -> None:
    osd = daemon(help=json.dumps({f"command {number}": "x" * 1000 for number in range(300)}))
    assert AdminSocket(str(osd.path)).knows("command 299")
    assert not AdminSocket(str(osd.path)).knows("status")


def test_an_answer_that_is_no_json_is_the_daemons_refusal(daemon) -> None:
    osd = daemon(compact="ERROR: (22) Invalid argument\ninvalid command json")
    with pytest.raises(Refused, match="'compact' was answered with: ERROR: .22. Invalid argument"):
        AdminSocket(str(osd.path)).call("compact")


def test_nobody_on_the_other_side(tmp_path: Path) -> None:
    with pytest.raises(NoAnswer, match="osd.asok does not answer .No such file or directory.: is the daemon running?"):
        AdminSocket(str(tmp_path / "osd.asok")).call("version")


def test_a_daemon_that_ends_while_it_answers(daemon) -> None:
    osd = daemon(version=None)
    with pytest.raises(NoAnswer, match="the daemon closed the connection"):
        AdminSocket(str(osd.path)).call("version")
