# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guests on two hosts, moved by the operator's playbooks and looked at from outside and from within."""

from __future__ import annotations

import json
import os
import re
import sys
import typing as t
from pathlib import Path

import pytest
import yaml

CHECKOUT = Path(__file__).resolve().parent.parent.parent.parent
SCENARIO = CHECKOUT / "molecule" / "kvm"
os.environ["FAULTS_INVENTORY"] = str(CHECKOUT / "lab" / "kvm" / "inventory.yml")
sys.path.insert(0, str(CHECKOUT / "tests" / "faults"))

import fleet as hosts

VARIABLES = yaml.safe_load((SCENARIO / "vars.yml").read_text(encoding="utf-8"))
IMAGES = VARIABLES["guest_folder"]

# What a move makes on a host, but for the guest itself: images that are on their way or were put aside, jobs, servers of images, modules at work
# (Ansible looks only every five seconds whether one has ended, so its own process outlives them).
FOOTPRINT = f"""
echo "images: $(ls -A {IMAGES} | grep -v '^own.raw$' | sort | xargs)"
echo "begun: $(ls -A /var/lib/handover/guests /var/lib/handover/guest-notes 2>/dev/null | grep -v ':$' | xargs)"
echo "jobs: $(for guest in $(virsh --quiet list --name); do virsh domjobinfo $guest | grep 'Job type' | grep -v None; done | xargs)"
echo "servers: $(ss --listening --tcp --numeric --no-header '( sport >= :49152 and sport <= :49215 )' | wc -l | sed s/^0$//)"
echo "modules: $(pgrep --list-full --full '[A]nsiballZ_kvm_migrate' | grep --invert-match async_wrapper | wc -l | sed s/^0$//)"
"""


class Guests:
    """The guests of the scenario."""

    def __init__(self, reports: Path) -> None:
        self.reports = reports
        self.hosts = {host.name: host for host in hosts.Fleet(reports).hosts}

    def other(self, name: str) -> str:
        return next(each for each in self.hosts if each != name)

    def begin(self, guest: str, source: str, *words: str, **variables: t.Any) -> hosts.Play:
        """A move, as an operator types it."""
        asked = {"handover_workload": guest, "handover_source": source, "handover_destination": self.other(source), **variables}
        return hosts.Play("playbooks/kvm_migrate.yml", asked, words=words)

    def moved(self, guest: str, source: str, **variables: t.Any) -> str:
        """What a move said that has to succeed."""
        play = self.begin(guest, source, **variables)
        assert play.end() == 0, play.text[-6000:]
        assert self.running_on(guest) == [self.other(source)]
        return play.text

    def refused(self, guest: str, source: str, **variables: t.Any) -> str:
        """The sentences of a move that has to be refused, and of which nothing is left."""
        before = self.standing(guest)
        play = self.begin(guest, source, **variables)
        assert play.end() != 0, play.text[-6000:]
        assert self.standing(guest) == before
        return hosts.sentences(play.text)

    def standing(self, guest: str) -> dict[str, str]:
        """Host → what libvirt says of the guest there; those that do not know it are left out."""
        said = {name: host.ask(f"virsh --quiet domstate {guest}").stdout.strip() for name, host in self.hosts.items()}
        return {name: state for name, state in said.items() if state}

    def running_on(self, guest: str) -> list[str]:
        return [name for name, state in self.standing(guest).items() if state == "running"]

    def left_over(self) -> dict[str, dict[str, str]]:
        """Host → what is there that should not be."""
        found = {}
        for name, host in self.hosts.items():
            lines = dict(line.partition(": ")[::2] for line in host.run(FOOTPRINT).splitlines())
            found[name] = {what: value for what, value in lines.items() if value}
        return found

    def inside(self, guest: str, script: str, seconds: float = 30) -> str:
        """What a script says that runs in the guest."""
        return hosts.inside(VARIABLES["guests"][guest]["address"], script, seconds)

    def beats(self, guest: str) -> dict[str, t.Any]:
        """The heartbeat's own account of its file: read from the disk, but for the lines that were written meanwhile."""
        return json.loads(self.inside(guest, "sync; echo 3 >/proc/sys/vm/drop_caches; heartbeat -gaps /beat", 60))

    def wakes(self, guest: str) -> dict[str, t.Any]:
        """Its account, as soon as it can give it."""

        def asked() -> dict[str, t.Any] | None:
            try:
                return self.beats(guest)
            except (OSError, AssertionError):
                return None

        return hosts.until(f"{guest} has booted", asked, 240)

    def is_whole(self, guest: str) -> None:
        """It writes, and what it wrote is there."""
        before = self.beats(guest)
        hosts.until(f"{guest} writes", lambda: self.beats(guest)["beats"] > before["beats"], 60)
        assert (before["missed"], before["broken"]) == (0, 0)

    def numbers(self, guest: str) -> dict[str, list[int]]:
        """Host → the numbers that the guest has written on its console there."""
        found = {}
        for name, host in self.hosts.items():
            text = host.ask(f"cat /var/log/{guest}.console").stdout
            found[name] = [int(number) for number in re.findall(r"^beat ([0-9]+)\r?$", text[: text.rfind("\n") + 1], flags=re.MULTILINE)]
        return found


@pytest.fixture(scope="session")
def guests(tmp_path_factory: pytest.TempPathFactory) -> Guests:
    return Guests(tmp_path_factory.mktemp("reports"))
