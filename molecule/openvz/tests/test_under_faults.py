# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A sample of the fault matrix on moves by the driver openvz: container 103 runs once, and has lost nothing.

The last of the scenario's: a power cut ends all else that runs on the hosts. OPENVZ_FAULTS is how many cells of each mode, offline and live, and FAULTS_SEED
chooses them. LAB_FLEET is as in test_openvz.py.
"""

from __future__ import annotations

import itertools
import os
import sys
import typing as t
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent.parent.parent
if "LAB_FLEET" in os.environ:
    os.environ.setdefault("FAULTS_INVENTORY", str(Path(os.environ["LAB_FLEET"]) / "inventory.yml"))
    os.environ.setdefault("FAULTS_PARAMETERS", str(Path(os.environ["LAB_FLEET"]) / "parameters.yml"))
sys.path.insert(0, str(CHECKOUT / "tests" / "faults"))

import fleet as hosts
import strikes
from matrix import Case, sample
from scene import Scene

PRIVATE = "/var/lib/containers/vz/private/103"
WITNESS = "/var/lib/vzctl-stand-in/103.witness"
DRIVER = {"handover_workload": "103", "handover_driver": "openvz"}
# All that a move makes on a host. The real vzctl, too, leaves the configuration of one that was destroyed.
MARKS = f"""
echo "containers: $(vzctl status 103 | grep -v deleted)"
echo "private: $(ls -d {PRIVATE}* 2>/dev/null | xargs)"
echo "configurations: $(ls /etc/vz/conf | grep '^103' | grep -v destroyed | xargs)"
echo "names: $(ls /etc/vz/names | grep still)"
echo "sessions: $(ls -A /var/lib/handover/sessions | xargs)"
echo "waiting: $(ls -A /var/lib/handover/openvz 2>/dev/null | xargs)"
echo "held: $(ls -A /vz/lock /vz/dump 2>/dev/null | grep -v : | xargs)"
echo "keepers: $(systemctl list-units --plain --no-legend 'handover-openvz-*' | cut -d' ' -f1 | xargs)"
echo "units: $(systemctl list-units --plain --no-legend 'handover-fault*' | cut -d' ' -f1 | xargs)"
echo "sockets: $(find /run/handover -type s 2>/dev/null | xargs)"
echo "helpers: $(pgrep --list-name 'pcopy|rsync' | cut -d' ' -f2 | xargs)"
# What it starts has its words for a moment, and is of its session.
pids=$(pgrep --full --delimiter , '{WITNESS.replace("103", "[1]03")}$')
echo "processes: $(test -z "$pids" || ps -o sid= -p "$pids" | sort -u | wc -l)"
"""
AT_HOME = {
    "containers": "CTID 103 exist mounted running", "private": PRIVATE, "configurations": "103.conf", "names": "vz-still", "processes": "1",
}  # fmt: skip


def restore_power(side: str) -> t.Callable[[Scene], None]:
    def lift(scene: Scene) -> None:
        host = scene.source if side == "source" else scene.destination
        scene.fleet.power_on(host)
        # As OpenVZ would at boot. Where the container may run on the other host, this has to be refused.
        host.ask("vzctl start 103")

    return lift


FAULTS = {
    **{name: strikes.TABLE[name] for name in ("sender killed", "receiver killed", "controller killed", "network cut, later healed")},
    **{f"{side} loses power": strikes.Fault(strikes.cut_power(side), restore_power(side)) for side in ("source", "destination")},
}
COUNT, SEED = int(os.environ.get("OPENVZ_FAULTS", "1")), int(os.environ.get("FAULTS_SEED", "1"))
CASES = [("offline", case) for case in sample(COUNT, SEED, FAULTS)] + [("live", case) for case in sample(COUNT, SEED + 1, FAULTS)]


class Fleet(hosts.Fleet):
    """Both hosts, with container 103 on one of them."""

    def witnesses(self) -> list[str]:
        """The host of each line that was written since the case began, in their order."""
        lines = [(int(line), host.name) for host in self.hosts for line in host.run(f"cat {WITNESS} 2>/dev/null || :").split()]
        return [name for _time, name in sorted(lines)]


def beats(host: hosts.Host) -> list[int]:
    return [int(line) for line in host.run(f"cat {PRIVATE}/var/log/beat").split()]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    return Fleet(tmp_path_factory.mktemp("reports"), AT_HOME, marks=MARKS)


@pytest.mark.parametrize(("mode", "case"), CASES, ids=[f"{mode}: {case.name}" for mode, case in CASES])
def test_one_copy_and_every_line(mode: str, case: Case, fleet: Fleet) -> None:
    assert fleet.tidy(), f"what an earlier case left has to be looked at first: {[host.footprint() for host in fleet.hosts]}"
    source = fleet.home()
    scene = Scene(fleet, source, fleet.other(source))
    before = beats(source)
    for host in fleet.hosts:
        host.run(f"rm -f {WITNESS}")
    fault, lifted = FAULTS[case.fault], False
    try:
        scene.stand_still(case, **DRIVER, handover_mode=mode, **case.variables)
        fault.strike(scene)
        scene.go_on()
        status = scene.play.end() if case.fault != "controller killed" else -9
        fault.lift(scene)
        lifted = True
        if not fleet.tidy():
            status, text = fleet.recover(scene.session if case.fault == "controller killed" else "")
            assert status == 0, text[-4000:]
        assert fleet.tidy(), f"{[host.footprint() for host in fleet.hosts]} {scene.play.text[-3000:]}"
        home = fleet.home()
        begun = len(beats(home))
        hosts.until("it writes", lambda: len(beats(home)) > begun)
        witnesses, after = fleet.witnesses(), beats(home)
        assert after[: len(before)] == before
        # Each start counts from one. A line is witnessed when it has been written.
        assert all(number == 1 or number == last + 1 for last, number in itertools.pairwise(after)), after
        assert len(after) >= len(before) + len(witnesses), "the end of a run is lost"
        # With its memory it goes on where it stood, unless that went with a host's power.
        assert mode == "offline" or case.fault.endswith("loses power") or 1 not in after[len(before) :], "it was started anew"
        # A host that stood here twice would have run it again after the other, or at the same time.
        assert [name for name, _lines in itertools.groupby(witnesses)] == ([source.name] if home is source else [source.name, home.name])
    finally:
        scene.end()
        if not lifted:
            fault.lift(scene)
