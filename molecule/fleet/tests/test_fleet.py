# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One host was emptied onto two others; then another one is, in spite of an interruption.

In the order of this file: each test finds the containers where the one before it left them.
"""

from __future__ import annotations

import json
import os
import re
import signal
import typing as t
from pathlib import Path

import pytest
from hosts import Hosts, said

TENANTS = {"tenant1", "tenant2", "tenant3"}
STOPPED = "tenant4"
MARK = "/var/lib/handover/maintenance.json"


class Drained(Hosts):
    """With what is true of the containers of this scenario."""

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


@pytest.fixture(scope="module")
def fleet() -> Drained:
    return Drained(Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "reports")


def test_the_host_is_empty_and_marked(fleet: Drained) -> None:
    first = fleet.names[0]
    assert fleet.running()[first] == set()
    fleet.each_runs_once()
    fleet.nothing_is_lost()
    assert json.loads(fleet.hosts[first].file(MARK).content_string)["reason"] == "it is being emptied"
    assert not any(name in text for text in fleet.left_over().values() for name in TENANTS)


def test_what_was_stopped_has_moved_and_is_stopped(fleet: Drained) -> None:
    found = {host: states[STOPPED] for host, states in fleet.states().items() if STOPPED in states}
    assert list(found.values()) == ["created"]
    assert fleet.names[0] not in found


def test_what_is_to_stay_apart_is_on_two_hosts(fleet: Drained) -> None:
    assert all(not {"tenant1", "tenant2"} <= found for found in fleet.running().values())


def test_the_wave_was_restored_before_any_of_it_was_released(fleet: Drained) -> None:
    reports = [json.loads(path.read_text(encoding="utf-8")) for path in fleet.reports.glob("tenant[12]-*.json")]
    assert len(reports) == 2
    states = [{event["state"]: event["time"] for event in report["source_events"] if event.get("event") == "state"} for report in reports]
    assert max(state["prepared"] for state in states) <= min(state["released"] for state in states)
    assert max(state["barrier"] for state in states) <= min(state["frozen"] for state in states)


def test_a_page_on_the_drain_leads_to_the_report_of_each_move(fleet: Drained) -> None:
    (drawn,) = fleet.reports.glob("drain-*.html")
    page = drawn.read_text(encoding="utf-8")
    assert f"<h1>{fleet.names[0]} emptied</h1>" in page
    linked = re.findall(r'<a href="(tenant[^"]*)">', page)
    assert {name.split("-")[0] for name in linked} == {*TENANTS, STOPPED}
    assert all((fleet.reports / name).exists() for name in linked)
    results = json.loads(drawn.with_suffix(".json").read_text(encoding="utf-8"))["moves"]
    assert {move["workload"]: move["verdict"] for move in results} == dict.fromkeys({*TENANTS, STOPPED}, "moved")


def test_a_dry_run_prints_the_plan_and_touches_nothing(fleet: Drained) -> None:
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


def test_a_host_under_maintenance_gets_nothing(fleet: Drained) -> None:
    first = fleet.names[0]
    before = fleet.running()
    status, text = fleet.play("move", handover_moves=[{"workload": "tenant3", "to": first}])
    assert status != 0
    assert f"nothing was moved: there is no host for tenant3: {first}: it is under maintenance (it is being emptied)" in said(text)
    status, text = fleet.play("move", handover_moves=[{"workload": "tenant9"}])
    assert "nothing was moved: there is no container or guest named tenant9 on" in said(text)
    assert fleet.running() == before


def test_a_host_that_is_in_use_is_not_restarted(fleet: Drained) -> None:
    first, second, _third = fleet.names
    status, text = fleet.play("reboot", handover_source=second)
    assert status != 0 and f"{second} is not restarted, for it is not under maintenance" in said(text), text[-4000:]
    assert "a restart would end tenant" in said(text)
    # One that was emptied would be. It is not, for the tests to come use it.
    status, text = fleet.play("reboot", "--check", handover_source=first)
    assert status == 0, text[-4000:]
    fleet.each_runs_once()


def test_an_interrupted_drain_goes_on_when_it_is_run_again(fleet: Drained) -> None:
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


def test_what_was_kept_has_not_travelled_again(fleet: Drained) -> None:
    """The drain has left the images of the first two behind, and they came back to them; each has 8 MiB that no zeroes are in."""
    back = max(fleet.reports.glob("tenant1-*.json"), key=lambda path: path.stat().st_mtime)
    events = {event["event"]: event for event in json.loads(back.read_text(encoding="utf-8"))["source_events"]}
    assert events["compared"]["same"] - events["survey"]["holes"] > 7 * 2**20
    assert fleet.hosts[fleet.names[0]].run("ls /var/lib/handover/volumes/*.migrated").stdout == ""


def test_connections_over_a_bridge_have_lived_through_all_of_it(fleet: Drained) -> None:
    """One over IPv4, one over IPv6, from the bridge of the host that the container was on first."""
    client = fleet.hosts[fleet.names[0]]
    client.check_output("systemctl stop segment-client.service")
    told = json.loads(client.file("/run/segment-client.json").content_string)
    assert len(told) == 2
    for seen in told.values():
        # On one line: what a suite shows of a failure is not long.
        assert "error" not in seen and seen["answers"] > 1000, json.dumps(told)
