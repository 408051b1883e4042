# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One host was emptied onto two others; then another one is, in spite of an interruption.

In the order of this file: each test finds the containers where the one before it left them. Another fleet than the lab's own is used if
LAB_FLEET names a folder with its inventory.yml and parameters.yml.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import pytest
import testinfra

CHECKOUT = Path(__file__).resolve().parent.parent.parent.parent
OTHER = os.environ.get("LAB_FLEET", "")
INVENTORY = Path(OTHER) / "inventory.yml" if OTHER else CHECKOUT / "lab" / "inventory.yml"
# tests/cores names another.
ANSIBLE_PLAYBOOK = Path(os.environ.get("ANSIBLE_BIN") or Path(sys.executable).parent) / "ansible-playbook"
TENANTS = {"tenant1", "tenant2", "tenant3"}
STOPPED = "tenant4"
MARK = "/var/lib/handover/maintenance.json"


class Hosts:
    """The three hosts, in the inventory's order."""

    def __init__(self, reports: Path) -> None:
        listed = subprocess.run(
            [str(ANSIBLE_PLAYBOOK.parent / "ansible-inventory"), "-i", str(INVENTORY), "--list"], check=True, stdout=subprocess.PIPE, text=True
        )
        groups = json.loads(listed.stdout)
        self.names = [*groups["lab"]["hosts"], *groups.get("lab_spare", {}).get("hosts", [])][:3]
        self.hosts = {name: testinfra.get_host(f"ansible://{name}?ansible_inventory={INVENTORY}") for name in self.names}
        self.reports = reports

    def command(self, playbook: str, *words: str, **variables: t.Any) -> list[str]:
        more = [f"--extra-vars=@{file}" for file in (CHECKOUT / "lab/group_vars/all/parameters.yml", f"{OTHER}/parameters.yml")] if OTHER else []
        placed = {"handover_hosts": ",".join(self.names), "handover_report_dir": str(self.reports), "handover_spare_memory": "64M"}
        asked = {**(placed if playbook in ("drain", "move") else {}), **variables}
        return [str(ANSIBLE_PLAYBOOK), f"--inventory={INVENTORY}", *more, f"playbooks/{playbook}.yml", "--extra-vars", json.dumps(asked), *words]

    def start(self, playbook: str, *words: str, **variables: t.Any) -> subprocess.Popen[str]:
        environment = {**os.environ, "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"), "ANSIBLE_FORCE_COLOR": "0", "ANSIBLE_NOCOLOR": "1"}
        return subprocess.Popen(
            self.command(playbook, *words, **variables), cwd=CHECKOUT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip

    def play(self, playbook: str, *words: str, **variables: t.Any) -> tuple[int, str]:
        process = self.start(playbook, *words, **variables)
        text, _nothing = process.communicate(timeout=600)
        return process.returncode, text

    def states(self) -> dict[str, dict[str, str]]:
        """Host → the containers of the scenario that are there, and podman's word for how they are."""
        listed = {name: host.check_output("podman ps --all --format '{{.Names}} {{.State}}'").splitlines() for name, host in self.hosts.items()}
        return {host: {line.split()[0]: line.split()[1] for line in lines if line.startswith("tenant")} for host, lines in listed.items()}

    def running(self) -> dict[str, set[str]]:
        """Host → the containers of the scenario that run there."""
        return {host: {name for name, state in found.items() if state == "running"} for host, found in self.states().items()}

    def each_runs_once(self) -> None:
        everywhere = [name for found in self.running().values() for name in found]
        assert sorted(everywhere) == sorted(TENANTS)

    def nothing_is_lost(self) -> None:
        for host, found in self.running().items():
            for name in found:
                beats = json.loads(self.hosts[host].check_output(f"podman exec {name} heartbeat -gaps /data/heartbeat"))
                assert (beats["missed"], beats["broken"]) == (0, 0), name

    def left_over(self) -> dict[str, str]:
        command = "ls -A /var/lib/handover/sessions /run/handover/shares /run/handover/waves 2>/dev/null"
        return {name: host.run(command).stdout for name, host in self.hosts.items()}


def said(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture(scope="module")
def fleet() -> Hosts:
    return Hosts(Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "reports")


def test_the_host_is_empty_and_marked(fleet: Hosts) -> None:
    first = fleet.names[0]
    assert fleet.running()[first] == set()
    fleet.each_runs_once()
    fleet.nothing_is_lost()
    assert json.loads(fleet.hosts[first].file(MARK).content_string)["reason"] == "it is being emptied"
    assert not any(name in text for text in fleet.left_over().values() for name in TENANTS)


def test_what_was_stopped_has_moved_and_is_stopped(fleet: Hosts) -> None:
    found = {host: states[STOPPED] for host, states in fleet.states().items() if STOPPED in states}
    assert list(found.values()) == ["created"]
    assert fleet.names[0] not in found


def test_what_is_to_stay_apart_is_on_two_hosts(fleet: Hosts) -> None:
    assert all(not {"tenant1", "tenant2"} <= found for found in fleet.running().values())


def test_the_wave_was_restored_before_any_of_it_was_released(fleet: Hosts) -> None:
    reports = [json.loads(path.read_text(encoding="utf-8")) for path in fleet.reports.glob("tenant[12]-*.json")]
    assert len(reports) == 2
    states = [{event["state"]: event["time"] for event in report["source_events"] if event.get("event") == "state"} for report in reports]
    assert max(state["prepared"] for state in states) <= min(state["released"] for state in states)
    assert max(state["barrier"] for state in states) <= min(state["frozen"] for state in states)


def test_a_page_on_the_drain_leads_to_the_report_of_each_move(fleet: Hosts) -> None:
    (drawn,) = fleet.reports.glob("drain-*.html")
    page = drawn.read_text(encoding="utf-8")
    assert f"<h1>{fleet.names[0]} emptied</h1>" in page
    linked = re.findall(r'<a href="(tenant[^"]*)">', page)
    assert {name.split("-")[0] for name in linked} == {*TENANTS, STOPPED}
    assert all((fleet.reports / name).exists() for name in linked)
    results = json.loads(drawn.with_suffix(".json").read_text(encoding="utf-8"))["moves"]
    assert {move["workload"]: move["verdict"] for move in results} == dict.fromkeys({*TENANTS, STOPPED}, "moved")


def test_a_dry_run_prints_the_plan_and_touches_nothing(fleet: Hosts) -> None:
    """It has a sentence for each, also for those after one that cannot move."""
    second = fleet.names[1]
    host, before = fleet.hosts[second], fleet.states()
    host.check_output("podman run --detach --name anchor --network host localhost/handover/tools:lab sleep 1000000")
    try:
        status, text = fleet.play("drain", "--check", handover_source=second, handover_serial=1)
    finally:
        host.check_output("podman rm --force --time 0 anchor")
    assert status != 0 and f"1 of {len(before[second]) + 1} cannot move: anchor uses the network namespace of the host" in said(text), text[-4000:]
    rows = re.findall(r"^  (tenant\d) +(\S+) +(\S+) .* \d  (?:-|\S+)$", text, flags=re.MULTILINE)
    assert {row[0] for row in rows} == set(before[second])
    assert {row[1:] for row in rows} == {(second, fleet.names[2])}, "the first host is under maintenance"
    assert all(f"{row[0]} can move from {second} to {fleet.names[2]}." in text for row in rows)
    assert "anchor cannot move" in text and "not begun" not in text
    assert fleet.states() == before
    assert not host.file(MARK).exists


def test_a_host_under_maintenance_gets_nothing(fleet: Hosts) -> None:
    first = fleet.names[0]
    before = fleet.running()
    status, text = fleet.play("move", handover_moves=[{"workload": "tenant3", "to": first}])
    assert status != 0
    assert f"nothing was moved: there is no host for tenant3: {first}: it is under maintenance (it is being emptied)" in said(text)
    status, text = fleet.play("move", handover_moves=[{"workload": "tenant9"}])
    assert "nothing was moved: there is no container or guest named tenant9 on" in said(text)
    assert fleet.running() == before


def test_a_host_that_is_in_use_is_not_restarted(fleet: Hosts) -> None:
    first, second, _third = fleet.names
    status, text = fleet.play("reboot", handover_source=second)
    assert status != 0 and f"{second} is not restarted, for it is not under maintenance" in said(text), text[-4000:]
    assert "a restart would end tenant" in said(text)
    # One that was emptied would be. It is not, for the tests to come use it.
    status, text = fleet.play("reboot", "--check", handover_source=first)
    assert status == 0, text[-4000:]
    fleet.each_runs_once()


def test_an_interrupted_drain_goes_on_when_it_is_run_again(fleet: Hosts) -> None:
    first, second, third = fleet.names
    status, text = fleet.play("maintenance", handover_host=first, handover_maintenance=False)
    assert status == 0, text[-2000:]
    assert not fleet.hosts[first].file(MARK).exists

    # Two hosts at once, back to the one that was emptied.
    asked: dict[str, t.Any] = {
        "handover_source": f"{second},{third}", "handover_destinations": [first], "handover_serial": 1,
        "migrate_keep_destination": True, "migrate_compact": True,
    }  # fmt: skip
    process = fleet.start("drain", **asked)
    assert process.stdout is not None
    seen = ""
    for line in process.stdout:
        seen += line
        if "has moved from" in line:
            break
    else:
        pytest.fail(seen[-4000:])
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    fleet.each_runs_once()
    assert 1 <= len(fleet.states()[first]) < len(TENANTS) + 1

    status, text = fleet.play("drain", **asked)
    assert status == 0, text[-4000:]
    assert fleet.states()[first] == {**dict.fromkeys(TENANTS, "running"), STOPPED: "created"}
    fleet.nothing_is_lost()


def test_what_was_kept_has_not_travelled_again(fleet: Hosts) -> None:
    """The drain has left the images of the first two behind, and they came back to them; each has 8 MiB that no zeroes are in."""
    back = max(fleet.reports.glob("tenant1-*.json"), key=lambda path: path.stat().st_mtime)
    events = {event["event"]: event for event in json.loads(back.read_text(encoding="utf-8"))["source_events"]}
    assert events["compared"]["same"] - events["survey"]["holes"] > 7 * 2**20
    assert fleet.hosts[fleet.names[0]].run("ls /var/lib/handover/volumes/*.migrated").stdout == ""


def test_a_snapshot_and_the_way_back(fleet: Hosts) -> None:
    first = fleet.names[0]
    asked = {"handover_source": first, "handover_workload": "tenant1", "handover_snapshot": "before", "handover_memory": True}
    status, text = fleet.play("snapshot", **asked)
    assert status == 0, text[-4000:]
    assert re.search(r"^  tenant1 +before +2\d{3}-", text, flags=re.MULTILINE)
    beats = json.loads(fleet.hosts[first].check_output("podman exec tenant1 heartbeat -gaps /data/heartbeat"))
    fleet.hosts[first].check_output("podman exec tenant1 sh -c 'echo mistake > /data/mistake; echo mistake > /mistake'")
    status, text = fleet.play("rollback", **asked)
    assert status == 0, text[-4000:]
    # The process itself runs on from that moment, on the files of that moment.
    again = json.loads(fleet.hosts[first].check_output("podman exec tenant1 heartbeat -gaps /data/heartbeat"))
    assert (again["missed"], again["broken"]) == (0, 0)
    assert fleet.hosts[first].run("podman exec tenant1 ls /data/mistake /mistake").stdout == ""
    assert again["gap_ms"] >= beats["gap_ms"]
    # The disks of the moment before the rollback were kept, and can be gone back to: the container starts again on them.
    status, text = fleet.play("snapshot", handover_source=first, handover_workload="tenant1")
    assert status == 0, text[-4000:]
    (undo,) = re.findall(r"^  tenant1 +(undo-\d{8}T\d{6}) +2\d{3}-", text, flags=re.MULTILINE)
    back = {"handover_source": first, "handover_workload": "tenant1", "handover_snapshot": undo}
    status, text = fleet.play("rollback", snapshot_keep=False, **back)
    assert status == 0, text[-4000:]
    assert fleet.hosts[first].check_output("podman exec tenant1 cat /data/mistake") == "mistake"
    # Beside the container's own volume the one of the snapshot is mounted, without the mistake.
    status, text = fleet.play("snapshot", **{**asked, "handover_state": "mounted"})
    assert status == 0, text[-4000:]
    (place,) = re.findall(r"mounted on (/\S+)", text)
    names = fleet.hosts[first].check_output(f"ls {place}").split()
    assert "heartbeat" in names
    assert "mistake" not in names
    assert fleet.hosts[first].run(f"touch {place}/new").rc != 0
    status, text = fleet.play("snapshot", **{**asked, "handover_state": "unmounted"})
    assert status == 0, text[-4000:]
    assert not fleet.hosts[first].file(place).exists
    for name in (undo, "before"):
        status, text = fleet.play("snapshot", **{**asked, "handover_snapshot": name, "handover_state": "absent"})
        assert status == 0, text[-4000:]
    assert "There is no snapshot." in text
    left = fleet.hosts[first].check_output("/usr/local/libexec/handover/pcopy snapshot list --json /var/lib/handover/snapshots/.disks/tenant1")
    assert json.loads(left) == {"snapshots": []}


LISTENER = "tenant5"
LISTENS = (
    "podman run --detach --name tenant5 --stop-signal 9 --network segment:ip=10.99.0.61,ip6=fd4c:9a1e:7b99::61 "
    "localhost/handover/tools:lab nc -ll -p 7000 -e cat"
)
# Connections without end; and one over IPv6, on which nothing is said until somebody wants that.
KNOCKING = "for n in {1..8}; do while :; do { echo x >&3; read -t 60 -u 3 && echo answered; } 3<>/dev/tcp/10.99.0.61/7000; done & done; wait"
WAITING = (
    "exec 3<>/dev/tcp/fd4c:9a1e:7b99::61/7000; echo x >&3; read -u 3; echo connected; until test -e go; do sleep 0.1; done; "
    "echo x >&3; read -t 60 -u 3; echo $?"
)


def answers(address: str, port: int) -> None:
    """Waits for a server: this machine may still know an address by the hardware that had it before."""
    for _each in range(60):
        try:
            with socket.create_connection((address, port), timeout=2):
                return
        except OSError:
            time.sleep(1)
    pytest.fail(f"{address} does not answer")


def until(host: t.Any, true: str) -> None:
    host.check_output(f"for try in $(seq 300); do {true} && exit; sleep 0.1; done; exit 1")


def test_a_listener_is_kept_with_its_memory_while_connections_come(fleet: Hosts) -> None:
    """They wait for the dump: CRIU refuses a listener at whose door somebody waits, and without a guard nearly always one does."""
    first = fleet.hosts[fleet.names[0]]
    asked = {"handover_source": fleet.names[0], "handover_workload": LISTENER, "handover_snapshot": "busy"}
    units = {"waiting": WAITING, "knocking": KNOCKING}
    try:
        first.check_output(LISTENS)
        until(first, "ping -6 -c 1 -W 1 fd4c:9a1e:7b99::61")
        for unit, script in units.items():
            words = f"--unit=segment-{unit} --property=RuntimeDirectory=segment-{unit} --working-directory=/run/segment-{unit}"
            first.check_output(f"systemd-run --expand-environment=no {words} --property=StandardOutput=truncate:/run/segment-{unit}.log bash -c '{script}'")
        until(first, "grep -q connected /run/segment-waiting.log && grep -q answered /run/segment-knocking.log")
        status, text = fleet.play("snapshot", handover_memory=True, **asked)
        assert status == 0, text[-4000:]
        first.check_output("truncate --size 0 /run/segment-knocking.log && touch /run/segment-waiting/go")
        until(first, "grep -q answered /run/segment-knocking.log && grep -q '^[0-9]' /run/segment-waiting.log")
        assert first.check_output("cat /run/segment-waiting.log").split() == ["connected", "0"]
    finally:
        for unit in units:
            first.run(f"systemctl stop segment-{unit}.service; rm --force /run/segment-{unit}.log")
        first.run(f"podman rm --force --time 0 {LISTENER}; rm --recursive --force /var/lib/handover/snapshots/{LISTENER}")


def test_connections_over_a_bridge_have_lived_through_all_of_it(fleet: Hosts) -> None:
    """One over IPv4, one over IPv6, from the bridge of the host that the container was on first."""
    client = fleet.hosts[fleet.names[0]]
    client.check_output("systemctl stop segment-client.service")
    told = json.loads(client.file("/run/segment-client.json").content_string)
    assert len(told) == 2
    for seen in told.values():
        # On one line: what a suite shows of a failure is not long.
        assert "error" not in seen and seen["answers"] > 1000, json.dumps(told)
