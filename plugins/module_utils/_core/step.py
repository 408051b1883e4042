# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The work of a module, apart from the module: it can run alone, or as one of several in one call.

Each call costs the controller a process, and each module that is new to a run costs it as much as several calls: Ansible looks for all that the
module imports. So a move makes few calls, all of one module.
"""

from __future__ import annotations

import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from .runtime import HandoverError

Result = t.Dict[str, t.Any]


class Step(t.NamedTuple):
    """Options, and the function that does the work. A result with `msg` is a failure."""

    arguments: t.Mapping[str, t.Any]
    run: t.Callable[[AnsibleModule], Result]
    required_if: t.Sequence[t.Any] = ()


# A step is imported when it is asked for: a host would spend more time on the other imports than on the work.
Table = t.Mapping[str, t.Callable[[], Step]]


class Part:
    """The module as one of its steps sees it: with the options of that step."""

    def __init__(self, module: AnsibleModule, params: t.Mapping[str, t.Any]) -> None:
        self.module = module
        self.params = params

    def __getattr__(self, name: str) -> t.Any:
        return getattr(self.module, name)


class _Discreet(AnsibleModule):
    """What the controller says of a task's no_log comes with the options, and takes the place of what the module was made with."""

    def _log_invocation(self) -> None:
        """Writes nothing."""


def discreet(**arguments: t.Any) -> AnsibleModule:
    """A module whose options are not written into the host's journal: those of a container have the values of its variables."""
    return _Discreet(no_log=True, **arguments)


def answer(step: Step, module: AnsibleModule) -> Result:
    """The step's result, also of one that failed."""
    try:
        return step.run(module)
    except HandoverError as exc:
        return {"msg": str(exc)}


def alone(step: Step) -> None:
    """Runs it as a module of its own."""
    module = discreet(argument_spec=dict(step.arguments), required_if=list(step.required_if), supports_check_mode=True)
    result = answer(step, module)
    if "msg" in result:
        module.fail_json(**result)
    module.exit_json(**result)


def in_turn(module: AnsibleModule, table: Table, asked: t.Sequence[t.Mapping[str, t.Any]]) -> Result:
    """Runs one step after the other, up to the first that fails. Nothing runs if one of them was asked for wrongly."""
    steps = [(name, *_checked(name, arguments, table)) for name, arguments in map(_only, asked)]
    results: list[Result] = []
    last: dict[str, Result] = {}
    for name, step, params in steps:
        result = answer(step, t.cast(AnsibleModule, Part(module, params)))
        results.append(result)
        last[name] = result
        if "msg" in result:
            break
    failed = {"msg": results[-1]["msg"]} if results and "msg" in results[-1] else {}
    reasons = [reason for result in results for reason in result.get("reasons") or ()]
    return {"changed": any(result.get("changed") for result in results), "reasons": reasons, "results": results, "last": last, **failed}


def _only(asked: t.Mapping[str, t.Any]) -> tuple[str, t.Mapping[str, t.Any]]:
    if len(asked) != 1:
        raise HandoverError("steps: one of them has {0} names ({1}): each is one module and its options".format(len(asked), ", ".join(sorted(asked))))
    ((name, arguments),) = asked.items()
    return name.rpartition(".")[2], arguments or {}


def _checked(name: str, arguments: t.Mapping[str, t.Any], table: Table) -> tuple[Step, t.Mapping[str, t.Any]]:
    if name not in table:
        raise HandoverError("steps: {0} is not a step: use one of {1}".format(name, ", ".join(sorted(table))))
    step = table[name]()
    found = ArgumentSpecValidator(dict(step.arguments), required_if=list(step.required_if)).validate(dict(arguments))
    if found.error_messages:
        raise HandoverError("{0}: {1}".format(name, "; ".join(found.error_messages)))
    return step, found.validated_parameters
