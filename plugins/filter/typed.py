# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError
from ansible_collections.livefleet.handover.plugins.plugin_utils._declaration import of_role, prefix
from ansible_collections.livefleet.handover.plugins.plugin_utils._reading import read

_EMPTY: t.Mapping[str, t.Callable[[], t.Any]] = {"list": list, "dict": dict, "bool": bool, "int": int, "float": float}


def typed(value: t.Any, name: str) -> t.Any:
    """The value of a role's variable as it is declared, however it was given."""
    role = prefix(name)
    try:
        spec = of_role(role)[name]
    except (KeyError, OSError):
        raise AnsibleFilterError("typed: no role declares {0}: name a variable of meta/argument_specs.yml".format(name)) from None
    try:
        found = read(value, spec)
    except ValueError as exc:
        raise AnsibleFilterError("{0} {1}".format(name, exc)) from None
    if found is not None:
        return found
    default = spec.get("default")
    return default if default is not None else _EMPTY.get(spec.get("type", "str"), str)()


class FilterModule:
    """Variables of roles, with their types."""

    def filters(self) -> dict[str, t.Callable]:
        """Name → filter."""
        return {"typed": typed}
