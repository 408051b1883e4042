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
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
import testinfra

CHECKOUT = Path(__file__).resolve().parent.parent.parent.parent
OTHER = os.environ.get("LAB_FLEET", "")
INVENTORY = Path(OTHER) / "inventory.yml" if OTHER else CHECKOUT / "lab" / "inventory.yml"
ANSIBLE_PLAYBOOK = Path(sys.executable).parent / "ansible-playbook"
TENANTS = {"tenant1", "tenant2", "tenant3"}
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
        asked = {"handover_hosts": ",".join(self.names), "handover_report_dir": str(self.reports), "handover_spare_memory": "64M", **variables}
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

    def running(self) -> dict[str, set[str]]:
        """Host → the containers of the scenario that run there."""
        asked = {name: host.check_output("podman ps --filter status=running --format '{{.Names}}'").split() for name, host in self.hosts.items()}
        return {name: TENANTS.intersection(found) for name, found in asked.items()}

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


def test_what_is_to_stay_apart_is_on_two_hosts(fleet: Hosts) -> None:
    assert all(not {"tenant1", "tenant2"} <= found for found in fleet.running().values())


def test_the_wave_was_restored_before_any_of_it_was_released(fleet: Hosts) -> None:
    reports = [json.loads(path.read_text(encoding="utf-8")) for path in fleet.reports.glob("tenant[12]-*.json")]
    assert len(reports) == 2
    states = [{event["state"]: event["time"] for event in report["source_events"] if event.get("event") == "state"} for report in reports]
    assert max(state["prepared"] for state in states) <= min(state["released"] for state in states)
    assert max(state["barrier"] for state in states) <= min(state["frozen"] for state in states)


def test_a_dry_run_prints_the_plan_and_touches_nothing(fleet: Hosts) -> None:
    second = fleet.names[1]
    before = fleet.running()
    status, text = fleet.play("drain", "--check", handover_source=second)
    assert status == 0, text[-4000:]
    rows = re.findall(r"^  (tenant\d) +(\S+) +(\S+) +[\d.]+ [KM]iB +[\d.]+ MiB +1 ", text, flags=re.MULTILINE)
    assert {row[0] for row in rows} == before[second]
    assert {row[1:] for row in rows} == {(second, fleet.names[2])}, "the first host is under maintenance"
    assert "can move" in text
    assert fleet.running() == before
    assert not fleet.hosts[second].file(MARK).exists


def test_a_host_under_maintenance_gets_nothing(fleet: Hosts) -> None:
    first = fleet.names[0]
    before = fleet.running()
    status, text = fleet.play("move", handover_moves=[{"workload": "tenant3", "to": first}])
    assert status != 0
    assert f"nothing was moved: there is no host for tenant3: {first}: it is under maintenance (it is being emptied)" in said(text)
    status, text = fleet.play("move", handover_moves=[{"workload": "tenant9"}])
    assert "nothing was moved: there is no container named tenant9 on" in said(text)
    assert fleet.running() == before


def test_an_interrupted_drain_goes_on_when_it_is_run_again(fleet: Hosts) -> None:
    first, second, third = fleet.names
    status, text = fleet.play("maintenance", handover_host=first, handover_maintenance=False)
    assert status == 0, text[-2000:]
    assert not fleet.hosts[first].file(MARK).exists
    # All on one host, so that there is something to interrupt.
    status, text = fleet.play("move", handover_moves=[{"workload": name, "to": third} for name in sorted(TENANTS)])
    assert status == 0, text[-4000:]
    assert fleet.running()[third] == TENANTS

    asked: dict[str, t.Any] = {"handover_source": third, "handover_destinations": [first], "handover_serial": 1}
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
    assert 1 <= len(fleet.running()[first]) < 3

    status, text = fleet.play("drain", **asked)
    assert status == 0, text[-4000:]
    assert fleet.running()[first] == TENANTS
    fleet.nothing_is_lost()
    # And a third time there is nothing left to do.
    status, text = fleet.play("drain", **asked)
    assert status == 0, text[-4000:]
    assert "There is nothing to move." in text
