# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""workload_info on a host whose podman is a table of answers: the container as podman recorded it, and every question without an answer told."""

from __future__ import annotations

import json
import pathlib

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import Completed, HandoverError, Runtime
from ansible_collections.livefleet.handover.plugins.module_utils._podman import host_offer, podman
from ansible_collections.livefleet.handover.plugins.modules import workload_info

RECORDED = pathlib.Path(__file__).parents[1] / "module_utils" / "_podman" / "recorded" / "podman-5.4-inspect.json"
HELP = "      --name string      Assign a name\n  -v, --volume stringArray   Bind mount a volume\n  -d, --detach   Run in background\n"


class Host:
    """A host with one container that does not run."""

    def __init__(self, folder, document):
        self.folder = folder
        self.document = document
        self.there = True
        self.silent = {}  # words of a command → the seconds until it fails
        self.pod = ""
        self.listed = True
        self.names = [document["ImageName"]]
        self.slept = 0.0

    @property
    def image(self):
        return self.document["Image"]

    def run(self, argv, accept=(0,), stdin=None, timeout=None):
        words = " ".join(str(word) for word in argv[1:])
        for each, seconds in self.silent.items():
            if words.startswith(each):
                self.slept += seconds
                raise HandoverError(f"podman {each} failed: as the test wants it")
        listed = {"Id": self.document["Id"], "Names": [self.document["Name"]], "State": "exited", "PodName": self.pod}
        answers = {
            "ps --all --pod": [listed] if self.listed else [],
            "ps --all --filter": None,
            "container inspect": [self.document],
            "pod inspect": [{"Name": "front", "Id": "f" * 64, "CreateCommand": ["podman", "pod", "create", "front"]}],
            "network ls": [],
            "volume ls": [],
            "image ls": [{"Id": self.image, "Names": self.names, "Size": 4096}],
            "image inspect": [{"ManifestType": "application/vnd.oci.image.manifest.v1+json"}],
            "info": {"host": {}, "store": {}, "version": {"Version": "5.4.2"}},
            "-json address": [],
        }
        out = next((json.dumps(answer) if answer is not None else "" for key, answer in answers.items() if words.startswith(key)), "")
        return Completed(tuple(argv), 0, HELP if words.endswith("--help") else out, "")


@pytest.fixture(name="host")
def the_host(monkeypatch, tmp_path):
    documents = json.loads(RECORDED.read_text(encoding="utf-8"))
    fake = Host(tmp_path, next(iter(documents.values())) if isinstance(documents, dict) else documents[0])
    fake.document["State"].update(Status="exited", Running=False, Pid=0)
    fake.document["Mounts"] = []
    monkeypatch.setattr(Runtime, "run", lambda self, argv, accept=(0,), stdin=None, timeout=None: fake.run(argv, accept, stdin, timeout))
    monkeypatch.setattr(Runtime, "find", lambda self, tool: "/usr/bin/" + tool if tool != "podman" or fake.there else None)
    monkeypatch.setattr(Runtime, "remaining", lambda self: 120 - fake.slept)
    return fake


@pytest.fixture(name="ask")
def the_module(run_module, host):
    def ask(check=False, **params):
        asked = {"workload": host.document["Name"], "images": str(host.folder), "sessions": str(host.folder), **params}
        answer = run_module(workload_info.main, asked, check=check)
        assert not answer["changed"]
        return answer

    return ask


@pytest.mark.parametrize("check", [False, True])
def test_a_container_that_does_not_run_is_told_in_full(ask, host, check):
    answer = ask(check)
    facts = answer["workload"]
    assert (facts["exists"], facts["running"], facts["held"], facts["name"], facts["id"]) == (True, False, False, host.document["Name"], host.document["Id"])
    assert facts["image"]["id"] == host.image and (facts["image"]["size"], facts["image"]["named"]) == (4096, True)
    assert facts["image"]["manifest"] == "application/vnd.oci.image.manifest.v1+json"
    assert (facts["pids"], facts["obstacles"], facts["throttle"]["why"]) == ([], [], "it does not run")
    assert answer["host"]["podman"]["version"] == [5, 4, 2] and answer["host"]["podman"]["installed"]


def test_an_image_whose_name_means_another_by_now(ask, host):
    host.names = ["localhost/newer:1"]
    assert not ask()["workload"]["image"]["named"]


@pytest.mark.parametrize("brief", [False, True])
def test_a_name_that_is_none_is_no_error(ask, host, brief):
    assert not ask(workload="gone", brief=brief)["workload"]["exists"]


@pytest.mark.parametrize("brief", [False, True])
def test_the_name_of_a_pod_is_that_of_its_members(ask, host, brief):
    host.pod, host.document["Pod"] = "front", "f" * 64
    facts = ask(workload="front", brief=brief)["workload"]
    assert (facts["exists"], facts["running"], facts["name"], facts["running_members"]) == (True, False, "front", [])
    if not brief:
        assert [(member["name"], member["infra"]) for member in facts["members"]] == [(host.document["Name"], False)]
        assert (facts["kind"], [pod["name"] for pod in facts["pods"]], facts["outsiders"]) == ("pod", ["front"], [])


def test_a_host_without_podman_has_no_container_and_says_so_of_itself(ask, host):
    host.there = False
    answer = ask()
    assert not answer["workload"]["exists"] and not answer["host"]["podman"]["installed"]


def test_a_container_that_podman_waits_for_is_held_and_the_host_is_told(ask, host):
    host.silent = {"container inspect": podman.ANSWER_SECONDS}
    answer = ask()
    assert answer["workload"]["held"] and answer["workload"]["exists"]
    assert f"podman does not answer about {host.document['Id']}: it is being checkpointed, restored or held" in answer["problems"]
    assert answer["host"]["podman"]["installed"]


def test_a_container_that_podman_refuses_is_an_error(ask, host):
    host.silent = {"container inspect": 0.1}
    with pytest.raises(Exception, match="podman container inspect failed: as the test wants it"):
        ask()


@pytest.mark.parametrize(
    ("question", "lacks"),
    [
        ("info", lambda facts: facts["host"]["podman"]["version"] in (None, [])),
        ("image ls", lambda facts: facts["workload"]["image"]["size"] == 0),
        ("image inspect", lambda facts: facts["workload"]["image"]["manifest"] == ""),
        ("network ls", lambda facts: facts["host"]["podman"]["networks"] == []),
        ("volume ls", lambda facts: facts["host"]["podman"]["volumes"] == {}),
        ("secret ls", lambda facts: facts["host"]["podman"]["secrets"] == []),
        ("run --help", lambda facts: facts["workload"]["create_options"] == []),
        ("-json address", lambda facts: facts["host"]["addresses"] == []),
    ],
)
def test_a_question_without_an_answer_is_told_once_and_the_others_are_asked(ask, host, question, lacks):
    host.silent = {question: 0.1}
    answer = ask()
    assert lacks(answer)
    assert [each for each in answer["problems"] if question in each] == [f"podman {question} failed: as the test wants it"]


def test_brief_asks_podman_for_its_list_alone(ask, host):
    host.silent = dict.fromkeys(("container inspect", "image", "network", "volume", "info"), 0.1)
    answer = ask(brief=True)
    assert answer["problems"] == [] and "host" not in answer
    assert (answer["workload"]["state"], answer["workload"]["conmon_gone"]) == ("exited", False)


def test_a_host_that_has_it_tells_all_at_once(ask, host):
    whole, brief = ask(), ask(brief=True)
    here = ask(brief=True, whole="here")
    assert {key for key in here if key not in whole} == {"sessions"} and here["sessions"] == brief["sessions"]
    assert here["workload"]["create_command"] == whole["workload"]["create_command"] and here["host"]["podman"] == whole["host"]["podman"]
    assert "host" not in ask(brief=True, whole="here", workload="gone")
    assert ask(brief=True, whole="always", workload="gone")["host"]["podman"]["installed"]


def test_where_all_cannot_be_told_the_brief_answer_holds(ask, host):
    host.silent = {"container inspect": 0.1}
    answer = ask(brief=True, whole="here")
    assert answer["workload"]["exists"] and "host" not in answer
    assert answer["problems"] == ["podman container inspect failed: as the test wants it"]


def test_an_error_that_nobody_has_thought_of_does_not_lose_the_brief_answer(ask, host, monkeypatch):
    """A container that is removed meanwhile: podman's answer has no entry, and the file of a task is gone."""
    documents = []
    monkeypatch.setattr(podman.Podman, "inspect", lambda *_words: documents[0])
    answer = ask(brief=True, whole="here")
    assert answer["workload"]["exists"] and answer["sessions"] == [] and "host" not in answer
    assert answer["problems"] == ["IndexError: list index out of range"]


def test_problems_of_both_answers_are_told(ask, host):
    host.silent = {"info": 0.1}
    assert ask(brief=True, whole="here")["problems"] == ["podman info failed: as the test wants it"]


@pytest.mark.parametrize("word", ["name", "id"])
@pytest.mark.parametrize("of", [{"workload": "NAME"}, {"workload": "front", "members": ["NAME"]}])
@pytest.mark.parametrize("whole", ["here", "always"])
def test_one_that_a_move_has_is_not_asked_about_at_length(ask, host, monkeypatch, word, of, whole):
    """podman waits for what is being checkpointed or restored, and the preflight asks anew where there is a session."""
    name = host.document["Name"]
    plan = {"members": [name if each == "NAME" else each for each in of.get("members", [])]}
    session = {"id": "s1", "role": "source", "workload": of["workload"].replace("NAME", name), "state": "frozen", "ended": False, "plan": plan}
    monkeypatch.setattr(host_offer.os, "access", lambda *_words: True)
    monkeypatch.setattr(host_offer.Sessions, "statuses", lambda _self: [session])
    host.silent = {"container inspect": podman.ANSWER_SECONDS}
    answer = ask(brief=True, whole=whole, workload=name if word == "name" else host.document["Id"])
    assert (answer["workload"]["name"], answer["problems"], host.slept) == (name, [], 0.0) and "host" not in answer
    session.update(workload="other", plan={})
    host.silent = {}
    assert "host" in ask(brief=True, whole=whole)
