# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pieces of a container's state that no dump of CRIU's holds: they are there after a live move, or it runs on where it was.

Each test changes something when the check is over and the container still runs.
"""

from __future__ import annotations

import json
import os
import sys
import time
import typing as t
from pathlib import Path

import pytest
from hosts import CHECKOUT, Hosts, said

sys.path.insert(0, str(CHECKOUT / "tests" / "clients"))
import processor

NAME = "forgotten"
# All of its threads have one processor, and its timer fires more often than it can be moved.
COMMAND = f"podman run --detach --name {NAME} --network none localhost/handover/tools:lab taskset 1 heartbeat -file /beats -every 20ms -timer 5ms"
PCOPY, SESSIONS = "/usr/local/libexec/handover/pcopy", "/var/lib/handover/sessions"
JOIN = """
import socket, struct, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, struct.pack("=4s4si", socket.inet_aton("239.1.2.3"), bytes(4), socket.if_nametoindex("lo")))
time.sleep(600)
"""
GROUP = "239.1.2.3 on lo"


class Container:
    """The container, which is on one of two hosts."""

    def __init__(self, fleet: Hosts) -> None:
        self.fleet = fleet
        self.names = fleet.names[:2]
        self.moves = 0

    def on(self, name: str) -> t.Any:
        return self.fleet.hosts[name]

    def home(self) -> str:
        running = "podman ps --filter status=running --format '{{.Names}}'"
        (home,) = [name for name in self.names if NAME in self.on(name).check_output(running).split()]
        return home

    def remove(self) -> None:
        for name in self.names:
            self.on(name).run(f"systemctl stop {NAME}-join; podman rm --force --time=0 --ignore {NAME}")

    def pid(self, home: str) -> str:
        return self.on(home).check_output(f"podman inspect {NAME} --format '{{{{.State.Pid}}}}'")

    def inside(self, home: str, command: str) -> str:
        """Of its network namespace, whose files it may not write itself."""
        return self.on(home).check_output(f"nsenter --net=/proc/{self.pid(home)}/ns/net {command}")

    def move(self, at_the_barrier: t.Callable[[str], object] | None = None, **more: t.Any) -> tuple[int, str]:
        """To the other host; with something that happens after the check."""
        here = self.home()
        there = next(name for name in self.names if name != here)
        self.moves += 1
        session = f"{NAME}-{self.moves}"
        paused = {"migrate_pause_at": {"source": "barrier"}} if at_the_barrier else {}
        asked = {"handover_workload": NAME, "handover_source": here, "handover_destination": there, "migrate_session": session, **paused, **more}
        playing = self.fleet.start("migrate", **asked)
        try:
            if at_the_barrier:
                paused_there = f"grep --quiet --no-messages '\"paused\"' {SESSIONS}/{session}/events.jsonl"
                while playing.poll() is None and self.on(here).run(paused_there).rc != 0:
                    time.sleep(0.2)
                at_the_barrier(here)
        finally:
            if at_the_barrier:
                self.on(here).run(f"{PCOPY} session continue {SESSIONS}/{session}")
            text, _nothing = playing.communicate(timeout=600)
        return playing.returncode, text

    def join(self, home: str) -> None:
        """Has a program join a multicast group in its network: the memberships are the network's."""
        script = f"/run/{NAME}-join"
        self.on(home).check_output(f"cat > {script} <<'END'\n{JOIN}END")
        self.on(home).check_output(f"systemd-run --quiet --collect --unit={NAME}-join nsenter --net=/proc/{self.pid(home)}/ns/net python3 {script}")
        self.on(home).check_output(f"for try in $(seq 50); do grep -q 030201EF /proc/{self.pid(home)}/net/igmp && exit; sleep 0.1; done; exit 1")

    def ticks(self, home: str) -> int:
        return int(self.on(home).check_output(f"podman exec {NAME} cat /beats.ticks"))

    def shares(self, home: str) -> dict[str, float]:
        cgroup = self.on(home).check_output(f"podman inspect {NAME} --format '{{{{.State.CgroupPath}}}}'")
        return t.cast("dict[str, float]", json.loads(self.on(home).check_output(processor.command(f"/sys/fs/cgroup{cgroup}"))))


@pytest.fixture(scope="module")
def container() -> t.Iterator[Container]:
    made = Container(Hosts(Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "reports"))
    try:
        made.remove()
        made.on(made.names[0]).check_output(COMMAND)
        yield made
    finally:
        made.remove()


def test_it_is_bound_and_set_as_it_was(container: Container) -> None:
    """There and back, and each time a setting of its network changes last that nothing had touched before."""
    before = container.shares(container.home())
    for value in ("33", "44"):
        here = container.home()
        status, text = container.move(lambda home, value=value: container.inside(home, f"sysctl -w net.ipv4.tcp_fin_timeout={value}"))
        assert status == 0, text[-4000:]
        there = container.home()
        assert there != here
        assert container.inside(there, "sysctl -n net.ipv4.tcp_fin_timeout") == value
        container.inside(there, "ping -c 1 -W 2 127.0.0.1")  # no lock of CRIU's is left
        bound = container.on(there).check_output(f"grep -h Cpus_allowed_list /proc/{container.pid(there)}/task/*/status | sort --unique")
        assert bound.split() == ["Cpus_allowed_list:", "0"]
        ticks = container.ticks(there)
        time.sleep(2)
        assert container.ticks(there) > ticks, "its timer does not fire any more"
        assert processor.circling(before, container.shares(there)) == []


def test_a_multicast_group_that_it_joins_last_keeps_it_here(container: Container) -> None:
    here = container.home()
    status, text = container.move(container.join)
    assert status != 0 and f"the workload was in multicast groups, and CRIU restores no membership: {GROUP}" in said(text), text[-4000:]
    assert container.home() == here
    # From now on the check finds it.
    status, text = container.move()
    assert status != 0 and f"{NAME} has joined multicast groups on lo" in said(text), text[-4000:]
    status, text = container.move(handover_ignore_checks=["multicast"])
    assert status == 0, text[-4000:]
    assert container.home() != here
    container.on(here).check_output(f"systemctl stop {NAME}-join")
