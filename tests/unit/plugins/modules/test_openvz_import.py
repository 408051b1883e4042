# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import HandoverError
from ansible_collections.livefleet.handover.plugins.module_utils._openvz import importer
from ansible_collections.livefleet.handover.plugins.modules import openvz_import

HOST_KEYS = "ssh-ed25519 AAAA root@old1\nssh-rsa BBBB\n\n"


class Module:
    def __init__(self, state, **params):
        plan = {"id": "101", "host": "old1 7", "name": "shop"}
        self.params = {"plan": plan, "state": state, "timeout": 10, "address": "10.0.0.1", "port": 2222, "host_keys": HOST_KEYS, **params}
        self.asked = []

    def get_bin_path(self, tool):
        return f"/usr/bin/{tool}"

    def run_command(self, argv, **_options):
        self.asked.append(argv)
        if "-f" in argv:
            for name in (argv[-1], argv[-1] + ".pub"):
                with open(name, "w", encoding="utf-8") as file:
                    file.write("ssh-rsa CCCC handover-import-shop\n")
        return 0, "", ""


@pytest.fixture(autouse=True)
def _folder(monkeypatch, tmp_path):
    monkeypatch.setattr(importer, "ROOT", str(tmp_path))


def test_the_key_comes_and_goes(tmp_path):
    made = openvz_import.step(Module("keyed"))
    assert made["public_key"] == "no-port-forwarding,no-agent-forwarding,no-X11-forwarding,no-pty ssh-rsa CCCC handover-import-shop"
    assert (tmp_path / "shop").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "shop/known_hosts").read_text(encoding="utf-8") == "source ssh-ed25519 AAAA\nsource ssh-rsa BBBB\n"
    config = (tmp_path / "shop/ssh_config").read_text(encoding="utf-8")
    assert "HostName 10.0.0.1\n  Port 2222\n" in config and "StrictHostKeyChecking yes" in config and f"IdentityFile {tmp_path}/shop/key\n" in config
    control = next(line.split()[1] for line in config.splitlines() if "ControlPath" in line)
    assert control.startswith("/run/handover-import-") and len(control) + 17 < 108
    again = Module("keyed")
    assert openvz_import.step(again)["public_key"] == made["public_key"] and again.asked == []
    openvz_import.step(Module("keyless"))
    assert list((tmp_path / "shop").iterdir()) == []


def test_seconds_are_times(monkeypatch):
    monkeypatch.setattr(importer.Importer, "begin", lambda self: {"first_pass_s": 1.5, "more": 1})
    told = openvz_import.step(Module("begun"))
    assert told == {"times": {"first_pass_s": 1.5}, "more": 1, "record": {}}


@pytest.fixture(name="switch")
def some_switch(monkeypatch):
    done = []
    monkeypatch.setattr(importer.Importer, "stop", lambda self: done.append("stop") or self.found)
    monkeypatch.setattr(importer.Importer, "start", lambda self, *arguments: done.append(("start", *arguments)) or {"mends": []})
    monkeypatch.setattr(openvz_import, "in_turn", lambda _module, _table, asked: done.append(asked[0]["image_volume"]) or self_answer)
    self_answer = {}

    def run(found, size=0, answer=None, **record):
        self_answer.update(answer or {})
        importer.Importer.found = found
        module = Module("switched", offer={"cgroup": 2}, ignore=[], listens_on=22, wait=5)
        module.params["plan"]["size"] = size
        monkeypatch.setattr(importer, "read_record", lambda _name: record)
        openvz_import.step(module)
        return done

    yield run
    del importer.Importer.found


START = ("start", {"cgroup": 2}, [], 22, 5)


def test_a_directory_container_is_switched_in_one_call(switch):
    assert switch({"stop_s": 1.0}) == ["stop", START]


def test_a_ploop_disk_is_mounted_between(switch):
    volume = {"name": "shop", "state": "mounted", "podman_volume": "", "fstype": "xfs", "size": "4096"}
    assert switch({"stop_s": 1.0, "fstype": "xfs"}, size=4096) == ["stop", volume, START]


def test_a_volume_that_is_refused_ends_it(switch):
    with pytest.raises(HandoverError, match="no loop device"):
        switch({"fstype": "ext4"}, answer={"msg": "no loop device"})


def test_nothing_is_copied_over_a_container_that_came_up(switch):
    assert switch({}, state="stopped", ran=True) == [START]
