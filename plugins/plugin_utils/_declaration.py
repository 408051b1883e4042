# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The declaration of all variables, from playbooks/vars and the roles' meta/argument_specs.yml."""

from __future__ import annotations

import functools
import typing as t
from pathlib import Path

import yaml

COLLECTION = Path(__file__).resolve().parent.parent.parent

Spec = t.Dict[str, t.Any]

# A role's word for a variable is more common than its function: other software may have such names in an inventory.
COMMON_PREFIXES = frozenset(("migrate", "snapshot", "clone", "backup", "recover", "relay"))


class Playbook(t.NamedTuple):
    """A playbook's variables, by name, and those of the roles that it passes on."""

    name: str
    takes: t.Mapping[str, Spec]
    roles: t.Mapping[str, Spec]
    limit: str
    acts_on: str
    one_of: t.Sequence[str]


@functools.lru_cache(maxsize=None)
def _load(path: Path) -> t.Any:
    with path.open(encoding="utf-8") as source:
        return yaml.load(source, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


@functools.lru_cache(maxsize=None)
def table() -> dict[str, t.Any]:
    """All that is declared in playbooks/vars: variables, their old names, units, facts, playbooks."""
    merged: dict[str, t.Any] = {}
    for path in sorted((COLLECTION / "playbooks" / "vars").glob("*.yml")):
        for key, value in _load(path).items():
            merged[key] = {**merged.get(key, {}), **value} if isinstance(value, dict) else value
    return merged


def roles() -> list[str]:
    """The roles of the collection."""
    return sorted(path.parent.parent.name for path in COLLECTION.glob("roles/*/meta/argument_specs.yml"))


@functools.lru_cache(maxsize=None)
def of_role(role: str) -> t.Mapping[str, Spec]:
    """The variables of a role, with their units."""
    options = _load(COLLECTION / "roles" / role / "meta" / "argument_specs.yml")["argument_specs"]["main"]["options"]
    return {name: _with_unit(dict(spec), table()["units"].get(name)) for name, spec in options.items()}


def _with_unit(spec: Spec, unit: str | None) -> Spec:
    if not unit:
        return spec
    return dict(spec, **{"unit" if unit in ("seconds", "milliseconds") else "kind": unit})


@functools.lru_cache(maxsize=None)
def of_playbook(name: str) -> Playbook:
    """A playbook's declaration; KeyError where there is none."""
    declared = table()["playbooks"][name]
    takes = {each: _variable(each, own) for each, own in declared["takes"].items()}
    if "imports" in declared:
        takes = {**of_playbook(declared["imports"]).takes, **takes}
    passed = {each: spec for role in declared.get("roles", ()) for each, spec in of_role(role).items()}
    return Playbook(name, takes, passed, declared.get("limit", ""), declared.get("acts_on", ""), declared.get("one_of", ()))


def _variable(name: str, own: Spec) -> Spec:
    """The declaration of one variable in one playbook: the role's, the general one, and the playbook's."""
    here = {**table()["variables"][name], **own}
    inherited = next((of_role(role)[here["sets"]] for role in roles() if here.get("sets") in of_role(role)), {}) if "sets" in here else {}
    return {**{key: value for key, value in inherited.items() if key != "required"}, **here}


def playbooks() -> list[str]:
    """The playbooks, in the order of the declaration."""
    return list(table()["playbooks"])


@functools.lru_cache(maxsize=None)
def known() -> frozenset[str]:
    """Every variable that the collection knows."""
    of_roles = (name for role in roles() for name in of_role(role))
    return frozenset((*table()["variables"], *table()["host_variables"], *table()["facts"], *of_roles))


def renamed() -> t.Mapping[str, str]:
    """Names of old that still count, each with the present one."""
    return table()["renamed"]


def of_hosts() -> t.Mapping[str, Spec]:
    """Variables that hosts have in an inventory."""
    return table()["host_variables"]


def prefix(name: str) -> str:
    """The part of a name that says whose it is: `handover`, or a role's; empty where it is not the collection's."""
    owners = [each for each in ("handover", *roles()) if name.startswith(each + "_")]
    return max(owners, key=len, default="")
