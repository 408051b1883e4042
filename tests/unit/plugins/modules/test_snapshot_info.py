# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""snapshot_info lists whole snapshots only, the oldest first."""

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import HandoverError, Runtime
from ansible_collections.livefleet.handover.plugins.module_utils._core.snapshot_records import Snapshots
from ansible_collections.livefleet.handover.plugins.module_utils._podman.podman import Podman
from ansible_collections.livefleet.handover.plugins.modules import snapshot_info


@pytest.fixture(name="root")
def two_snapshots(tmp_path):
    kept = Snapshots(str(tmp_path), "shop")
    for name, taken in (("later", "2026-11-21T21:30:00Z"), ("before-upgrade", "2026-11-21T20:30:00Z")):
        kept.begin(name)
        kept.finish(name, {"name": name, "taken": taken, "size": 4096})
    kept.begin("half")  # a run that was killed
    return tmp_path


@pytest.fixture(name="ask")
def the_module(run_module, root, monkeypatch):
    pod = [{"Names": [name], "Id": name * 3, "PodName": "office", "IsInfra": name == "infra"} for name in ("shop", "till", "infra")]
    monkeypatch.setattr(Podman, "containers", lambda self: pod)
    monkeypatch.setattr(Runtime, "find", lambda self, tool: "/usr/bin/" + tool)
    return lambda workload="shop", check=False: run_module(snapshot_info.main, {"workload": workload, "root": str(root)}, check=check)


@pytest.mark.parametrize("check", [False, True])
def test_whole_ones_are_listed_the_oldest_first(ask, check):
    answer = ask(check=check)
    assert [each["name"] for each in answer["snapshots"]] == ["before-upgrade", "later"]
    assert answer["snapshots"][0] == {
        "workload": "shop", "name": "before-upgrade", "taken": "2026-11-21T20:30:00Z", "size": 4096, "parent": "", "current": False, "mountpoints": {}
    }  # fmt: skip
    assert not answer["changed"]


@pytest.mark.parametrize("word", ["office", "shop+till", "shop+gone"])
def test_those_of_several(ask, root, word):
    till = Snapshots(str(root), "till")
    till.begin("later")
    till.finish("later", {"name": "later", "taken": "2026-11-21T21:30:00Z", "size": 1})
    found = [(each["workload"], each["name"]) for each in ask(word)["snapshots"]]
    assert found == [("shop", "before-upgrade"), ("shop", "later"), ("till", "later")][: 2 if word == "shop+gone" else 3]


def test_the_tree_and_the_current_one_are_the_stores(ask, root, monkeypatch):
    (root / ".disks/shop").mkdir(parents=True)
    (root / ".disks/shop/store.json").write_text("{}")
    points = [{"id": "a1", "name": "before-upgrade", "parent": "", "current": True}, {"id": "b2", "name": "later", "parent": "a1", "current": False}]
    monkeypatch.setattr(snapshot_info.Pcopy, "call", lambda self, *words: {"snapshots": points})
    assert [(each["parent"], each["current"]) for each in ask()["snapshots"]] == [("", True), ("before-upgrade", False)]

    def refuse(self, *words):
        raise HandoverError("store.json is damaged")

    monkeypatch.setattr(snapshot_info.Pcopy, "call", refuse)
    assert [each["current"] for each in ask()["snapshots"]] == [False, False], "they are listed all the same"


def test_a_workload_without_any_has_none(ask):
    assert ask("till")["snapshots"] == []


@pytest.mark.parametrize("name", ["../shop", "", "a b", "x" * 65])
def test_a_name_that_would_lead_elsewhere_is_refused(ask, name):
    with pytest.raises(Exception, match="workload: '.*' is no name: use up to 64 letters, digits"):
        ask(name)


def test_a_torn_record_is_named_with_the_way_out(ask, root):
    (root / "shop" / "later" / "snapshot.json").write_text('{"name": "la')
    with pytest.raises(Exception, match="later/snapshot.json cannot be read: .*: remove the snapshot"):
        ask()
