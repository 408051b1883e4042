# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""docs/variables.md, and the notes of the module `options`, from the declaration of the variables."""

from __future__ import annotations

import json
import re
import typing as t

from ansible_collections.livefleet.handover.plugins.plugin_utils import _declaration
from ansible_collections.livefleet.handover.plugins.plugin_utils._door import as_typed

HEAD = """\
# Variables

Each playbook takes the variables below, from `-e`, a survey, a file of variables or an inventory. They are checked before any host is touched,
and all faults are reported at once. `--limit`, tags and `--start-at-task` cannot leave these checks out.

- An empty value counts as none, like an unanswered question of a survey.
- A list may be a list, JSON, text with commas, or text with a line for each entry. One entry may stand alone.
- A size is a number of bytes, or one with K, M, G, T or P, in powers of 1024. A time may name its unit: `300ms`, `30s`, `5m`, `2h`.
- A command is a list of words, or a text that is split as a shell splits it.
- A name that no playbook reads is refused, with the name that was probably meant. An inventory may hold the variables of all playbooks.
- The variables of a playbook's roles can be given as well. `ansible-doc -t role livefleet.handover.migrate` shows those of a role.

This page is made from `playbooks/vars` and the roles' `meta/argument_specs.yml` by `make docs`.
"""

TAIL = """\
## Adding a variable

1. Declare the role's variable in the role's `meta/argument_specs.yml` and `defaults/main.yml`. Its type, choices and default stand there alone.
2. A size, a time or a command gets a row in `playbooks/vars/units.yml`.
3. For a `handover_` variable of a playbook, add it under `variables` there, with `sets: ROLE_VARIABLE` and an `example`, and under the playbook's
   `takes`. The role supplies the rest.
4. Pass it on in the playbook: `ROLE_VARIABLE: "{{ __handover.asked.NAME }}"`. The action `options` has read it, and converted it to its type.
5. `-e` sends text. So a role passes a list or a truth through the filter `typed`, unless it only hands it to a module.
6. A name that a playbook or a role keeps for itself begins with two underscores.
7. `make docs` writes this page again. The unit tests compare it.
"""


def page() -> str:
    parts = [HEAD]
    for name in _declaration.playbooks():
        playbook = _declaration.of_playbook(name)
        declared = _declaration.table()["playbooks"][name]
        parts += [f"## {name}\n", declared["description"] + "\n"]
        parts.append("| variable | type | default | meaning |\n|---|---|---|---|\n" + "".join(_row(each, spec) for each, spec in playbook.takes.items()))
        roles = ", ".join(f"`{role}`" for role in declared.get("roles", ()))
        limit = f"`--limit` is refused: {playbook.limit}." if playbook.limit else "`--limit` may choose among the hosts, and leave out none that is named."
        parts.append((f"Roles whose variables can be given: {roles}. " if roles else "") + limit + "\n")
    parts.append("## Variables of hosts\n")
    parts.append("".join(f"- `{name}`: {spec['description']} As in `{json.dumps(spec['example'])}`.\n" for name, spec in _declaration.of_hosts().items()))
    parts.append(TAIL)
    return "\n".join(parts)


def _row(name: str, spec: t.Mapping[str, t.Any]) -> str:
    return f"| `{name}` | {_type(spec)} | {_default(spec)} | {_plain(spec)} As in `{as_typed(name, spec['example'])}`. |\n".replace("||", "\\|\\|")


def _type(spec: t.Mapping[str, t.Any]) -> str:
    if spec.get("choices") and spec.get("elements") is None:
        words = [f"`{each}`" for each in spec["choices"]]
        return ", ".join(words[:-1]) + " or " + words[-1]
    kinds = {"hosts": "hosts", "bool": "true or false", "int": "number", "float": "number", "str": "text", "dict": "mapping", "list": "list"}
    kind = spec.get("kind") or spec.get("unit") or spec["type"]
    return kinds.get(kind, kind) + (f" of {spec['of']}s" if "of" in spec else "")


def _default(spec: t.Mapping[str, t.Any]) -> str:
    if spec.get("required"):
        return "**required**"
    default = spec.get("default")
    if default in (None, [], {}):
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _plain(spec: t.Mapping[str, t.Any]) -> str:
    said = spec["description"]
    text = " ".join(said) if isinstance(said, list) else said
    text = re.sub(r"\b[CVOMPE]\(([^)#]*)(#[a-z]+)?\)", r"`\1`", " ".join(text.split()))
    return text.replace("|", "\\|")


def notes() -> list[str]:
    """A note for each variable, for `ansible-doc livefleet.handover.options`."""
    takers: dict[str, list[str]] = {}
    specs: dict[str, t.Mapping[str, t.Any]] = {}
    for name in _declaration.playbooks():
        for each, spec in _declaration.of_playbook(name).takes.items():
            takers.setdefault(each, []).append(name)
            specs.setdefault(each, spec)
    return [f"C({each}), of {', '.join(takers[each])}. {_first(specs[each])}." for each in sorted(takers)]


def _first(spec: t.Mapping[str, t.Any]) -> str:
    said = spec["description"]
    text = (said if isinstance(said, str) else said[0]).split(". ")[0].rstrip(".")
    # A role's options are none of the module's.
    return re.sub(r"\bO\(", "C(", text)
