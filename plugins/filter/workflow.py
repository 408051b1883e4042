# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

Step = t.Mapping[str, t.Any]


def workflow_nodes(steps: t.Sequence[Step], organization: str, goes_on: bool = False) -> list[dict[str, t.Any]]:
    """The nodes of a workflow of AWX whose steps follow one another.

    Each begins when the one before has succeeded, or has ended if the workflow goes on after a failure.
    """
    names = ["step-{0}".format(number) for number in range(1, len(steps) + 1)]
    return [
        {
            "identifier": name,
            "unified_job_template": {"name": step["template"], "type": "job_template", "organization": {"name": organization}},
            "extra_data": dict(step.get("variables") or {}),
            "related": {
                "success_nodes": [],
                "failure_nodes": [],
                "always_nodes": [],
                "always_nodes" if goes_on else "success_nodes": [{"identifier": each} for each in names[number : number + 1]],
            },
        }
        for number, (name, step) in enumerate(zip(names, steps), 1)
    ]


def workflow_steps(values: t.Sequence[t.Any], template: str, variable: str = "") -> list[dict[str, t.Any]]:
    """A step of one template for each value of a variable. Without a variable each value is a mapping, with all answers of its step."""
    return [{"template": template, "variables": {variable: value} if variable else dict(value)} for value in values]


class FilterModule:
    """Workflows of AWX."""

    def filters(self) -> dict[str, t.Callable]:
        """Name → filter."""
        return {"workflow_nodes": workflow_nodes, "workflow_steps": workflow_steps}
