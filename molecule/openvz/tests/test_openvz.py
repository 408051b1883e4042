# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A directory container with systemd was imported; a ploop container with System V's init follows, and the way back.

In the order of this file. Another fleet than the lab's own is used if LAB_FLEET names a folder with its inventory.yml and parameters.yml.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
import testinfra
import yaml
from turns import in_turn

CHECKOUT = Path(__file__).resolve().parent.parent.parent.parent
OTHER = os.environ.get("LAB_FLEET", "")
INVENTORY = Path(OTHER) / "inventory.yml" if OTHER else CHECKOUT / "lab" / "inventory.yml"
PARAMETERS = [CHECKOUT / "lab/group_vars/all/parameters.yml", *([Path(OTHER) / "parameters.yml"] if OTHER else [])]
PROGRAMS = Path(sys.executable).parent
WEB = "c2d5b2a1-3c66-4c6f-8f0a-6f0a8d9e0b11"
MOUNT = "var-lib-handover-mnt-vz\\x2dshop.mount"
IMAGE = "/var/lib/handover/volumes/vz-shop.img"
STATE = "/var/lib/vzctl-stand-in"


class Hosts:
    """The source and the destination."""

    def __init__(self) -> None:
        listed = subprocess.run([str(PROGRAMS / "ansible-inventory"), "-i", str(INVENTORY), "--list"], check=True, stdout=subprocess.PIPE, text=True)
        self.names = json.loads(listed.stdout)["lab"]["hosts"][:2]
        self.source, self.destination = (testinfra.get_host(f"ansible://{name}?ansible_inventory={INVENTORY}") for name in self.names)
        parameters: dict[str, t.Any] = {}
        for file in PARAMETERS:
            parameters.update(yaml.safe_load(file.read_text(encoding="utf-8")))
        self.network = parameters["lab_subnet"].rpartition(".")[0]

    def play(self, workload: str, *words: str, **variables: t.Any) -> tuple[int, str]:
        asked = {"handover_workload": workload, "handover_source": self.names[0], "handover_destination": self.names[1], **variables}
        environment = {**os.environ, "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORCE_COLOR": "0"}
        done = subprocess.run(
            [str(PROGRAMS / "ansible-playbook"), f"--inventory={INVENTORY}", "playbooks/import_openvz.yml", "--extra-vars", json.dumps(asked), *words],
            cwd=CHECKOUT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=300,
        )  # fmt: skip
        return done.returncode, done.stdout

    def within(self, number: int, command: str) -> str:
        """By ssh, as its users reach it."""
        options = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o GlobalKnownHostsFile=/dev/null -o LogLevel=ERROR -o ConnectTimeout=20"
        return self.source.check_output(f"ssh {options} root@{self.network}.{number} '{command}'")

    def status(self, ctid: str) -> list[str]:
        return self.source.check_output(f"vzctl status {ctid}").split()[2:]

    def untouched(self) -> str:
        """All that an import makes on both hosts."""
        there = self.source.check_output(f"cat /etc/vz/conf/*.conf; cat {STATE}/log; cat /root/.ssh/authorized_keys 2>/dev/null || true")
        here = self.destination.check_output("podman ps --all --format '{{.Names}}'; ls /var/lib/handover/volumes /var/lib/handover/import /etc/systemd/system")
        return there + here


@pytest.fixture(scope="module", name="hosts")
def both_hosts():
    return Hosts()


def beats(text: str) -> int:
    return int(text.split()[-1])


def test_the_container_came_up_with_its_last_write(hosts):
    # The stand-in's writer was killed by the stop; of its lines none is lost.
    last = beats(hosts.source.check_output("tail -n 1 /vz/private/101/var/log/beat"))
    assert last > 0 and beats(hosts.within(101, "tail -n 1 /var/log/beat")) == last
    assert hosts.within(101, "hostname; cat /proc/1/comm; grep -c 10.9.9.9 /etc/resolv.conf; ls /dev/net/tun /dev/fuse").split() == [
        "shop.example.org", "systemd", "1", "/dev/fuse", "/dev/net/tun",
    ]  # fmt: skip
    assert hosts.within(101, "ip -4 -o address show venet0").split()[3] == f"{hosts.network}.101/24"
    assert hosts.within(101, 'grep -c "^# auto venet0" /etc/network/interfaces; ls /etc/network/interfaces.orig').split()[0] == "1"
    assert hosts.within(101, "findmnt --noheadings --output FSTYPE,SOURCE /").split() == ["ext4", "/dev/" + hosts.destination.check_output(
        "losetup --noheadings --output NAME --associated /var/lib/handover/volumes/vz-shop.img").strip().rpartition("/")[2]]  # fmt: skip


def test_it_is_stopped_and_locked_on_the_source(hosts):
    assert hosts.status("101") == ["exist", "unmounted", "down"]
    assert hosts.source.run("vzctl start 101").rc == 8
    assert hosts.source.run("grep handover-import /root/.ssh/authorized_keys").rc == 1
    assert hosts.destination.run("ls /var/lib/handover/import/vz-shop/key").rc != 0
    assert hosts.destination.check_output("systemctl is-enabled container-vz-shop").strip() == "enabled"


def test_a_second_import_does_nothing(hosts):
    before = hosts.untouched()
    status, said = hosts.play("101")
    assert status == 0 and "changed=0" in said and "vz-shop was imported before" in said, said
    assert hosts.untouched() == before


def test_a_reboot_within_is_one_and_its_unit_needs_the_volume(hosts):
    began = hosts.destination.check_output("podman inspect --format '{{.State.StartedAt}}' vz-shop")
    hosts.destination.run("podman exec vz-shop reboot")
    started = "$(podman inspect --format '{{.State.StartedAt}}' vz-shop)"
    hosts.destination.check_output(f"for n in $(seq 100); do test \"{started}\" != '{began.strip()}' && exit 0; sleep 0.2; done; exit 1")
    hosts.destination.check_output("systemctl stop container-vz-shop")
    assert hosts.destination.check_output("podman ps --quiet --filter name=vz-shop") == ""
    hosts.destination.check_output(f"systemctl stop '{MOUNT}'; mv {IMAGE} {IMAGE}.away")
    assert hosts.destination.run("systemctl start container-vz-shop").rc != 0
    assert hosts.destination.check_output("podman ps --quiet --filter name=vz-shop") == ""
    hosts.destination.check_output(f"mv {IMAGE}.away {IMAGE}; systemctl start container-vz-shop")
    assert hosts.destination.check_output("podman inspect --format '{{.State.Status}}' vz-shop").strip() == "running"


def test_a_trial_prints_the_table_and_an_unknown_line_is_refused_by_name(hosts):
    hosts.source.check_output(f"echo 'COLOUR=\"red\"' >>/etc/vz/conf/{WEB}.conf")
    before = hosts.untouched()
    status, said = hosts.play("vz-web", "--check")
    assert status != 0 and "COLOUR: this parameter is not known here" in said and "nothing was touched" in said, said
    status, said = hosts.play("vz-web", "--check", import_openvz_ignore=["COLOUR"])
    assert status == 0, said
    rows = re.findall(r"^ *(\d*) +(carried|translated|reported|refused) +(\S+): ", said, re.M)
    lines = hosts.source.check_output(f"cat /etc/vz/conf/{WEB}.conf").splitlines()
    assert {int(number) for number, _fate, _name in rows if number} == set(range(1, len(lines) + 1))
    assert hosts.untouched() == before


@pytest.mark.parametrize(
    ("verb", "says"), [pytest.param("set", "may still be started", marks=in_turn(0)), pytest.param("stop", "still runs", marks=in_turn(1))]
)
def test_a_source_that_does_not_do_it_keeps_its_container(hosts, verb, says):
    hosts.source.check_output(f"echo {verb} >{STATE}/FAULT")
    try:
        status, said = hosts.play("vz-web", import_openvz_ignore=["COLOUR"])
    finally:
        hosts.source.check_output(f"rm {STATE}/FAULT")
    assert status != 0 and says in said, said
    assert hosts.status(WEB)[-1] == "running"
    assert hosts.destination.run("podman container exists vz-web").rc == 1
    assert hosts.source.run("grep handover-import /root/.ssh/authorized_keys").rc == 1


def test_a_ploop_container_with_an_old_init(hosts):
    status, said = hosts.play("vz-web", import_openvz_ignore=["COLOUR"], import_openvz_listens_on=22)
    assert status == 0, said
    assert re.search(r"downtime: \d+\.\d+ s", said) and "import_openvz_back=true" in said, said
    # Both layers of the disk were read, and the mends hold.
    assert hosts.within(102, "cat /etc/of-the-upper-layer; cat /proc/1/comm; grep -c \"^# 1:2345:respawn\" /etc/inittab").splitlines() == [
        "both layers were read", "init", "1",
    ]  # fmt: skip
    assert "After=network-online.target container-vz-shop.service" in hosts.destination.check_output("cat /etc/systemd/system/container-vz-web.service")
    began = hosts.destination.check_output("date +%s")
    hosts.destination.check_output("systemctl stop container-vz-web")
    assert int(hosts.destination.check_output("date +%s")) - int(began) < 60, "init did not hear the signal"


def test_the_way_back(hosts):
    status, said = hosts.play("vz-shop", import_openvz_back=True)
    assert status == 0, said
    assert hosts.status("101") == ["exist", "mounted", "running"]
    assert 'ONBOOT="yes"' in hosts.source.check_output("cat /etc/vz/conf/101.conf")
    assert hosts.destination.run("podman container exists vz-shop").rc == 1
    assert hosts.destination.run("test -e /etc/systemd/system/container-vz-shop.service").rc == 1


def test_what_was_written_here_is_kept_when_it_comes_again(hosts):
    status, said = hosts.play("vz-shop", import_openvz_listens_on=22)
    assert status == 0 and "is kept as /var/lib/handover/volumes/vz-shop.img.2" in said, said
    last = beats(hosts.source.check_output("tail -n 1 /vz/private/101/var/log/beat"))
    assert beats(hosts.within(101, "tail -n 1 /var/log/beat")) == last
