# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A whole Debian with its init, set up by the role system_container, moves live there and back under a login by ssh that stays open."""

from __future__ import annotations

import json
import os
import subprocess
import typing as t
from pathlib import Path

import pytest
import yaml
from test_openvz import CHECKOUT, INVENTORY, PARAMETERS, PROGRAMS, Hosts
from turns import in_turn

IMAGES = "/srv/images"
ATTRIBUTES = """\
import os, sys
for folder, below, names in os.walk(sys.argv[1]):
    for name in (*below, *names):
        path = os.path.join(folder, name)
        for key in os.listxattr(path, follow_symlinks=False):
            print(path[len(sys.argv[1]):], key, os.getxattr(path, key, follow_symlinks=False).hex())
"""


ANSWER = "while read x; do echo $x $$ $(cat /proc/sys/kernel/random/boot_id); done"


def play(playbook: str, *variables: str) -> str:
    """What it said; it has to succeed."""
    given = [f"--extra-vars={each}" for each in variables]
    done = subprocess.run(
        [str(PROGRAMS / "ansible-playbook"), f"--inventory={INVENTORY}", playbook, *given],
        cwd=CHECKOUT, env={**os.environ, "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORCE_COLOR": "0"},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


class System:
    """One container, and who is logged in."""

    def __init__(self, hosts: Hosts, image: str, number: int) -> None:
        self.hosts, self.image, self.name = hosts, image, f"box-{image}"
        self.address = f"{hosts.network}.{number}"
        self.there = hosts.source
        parameters: dict[str, t.Any] = {}
        for file in PARAMETERS:
            parameters.update(yaml.safe_load(file.read_text(encoding="utf-8")))
        self.key = Path(parameters["lab_state"]) / "fleet" / "id_ed25519"

    def start(self) -> None:
        """The role has set it up, on the source."""
        image = f"localhost/handover/{self.image}:lab"
        self.hosts.destination.check_output(f"podman image exists {image} || podman load --quiet --input {IMAGES}/{self.image}/image.tar")
        self.there.check_output(f"podman container exists {self.name}")

    def inside(self, command: str) -> str:
        return self.there.check_output(f"timeout 60 podman exec {self.name} {command}")

    @property
    def other(self) -> t.Any:
        """The host that it is not on."""
        return self.hosts.destination if self.there is self.hosts.source else self.hosts.source

    def asked(self, **more: t.Any) -> str:
        """The variables of a move to the other host."""
        names = self.hosts.names if self.there is self.hosts.source else self.hosts.names[::-1]
        return json.dumps({"handover_workload": self.name, "handover_source": names[0], "handover_destination": names[1], **more})

    def move(self, **more: t.Any) -> None:
        play("playbooks/migrate.yml", self.asked(**more))
        left, self.there = self.there, self.other
        assert left.run(f"podman container exists {self.name}").rc == 1

    def cgroup(self) -> str:
        path = self.there.check_output(f"podman inspect --format '{{{{.State.CgroupPath}}}}' {self.name}")
        identifier = self.there.check_output(f"podman inspect --format '{{{{.Id}}}}' {self.name}")
        assert identifier in path
        return "/sys/fs/cgroup" + path

    def used(self) -> int:
        return int(self.there.check_output(f"sed -n 's/^usage_usec //p' {self.cgroup()}/cpu.stat"))

    def attributes(self) -> str:
        """Those of the files on its tmpfs."""
        pid = self.there.check_output(f"podman inspect --format '{{{{.State.Pid}}}}' {self.name}")
        return self.there.check_output(f"python3 -c %s /proc/{pid}/root/var/log/journal", ATTRIBUTES)


def ssh(system: System, command: str) -> list[str]:
    options = ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR", "ConnectionAttempts=20", "ServerAliveInterval=0"]
    words = [word for option in options for word in ("-o", option)]
    return ["ssh", "-F", "/dev/null", "-T", "-i", str(system.key), *words, f"root@{system.address}", command]


class Login:
    """One by ssh that answers each line."""

    def __init__(self, system: System) -> None:
        # ssh has its standard error not block, also for those who share it, and a client that is killed leaves it so: Ansible refuses that.
        self.client = subprocess.Popen(
            ssh(system, ANSWER), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, bufsize=1
        )

    def says(self, word: str) -> str:
        self.client.stdin.write(word + "\n")
        said = self.client.stdout.readline().split()
        assert said[:1] == [word], "the login has ended"
        return " ".join(said[1:])

    def end(self) -> None:
        self.client.kill()
        self.client.wait(timeout=30)


@pytest.fixture(scope="module", name="hosts")
def both_hosts():
    return Hosts()


@pytest.fixture(name="system")
def started(hosts, request):
    # The role takes them away in the end, in cleanup.yml.
    made = System(hosts, *request.param)
    made.start()
    return made


@pytest.fixture(name="login")
def logged_in(system):
    made = Login(system)
    try:
        yield made
    finally:
        made.end()


@in_turn(1)
def test_a_second_run_of_the_role_changes_nothing():
    assert "changed=0" in play("molecule/openvz/systems.yml", *(f"@{file}" for file in PARAMETERS))


@in_turn(0)
@pytest.mark.parametrize("system", [("debian-sysvinit", 108)], indirect=True)
def test_a_system_with_system_v_init(system, login):
    before = login.says("before")
    for turn in ("there", "back"):
        system.move()
        assert login.says(turn) == before
        assert {"init", "cron", "sshd"} <= set(system.there.check_output(f"podman top {system.name} comm").split())
        # By podman exec it would have the clock of the host, and could not be dumped.
        subprocess.run(ssh(system, "/etc/init.d/cron restart"), stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=60)
    # Its init takes the signal: it shuts down, and is not killed.
    system.there.check_output(f"systemctl stop container-{system.name}")
    assert system.there.check_output(f"podman inspect --format '{{{{.State.ExitCode}}}}' {system.name}") == "130"


@in_turn(1)
@pytest.mark.parametrize("system", [("debian13-systemd", 109)], indirect=True)
def test_a_system_with_systemd(system, login):
    before = login.says("before")
    system.inside("systemctl is-system-running --wait")
    attributes = system.attributes()
    assert "posix_acl" in attributes
    for turn in ("there", "back"):
        system.move()
        assert login.says(turn) == before
        assert system.attributes() == attributes
        assert system.inside("systemctl is-system-running") == "running"
        # Each process is under its unit, in the cgroup of this host's container; the empty ones are there, and no other.
        assert "/usr/sbin/cron" in system.inside("systemctl status cron --no-pager")
        below = system.there.check_output(f"cd {system.cgroup()} && find . -type d").split()
        assert {"./init.scope", "./user.slice", "./system.slice/ssh.service"} <= set(below) and "./handover-restore" not in below
        assert system.there.check_output("find /sys/fs/cgroup -name '*libpod-*' -type d").split().count(system.cgroup()) == 1
        system.inside("systemctl restart cron")
        assert system.inside("systemctl is-active cron dbus ssh systemd-journald systemd-logind").split() == ["active"] * 5
        system.inside(f"logger went-{turn}")
        system.inside("journalctl --sync")
        assert f"went-{turn}" in system.inside("journalctl --output=cat")
        # A trigger that was not set again wakes its process without end: that is more than nine tenths of one processor.
        used = system.used()
        system.there.check_output("sleep 3")
        assert system.used() - used < 1_000_000, "a process of it turns in a circle"
    assert system.inside("findmnt --noheadings --output FSTYPE /srv/data") == "ext4"
    # Its unit has come back with it. A reboot within is one.
    began = system.there.check_output(f"podman inspect --format '{{{{.State.StartedAt}}}}' {system.name}")
    system.there.run(f"podman exec {system.name} systemctl reboot")
    started = f"$(podman inspect --format '{{{{.State.StartedAt}}}}' {system.name})"
    system.there.check_output(f"for n in $(seq 150); do test \"{started}\" != '{began}' && exit 0; sleep 0.2; done; exit 1")
    system.there.check_output(f"systemctl is-active container-{system.name} && systemctl stop container-{system.name}")
    assert system.there.check_output(f"podman ps --quiet --filter name={system.name}") == ""
