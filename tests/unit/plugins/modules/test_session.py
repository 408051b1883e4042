# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import re

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import pcopy
from ansible_collections.livefleet.handover.plugins.module_utils._podman import sessions
from ansible_collections.livefleet.handover.plugins.modules import session, session_info

SPEC = {"mode": "copy", "listen": "10.0.0.2:0", "peer": {"fingerprint": "sha256:00"}, "volumes": [{"name": "a", "image": "/a", "size": "4096"}]}


@pytest.fixture
def module(run_module, helper):
    def run(state, name="shop-1", check=False, **params):
        return run_module(session.main, {"session": name, "state": state, "sessions": str(helper.root), **params}, check=check)

    return run


class TestIdentity:
    def test_made_once(self, helper, module):
        first, second = module("identity"), module("identity")
        assert first["fingerprint"] == second["fingerprint"] == "sha256:6c0c"
        assert (first["changed"], second["changed"], first["plan"]) == (True, False, None)
        assert module("identity", plan={"workload": "shop"})["plan"] == {"workload": "shop"}

    def test_the_plan_is_on_record_before_the_key(self, helper, module):
        helper.answers["identity"] = pcopy.PcopyError("pcopy: no entropy", 1, [])
        with pytest.raises(Exception, match="no entropy"):
            module("identity", plan={"workload": "shop"})
        path = helper.root / "shop-1" / "plan.json"
        assert json.loads(path.read_text())["plan"] == {"workload": "shop"} and path.stat().st_mode & 0o777 == 0o600
        helper.answers.clear()
        assert [module("identity", plan=plan)["changed"] for plan in ({"workload": "shop"}, {"workload": "shop"}, {"workload": "till"})] == [True, False, True]
        assert json.loads(path.read_text())["plan"] == {"workload": "till"}

    def test_a_plan_of_this_boot(self, helper, module, run_module):
        module("identity", plan={"workload": "shop", "role": "source"})
        (known,) = run_module(session_info.main, {"sessions": str(helper.root)})["sessions"]
        assert (known["workload"], known["restarted"]) == ("shop", False)

    def test_a_member_is_not_moved_beside_the_others(self, helper, module):
        def plan(workload, members=()):
            by = {"who": "alice", "on": "bastion", "since": "2026-11-21T00:00:00Z", "boot": "b", "pid": len(members), "began": "1"}
            return {"workload": workload, "members": list(members), "role": "source", "destination": "node2", "by": by}

        module("identity", name="front-1", plan=plan("front", ["db", "web"]))
        for name, second in (("db-1", plan("db")), ("dbweb-1", plan("db+web", ["db", "web", "x"]))):
            with pytest.raises(Exception, match="front is being moved already to node2"):
                module("identity", name=name, plan=second)
        module("identity", name="other-1", plan=plan("other", ["y"]))

    def test_the_second_of_two_runs_gives_way(self, helper, module):
        def plan(pid, role="source"):
            by = {"who": "alice", "on": "bastion", "since": "2026-11-21T00:00:00Z", "boot": "b", "pid": pid, "began": "1"}
            return {"workload": "shop", "role": role, "destination": "node2", "by": by}

        module("identity", name="shop-2", plan=plan(1))
        said = "shop is being moved already to node2 by alice on bastion since 2026-11-21T00:00:00Z, by session shop-2: wait until that has ended"
        with pytest.raises(Exception, match=said):
            module("identity", name="shop-1", plan=plan(2))
        assert not (helper.root / "shop-1").exists()
        # In the same second they have the same name.
        with pytest.raises(Exception, match=said):
            module("identity", name="shop-2", plan=plan(2))
        assert json.loads((helper.root / "shop-2" / "plan.json").read_text())["plan"] == plan(1)
        # The first one goes on; another workload, and the other side of a move, are in nobody's way.
        assert not module("identity", name="shop-2", plan=plan(1))["changed"]
        assert module("identity", name="till-1", plan=dict(plan(2), workload="till"))["changed"]
        assert module("identity", name="shop-3", plan=plan(2, "destination"))["changed"]

    def test_check_mode_writes_no_plan(self, helper, module):
        assert module("identity", plan={"workload": "shop"}, check=True)["changed"]
        assert list(helper.root.iterdir()) == []

    @pytest.mark.parametrize("name", ["Shop", "../x", "", "a" * 65, "-a", "a_b"])
    def test_a_name_that_is_none(self, helper, module, name):
        with pytest.raises(Exception, match="is not a session's name: use up to 64 small letters, digits and dashes"):
            module("identity", name=name)
        assert list(helper.root.iterdir()) == []


class TestStarted:
    def test_the_specification_is_roots_alone_and_systemd_runs_the_helper(self, helper, module):
        result = module("started", role="destination", spec=SPEC)
        path = helper.root / "shop-1" / "spec.json"
        assert path.stat().st_mode & 0o777 == 0o600
        written = json.loads(path.read_text())
        assert (written["version"], written["id"], written["role"]) == (1, "shop-1", "destination")
        assert written["volumes"][0]["size"] == 4096
        assert result["status"]["listen"] == "10.0.0.2:4711"
        started, waited = helper.commands
        assert re.match(r"systemd-run .*--unit=handover-shop-1-destination\.service .*--property=KillMode=process .*receive --session .*/shop-1$", started)
        assert " --property=LogExtraFields=HANDOVER_SESSION=shop-1 " in started
        assert waited.startswith("wait shop-1 --until listening --timeout ")

    def test_a_source_sends_and_has_to_come_to_presync(self, helper, module):
        module("started", role="source", spec=SPEC)
        assert " send --session " in helper.commands[0]
        assert "--until presync" in helper.commands[1]

    def test_only_a_source_that_was_killed_is_started_again(self, helper, module):
        module("started", role="source", spec=SPEC)
        assert "--property=Restart=on-abnormal " in helper.commands[0] and "shop-1 --restarts " in helper.commands[0]
        module("started", name="shop-2", role="destination", spec=SPEC)
        assert "--property=Restart=no " in helper.commands[2] and "--restarts" not in helper.commands[2]

    def test_what_runs_is_left_alone(self, helper, module):
        module("started", role="destination", spec=SPEC)
        helper.commands.clear()
        assert not module("started", role="destination", spec=SPEC)["changed"]
        assert helper.commands == []

    def test_another_specification_is_another_session(self, helper, module):
        module("started", role="destination", spec=SPEC)
        with pytest.raises(Exception, match="session shop-1 exists on this host and was told something else"):
            module("started", role="destination", spec={**SPEC, "mode": "offline"})

    def test_one_that_has_been_on_its_way_does_not_begin_again(self, helper, module):
        module("started", role="destination", spec=SPEC)
        helper.status("shop-1", running=False, state="discarded", ended=True)
        with pytest.raises(Exception, match="has come to the state discarded on this host and cannot begin again"):
            module("started", role="destination", spec=SPEC)

    def test_the_sessions_own_reason_is_told(self, helper, module):
        helper.answers["wait"] = pcopy.PcopyError("pcopy: session shop-1 is discarded and will not be [listening]", 1, [])
        helper.status("shop-1", error="image: /a: no space left on device")
        with pytest.raises(Exception, match="session shop-1 could not begin on this host: image: /a: no space left on device"):
            module("started", role="destination", spec=SPEC)

    def test_a_volume_gets_the_folder_that_it_lies_in(self, helper, module, tmp_path):
        folder = tmp_path / "images" / "of the fleet"
        module("started", role="destination", spec={**SPEC, "volumes": [{"name": "a", "image": str(folder / "a.img"), "size": 4096}]})
        assert folder.stat().st_mode & 0o777 == 0o700

    def test_a_folder_that_cannot_be_made(self, helper, module, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(Exception, match="cannot be made on this host: File exists"):
            module("started", role="destination", spec={**SPEC, "volumes": [{"name": "a", "image": str(tmp_path / "file" / "a.img"), "size": 4096}]})
        assert not helper.commands

    def test_check_mode_touches_nothing(self, helper, module):
        assert module("started", role="destination", spec=SPEC, check=True)["changed"]
        assert list(helper.root.iterdir()) == []


class TestAbsent:
    def test_one_that_runs_is_aborted_and_removed(self, helper, module):
        helper.place("shop-1", running=True, state="presync")
        helper.answers["abort"] = {"ended": True, "state": "failed", "running": False}
        result = module("absent", role="source")
        assert result["status"]["state"] == "failed"
        assert [command.split()[0] for command in helper.commands] == ["abort", "systemctl", "systemctl"]
        assert list(helper.root.iterdir()) == []

    def test_one_that_has_ended_is_removed(self, helper, module):
        helper.place("shop-1", ended=True, state="done")
        (helper.root / "shop-1" / "events.jsonl").write_text('{"event": "state", "state": "done"}\n{"event": "st')
        assert module("absent", role="source")["events"] == [{"event": "state", "state": "done"}]
        assert not any(command.startswith("abort") for command in helper.commands)
        assert list(helper.root.iterdir()) == []

    def test_its_note_goes_with_it_and_no_other(self, helper, module, monkeypatch, tmp_path_factory):
        notes = tmp_path_factory.mktemp("started")
        monkeypatch.setattr(sessions, "STARTED_NOTES", str(notes))
        for name in ("shop-1", "shop-2"):
            (notes / name).write_text("")
        helper.place("shop-1", ended=True, state="done")
        module("absent", role="destination")
        assert [note.name for note in notes.iterdir()] == ["shop-2"]

    @pytest.mark.parametrize("state", ["released", "in_doubt"])
    def test_one_whose_outcome_is_not_known_stays(self, helper, module, state):
        helper.place("shop-1", state=state)
        helper.answers["abort"] = pcopy.PcopyError("pcopy: session: shop-1 is released: only its outcome ends it", 1, [])
        with pytest.raises(Exception, match="only its outcome ends it"):
            module("absent", role="source")
        assert (helper.root / "shop-1").exists()

    def test_nothing_there_is_no_change(self, helper, module):
        assert not module("absent", role="source")["changed"]


class TestWithdrawn:
    def test_the_plan_of_a_destination_is_the_last_to_go(self, helper, module):
        """The twin that it has made does not start as long as the plan is there."""
        helper.place("shop-1", role="destination", ended=True, state="discarded")
        (helper.root / "shop-1" / "identity").mkdir()
        plan = helper.root / "shop-1" / sessions.PLAN
        plan.write_text('{"plan": {"workload": "shop"}}')
        assert module("withdrawn", role="destination")["planned"]
        assert list((helper.root / "shop-1").iterdir()) == [plan]
        assert module("absent", role="destination")["changed"] and list(helper.root.iterdir()) == []

    @pytest.mark.parametrize("role", ["source", "destination"])
    def test_without_a_plan_nothing_is_kept(self, helper, module, role):
        helper.place("shop-1", role=role, ended=True, state="thawed")
        assert not module("withdrawn", role=role)["planned"]
        assert list(helper.root.iterdir()) == []
        again = module("withdrawn", role=role)
        assert (again["changed"], again["status"], again["planned"]) == (False, None, False)

    def test_the_plan_of_a_source_goes_too(self, helper, module):
        helper.place("shop-1", ended=True, state="thawed")
        (helper.root / "shop-1" / sessions.PLAN).write_text('{"plan": {"workload": "shop"}}')
        module("withdrawn", role="source")
        assert list(helper.root.iterdir()) == []

    @pytest.mark.parametrize("role", ["source", "destination"])
    def test_one_that_was_handed_over_is_not_taken_back(self, helper, module, role):
        """Another run may have brought it to its end since this one has looked."""
        helper.place("shop-1", role=role, running=True, state="presync")
        helper.answers["abort"] = {"ended": True, "state": "done", "running": False}
        with pytest.raises(Exception, match="session shop-1 is done on this host and is not taken back: shop has moved"):
            module("withdrawn", role=role)
        assert (helper.root / "shop-1").exists()

    def test_a_copy_has_no_workload_to_lose(self, helper, module):
        helper.place("shop-1-image", ended=True, state="done", workload="")
        module("withdrawn", name="shop-1-image", role="source")
        assert list(helper.root.iterdir()) == []


class TestRemovable:
    @pytest.mark.parametrize("role, state, removable", [
        ("source", "done", True), ("source", "presync", False), ("source", "thawed", False), ("source", "released", False),
        ("source", "resumed", False), ("source", "settled", False), ("source", "in_doubt", False),
        ("destination", "released", False), ("destination", "in_doubt", False), ("destination", "fenced", True),
        ("destination", "prepare", True), ("destination", "discarded", True), ("destination", "refused", True),
        ("destination", "resumed", False), ("destination", "settled", False), ("destination", "done", False),
    ])  # fmt: skip
    def test_by_this_hosts_own_record(self, helper, module, role, state, removable):
        helper.place("shop-1", role=role, state=state)
        if removable:
            assert not module("removable", role=role)["changed"]
        else:
            with pytest.raises(Exception, match=f"session shop-1 is {state} on this host, so shop here is not removed: it may be the only one"):
                module("removable", role=role)

    def test_a_twin_whose_session_never_began(self, helper, module):
        module("identity", plan={"workload": "shop", "role": "destination"})
        assert module("removable", role="destination")["status"]["state"] == "prepare"

    @pytest.mark.parametrize("role", ["source", "destination"])
    def test_nothing_is_removed_without_a_record(self, helper, module, role):
        with pytest.raises(Exception, match="session shop-1 is not on record on this host any more, so nothing that it may have left is removed"):
            module("removable", role=role)


class TestResolved:
    def test_a_source_in_doubt_is_told(self, helper, module):
        helper.place("shop-1", state="in_doubt", running=True)
        helper.answers["resolve"] = {"state": "done", "ended": True}
        assert module("resolved", outcome="resumed")["status"]["state"] == "done"
        assert "--outcome resumed" in helper.commands[0]

    def test_a_destination_that_missed_the_goodbye_is_told(self, helper, module):
        helper.place("shop-1", role="destination", state="settled")
        helper.answers["resolve"] = {"state": "done", "ended": True}
        assert module("resolved", outcome="resumed")["status"]["state"] == "done"

    def test_a_destination_that_was_told_by_the_source_is_waited_for(self, helper, module):
        helper.place("shop-1", role="destination", state="resumed", running=True)
        helper.answers["wait"] = {"state": "done", "ended": True}
        result = module("resolved", outcome="resumed")
        assert not result["changed"] and result["status"]["ended"]
        assert [command.split()[:4] for command in helper.commands] == [["wait", "shop-1", "--until", "ended"]]

    def test_one_that_is_gone_had_ended(self, helper, module):
        assert module("resolved", outcome="resumed")["status"] is None

    def test_a_source_that_waits_for_the_destinations_disk_is_left_alone(self, helper, module):
        helper.place("shop-1", state="settled")
        assert not module("resolved", outcome="resumed")["changed"]

    def test_one_that_knows_is_not(self, helper, module):
        helper.place("shop-1", state="done", ended=True)
        assert not module("resolved", outcome="refused")["changed"]
        assert helper.commands == []

    # It may have run there, and the source keeps everything: without the word it would keep it for ever.
    @pytest.mark.parametrize("state, held, running, told", [
        ("resumed", True, True, True), ("resumed", False, False, True), ("resumed", False, True, False),
        ("released", False, False, True), ("released", False, True, False), ("prepared", False, False, False),
    ])  # fmt: skip
    def test_who_waits_to_be_told(self, helper, module, state, held, running, told):
        helper.place("shop-1", state=state, held=held, running=running)
        helper.answers["resolve"] = {"state": "done", "ended": True}
        assert module("resolved", outcome="resumed")["changed"] is told


class TestRecovered:
    def test_what_a_dead_helper_left_is_ended(self, helper, module):
        helper.place("shop-1", state="frozen")
        helper.answers["recover"] = {"state": "thawed", "ended": True}
        result = module("recovered")
        assert result["status"]["state"] == "thawed"
        assert result["reasons"] == ["session shop-1 was frozen and had no process"]

    def test_what_can_come_no_further_is_no_change(self, helper, module):
        helper.place("shop-1", state="in_doubt")
        helper.answers["recover"] = {}
        assert not module("recovered")["changed"]

    @pytest.mark.parametrize("change", [{"running": True, "state": "presync"}, {"ended": True, "state": "done"}])
    def test_one_that_lives_or_has_ended_is_left_alone(self, helper, module, change):
        helper.place("shop-1", **change)
        assert not module("recovered")["changed"]
        assert helper.commands == []

    def test_check_mode_and_nothing_there(self, helper, module):
        assert not module("recovered")["changed"]
        helper.place("shop-1", state="frozen")
        assert module("recovered", check=True)["changed"]
        assert helper.commands == []
