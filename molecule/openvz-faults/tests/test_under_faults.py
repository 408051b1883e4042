# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A sample of the fault matrix on moves by the driver openvz: the container runs once, and has lost nothing.

It is 103, a directory container, offline and live, 105 with a ploop disk, live, 106 on a stock kernel, and two of libvzctl's, live by CRIU.
OPENVZ_FAULTS is how many cells of each, and FAULTS_SEED chooses them.
LAB_FLEET is as in molecule/openvz/tests/test_openvz.py.
"""

from __future__ import annotations

import dataclasses
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
sys.path[:0] = [str(CHECKOUT / "tests" / "faults"), str(CHECKOUT / "molecule" / "openvz-hosts" / "tests")]

import disk
import fleet as hosts
import libvzctl
import libvzctl_disk
import stock
import strikes
from matrix import Case, sample
from scene import Scene


@dataclasses.dataclass(frozen=True)
class Container:
    """One of the scenario's that counts, and its lines."""

    ctid: str
    title: str
    beat: str
    mount: str = ""
    # The hosts' kernel is OpenVZ's, or another, and their vzctl of its era.
    kernel: str = stock.OPENVZ
    up: str = "CTID {0} exist mounted running"

    @property
    def private(self) -> str:
        return f"/var/lib/containers/vz/private/{self.ctid}"

    @property
    def witness(self) -> str:
        return f"/var/lib/vzctl-stand-in/{self.ctid}.witness"

    @property
    def marks(self) -> str:
        """All that a move makes on a host. The real vzctl, too, leaves the configuration of one that was destroyed."""
        # No pattern finds itself among the processes.
        itself = self.witness.replace(self.ctid, f"[{self.ctid[0]}]{self.ctid[1:]}")
        return f"""
echo "containers: $(vzctl status {self.ctid} | grep -v deleted)"
echo "private: $(ls -d {self.private}* 2>/dev/null | xargs)"
echo "mounts: $(findmnt --list --noheadings --output TARGET | grep ^/vz/root/{self.ctid})"
echo "configurations: $(ls /etc/vz/conf | grep '^{self.ctid}' | grep -v destroyed | xargs)"
echo "names: $(ls /etc/vz/names | grep {self.title})"
echo "sessions: $(ls -A /var/lib/handover/sessions | xargs)"
echo "waiting: $(ls -A /var/lib/handover/openvz 2>/dev/null | xargs)"
echo "held: $(ls -A /vz/lock /vz/dump 2>/dev/null | grep -v : | xargs)"
echo "frozen: $(ls /run/handover/openvz-turns/*.* 2>/dev/null | xargs)"
echo "keepers: $(systemctl list-units --plain --no-legend 'handover-openvz-*' | cut -d' ' -f1 | xargs)"
echo "units: $(systemctl list-units --plain --no-legend 'handover-fault*' | cut -d' ' -f1 | xargs)"
echo "sockets: $(find /run/handover -type s 2>/dev/null | xargs)"
echo "helpers: $(pgrep --list-name 'pcopy|rsync' | cut -d' ' -f2 | xargs)"
# What it starts has its words for a moment, and is of its session.
pids=$(pgrep --full --delimiter , '{itself}$')
echo "processes: $(test -z "$pids" || ps -o sid= -p "$pids" | sort -u | wc -l)"
"""

    @property
    def at_home(self) -> dict[str, str]:
        found = {"containers": self.up.format(self.ctid), "private": self.private, "configurations": f"{self.ctid}.conf", "names": self.title}
        return {**found, **({"mounts": self.mount} if self.mount else {}), "processes": "1"}


STILL = Container("103", "vz-still", "/var/lib/containers/vz/private/103/var/log/beat")
DISK = Container(disk.CTID, "vz-disk", disk.BEAT, disk.ROOT)
STOCK = Container(stock.CTID, stock.TITLE, stock.BEAT, kernel=stock.KERNEL)
NEWER = "VEID {0} exist mounted running"
LIBVZCTL = Container(libvzctl.CTID, libvzctl.TITLE, libvzctl.BEAT, kernel=libvzctl.KERNEL, up=NEWER)
LIBVZCTL_DISK = Container(libvzctl_disk.CTID, libvzctl_disk.TITLE, libvzctl_disk.BEAT, libvzctl_disk.ROOT, libvzctl_disk.KERNEL, NEWER)


def restore_power(side: str) -> t.Callable[[Scene], None]:
    def lift(scene: Scene) -> None:
        host = scene.source if side == "source" else scene.destination
        scene.fleet.power_on(host)
        # As OpenVZ would at boot. Where the container may run on the other host, this has to be refused.
        # Each starts under the kernel that it is of: a container that is to be moved by CRIU has its freezer from the start.
        of_openvz, of_stock = "vzctl start 103; vzctl start 105", f"vzctl restore {stock.CTID} || vzctl start {stock.CTID}"
        of_libvzctl = f"{libvzctl.KERNEL}; vzctl start {libvzctl.CTID}; vzctl start {libvzctl_disk.CTID}"
        host.ask(f"{stock.OPENVZ}; {of_openvz}; {stock.KERNEL}; {of_stock}; {of_libvzctl}; {scene.fleet.container.kernel}")

    return lift


def cut_power(side: str) -> t.Callable[[Scene], None]:
    def strike(scene: Scene) -> None:
        host = scene.source if side == "source" else scene.destination
        # This machine's kernel holds what the host has frozen (cgroup v1), also against its end. What has its end before it never runs.
        with stock.thawed_when_killed(host.name):
            scene.fleet.power_off(host)

    return strike


FAULTS = {
    **{name: strikes.TABLE[name] for name in ("sender killed", "receiver killed", "controller killed", "network cut, later healed")},
    **{f"{side} loses power": strikes.Fault(cut_power(side), restore_power(side)) for side in ("source", "destination")},
}
# CRIU holds it, and may be killed as any process.
OF_CRIU = {**FAULTS, **{name: strikes.TABLE[name] for name in ("dumping CRIU killed", "restoring CRIU killed")}}
COUNT, SEED = int(os.environ.get("OPENVZ_FAULTS", "1")), int(os.environ.get("FAULTS_SEED", "1"))
# Each has a sample of its own, so that together they are of more steps.
KINDS = {
    "offline": (STILL, "offline", FAULTS),
    "live": (STILL, "live", FAULTS),
    "live, with a ploop disk": (DISK, "live", FAULTS),
    "live, by CRIU": (STOCK, "live", OF_CRIU),
    "live, of libvzctl's": (LIBVZCTL, "live", OF_CRIU),
    "live, of libvzctl's, with a ploop disk": (LIBVZCTL_DISK, "live", OF_CRIU),
}
CASES = [(kind, case) for number, kind in enumerate(KINDS) for case in sample(COUNT, SEED + number, KINDS[kind][2])]


class Fleet(hosts.Fleet):
    """Both hosts, with the container on one of them."""

    def __init__(self, reports: Path, container: Container) -> None:
        super().__init__(reports, container.at_home, marks=container.marks)
        self.container = container

    def witnesses(self) -> list[str]:
        """The host of each line that was written since the case began, in their order."""
        lines = [(int(line), host.name) for host in self.hosts for line in host.run(f"cat {self.container.witness} 2>/dev/null || :").split()]
        return [name for _time, name in sorted(lines)]

    def beats(self, host: hosts.Host) -> list[int]:
        return [int(line) for line in host.run(f"cat {self.container.beat}").split()]


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reports")


@pytest.fixture(scope="module", autouse=True)
def containers_of_their_own(reports: Path) -> t.Iterator[None]:
    first, second = Fleet(reports, DISK).hosts
    for host in (first, second):
        host.run(disk.GETDEV)
    first.run(disk.MAKE)
    for way in (stock, libvzctl, libvzctl_disk):
        first.run(way.KERNEL)
        first.run(way.MAKE)
    first.run(stock.OPENVZ)
    yield
    for host in (first, second):
        host.ask(disk.REMOVE)
        for way in (libvzctl_disk, libvzctl, stock):
            host.ask(way.KERNEL)
            host.ask(way.REMOVE)


@pytest.mark.parametrize(("kind", "case"), CASES, ids=[f"{kind}: {case.name}" for kind, case in CASES])
def test_one_copy_and_every_line(kind: str, case: Case, reports: Path) -> None:
    container, mode, faults = KINDS[kind]
    fleet = Fleet(reports, container)
    for host in fleet.hosts:
        host.run(container.kernel)
    assert fleet.tidy(), f"what an earlier case left has to be looked at first: {[host.footprint() for host in fleet.hosts]}"
    source = fleet.home()
    scene = Scene(fleet, source, fleet.other(source))
    before = fleet.beats(source)
    for host in fleet.hosts:
        host.run(f"rm -f {container.witness}")
    fault, lifted = faults[case.fault], False
    try:
        scene.stand_still(case, handover_workload=container.ctid, handover_driver="openvz", handover_mode=mode, **case.variables)
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
        begun = len(fleet.beats(home))
        hosts.until("it writes", lambda: len(fleet.beats(home)) > begun)
        witnesses, after = fleet.witnesses(), fleet.beats(home)
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
