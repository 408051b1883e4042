# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.livefleet.handover.plugins.filter.session_spec import destination_tmpfs
from ansible_collections.livefleet.handover.plugins.module_utils._core import tmpfs_checks
from ansible_collections.livefleet.handover.plugins.module_utils._podman.preflight import examine
from ansible_collections.livefleet.handover.plugins.module_utils._podman.preflight.plan import Plan

SCRATCH = {"place": "/scratch", "size": 200 * 2**20, "attributes": "", "device": "0:62", "inside": ""}


def pod(*members):
    facts = [{"running": True, "pid": 70 + number, "infra": False, "tmpfs": [], **member} for number, member in enumerate(members)]
    workload = {"exists": True, "held": False, "running": True, "pid": 0, "members": facts}
    return Plan("front", "node1", "node2", "live", {"workload": workload, "host": {}}, {"workload": {}, "host": {}})


def said(plan):
    return [sentence for member in plan.member_plans() for sentence in tmpfs_checks.told(member)]


def test_members_may_have_one_in_the_same_place():
    plan = pod({"name": "front-infra", "infra": True, "tmpfs": [SCRATCH]}, {"name": "db", "tmpfs": [{**SCRATCH, "device": "0:63"}]},
               {"name": "job", "running": False}, {"name": "web", "tmpfs": [{**SCRATCH, "device": "0:64"}]})  # fmt: skip
    carried = examine.tmpfs_carried(plan)
    assert [(each["name"], each["member"], each["path"], each["device"]) for each in carried] == [
        ("tmpfs:db:/scratch", "db", "/proc/71/root/scratch", "0:63"), ("tmpfs:web:/scratch", "web", "/proc/73/root/scratch", "0:64"),
    ]  # fmt: skip
    assert [(each["member"], each["path"]) for each in destination_tmpfs(carried, "/s")] == [("db", "/s/tmpfs/0"), ("web", "/s/tmpfs/1")]
    assert said(plan) == []


def test_one_that_two_members_have_is_in_one_dump_alone():
    plan = pod({"name": "db", "tmpfs": [SCRATCH]}, {"name": "web", "tmpfs": [SCRATCH, {**SCRATCH, "place": "/own", "device": "0:64"}]})
    assert [each["name"] for each in examine.tmpfs_carried(plan)] == ["tmpfs:web:/own"]
    why = "the tmpfs /scratch of {0} holds 200 MiB, which CRIU packs in the pause: another member has it mounted, too"
    assert said(plan) == [why.format("db"), why.format("web")]
