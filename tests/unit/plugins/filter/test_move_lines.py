# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.filter.failure_reason import failure_reason, last_words
from ansible_collections.livefleet.handover.plugins.filter.first_session import first_session, messages
from ansible_collections.livefleet.handover.plugins.filter.move_lines import move_record, moved_lines, trial_lines, undo_sentence
from ansible_collections.livefleet.handover.plugins.filter.report_folder import report_folder, with_page
from ansible_collections.livefleet.handover.plugins.filter.session_name import session_name
from ansible_collections.livefleet.handover.plugins.filter.session_spec import destination_directories, destination_volumes, source_volumes

MOVE = {"workload": "shop", "source": "node1", "destination": "node2", "relay": "gate", "ran": True, "command": "podman"}
QUIET = {"source": {"workload": {"running": True, "state": "running"}}, "destination": {}, "removed": [], "relay": {}, "unit": {}, "restored": []}
STATUS = {"mode": "live", "stages": [{"stage": "dump", "ms": 200.0}], "frozen_ms": 300.0, "error": "", "state_bytes": 2**20}


@pytest.mark.parametrize(
    ("result", "reason"),
    (
        ({"msg": " it broke\n"}, "it broke"),
        ({}, "a task failed and said nothing"),
        ({"msg": "One or more items failed", "results": [{"msg": "fine"}, {"failed": True, "msg": "the second broke"}]}, "the second broke"),
        ({"msg": "One or more items failed", "results": [{"failed": True}]}, "One or more items failed"),
        ({"msg": ["a", "b"]}, "['a', 'b']"),
    ),
)
def test_why_a_block_failed(result, reason):
    assert failure_reason(result) == reason


@pytest.mark.parametrize(
    ("result", "words"),
    (
        ({"rc": 255, "stderr": "Warning: added\nPermission denied (publickey).\n", "msg": "non-zero return code"}, "Permission denied (publickey)"),
        ({"rc": 127, "stderr": " \n", "msg": "no such file"}, "no such file"),
        ({"rc": 1, "stderr": "", "msg": "", "stdout": "hello"}, "hello"),
        ({"rc": 20, "stderr": "", "msg": "non-zero return code", "stdout": "CT is locked\n"}, "CT is locked"),
        ({"rc": 1}, "it ended with status 1"),
    ),
)
def test_the_last_words_of_a_command(result, words):
    assert last_words(result) == words


def test_a_host_without_an_answer_has_no_session():
    assert first_session({"sessions": [{"id": "a"}, {"id": "b"}]}) == {"id": "a"}
    assert first_session({"sessions": []}) == first_session({"unreachable": True}) == {}


def test_only_items_that_say_something_have_a_message():
    assert messages({"results": [{"msg": "one"}, {"changed": True}, {"msg": ""}, {"msg": "two"}]}) == ["one", "two"]
    assert messages({"skipped": True}) == []


@pytest.mark.parametrize(
    ("reason", "move", "answers", "sentence"),
    (
        ("no space left.", {}, {}, "no space left. shop runs on node1 as before"),
        ("shop runs on node1 as before", {}, {}, "shop runs on node1 as before"),
        ("it broke", {}, {"source": {"workload": {"running": False, "state": "exited"}}},
         "it broke. shop does not run on node1 (it is exited): look at it there with `podman ps --all`"),
        ("it broke", {"ran": False}, {"source": {"workload": {"running": False, "state": "exited"}}}, "it broke. shop is exited on node1 as before"),
        ("it broke", {}, {"source": {"workload": {"running": True, "conmon_gone": True}}},
         "it broke. shop runs on node1 as before. The conmon of shop on node1 has died, so podman neither keeps its output nor sees its end: "
         "run `podman stop shop; podman start shop` there, of which the first complains of that once more"),
        ("it broke", {"ran": False}, {"source": {"msg": "no"}}, "it broke. shop is not answering on node1 as before"),
        ("it broke", {}, {"source": {"workload": {"running": False, "state": ""}}},
         "it broke. shop does not run on node1 (it is gone): look at it there with `podman ps --all`"),
        ("the connection ended", {}, {"destination": {"results": [{"status": {"error": "no space left"}}, {"status": None}]}},
         "the connection ended. shop runs on node1 as before. On node2: no space left"),
        ("no space left there", {}, {"destination": {"results": [{"status": {"error": "no space left"}}]}},
         "no space left there. shop runs on node1 as before"),
        ("it broke", {}, {"destination": {"results": [{"status": {"error": "failed on the source: it broke"}}]}}, "it broke. shop runs on node1 as before"),
        ("it broke", {}, {"relay": {"results": [{"failures": ["refused"]}, {}]}}, "it broke. shop runs on node1 as before. On the relay gate: refused"),
        ("it broke", {}, {"removed": [{}, {"msg": "the twin is in use."}]},
         "it broke. shop runs on node1 as before. node2 could not be cleaned up: the twin is in use"),
        ("it broke", {}, {"removed": [{"msg": "the twin is in use"}], "destination": {"results": [{"msg": "it hangs"}]}},
         "it broke. shop runs on node1 as before. node2 could not be cleaned up: it hangs"),
        ("it broke", {}, {"unit": {"msg": "systemd does not answer"}},
         "it broke. shop runs on node1 as before. Its unit on node1 is held still and does not start it: systemd does not answer"),
        ("it broke", {}, {"restored": [{}, {"msg": "the restart policy of shop is no"}]},
         "it broke. shop runs on node1 as before. On node1: the restart policy of shop is no"),
        ("it broke", {"command": "docker"}, {"source": {"workload": {"running": False, "state": "exited"}}},
         "it broke. shop does not run on node1 (it is exited): look at it there with `docker ps --all`"),
    ),
)  # fmt: skip
def test_why_it_was_not_moved_and_where_it_runs(reason, move, answers, sentence):
    assert undo_sentence(reason, {**MOVE, **move}, {**QUIET, **answers}) == sentence


def test_a_move_is_told_with_its_times_and_its_page():
    report = {**MOVE, "source_session": STATUS, "running": True}
    lines = moved_lines(report)
    assert lines[:2] == ["shop has moved from node1 to node2 (live).", ""]
    assert lines[-1].startswith("Total suspended time")
    more = moved_lines({**report, "source_session": {**STATUS, "error": "slow"}}, ["the log stays"], ["/reports/shop.json", "/reports/shop.html"])
    assert more[len(lines) :] == ["", "the log stays", "", "Worth a look: slow", "", "Report: /reports/shop.html"]
    assert moved_lines({**report, "running": False})[-1].startswith("Total time")


def test_a_trial_foretells_the_pause():
    lines = trial_lines(STATUS, MOVE, 2.0**20, placed=False)
    assert lines[0] == "A trial of shop on node1: it was frozen and dumped, and runs on."
    assert lines[-1] == "Its state takes 1 MiB. A move to node2 would pause it for about 1.40 s."


@pytest.mark.parametrize(
    ("workload", "name"), (("shop", "shop-1"), ("--Web_Shop.2", "web-shop-2-1"), ("x" * 99, "x" * 34 + "-1"), ("äöü", "1"))
)
def test_a_session_is_named_by_its_workload(workload, name):
    assert session_name(workload, "-1") == name


def test_the_figures_of_a_record_are_figures():
    record = move_record({"session": "shop-1"}, {"frozen_ms": 300.5}, {"memory": "4096"})
    assert record == {"session": "shop-1", "frozen_ms": 300.5, "at_risk_ms": 0.0, "memory": 4096, "running": True, "verify": None}
    assert move_record({}, {"frozen_ms": 1, "at_risk_ms": 912.5}, {"memory": 0})["at_risk_ms"] == 912.5
    assert move_record({}, {"frozen_ms": 1, "verify": {"checked": True}}, {"memory": 0, "running": False})["running"] is False


def test_the_page_is_named_if_there_is_one():
    assert (with_page(["a"], ["/p.json", "/p.html"]), with_page(["a"], None)) == (["a", "", "Report: /p.html"], ["a"])


def test_a_report_goes_where_the_operator_stands(monkeypatch):
    monkeypatch.setenv("PWD", "/home/op")
    assert (report_folder("reports"), report_folder("/srv/reports")) == ("/home/op/reports", "/srv/reports")


VOLUME = {
    "name": "data", "device": "/dev/loop0", "image": "/v/data.img", "size": 1, "mountpoint": "/m", "fstype": "ext4", "options": "", "podman_volume": "data",
}  # fmt: skip


def test_each_side_is_told_of_a_volume_no_more_than_it_needs():
    assert source_volumes([VOLUME], "ebpf") == [{"name": "data", "device": "/dev/loop0", "size": 1, "mountpoint": "/m", "tracker": "ebpf"}]
    there = {"name": "data", "image": "/v/data.img", "size": 1, "mountpoint": "/m", "fstype": "ext4", "options": "", "device": "/dev/loop0"}
    assert destination_volumes([VOLUME], True) == [{**there, "kept": "/v/data.img.migrated"}]
    assert destination_volumes([VOLUME], False) == [{**there, "kept": ""}]
    assert destination_volumes([{**VOLUME, "same_device": True}], False) == [{**there, "same_device": True, "kept": ""}]


def test_a_directory_is_where_the_twin_has_it_and_a_bind_mount_where_it_was():
    plain, bind = {"name": "logs", "path": "/here/logs", "size": 1}, {"name": "/srv/site", "path": "/srv/site", "file": "index.html"}
    assert destination_directories([plain, bind], [{"name": "logs", "source": "/there/logs", "type": "volume"}], ["/srv/site"]) == [
        {"name": "logs", "path": "/there/logs", "size": 1},
        {"name": "/srv/site", "file": "index.html", "path": "/srv/site"},
    ]
