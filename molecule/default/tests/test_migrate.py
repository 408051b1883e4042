# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The workload moves there, back through ssh, there again by being stopped, and back while it is stopped; and stays where it is when it cannot move.

In the order of this file: each test finds the workload where the one before it left it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import time
import typing as t
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import ANSIBLE_PLAYBOOK, CHECKOUT, INVENTORY, NOTES, VOLUME, WORKLOAD, Fleet
from testinfra.host import Host


def has_arrived(fleet: Fleet, there: str, report: dict[str, t.Any], state: str = "running") -> None:
    """It is there, in that state, and nowhere else, with its volume, which will be mounted at the next boot too; and nothing is left of the move."""
    here = "node1" if there == "node2" else "node2"
    mountpoint = f"/var/lib/handover/mnt/{VOLUME}"
    unit = fleet.hosts[there].check_output(f"systemd-escape --path --suffix=mount {mountpoint}")
    prints = fleet.footprints()
    assert prints[there] == {
        "containers": f"{WORKLOAD}={state}",
        "podman volumes": VOLUME,
        "sessions": "",
        "volumes": f"{VOLUME}.img",
        "mnt": VOLUME,
        "notes": NOTES,
        "sockets": "",
        "mounts": mountpoint,
        "loop devices": prints[there]["loop devices"],
        "units": prints[there]["units"],
        "processes": "",
    }
    assert prints[here] == {**dict.fromkeys(prints[here], ""), "loop devices": prints[here]["loop devices"], "notes": f"{NOTES}.migrated"}
    its_notes_are_as_before(fleet.hosts[here], fleet.hosts[there])
    # With or without the unit that attaches the image at the next boot.
    assert prints[there]["units"] in (unit, f"handover-loop-{VOLUME}.service {unit}")
    # Loop devices are the machine's: all hosts of a lab see all of them, each with the file's name on its own host.
    assert len(prints[there]["loop devices"].split()) == 1
    assert fleet.hosts[there].file(f"/var/lib/handover/volumes/{VOLUME}.img").mode == 0o600
    assert fleet.hosts[there].run(f"systemctl is-enabled {unit}").rc == 0
    assert fleet.hosts[here].run(f"systemctl is-enabled {unit}").rc != 0
    assert [report[side]["error"] for side in ("source_session", "destination_session")] == ["", ""]
    digests = report["verify"]
    assert digests["checked"]
    assert digests["source"] == digests["destination"]
    assert len(digests["source"][VOLUME]) == 64
    if state == "running":
        is_podmans(fleet, there)
        is_set_as_before(fleet, there)
        its_timer_ticks(fleet, there)
        its_terminals_are_as_before(fleet, there)
        it_has_all_beside_it(fleet, there)
        assert fleet.circling(there) == []
        if report["mode"] == "live":
            its_network_is_its_own(fleet, there)


def its_notes_are_as_before(here: Host, there: Host) -> None:
    """The folder of its host came along with its flags; it holds all that the source has put aside, which is not needed any more."""
    aside = NOTES + ".migrated"
    for host, folder in ((here, aside), (there, NOTES)):
        flags = dict(line.split()[::-1] for line in host.check_output(f"cd {folder} && lsattr fixed log").splitlines())
        assert ("i" in flags["fixed"], "a" in flags["log"]) == (True, True), flags
    size = here.check_output(f"stat --format=%s {aside}/log")
    digests = [host.check_output(f"head --bytes={size} {folder}/log | cat {folder}/fixed - | sha256sum") for host, folder in ((here, aside), (there, NOTES))]
    assert digests[0] == digests[1]
    here.check_output(f"chattr -R -i -a {aside} && rm --recursive {aside}")


def is_podmans(fleet: Fleet, there: str) -> None:
    """podman has it whole: its process, its inside, since when it runs, and what its first process says."""
    host = fleet.hosts[there]
    assert "years" not in host.check_output(f"podman ps --filter name={WORKLOAD}")
    # Its first one, which stays: the others come and go while podman looks, and have a question mark for their number then.
    pids = dict(line.split() for line in host.check_output(f"podman top {WORKLOAD} pid hpid").splitlines())
    assert pids["1"].isdigit()
    # It is in the cgroup that podman looks in, and sees that as its root.
    assert host.check_output(f"podman exec {WORKLOAD} tail -n1 /proc/1/cgroup") == "0::/"
    cgroup = host.check_output(f"podman inspect --format '{{{{.State.CgroupPath}}}}' {WORKLOAD}")
    assert host.check_output(f"tail --lines=1 /proc/{pids['1']}/cgroup") == f"0::{cgroup}"
    host.check_output(f"podman exec {WORKLOAD} sh -c 'echo said on {there} > /proc/1/fd/1'")
    assert f"said on {there}" in host.check_output(f"podman logs --tail 5 {WORKLOAD}")


def is_set_as_before(fleet: Fleet, there: str) -> None:
    """Its network has the settings that it was created with; a sleep that was under way goes on, on the processor that it is bound to."""
    inside = f"podman exec {WORKLOAD} "
    host = fleet.hosts[there]
    assert host.check_output(inside + "sysctl -n net.core.somaxconn net.ipv4.ip_forward").split() == ["777", "1"]
    sleeper = host.check_output(inside + "sh -c \"ps | grep 'root *sleep 100000$'\"").split()[0]
    assert host.check_output(inside + f"taskset -p {sleeper}").rpartition(": ")[2] == "1"


def it_has_all_beside_it(fleet: Fleet, there: str) -> None:
    """Its health is checked there and nowhere else, and its secret came along."""
    counting = "systemctl list-units --all --plain --no-legend '*.timer' | grep -cE '^[0-9a-f]{64}'"
    timers = {name: host.run(counting).stdout.strip() for name, host in fleet.hosts.items()}
    assert timers == {name: str(int(name == there)) for name in fleet.hosts}
    host = fleet.hosts[there]
    host.check_output(f"for try in $(seq 50); do podman ps --filter name={WORKLOAD} | grep '(healthy)' && exit; sleep 0.2; done; podman ps; exit 1")
    assert host.check_output(f"podman exec {WORKLOAD} cat /run/secrets/movertoken") == "known to one container"
    assert '"team": "lab"' in host.check_output("podman secret inspect movertoken")
    assert host.check_output(f"podman exec {WORKLOAD} cat /release-of-the-host") == host.check_output("cat /etc/debian_version")


def its_network_is_its_own(fleet: Fleet, there: str) -> None:
    """The address, the route, the rule and the table that it made itself are there."""
    host = fleet.hosts[there]
    inside = "nsenter --net=" + host.check_output(f"podman container inspect --format '{{{{ .NetworkSettings.SandboxKey }}}}' {WORKLOAD}") + " "
    assert "10.99.9.9/32" in host.check_output(inside + "ip -brief address show dev lo")
    assert host.check_output(inside + "ip route show table 77").startswith("10.99.0.0/16 via ")
    assert "700:\tfrom 10.99.9.9 lookup 77" in host.check_output(inside + "ip rule")
    assert "counter seen" in host.check_output(inside + "nft list table inet mover")


def its_timer_ticks(fleet: Fleet, there: str) -> None:
    """A periodic timer whose interval is shorter than the pause: it fires while its reader stands still, and goes on."""
    ticks = f"cat /var/lib/handover/mnt/{VOLUME}/heartbeat.ticks"
    before = fleet.hosts[there].check_output(ticks)
    fleet.hosts[there].check_output(f"for try in $(seq 50); do test \"$({ticks})\" = '{before}' || exit 0; sleep 0.1; done; exit 1")


def its_terminals_are_as_before(fleet: Fleet, there: str) -> None:
    """Somebody waits for input in one; in the other all is queued still that was, and who reads it will wait for more."""
    state = f"cat /var/lib/handover/mnt/{VOLUME}/heartbeat.terminals"
    fleet.hosts[there].check_output(f"for try in $(seq 50); do test \"$({state})\" = 'waits 17 blocks 5 blocks' && exit 0; sleep 0.1; done; {state}; exit 1")


def the_pause_was_what_the_report_says(fleet: Fleet, report: dict[str, t.Any]) -> None:
    beats = fleet.heartbeat()
    assert beats["missed"] == 0, "beats that the volume had on the source are not on the destination"
    assert beats["broken"] == 0
    # The longest gap of all moves so far; the machine may have been busy with something else, too.
    assert 0 < beats["gap_ms"]
    assert report["frozen_ms"] > 0
    assert {"freeze", "resume"} <= {row["stage"] for row in report["stages"]}


def test_it_has_moved(fleet: Fleet) -> None:
    report = json.loads((Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "reports" / "scenario-converge.json").read_text(encoding="utf-8"))
    has_arrived(fleet, "node2", report)
    the_pause_was_what_the_report_says(fleet, report)


def test_it_goes_on_writing(fleet: Fleet) -> None:
    before = fleet.heartbeat()["last"]
    time.sleep(1)
    assert fleet.heartbeat()["last"] > before


@dataclass(frozen=True)
class Between:
    """What there is between two hosts, seen from the one to which the other connects."""

    connections: list[str]  # the local port of each
    heard: list[str]  # what the helper listens on
    logins: int  # of the other host, so far


def between(there: Host, other: str) -> Between:
    address = there.check_output(f"getent ahostsv4 {other}").split()[0]
    established = there.check_output(f"ss --no-header --tcp --numeric state established dst {address}").splitlines()
    listening = there.check_output("ss --no-header --tcp --udp --unix --listening --numeric --processes").splitlines()
    return Between(
        connections=[row.split()[2].rpartition(":")[2] for row in established],
        heard=[row.split()[4] for row in listening if "pcopy" in row],
        logins=there.check_output("journalctl --unit=ssh --output=cat").count(f"Accepted publickey for root from {address} "),
    )


def test_it_moves_back_through_ssh(fleet: Fleet) -> None:
    """Over one connection of the source's own ssh, looked at while the source stands still with all its connections made."""
    here, there = fleet.hosts["node2"], fleet.hosts["node1"]
    folder = f"/var/lib/handover/sessions/{fleet.next_session}"
    keys = "find /root/.ssh /etc/handover-lab/fleet -type f -exec sha256sum {} +"
    kept, before = here.run(keys).stdout, between(there, "node2")
    with ThreadPoolExecutor(1) as pool:
        moving = pool.submit(
            fleet.moved,
            handover_destination="node1", handover_transport="ssh", migrate_connections=2, migrate_verify=True, migrate_pause_at={"source": "presync"},
        )  # fmt: skip
        try:
            while not moving.done() and here.run(f"grep --quiet --no-messages '\"paused\"' {folder}/events.jsonl").rc != 0:
                time.sleep(0.2)
            during = between(there, "node2")
            ssh = here.run("pgrep --exact --full --list-full 'ssh .*'").stdout.splitlines()
        finally:
            here.run(f"/usr/local/libexec/handover/pcopy session continue {folder}")
        report = moving.result()
    assert during.connections == ["22"]
    assert during.heard.count(f"{folder}/stream.sock") == 1
    assert not [at for at in during.heard if not at.startswith("/")], "the helper listens on a port"
    assert [words.endswith(f"pcopy stream unix:{folder}/stream.sock") for words in ssh] == [True]
    (sending,) = [event for event in report["source_events"] if event["event"] == "sending"]
    assert sending["to"] == 'the other end of the command "ssh"'
    assert report["destination_session"]["listen"] == f"unix:{folder}/stream.sock"
    has_arrived(fleet, "node1", report)
    the_pause_was_what_the_report_says(fleet, report)
    # The preflight's and the session's own: it never had to be made again.
    assert between(there, "node2") == Between([], before.heard, before.logins + 2)
    assert here.run(keys).stdout == kept


def test_its_memory_follows_it_there_and_back(fleet: Fleet) -> None:
    """It runs, and begins processes without end, while its memory comes."""
    for there in ("node2", "node1"):
        report = fleet.moved(handover_destination=there, handover_lazy_pages=True, migrate_verify=True)
        has_arrived(fleet, there, report)
        the_pause_was_what_the_report_says(fleet, report)
        fetched = report["destination_session"]["fetch"]
        assert fetched["fetched"] > 0, "its memory was in the dump"
        assert "fetch" in {row["stage"] for row in report["stages"] if not row["frozen"]}
        assert fleet.hosts[there].run("find /var/lib/containers/storage -name lazy-pages.socket").stdout == ""


def test_preparing_the_hosts_again_changes_nothing(fleet: Fleet) -> None:
    done = subprocess.run(
        [str(ANSIBLE_PLAYBOOK), f"--inventory={INVENTORY}", "--skip-tags=workload", "molecule/default/prepare.yml"],
        cwd=CHECKOUT,
        env={**os.environ, "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"), "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json"},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
    stats = json.loads(done.stdout[done.stdout.index("{") :])["stats"]
    assert {name: host["changed"] for name, host in stats.items()} == {"node1": 0, "node2": 0}


def test_checking_alone_touches_nothing(fleet: Fleet) -> None:
    before = fleet.footprints()
    played = fleet.migrate("--check", handover_destination="node2")
    assert played.status == 0, played.text[-4000:]
    assert fleet.footprints() == before


@contextlib.contextmanager
def nothing(_fleet: Fleet) -> t.Iterator[None]:
    yield


@contextlib.contextmanager
def namesake(fleet: Fleet) -> t.Iterator[None]:
    """Another container of that name on the destination."""
    fleet.hosts["node2"].check_output(f"podman create --name {WORKLOAD} localhost/handover/tools:lab true")
    try:
        yield
    finally:
        fleet.hosts["node2"].check_output(f"podman rm {WORKLOAD}")


@contextlib.contextmanager
def little_room(fleet: Fleet) -> t.Iterator[None]:
    """A small file system where the destination keeps its images."""
    fleet.hosts["node2"].check_output("mount -t tmpfs -o size=16m,mode=0700 tmpfs /var/lib/handover/volumes")
    try:
        yield
    finally:
        fleet.hosts["node2"].check_output("umount /var/lib/handover/volumes")


@contextlib.contextmanager
def no_criu(fleet: Fleet) -> t.Iterator[None]:
    """Something that cannot be run lies over CRIU on the destination."""
    places = ("/usr/local/sbin/criu", "/usr/sbin/criu")
    for place in places:
        fleet.hosts["node2"].check_output(f"mount --bind /dev/null {place}")
    try:
        yield
    finally:
        for place in places:
            fleet.hosts["node2"].check_output(f"umount {place}")


def ghost(folder: Path) -> str:
    """An inventory with a host in it that nobody is."""
    path = folder / "ghost.yml"
    path.write_text("lab_hosts:\n  hosts:\n    ghost:\n      ansible_host: 10.213.0.99\n", encoding="utf-8")
    return str(path)


BAD_INPUT = {
    "no destination": (nothing, {}, "handover_destination is missing (the host that the workload is to go to): give it as in -e handover_destination=node2"),
    "no workload": (nothing, {"workload": "", "handover_destination": "node2"}, "handover_workload is missing (the container"),
    "a list for a name": (nothing, {"handover_destination": ["node2"]}, "handover_destination is a list: write one word"),
    "unknown host": (nothing, {"handover_destination": "node9"}, "handover_destination: node9 is not in the inventory: did you mean node"),
    "unknown workload": (nothing, {"workload": "nosuch", "handover_destination": "node2"}, "there is no container named nosuch on node"),
    "destination is source": (nothing, {"handover_source": "node1", "handover_destination": "node1"}, "node1 is both the source and the destination"),
    "not a number": (nothing, {"handover_destination": "node2", "migrate_max_passes": "many"}, "migrate_max_passes"),
    "not a size": (nothing, {"handover_destination": "node2", "migrate_target_dirty": "lots"}, "migrate_target_dirty is no size: 'lots' is not a size"),
    "unreachable": (nothing, {"handover_destination": "ghost"}, "the destination ghost cannot be reached: see whether it is up"),
    "workload already there": (namesake, {"handover_destination": "node2"}, "node2 has a container named mover already, which is created: remove it"),
    "too little space": (little_room, {"handover_destination": "node2"}, "for its image volumes"),
    "CRIU missing": (no_criu, {"handover_destination": "node2"}, "CRIU is missing on node2: install the package criu there"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_refused_in_one_sentence(fleet: Fleet, case: str, tmp_path: Path) -> None:
    planted, variables, sentence = BAD_INPUT[case]
    with planted(fleet):
        before = fleet.footprints()
        said = fleet.refused(f"--inventory={INVENTORY}", f"--inventory={ghost(tmp_path)}", **variables)
        assert sentence in said
        assert fleet.footprints() == before
    assert fleet.running_on() == ["node1"]


def test_the_same_move_twice_has_nothing_to_do(fleet: Fleet) -> None:
    before = fleet.footprints()
    played = fleet.migrate(handover_destination="node1")
    assert played.status == 0, played.text[-4000:]
    assert "mover is on node1 already: nothing is left to do." in played.text
    assert not re.search("changed=[1-9]", played.text)
    assert fleet.footprints() == before


@contextlib.contextmanager
def restore_fails(fleet: Fleet) -> t.Iterator[None]:
    """CRIU on the destination is told something that it does not understand. Nothing finds that out before the restore."""
    fleet.hosts["node2"].check_output("echo planted-by-a-test >> /etc/criu/runc.conf")
    try:
        yield
    finally:
        fleet.hosts["node2"].check_output("sed -i /^planted-by-a-test$/d /etc/criu/runc.conf")


# Without lazy pages this is a row of the fault matrix, and so is a full disk.
def test_after_a_failed_restore_it_runs_on_where_it_was(fleet: Fleet) -> None:
    with restore_fails(fleet):
        before = fleet.footprints()
        said = fleet.refused(handover_destination="node2", handover_lazy_pages=True)
        assert "restore" in said.lower()
        assert "mover runs on node1 as before" in said or "mover was not moved and runs on node1 as before" in said
        assert fleet.footprints() == before
    assert fleet.running_on() == ["node1"]
    beats = fleet.heartbeat()
    assert beats["missed"] == 0
    assert fleet.heartbeat()["last"] > beats["last"]


def test_it_moves_by_being_stopped_and_started(fleet: Fleet) -> None:
    report = fleet.moved(handover_destination="node2", migrate_mode="offline", migrate_verify=True)
    has_arrived(fleet, "node2", report)
    beats = fleet.heartbeat()
    assert beats["missed"] == 0
    assert beats["broken"] == 0


def test_it_moves_while_it_is_stopped_and_stays_stopped(fleet: Fleet) -> None:
    before = fleet.heartbeat()
    fleet.hosts["node2"].check_output(f"podman stop --time=0 {WORKLOAD}")
    assert "or move it as it is with migrate_mode=offline" in fleet.refused(handover_destination="node1")
    report = fleet.moved(handover_destination="node1", migrate_mode="offline", migrate_verify=True)
    # podman's word for one that has never run on this host.
    has_arrived(fleet, "node1", report, state="created")
    fleet.hosts["node1"].check_output(f"podman start {WORKLOAD}")
    beats = fleet.heartbeat()
    assert beats["missed"] == 0
    assert beats["broken"] == 0
    assert beats["last"] >= before["last"]


def test_a_container_without_its_conmon_stays_and_the_cure_that_is_told_works(fleet: Fleet) -> None:
    host = fleet.hosts["node1"]
    conmon = f"$(podman container inspect --format '{{{{ .State.ConmonPid }}}}' {WORKLOAD})"
    host.check_output(f"kill -KILL {conmon}")
    said = fleet.refused("--check", handover_destination="node2")
    (cure,) = set(re.findall(f"the conmon of {WORKLOAD} on node1 has died, .*?: run `([^`]+)` there", said))
    host.check_output(cure)
    assert host.check_output(f"cat /proc/{conmon}/comm") == "conmon"
    assert fleet.running_on() == ["node1"]
    assert fleet.heartbeat()["missed"] == 0
