# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import pathlib

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import container_unit
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import Completed, HandoverError
from ansible_collections.livefleet.handover.plugins.module_utils._podman.systems.files import Files
from unit.plugins.module_utils._podman.systems.test_request import KEY

INITTAB = "id:2:initdefault:\npf::powerwait:/etc/init.d/powerfail start\n1:2345:respawn:/sbin/getty --noclear 38400 tty1\n"


class Host:
    """podman and systemd, as far as they are asked; the layer is a folder."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root, self.there, self.commands = root, True, []

    def tool(self, tool, _package):
        return tool

    def run(self, argv, accept=(0,), **_more):
        self.commands.append(argv[1] if argv[0] == "podman" else argv[0])
        said = {"mount": str(self.root), "container": "/run/conmon.pid 120"}.get(argv[1], "")
        return Completed(tuple(argv), 0 if self.there or argv[1:3] != ["container", "exists"] else 1, said, "")


@pytest.fixture(name="system")
def a_layer(tmp_path, monkeypatch):
    units = tmp_path / "units"
    units.mkdir()
    monkeypatch.setattr(container_unit, "FOLDER", str(units))
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "root").mkdir()
    return Host(root)


def brought(system, init="systemd", check=False, keys=(KEY,)):
    return Files(system, {"name": "box", "init": init, "authorized_keys": list(keys), "mountpoints": ["/mnt/data"]}, check).run()


def test_a_system_with_systemd_has_no_manager_of_users(system):
    assert brought(system)["reasons"] == ["user@.service is not masked", "root's authorized keys are others", "the unit container-box.service is not there"]
    assert os.readlink(system.root / "etc/systemd/system/user@.service") == "/dev/null"
    keys = system.root / "root/.ssh/authorized_keys"
    assert keys.read_text(encoding="utf-8") == KEY + "\n" and keys.stat().st_mode & 0o777 == 0o600 and keys.parent.stat().st_mode & 0o777 == 0o700
    unit = pathlib.Path(container_unit.FOLDER, "container-box.service").read_text(encoding="utf-8")
    for line in (
        "RequiresMountsFor=/mnt/data", "AssertPathIsMountPoint=/mnt/data", "ExecStart=podman start box", "PIDFile=/run/conmon.pid", "TimeoutStopSec=150",
        "RestartForceExitStatus=129", "WantedBy=multi-user.target",
    ):  # fmt: skip
        assert line in unit.splitlines()
    # What is mounted is let go of, also by a run that has nothing to do.
    assert brought(system) == {"changed": False, "reasons": []}
    assert system.commands.count("mount") == system.commands.count("umount") == 2


def test_a_system_with_system_v_init_can_be_stopped(system):
    (system.root / "etc/inittab").write_text(INITTAB, encoding="utf-8")
    assert brought(system, "sysvinit", keys=())["reasons"][0] == "its inittab has terminals, or no line for a stop"
    lines = (system.root / "etc/inittab").read_text(encoding="utf-8").splitlines()
    assert lines[-1] == "vz:12345:powerfail:/sbin/init 0" and [line[0] for line in lines[1:3]] == ["#", "#"]
    assert not brought(system, "sysvinit", keys=())["changed"]
    # Nothing of systemd's, and no keys that were not asked for.
    assert sorted(os.listdir(system.root / "etc")) == ["inittab", "inittab.orig"] and os.listdir(system.root / "root") == []


def test_a_trial_writes_nothing(system):
    found = brought(system, check=True)
    assert found["changed"] and len(found["reasons"]) == 3
    assert os.listdir(system.root / "etc") == os.listdir(system.root / "root") == os.listdir(container_unit.FOLDER) == []
    system.there = False
    assert brought(system, check=True)["changed"]
    with pytest.raises(HandoverError, match="there is no container box on this host"):
        brought(system)


@pytest.mark.parametrize("place", ["root", "root/.ssh"])
def test_no_link_of_the_container_s_is_followed(system, tmp_path, place):
    outside = tmp_path / "outside"
    (outside / ".ssh").mkdir(parents=True)
    if place == "root":
        (system.root / "root").rmdir()
    os.symlink(outside, system.root / place)
    with pytest.raises(HandoverError, match="lies behind a link"):
        brought(system)
    assert os.listdir(outside) == [".ssh"] and os.listdir(outside / ".ssh") == []


def test_a_link_in_the_place_of_the_file_is_replaced(system, tmp_path):
    (system.root / "root/.ssh").mkdir()
    outside = tmp_path / "shadow"
    outside.write_text("of the host", encoding="utf-8")
    os.symlink(outside, system.root / "root/.ssh/authorized_keys")
    brought(system)
    assert outside.read_text(encoding="utf-8") == "of the host" and not (system.root / "root/.ssh/authorized_keys").is_symlink()


def test_another_unit_of_that_name_is_written_again(system):
    brought(system)
    path = pathlib.Path(container_unit.FOLDER, "container-box.service")
    path.write_text("[Service]\n", encoding="utf-8")
    assert brought(system)["reasons"] == ["the unit container-box.service is another"]
    assert "daemon-reload" not in system.commands and system.commands.count("systemctl") == 2 and "podman start box" in path.read_text(encoding="utf-8")
