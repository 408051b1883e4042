# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The surveys say what the playbooks take, AWX would accept them, and what AWX then sends passes the door."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest
import yaml
from ansible_collections.livefleet.handover.plugins.plugin_utils import _declaration, _door

_SPEC = importlib.util.spec_from_file_location("awx_surveys", Path(__file__).with_name("surveys.py"))
surveys = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(surveys)

PLAYBOOKS = _declaration.playbooks()
# The type that AWX wants of a question's default, and of an answer.
TYPES = {"text": str, "textarea": str, "multiplechoice": str, "multiselect": str, "integer": int, "float": (int, float)}


def test_the_files_say_what_is_declared():
    made = surveys.files()
    if os.environ.get("HANDOVER_WRITE_DOCS"):
        for path, text in made.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    assert not [path.name for path, text in made.items() if not path.exists() or path.read_text(encoding="utf-8") != text], "run `make docs`"
    here = {path for folder in ("surveys", "playbooks") for path in (surveys.PLACE / folder).glob("*")}
    assert here == set(made) - {surveys.PAGE}, "a file of a playbook that is no more"


@pytest.mark.parametrize("name", PLAYBOOKS)
def test_every_variable_is_asked_for_or_has_a_reason(name):
    """The list of those without a question names nothing else, and gives a reason."""
    playbook, reasons = _declaration.of_playbook(name), surveys.left_out(name)
    asked = {question["variable"] for question in surveys.survey(name)["spec"]}
    assert set(playbook.takes) - asked - set(reasons) == set()
    assert not asked & set(reasons)
    assert all(len(reason.split()) > 3 for reason in reasons.values())
    own = surveys.QUESTIONS["left_out"].get(name, {})
    assert set(own) <= set(playbook.takes), "a reason for a variable that the playbook does not take"
    roles = _declaration.table()["playbooks"][name].get("roles", ())
    assert set(roles) <= set(surveys.QUESTIONS["roles"]), "a role whose other variables have no reason"
    needed = {each for each, spec in playbook.takes.items() if spec.get("required")} - set(reasons)
    assert needed <= {question["variable"] for question in surveys.survey(name)["spec"] if question["required"]}


def test_the_list_names_only_what_there_is():
    every = {each for name in PLAYBOOKS for each in _declaration.of_playbook(name).takes}
    assert set(surveys.QUESTIONS["left_out"]["all"]) <= every
    assert {*surveys.QUESTIONS["asked"], *surveys.QUESTIONS["left_out"]} <= {"all", *PLAYBOOKS}
    assert set(surveys.QUESTIONS["roles"]) <= set(_declaration.roles())
    assert set(surveys.QUESTIONS["examples"]) <= {each for name in PLAYBOOKS for each in surveys.asked(name)}


@pytest.mark.parametrize("name", PLAYBOOKS)
def test_awx_would_take_the_survey(name):
    """The rules of its interface: types, unique names, limits in whole numbers, a default of the question's type and among the choices."""
    found = yaml.safe_load((surveys.PLACE / "surveys" / f"{name}.yml").read_text(encoding="utf-8"))
    assert isinstance(found["name"], str) and isinstance(found["description"], str) and found["spec"]
    assert len({each["variable"] for each in found["spec"]}) == len({each["question_name"] for each in found["spec"]}) == len(found["spec"])
    for each in found["spec"]:
        assert each["type"] in TYPES and isinstance(each["required"], bool) and each["question_name"].strip() and each["question_description"].strip()
        assert all(each[limit] is None or (isinstance(each[limit], int) and not isinstance(each[limit], bool)) for limit in ("min", "max")), each
        default = each.get("default", "")
        if default != "":
            assert isinstance(default, TYPES[each["type"]]) and not isinstance(default, bool), each
            if each["choices"]:
                assert set(default.split("\n")) <= set(each["choices"])
            elif each["type"] in ("integer", "float"):
                assert each["min"] <= default <= each["max"], each
            else:
                assert each["min"] <= len(default) <= each["max"], each
        assert bool(each["choices"]) == each["type"].startswith("multi"), each


def answers(name, write):
    """Every question of a survey answered: by `write`, from the question and the example of its variable."""
    specs = surveys.asked(name)
    return {each["variable"]: write(each, surveys.example(each["variable"], specs[each["variable"]])) for each in surveys.survey(name)["spec"]}


def as_form(question, value):
    """By the form: text as typed, a number as one, choices as a list."""
    if question["type"] in ("integer", "float"):
        return value
    return list(value if isinstance(value, list) else [value]) if question["type"] == "multiselect" else surveys.shown(value)


def as_lines(question, value):
    """By an older form and by programs: numbers as text, and a line for each entry."""
    if isinstance(value, list) and not any(isinstance(each, dict) for each in value):
        return "\n".join(map(str, value)) + "\n"
    return surveys.shown(value)


def as_text(question, value):
    return surveys.shown(value)


@pytest.mark.parametrize("write", [as_form, as_lines, as_text])
@pytest.mark.parametrize("name", PLAYBOOKS)
def test_a_filled_survey_passes_the_door(name, write):
    found = _door.ask(_declaration.of_playbook(name), {**extra(name), **answers(name, write)}, strict=True)
    assert not found.problems
    same = _door.ask(_declaration.of_playbook(name), {**extra(name), **answers(name, as_form)}, strict=True)
    assert found.values == same.values


@pytest.mark.parametrize("name", PLAYBOOKS)
def test_a_blank_survey_is_one_without_answers(name):
    blank = {each["variable"]: [] if each["type"] == "multiselect" else "" for each in surveys.survey(name)["spec"]}
    needed = {each["variable"] for each in surveys.survey(name)["spec"] if each["required"]}
    found = _door.ask(_declaration.of_playbook(name), {**extra(name), **blank}, strict=True)
    declared = _declaration.of_playbook(name)
    # A role says itself that a variable of its own is missing.
    assert {problem.split(" ")[0] for problem in found.problems} == needed & set(declared.takes)
    assert found.values == _door.ask(declared, extra(name), strict=True).values


# An answer that no variable of the kind takes. A text that may be any text has none.
WRONG = {"integer": "many", "float": "many", "multiplechoice": "purple", "multiselect": ["purple"]}
WRONG_KINDS = {"container": "two words", "host": "two words", "session": "Two Words", "snapshot": "two words", "size": "huge", "guest": "a/b"}


@pytest.mark.parametrize("name", PLAYBOOKS)
def test_a_wrong_answer_is_named(name):
    """Each question's wrong answer gives a sentence that begins with its variable."""
    playbook, right = _declaration.of_playbook(name), {**extra(name), **answers(name, as_form)}
    tried = 0
    for question in surveys.survey(name)["spec"]:
        spec = surveys.asked(name)[question["variable"]]
        wrong = WRONG.get(question["type"], WRONG_KINDS.get(spec.get("kind", ""), "[unclosed" if spec.get("type") == "dict" else None))
        if wrong is None:
            continue
        tried += 1
        found = _door.ask(playbook, {**right, question["variable"]: wrong}, strict=True)
        assert len(found.problems) == 1 and found.problems[0].startswith(question["variable"] + " "), (question["variable"], found.problems)
    assert tried or not [each for each in surveys.survey(name)["spec"] if each["type"] in WRONG]


def extra(name):
    """The variables that AWX adds without a question: those of the template, and in a workflow the results of the node before."""
    results = {"handover_results": [{"workload": "shop", "from": "node3", "to": "node2", "verdict": "moved"}]}
    return {
        **({"handover_report_dir": "reports"} if "handover_report_dir" in _declaration.of_playbook(name).takes else {}),
        **(results if "handover_results" in _declaration.of_playbook(name).takes else {}),
    }
