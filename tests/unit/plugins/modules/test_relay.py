# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import runtime
from ansible_collections.livefleet.handover.plugins.module_utils._podman import relay as _relay
from ansible_collections.livefleet.handover.plugins.modules import relay

REFUSED = "2026/11/21 16:44:57 socat[11050] E connect(5, AF=2 10.1.0.12:40123, 16): Connection refused"


class Host:
    """systemd, ss and the journal of a relay's host."""

    def __init__(self) -> None:
        self.commands: list[str] = []
        self.description = ""
        self.log = ""
        self.fails = 0

    def run(self, argv, accept=(0,), stdin=None, timeout=None):
        argv = [str(word) for word in argv]
        tool = os.path.basename(argv[0])
        out = ""
        if tool == "systemd-run":
            self.commands.append(" ".join(argv))
            if self.fails:
                self.fails -= 1
                self.log = "2026/11/21 16:44:58 socat[11130] E bind(5, {AF=2 10.0.0.9:1}, 16): Address already in use"
            else:
                self.description = next(word.split("=", 1)[1] for word in argv if word.startswith("--description="))
        elif tool == "systemctl" and argv[1] == "show":
            state = "active" if self.description else "inactive"
            out = f"LoadState={'loaded' if self.description else 'not-found'}\nActiveState={state}\nSubState={'running' if self.description else 'dead'}\n"
            out += f"NRestarts=0\nDescription={self.description}\n"
        elif tool == "systemctl":
            self.commands.append(" ".join(["systemctl", *argv[1:]]))
            self.description = "" if argv[1] == "stop" else self.description
        elif tool == "ss":
            port = argv[-1].rpartition(":")[2]
            out = f"LISTEN 0 5 127.0.0.1:{port} 0.0.0.0:*\n"
        elif tool == "journalctl":
            out = self.log
        return runtime.Completed(tuple(argv), 0, out, "")


@pytest.fixture
def host(monkeypatch):
    fake = Host()
    monkeypatch.setattr(runtime.Runtime, "run", fake.run)
    monkeypatch.setattr(runtime.Runtime, "find", lambda self, tool: "/usr/bin/" + tool)
    return fake


@pytest.fixture
def module(run_module, host):
    def run(state="started", check=False, **params):
        if state == "started":
            params = {"to": "10.1.0.12:40123", "listen": "127.0.0.1", **params}
        return run_module(relay.main, {"session": "shop-1", "state": state, **params}, check=check)

    return run


def test_it_runs_without_rights_for_a_while(host, module):
    result = module(lifetime=900, allow="10.0.0.7")
    assert result["changed"] and re.match(r"127\.0\.0\.1:\d+$", result["address"])
    (started,) = [command for command in host.commands if "systemd-run" in command]
    confined = ("DynamicUser=yes", "CapabilityBoundingSet= ", "NoNewPrivileges=yes")
    for word in ("--unit=handover-shop-1-relay.service", "RuntimeMaxSec=900", "Restart=on-failure", *confined):
        assert word in started
    assert "range=10.0.0.7/32" in started and started.endswith("TCP4:10.1.0.12:40123,connect-timeout=10,nodelay,keepalive,keepidle=10,keepintvl=5,keepcnt=4")


def test_one_that_runs_is_left_alone(host, module):
    first = module()
    host.commands.clear()
    second = module()
    assert not second["changed"] and second["address"] == first["address"] and host.commands == []


def test_a_port_that_was_taken_meanwhile(host, module, monkeypatch):
    monkeypatch.setattr(_relay, "READY_SECONDS", 0)
    host.fails = 2
    assert module()["changed"]
    assert len([command for command in host.commands if "systemd-run" in command]) == 3


def test_one_that_cannot_start_says_why(host, module, monkeypatch):
    monkeypatch.setattr(runtime.Runtime, "wait_for", lambda *_arguments: False)
    host.log = REFUSED
    with pytest.raises(Exception, match="did not start: connect.*Connection refused"):
        module()
    assert not host.description


def test_gone_afterwards_and_how_its_connections_ended(host, module):
    module()
    host.log = "Started the relay\n" + REFUSED + "\n" + REFUSED.replace("11050", "11060")
    ended = module("absent")
    assert ended["changed"] and ended["failures"] == ["connect(5, AF=2 10.1.0.12:40123, 16): Connection refused"]
    assert host.commands[-2:] == ["systemctl stop handover-shop-1-relay.service", "systemctl reset-failed handover-shop-1-relay.service"]
    assert not module("absent")["changed"]


def test_check_mode_starts_nothing(host, module):
    assert module(check=True)["changed"] and host.commands == []


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"to": "10.1.0.12"}, "is not IP:PORT"),
        ({"to": "10.1.0.12:99999"}, "a port that there is not"),
        ({"to": "db.example:4711"}, "is not IP:PORT"),
        ({"listen": "gateway"}, "listen: 'gateway' is not an IP address"),
        ({"listen": "192.0.2.77"}, "listen: 192.0.2.77 is no address of this host"),
        ({"allow": "10.0.0.0/8,fork"}, "allow: '10.0.0.0/8,fork' is not an IP address"),
        ({"session": "../x"}, "is not a session's name"),
        ({"lifetime_seconds": 0}, "lifetime_seconds: 0 is no time"),
        ({"lifetime": 0}, "lifetime_seconds: 0 is no time"),
    ],
)
@pytest.mark.parametrize("check", [True, False])
def test_bad_input(host, module, params, sentence, check):
    with pytest.raises(Exception, match=sentence):
        module(check=check, **params)
    assert not any("systemd-run" in command for command in host.commands)


def test_ipv6_is_written_as_socat_reads_it():
    argv = _relay.socat_argv("socat", _relay.Endpoint.parse("[fd00::9]:4000"), _relay.Endpoint.parse("[fd00::12]:4711"), "fd00::7")
    assert argv[-2].startswith("TCP6-LISTEN:4000,bind=[fd00::9],") and argv[-2].endswith("range=[fd00::7]/128")
    assert argv[-1].startswith("TCP6:[fd00::12]:4711,")


@pytest.mark.skipif(shutil.which("socat") is None, reason="needs socat")
class TestSocat:
    """The real socat, with the arguments that the unit has."""

    @staticmethod
    def relayed(to, allow=""):
        here = _relay.Endpoint(_relay.parse_address("127.0.0.1", "listen"), _relay.free_port("127.0.0.1"))
        argv = _relay.socat_argv("socat", here, _relay.Endpoint.parse(to), allow)
        process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, start_new_session=True)
        for _attempt in range(200):
            try:
                return process, socket.create_connection(("127.0.0.1", here.port), timeout=10)
            except ConnectionRefusedError:
                time.sleep(0.02)
        raise AssertionError("socat does not listen")

    @staticmethod
    def ended(process):
        os.killpg(process.pid, signal.SIGTERM)
        return process.communicate(timeout=10)[1]

    def test_both_ways_and_half_closed(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            process, near = self.relayed("127.0.0.1:{0}".format(server.getsockname()[1]))
            far, _address = server.accept()
            echo = threading.Thread(target=lambda: far.sendall(b"".join(iter(lambda: far.recv(65536), b""))))
            echo.start()
            sent = os.urandom(3_000_000)
            near.sendall(sent)
            near.shutdown(socket.SHUT_WR)
            time.sleep(1)  # longer than socat waits by itself
            got = b""
            while len(got) < len(sent):
                part = near.recv(65536)
                assert part
                got += part
            assert got == sent
            echo.join()
            far.close()
        assert _relay.failures(self.ended(process)) == []

    def test_a_destination_that_is_not_there_is_told(self):
        process, near = self.relayed("127.0.0.1:{0}".format(_relay.free_port("127.0.0.1")))
        assert near.recv(1) == b""
        (reason,) = _relay.failures(self.ended(process))
        assert "Connection refused" in reason

    def test_others_are_not_let_in(self):
        process, near = self.relayed("127.0.0.1:1", allow="192.0.2.1")
        assert near.recv(1) == b""
        assert any("refus" in reason for reason in _relay.failures(self.ended(process)))
