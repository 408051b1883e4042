# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A container that its unit runs goes back to a snapshot: systemd and podman are made up, the unit's files are real."""

from __future__ import annotations

import os
import signal
import subprocess
import types

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import HandoverError
from ansible_collections.livefleet.handover.plugins.module_utils._podman import service_guard as guard_of, service_move, service_notify
from ansible_collections.livefleet.handover.plugins.module_utils._podman.copies import unit_return

ID = "3" * 64
GROUP = "/system.slice/shop.service"


class Host:
    """It notes each command with what the unit is made to do at that moment, and whether conmon lives."""

    def __init__(self, root):
        self.drop_in = root / "run/shop.service.d" / unit_return.ADDED
        self.noted = []
        self.running = True
        self.ends = True
        self.takes_drop_ins = True
        self.stands_in = 0
        self.main = "7"
        self.conmon = subprocess.Popen(["sh", "-c", "sleep 60; :", "conmon", "-c", ID])
        self.config = root / "config.json"
        self.config.write_text('{"linux": {}}')

    def tool(self, name, _package):
        return "/usr/bin/" + name

    def wait_for(self, condition, _seconds):
        return condition()

    def unit(self):
        """What the unit does when it is asked to."""
        text = self.drop_in.read_text() if self.drop_in.exists() else ""
        return "awaits" if "sleep infinity" in text else "keeps" if text else "acts"

    def lives(self):
        return self.conmon.poll() is None

    def run(self, argv, accept=(0,), timeout=None):
        words = [os.path.basename(argv[0]), *argv[1:]]
        out = ""
        if words[1] == "show":
            state = {"MainPID": self.main, "ControlGroup": GROUP, "ActiveState": "active"}
            state["DropInPaths"] = str(self.drop_in) if self.drop_in.exists() and self.takes_drop_ins else ""
            out = "".join("{0}={1}\n".format(*row) for row in state.items())
        else:
            self.noted.append((" ".join(words[1:]), self.unit()))
        if words[:2] == ["podman", "stop"]:
            if self.unit() != "acts":
                self.conmon.wait(10)  # the signal has been sent, or the test hangs on a process that nothing ended
            self.running = not self.ends
        if words[1:3] == ["start", "--no-block"]:
            self.stands_in = 4711
        return types.SimpleNamespace(stdout=out, rc=0)


@pytest.fixture
def host(tmp_path, monkeypatch):
    monkeypatch.setattr(guard_of, "PASSING", str(tmp_path / "run"))
    made = Host(tmp_path)
    monkeypatch.setattr(
        unit_return.Unit, "__init__",
        lambda self, runtime, service, check=False: self.__dict__.update(
            runtime=runtime, service=service, name=service["unit"], check=check, reasons=[],
            podman=types.SimpleNamespace(
                path="/usr/bin/podman", run=lambda *words: made.run(["/usr/bin/podman", *words]),
                inspect=lambda _name: {"Id": ID, "OCIConfigPath": str(made.config), "State": {"Running": made.running, "ConmonPid": made.conmon.pid}},
            ),
        ),
    )  # fmt: skip
    monkeypatch.setattr(unit_return.UnitReturn, "_stands_in", lambda self: made.stands_in)
    monkeypatch.setattr(unit_return.UnitReturn, "_end", lambda self, pid: made.noted.append(("end {0}".format(pid), made.unit())))

    def main_process(cgroup, pid):
        made.noted.append(("{0} is {1}".format(cgroup, "conmon" if pid == made.conmon.pid else pid), made.unit()))
        made.main = str(pid)

    monkeypatch.setattr(service_move.service_notify, "main_process", main_process)
    assert service_notify.main_process is main_process
    yield made
    made.conmon.kill()
    made.conmon.wait()


def unit(host, **more):
    service = {"unit": "shop.service", "made_by_unit": True, "active": True, "split": True, "cidfile": ""}
    return unit_return.unit_of(host, {"service": {**service, **more}}, "shop")


@pytest.mark.parametrize(("kill", "word"), [(True, "stop --time=0 shop"), (False, "stop shop")])
def test_it_ends_without_its_unit_and_is_there_still(host, kill, word):
    unit(host).end("shop", kill)
    assert host.conmon.wait(10) == -signal.SIGKILL, "podman's process beside it removes a container that its unit made"
    assert host.noted == [("daemon-reload", "keeps"), (word, "keeps"), ("container cleanup shop", "keeps")]
    kept = host.drop_in.read_text().splitlines()
    assert {"Restart=no", "ExecStop=", "ExecStopPost=", "KillMode=none"} <= set(kept)


def test_a_process_with_another_word_is_not_ended(host, monkeypatch):
    monkeypatch.setattr(unit_return, "open", lambda path, mode: open(os.devnull, mode), raising=False)
    ended = []
    with monkeypatch.context() as patch:
        patch.setattr(unit_return.os, "kill", lambda pid, _signal: ended.append(pid))
        unit_return._end_beside({"Id": ID, "State": {"ConmonPid": host.conmon.pid}})
    assert ended == []


def test_one_that_only_its_unit_starts_keeps_podmans_process(host, monkeypatch):
    monkeypatch.setattr(host.conmon, "wait", lambda _seconds=None: None)
    unit(host, made_by_unit=False).end("shop", kill=True)
    assert host.lives()
    monkeypatch.undo()


def test_nothing_is_ended_while_the_unit_would_act(host):
    host.takes_drop_ins = False
    with pytest.raises(HandoverError, match="systemd does not take .*rollback.conf for a part of shop.service"):
        unit(host).end("shop", kill=True)
    assert host.lives() and host.noted == [("daemon-reload", "keeps")]


def test_one_that_does_not_end(host):
    host.ends = False
    with pytest.raises(HandoverError, match="shop has not ended within 60 s"):
        unit(host).end("shop", kill=True)


def test_the_restored_one_becomes_its_units(host):
    unit(host).hand_over("shop", lambda cgroup: host.noted.append(("restored in " + cgroup, host.unit())))
    at = "/sys/fs/cgroup" + GROUP
    assert host.noted == [
        ("daemon-reload", "awaits"), ("reset-failed shop.service", "awaits"), ("start --no-block shop.service", "awaits"), ("restored in " + at, "awaits"),
        (at + " is conmon", "awaits"), ("end 4711", "awaits"), ("daemon-reload", "acts"),
    ]  # fmt: skip
    assert '"cgroupsPath": "{0}/libpod-payload-{1}"'.format(GROUP, ID) in host.config.read_text()


def test_one_that_is_not_restored_leaves_no_unit_that_awaits_it(host):
    def fail(_cgroup):
        raise HandoverError("its address is taken")

    with pytest.raises(HandoverError, match="its address is taken"):
        unit(host).hand_over("shop", fail)
    assert host.noted[-2:] == [("end 4711", "awaits"), ("daemon-reload", "acts")]
    assert not host.drop_in.parent.exists()


def test_a_unit_whose_command_starts_it_finds_it_running(host):
    unit(host, made_by_unit=False)._write(unit_return._KEPT)
    unit(host, made_by_unit=False).hand_over("shop", lambda cgroup: host.noted.append(("restored in " + cgroup, host.unit())))
    assert host.noted[1:] == [("restored in ", "keeps"), ("daemon-reload", "acts"), ("reset-failed shop.service", "acts"), ("start shop.service", "acts")]


def test_without_memory_it_begins_anew(host, tmp_path):
    (tmp_path / "cid").write_text(ID)
    unit(host)._write(unit_return._KEPT)
    unit(host, cidfile=str(tmp_path / "cid")).start()
    assert host.noted[1:] == [("daemon-reload", "acts"), ("reset-failed shop.service", "acts"), ("start shop.service", "acts")]
    assert not (tmp_path / "cid").exists(), "podman makes no container where that is"


def test_one_that_did_not_run_stays_down(host):
    unit(host)._write(unit_return._KEPT)
    unit(host).rest()
    assert host.noted[1:] == [("daemon-reload", "acts")]


def test_which_containers_have_such_a_unit(host):
    assert unit_return.unit_of(host, {"service": {}}, "shop") is None
    assert unit(host, made_by_unit=False, active=False) is None, "it was started by hand"
    assert unit(host, active=False) is not None
    unit(host)._write(unit_return._KEPT)
    assert unit(host, made_by_unit=False, active=False) is not None, "a rollback that was cut off keeps it"
    group = {"members": [{"name": "db", "service": {}}, {"name": "web", "service": {"unit": "web.service", "made_by_unit": True}}]}
    assert unit_return.unit_of(host, group, "db") is None and unit_return.unit_of(host, group, "web").name == "web.service"
