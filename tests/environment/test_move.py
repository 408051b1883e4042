# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Jobs in the image move a container between two booted hosts, there and back. The hosts' helper comes from the image, too."""

from __future__ import annotations

import hashlib
import json
import platform

import job
import jsonschema
import pytest
import ways
from scene import CHECKOUT, REPORTS, WORKLOAD

SCHEMA = json.loads((CHECKOUT / "docs" / "reference" / "move-report.schema.json").read_text(encoding="utf-8"))
MIGRATE = "awx/playbooks/migrate.yml"


@pytest.fixture(scope="module")
def prepared(run, fleet):
    """The user's own playbook, with the role `pcopy` of the image."""
    done = run(ways.mounted, "prepare.yml", {})
    assert done.status == "successful", done.text
    return list(fleet.hosts)


def words(fleet, host):
    """What the workload has written so far: as many lines, and how many that differ."""
    lines = fleet.ask(host, f"podman exec {WORKLOAD} cat /data/words").splitlines()
    return len(lines), len(set(lines))


def where(fleet):
    return [host for host in fleet.hosts if fleet.ask(host, "podman ps --all --format '{{.Names}}'").split() == [WORKLOAD]]


def test_the_hosts_have_the_helper_of_the_image(prepared, fleet):
    name = {"x86_64": "pcopy-linux-amd64", "aarch64": "pcopy-linux-arm64"}[platform.machine()]
    ours = hashlib.sha256((CHECKOUT / "roles" / "pcopy" / "files" / name).read_bytes()).hexdigest()
    for host in prepared:
        assert fleet.ask(host, "sha256sum < /usr/local/libexec/handover/pcopy").split()[0] == ours


def test_a_wrong_answer_is_refused(prepared, run, fleet, workload):
    done = run(ways.container_group, MIGRATE, job.answers("migrate", handover_workload=workload, handover_destination="node9"))
    assert done.status == "failed" and "nothing was touched" in done.text, done.text
    assert where(fleet) == prepared[:1]


def test_a_look_says_that_it_can_move(prepared, run, fleet, workload):
    """The job type `check`."""
    here, there = prepared
    done = run(ways.execution_node, MIGRATE, job.answers("migrate", handover_workload=workload, handover_destination=there), "--check")
    assert done.status == "successful" and f"{workload} can move from {here} to {there}." in done.text, done.text
    assert where(fleet) == [here]


def test_a_container_moves_there_and_back(prepared, run, fleet, workload):
    """There as in a pod, and back as on an execution node."""
    for way, here, there in ((ways.container_group, *prepared), (ways.execution_node, *reversed(prepared))):
        before, _kinds = words(fleet, here)
        done = run(way, MIGRATE, job.answers("migrate", handover_workload=workload, handover_destination=there))
        assert done.status == "successful", done.text

        (result,) = done.results
        assert (result["workload"], result["from"], result["to"], result["verdict"]) == (workload, here, there, "moved")
        assert result["frozen_ms"] > 0
        # The same process goes on there.
        after, kinds = words(fleet, there)
        assert after > before and kinds == 1 and where(fleet) == [there]

        # The container of the job is gone, and the report is on the host that keeps reports.
        keeper = prepared[0]
        host, _colon, page = result["path"].partition(":")
        assert host == keeper and page.startswith(REPORTS + "/") and "<html" in fleet.ask(keeper, f"cat {page}")
        record = json.loads(fleet.ask(keeper, f"cat {page.removesuffix('.html')}.json"))
        jsonschema.validate(record, SCHEMA)
        assert (record["workload"], record["destination"]) == (workload, there)


def test_no_container_of_a_job_is_left(store):
    assert store.ask("ps", "--all", "--quiet") == ""
