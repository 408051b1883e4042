# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Containers that were imported move on: to the other host and back, live and offline, with the volume that is their root.

After test_openvz.py, which leaves both on the destination of the import.
"""

from __future__ import annotations

import json
import os
import subprocess
import time

import pytest
from test_openvz import CHECKOUT, INVENTORY, PROGRAMS, Hosts
from test_systems import Login, System
from turns import in_turn

SESSIONS = "/var/lib/handover/sessions"
PCOPY = "/usr/local/libexec/handover/pcopy"


class Imported(System):
    """One container, and who is logged in."""

    def __init__(self, hosts: Hosts, name: str, number: int) -> None:
        super().__init__(hosts, "", number)
        self.name, self.there = name, hosts.destination
        self.volume = f"/var/lib/handover/volumes/{name}.img"
        self.root = f"/var/lib/handover/mnt/{name}"

    def stands(self) -> None:
        """Its unit has it, on its volume; and nothing of it is on the other host."""
        loop = self.there.check_output(f"losetup --noheadings --output NAME --associated {self.volume}").split()
        assert self.inside("findmnt --noheadings --output SOURCE /").split() == loop
        assert self.there.check_output(f"systemctl is-active container-{self.name}; podman inspect --format '{{{{.Rootfs}}}}' {self.name}").split() == [
            "active", self.root,
        ]  # fmt: skip
        assert self.other.run(f"test -e {self.volume} || mountpoint --quiet {self.root} || systemctl is-active --quiet container-{self.name}").rc != 0
        self.cgroup()

    def started(self) -> str:
        return self.there.check_output(f"podman inspect --format '{{{{.State.StartedAt}}}}' {self.name}").strip()

    def move_that_is_killed(self) -> None:
        """The receiver is killed while the container is held on both sides."""
        asked = self.asked(migrate_pause_at={"destination": "prepared"}, migrate_peer_timeout=10, migrate_hook_timeout=25, migrate_cutover_timeout=60)
        process = subprocess.Popen(
            [str(PROGRAMS / "ansible-playbook"), f"--inventory={INVENTORY}", "playbooks/migrate.yml", f"--extra-vars={asked}"], cwd=CHECKOUT,
            env={**os.environ, "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg")}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        show = f"for each in {SESSIONS}/{self.name}-*; do ! test -f $each/spec.json || {PCOPY} session show $each; done"
        for _each in range(600):
            said = self.other.run(show).stdout
            shown = json.loads(said) if said.strip() else {}
            if shown.get("state") == "prepared":
                break
            assert process.poll() is None, (process.stdout.read() if process.stdout else "")[-4000:]
            time.sleep(0.2)
        self.other.check_output(f"systemctl kill --signal=KILL --kill-whom=main handover-{shown['id']}-destination.service")
        said, _nothing = process.communicate(timeout=300)
        assert process.returncode != 0, said[-4000:]


@pytest.fixture(scope="module", name="hosts")
def both_hosts():
    return Hosts()


@pytest.fixture(name="imported")
def one_that_runs(hosts, request):
    found = Imported(hosts, *request.param)
    found.there.check_output(f"systemctl start container-{found.name}")
    return found


@pytest.fixture(name="login")
def logged_in(imported):
    made = Login(imported)
    try:
        yield made
    finally:
        made.end()


def goes_on(imported: Imported, login: Login, before: str, turn: str) -> None:
    assert login.says(turn) == before
    imported.stands()


@in_turn(0)
@pytest.mark.parametrize("imported", [("vz-shop", 101)], indirect=True)
def test_one_with_systemd_moves_live(imported, login):
    before, started = login.says("before"), imported.started()
    imported.move_that_is_killed()
    goes_on(imported, login, before, "killed")
    for turn in ("there", "back"):
        imported.move()
        goes_on(imported, login, before, turn)
        assert imported.started() == started
        imported.inside("systemctl restart systemd-logind")
        assert imported.inside("systemctl is-active dbus ssh systemd-journald systemd-logind").split() == ["active"] * 4
        imported.inside(f"logger went-{turn}")
        imported.inside("journalctl --sync")
        assert f"went-{turn}" in imported.inside("journalctl --output=cat")
        assert imported.inside("ls /dev/net/tun /dev/fuse").split() == ["/dev/fuse", "/dev/net/tun"]
        if turn == "there":
            # It would run on the source beside the one that has moved.
            status, said = imported.hosts.play(imported.name, import_openvz_back=True)
            assert status != 0 and "vz-shop is not on this host any more, and may run on another that it was moved to" in " ".join(said.split()), said
            assert imported.hosts.status("101") == ["exist", "unmounted", "down"]
    assert imported.there.check_output("systemctl is-enabled container-vz-shop").strip() == "enabled"


@in_turn(1)
@pytest.mark.parametrize("imported", [("vz-web", 102)], indirect=True)
def test_one_with_system_v_init_moves_live_and_offline(imported, login):
    before = login.says("before")
    imported.move()
    goes_on(imported, login, before, "there")
    assert {"init", "sshd"} <= set(imported.there.check_output(f"podman top {imported.name} comm").split())
    imported.inside("touch /var/tmp/of-the-other-host")
    imported.move(handover_mode="offline")
    for _each in range(60):  # its ssh comes up again
        if imported.there.run(f"podman exec {imported.name} pgrep -x sshd").rc == 0:
            break
        time.sleep(0.5)
    imported.stands()
    imported.inside("ls /var/tmp/of-the-other-host")
    # Without its volume it never starts on the folder that is there, whoever says so.
    mount = imported.there.check_output(f"systemd-escape --path --suffix=mount {imported.root}").strip()
    imported.there.check_output(f"systemctl stop container-{imported.name}; systemctl stop '{mount}'")
    refused = imported.there.run(f"podman start {imported.name}")
    assert refused.rc != 0 and "the volume that it has on / is not mounted" in refused.stderr, refused.stderr
    assert imported.there.check_output("podman ps --quiet --filter name=vz-web") == ""
    assert imported.there.check_output(f"ls -A {imported.root}") == ""
    imported.there.check_output(f"systemctl start '{mount}' container-{imported.name}")
