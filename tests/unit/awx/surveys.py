# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The surveys of AWX, the playbooks that its job templates start, and docs/reference/awx.md: made from the declaration of the variables.

AWX checks an answer by its question, and the door of the playbook checks it again. So a survey asks for what the declaration says, and no less.
"""

from __future__ import annotations

import json
import re
import typing as t
from pathlib import Path

import yaml
from ansible_collections.livefleet.handover.plugins.plugin_utils import _declaration

Spec = t.Mapping[str, t.Any]

PLACE = _declaration.COLLECTION / "awx"
PAGE = _declaration.COLLECTION / "docs" / "reference" / "awx.md"
QUESTIONS = yaml.safe_load((PLACE / "questions.yml").read_text(encoding="utf-8"))

# The longest text of each kind that AWX takes; a name is no longer than its program takes.
_LONGEST = {"session": 64, "host": 253, "container": 255, "guest": 255, "snapshot": 255, "size": 32}
_LONG, _LONGER = 1024, 65536
# AWX keeps a limit in four bytes.
_MOST = 2147483647

_HEAD = """\
---
# Made from the variables' declaration by `make docs`: change playbooks/vars or awx/questions.yml, and not this file.
"""


def left_out(playbook: str) -> dict[str, str]:
    """The variables of a playbook that have no question, with the reason."""
    return {**QUESTIONS["left_out"]["all"], **QUESTIONS["left_out"].get(playbook, {})}


def asked(name: str) -> dict[str, Spec]:
    """The variables that a playbook's survey asks for; those that must be answered come first."""
    playbook = _declaration.of_playbook(name)
    own = {each: spec for each, spec in playbook.takes.items() if each not in left_out(name)}
    besides = {each: playbook.roles[each] for each in QUESTIONS["asked"].get(name, ())}
    every = {**own, **besides}
    return {each: every[each] for each in sorted(every, key=lambda each: not _required(name, each, every[each]))}


def _required(playbook: str, name: str, spec: Spec) -> bool:
    return bool(spec.get("required")) or name in _declaration.of_playbook(playbook).one_of[:1]


def survey(name: str) -> dict[str, t.Any]:
    """A playbook's survey, as AWX takes it."""
    declared = _declaration.table()["playbooks"][name]
    questions = [question(each, spec, _required(name, each, spec)) for each, spec in asked(name).items()]
    return {"name": f"Handover {name}", "description": declared["description"], "spec": questions}


def question(name: str, spec: Spec, required: bool) -> dict[str, t.Any]:
    kind, least, most, choices = _form(spec)
    found: dict[str, t.Any] = {
        "question_name": _title(name, spec),
        "question_description": help_of(name, spec),
        "required": required,
        "type": kind,
        "variable": name,
        "min": least,
        "max": most,
        "default": _default(kind, None if required else spec.get("default")),
        "choices": choices,
    }
    # AWX takes an empty default of a choice for one that is none of them.
    return {key: value for key, value in found.items() if not (key == "default" and choices and value == "")}


def _form(spec: Spec) -> tuple[str, int | None, int | None, list[str]]:
    """The type of a question, its limits and its choices."""
    kind = spec.get("kind") or spec.get("unit") or spec.get("type", "str")
    choices = [str(each) for each in spec.get("choices") or ()]
    if choices:
        return ("multiselect" if spec.get("elements") else "multiplechoice"), None, None, choices
    if kind == "bool":
        return "multiplechoice", None, None, ["true", "false"]
    if kind in ("int", "seconds", "milliseconds"):
        return "integer", int(spec.get("least", 0)), int(spec.get("most", _MOST)), []
    if kind == "float":
        return "float", int(spec.get("least", 0)), int(spec.get("most", _MOST)), []
    if spec.get("type") in ("list", "dict"):
        return "textarea", 0, _LONGER, []
    return "text", int(bool(spec.get("required"))), _LONGEST.get(kind, _LONG), []


def _title(name: str, spec: Spec) -> str:
    """A name for people: that of the variable without its owner, and the unit."""
    words = name[len(_declaration.prefix(name)) + 1 :] if _declaration.prefix(name) else name
    unit = spec.get("unit", "")
    return words.replace("_ms", "").replace("_", " ").capitalize().replace("osd", "OSD").replace("Osd", "OSD") + (f", {unit}" if unit else "")


def help_of(name: str, spec: Spec) -> str:
    said = spec["description"]
    text = re.sub(r"\b[CVOMPE]\(([^)#]*)(#[a-z]+)?\)", r"\1", " ".join((" ".join(said) if isinstance(said, list) else said).split()))
    return text.rstrip(".") + ". As in " + shown(example(name, spec)) + "." if example(name, spec) is not None else text


def example(name: str, spec: Spec) -> t.Any:
    if "example" in spec:
        return spec["example"]
    return QUESTIONS["examples"].get(name, (spec.get("choices") or [spec.get("default")])[0])


def shown(value: t.Any) -> str:
    """A value as it is typed into a form."""
    if isinstance(value, list) and not any(isinstance(each, (list, dict)) for each in value):
        return ", ".join(map(str, value))
    return json.dumps(value) if isinstance(value, (list, dict)) else str(value).lower() if isinstance(value, bool) else str(value)


def _default(kind: str, value: t.Any) -> t.Any:
    if value in (None, [], {}, "") or "{{" in str(value):
        return ""
    if kind in ("integer", "float"):
        return value
    return "\n".join(map(str, value)) if kind in ("multiselect", "textarea") and isinstance(value, list) else shown(value)


def files() -> dict[Path, str]:
    """Every file that is made: its place → its text."""
    made = {PAGE: page()}
    for name in _declaration.playbooks():
        text = yaml.safe_dump(survey(name), sort_keys=False, allow_unicode=True, width=140)
        # yamllint wants entries of a list further in.
        made[PLACE / "surveys" / f"{name}.yml"] = _HEAD + _further_in(text)
        made[PLACE / "playbooks" / f"{name}.yml"] = _HEAD + _playbook(name)
    return made


def _further_in(text: str) -> str:
    lines, deeper = [], False
    for line in text.splitlines():
        deeper = deeper or line == "spec:"
        within = deeper and line != "spec:"
        if re.match(r"  - ", line):
            line = "  " + line
        lines.append("  " + line if within else line)
    return "\n".join(lines) + "\n"


def _playbook(name: str) -> str:
    return (
        f"# The code is that of the execution environment: the project only names the playbook.\n\n- name: Handover {name}\n"
        f"  ansible.builtin.import_playbook: livefleet.handover.{name}\n"
    )


def page() -> str:
    parts = [
        "# Surveys of AWX\n",
        "Each playbook has a job template with this survey. The files in `awx/surveys` hold them; [AWX](../awx.md) says how they get there.\n",
    ]
    for name in _declaration.playbooks():
        form = survey(name)
        parts += [f"## {form['name']}\n", form["description"] + "\n"]
        rows = "".join(f"| {each['question_name']} | `{each['variable']}` | {_answer(each)} | {'yes' if each['required'] else ''} |\n" for each in form["spec"])
        parts.append("| question | variable | answer | needed |\n|---|---|---|---|\n" + rows)
        declared = _declaration.of_playbook(name).takes
        parts.append(
            "Not asked:\n\n" + "".join(f"- `{each}`: {why}.\n" for each, why in left_out(name).items() if each in declared)
            if any(each in declared for each in left_out(name))
            else ""
        )
    return "\n".join(part for part in parts if part)


def _answer(form: Spec) -> str:
    if form["choices"]:
        several = "any of " if form["type"] == "multiselect" else ""
        return several + ", ".join(f"`{each}`" for each in form["choices"])
    if form["type"] in ("integer", "float"):
        return f"a number from {form['min']}" + (f" to {form['max']}" if form["max"] < _MOST else "")
    return "lines of text" if form["type"] == "textarea" else f"text, up to {form['max']} characters"
