# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The one door for variables: everything that a playbook was given, read and checked in one place, before a host is touched.

All faults are reported at once, a sentence each. Valid values come out with their type.
"""

from __future__ import annotations

import difflib
import json
import typing as t

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.livefleet.handover.plugins.plugin_utils._declaration import COMMON_PREFIXES, Playbook, Spec, known, prefix, renamed
from ansible_collections.livefleet.handover.plugins.plugin_utils._reading import read

Variables = t.Mapping[str, t.Any]
Match = t.Callable[[str], t.Sequence[str]]

# So alike are two names if one is meant for the other.
ALIKE = 0.8
# The keys of a declaration that Ansible's own validator knows.
_ANSIBLE = frozenset(("type", "elements", "options", "required_one_of", "mutually_exclusive"))
# The types of values once they are read.
_READ = {"size": "int", "bytes": "int", "seconds": "int", "milliseconds": "int"}


class Asked(t.NamedTuple):
    """The values of a playbook's variables, without the prefix of their names, and all that is wrong with them."""

    values: dict[str, t.Any]
    problems: list[str]


def ours(name: str) -> bool:
    """Whether a variable is the collection's, by its name. Private ones begin with underscores."""
    return name in known() or bool(prefix(name))


def short(name: str) -> str:
    """The key under which a variable's value is passed on."""
    return name[len("handover_") :] if name.startswith("handover_") else name


def ask(playbook: Playbook, given: Variables, strict: bool) -> Asked:
    """Reads the given variables, by name. Strict for those of one run alone, where each variable has to be for this playbook."""
    problems: list[str] = []
    given = present_names(given, problems)
    problems += unknown(playbook, given, strict)
    roles = {name: spec for name, spec in playbook.roles.items() if name in given}
    values = _read({**playbook.takes, **roles}, given, problems)
    for name, spec in playbook.takes.items():
        _settle(name, spec, values, problems)
    if playbook.one_of and not any(values.get(each) for each in playbook.one_of):
        first = playbook.one_of[0]
        problems.append(_missing(first, playbook.takes[first]))
    return Asked({short(name): values.get(name) for name in playbook.takes}, problems)


def present_names(given: Variables, problems: list[str]) -> Variables:
    """The given variables, those that have an old name under the present one."""
    values = {name: value for name, value in given.items() if name not in renamed()}
    for old, name in renamed().items():
        if old not in given:
            continue
        if name in given and given[name] != given[old]:
            problems.append("{0} is the old name of {1}, and they say different things: leave {0} out".format(old, name))
        values.setdefault(name, given[old])
    return values


def unknown(playbook: Playbook, given: Variables, strict: bool) -> list[str]:
    """A sentence for each variable that nothing would read."""
    sentences = []
    here = frozenset((*playbook.takes, *playbook.roles))
    for name in sorted(set(given) - here):
        if name not in known():
            near = _meant(name, here) or _meant(name, known())
            if near or strict or prefix(name) not in COMMON_PREFIXES:
                sentences.append("there is no variable {0}: {1}".format(name, "did you mean {0}?".format(near) if near else "docs/variables.md lists them"))
        elif strict:
            near = _meant(name, here) or _namesake(name, here)
            meant = "did you mean {0}?".format(near) if near else "leave it out"
            sentences.append("{0} is no variable of the playbook {1}, and nothing would come of it: {2}".format(name, playbook.name, meant))
    return sentences


def nearest(word: str, words: t.Iterable[str]) -> str:
    """The one that was probably meant, or an empty text."""
    return next(iter(difflib.get_close_matches(word, list(words), n=1, cutoff=ALIKE)), "")


def _meant(name: str, names: t.Iterable[str]) -> str:
    """The variable that was probably meant. A common beginning of an owner's variables does not make them alike."""
    owner = prefix(name)
    rest = {each[len(owner) :]: each for each in names if prefix(each) == owner}
    return rest.get(nearest(name[len(owner) :], rest), "")


def _namesake(name: str, names: t.Iterable[str]) -> str:
    """The variable of another owner that says the same, as migrate_mode does of handover_mode."""
    rest = name[len(prefix(name)) :]
    return next((each for each in sorted(names) if each[len(prefix(each)) :] == rest), "")


def _read(specs: t.Mapping[str, Spec], given: Variables, problems: list[str]) -> dict[str, t.Any]:
    """Every value that was given, with its type."""
    values = {}
    for name, spec in specs.items():
        try:
            value = read(given.get(name), spec)
        except ValueError as exc:
            problems.append("{0} {1}".format(name, exc))
            continue
        wrong = _not_a_choice(value, spec)
        if wrong:
            problems.append("{0} {1}".format(name, wrong))
        elif value is not None:
            values[name] = value
    validator = ArgumentSpecValidator({name: _for_ansible(specs[name]) for name in values})
    problems += validator.validate(values).error_messages
    return values


def _for_ansible(spec: Spec) -> Spec:
    """The declaration as Ansible's validator takes it, of a value that was read."""
    if spec.get("kind") == "command":
        return {"type": "list", "elements": "str"}
    kept = {key: value for key, value in spec.items() if key in _ANSIBLE}
    kind = spec.get("kind") or spec.get("unit") or spec.get("type", "str")
    return dict(kept, type=_READ.get(kind, spec.get("type", "str")))


def _not_a_choice(value: t.Any, spec: Spec) -> str:
    choices = spec.get("choices")
    if not choices or value is None:
        return ""
    for each in value if isinstance(value, list) else [value]:
        if each not in choices:
            near = nearest(str(each), map(str, choices))
            return "is '{0}': {1}write {2}".format(each, "did you mean {0}? ".format(near) if near else "", _either([*map(str, choices)]))
    return ""


def _either(words: t.Sequence[str]) -> str:
    return words[0] if len(words) == 1 else "{0} or {1}".format(", ".join(words[:-1]), words[-1])


def _settle(name: str, spec: Spec, values: dict[str, t.Any], problems: list[str]) -> None:
    """A variable's final value: its own, that of the role's variable that it stands for, or the default."""
    role = spec.get("sets", "")
    if name in values and role in values and values[name] != values[role]:
        problems.append("{0} and {1} say different things of one setting: leave one of them out".format(name, role))
    values.setdefault(name, values.get(role))
    if values[name] is not None:
        return
    if spec.get("required") and not any(sentence.startswith(name + " ") for sentence in problems):
        problems.append(_missing(name, spec))
    default = spec.get("default")
    values[name] = read(default, spec) if isinstance(default, (str, int, float)) and "{{" not in str(default) else default


def _missing(name: str, spec: Spec) -> str:
    return "{0} is missing ({1}): give it as in -e {2}".format(name, _first_sentence(spec), as_typed(name, spec.get("example", "")))


def _first_sentence(spec: Spec) -> str:
    said = spec["description"]
    text = (said if isinstance(said, str) else said[0]).split(". ")[0].rstrip(".")
    return text[:1].lower() + text[1:]


def as_typed(name: str, example: t.Any) -> str:
    """An example as it is typed behind -e."""
    if isinstance(example, (list, dict)):
        return "'{0}'".format(json.dumps({name: example}))
    word = str(example).lower() if isinstance(example, bool) else str(example)
    return "{0}={1}".format(name, word) if " " not in word else "'{0}=\"{1}\"'".format(name, word)


def strangers(playbook: Playbook, values: t.Mapping[str, t.Any], everyone: t.Sequence[str], match: Match) -> list[str]:
    """A sentence for each host that was named and is not in the inventory."""
    sentences = []
    for name, spec in playbook.takes.items():
        value = values.get(short(name))
        kind = spec.get("kind") or spec.get("of")
        if not value or kind not in ("host", "hosts"):
            continue
        for each in value if isinstance(value, list) else _patterns(value) if kind == "hosts" else [value]:
            if each not in everyone and not (kind == "hosts" and match(each)):
                sentences.append("{0}: {1} is not in the inventory: {2}".format(name, each, _hosts_hint(each, everyone)))
    return sentences


def _patterns(pattern: str) -> list[str]:
    """The parts of a pattern that name hosts that have to be there; one that takes hosts away need not match any."""
    parts = [part.strip() for part in pattern.split(",")]
    return [part for part in parts if part and part[0] not in "!&" and part != "all"]


def _hosts_hint(name: str, everyone: t.Sequence[str]) -> str:
    if not everyone:
        return "the inventory has no hosts: name one with -i"
    near = nearest(name, everyone)
    shown = ", ".join(sorted(everyone)[:12]) + (", …" if len(everyone) > 12 else "")
    return "did you mean {0}?".format(near) if near else "name one of its hosts ({0})".format(shown)


def narrowed(playbook: Playbook, limit: str, asked: t.Sequence[str], reached: t.Sequence[str]) -> list[str]:
    """The fault of --limit: it may choose among the hosts of a pattern, and leave out no host that was named."""
    if not limit:
        return []
    if playbook.limit:
        return ["--limit cannot be used with {0}: {1}".format(playbook.name, playbook.limit)]
    if not set(asked) & set(reached):
        return ["--limit {0} leaves out {1}, which {2} names: leave --limit away".format(limit, ", ".join(asked) or "every host", playbook.acts_on)]
    return []


def skipped(playbook: Playbook, tags: t.Sequence[str], skip_tags: t.Sequence[str], start_at: str) -> list[str]:
    """The fault of the choice of tasks: a playbook runs as a whole, or not at all."""
    sentences = []
    if not {"all", "untagged"} & set(tags or ["all"]):
        sentences.append("--tags {0} leaves out all of {1}, which has no tags: leave --tags away".format(",".join(tags), playbook.name))
    if {"all", "untagged"} & set(skip_tags):
        sentences.append("--skip-tags {0} leaves out all of {1}: leave it away".format(",".join(skip_tags), playbook.name))
    if start_at:
        sentences.append("--start-at-task leaves out checks of {0}: leave it away; what was begun is gone on with by the same command".format(playbook.name))
    return sentences
