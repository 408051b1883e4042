# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

# An error for a container that runs: the template names a field that does not exist, and comes to it only then.
_IS_STOPPED = ["container", "inspect", "--format={{ if or .State.Running .State.Paused }}{{ .was_started_meanwhile }}{{ end }}"]
_AT_ONCE = ["--force", "--time=0", "--ignore"]

Members = t.Sequence[t.Mapping[str, t.Any]]


def member_trees(members: Members, stage: str = "") -> list[dict[str, str]]:
    """The layers of the members, which travel as trees. An infra container writes nothing, and is made anew."""
    more = {"stage": stage} if stage else {}
    return [{"name": "layer-" + member["name"], "path": member["upper_dir"], **more} for member in members if not member["infra"]]


def member_bundles(members: Members) -> list[str]:
    """The OCI bundles of all members: the hook before every start knows each by it."""
    return [member["checkpoint_dir"].rpartition("/")[0] for member in members]


def in_turn(members: Members, verb: str, workload: str, podman: str, running: t.Sequence[str], pods: t.Sequence[str] = ()) -> list[str]:
    """The command that does something to all members: C(stop) and C(start) those that ran and no others, C(discard) all with their pods."""
    first_to_last = [member["name"] for member in members if not member["infra"]]
    # The infra container of a pod runs as long as another member does.
    ran = [member["name"] for member in members if member["name"] in running or member["infra"] and running]
    turns: dict[str, list[tuple[list[str], list[str]]]] = {
        # Those that are not dumped with the others must not have been started since.
        "still": [(_IS_STOPPED, [name for name in first_to_last if name not in ran])],
        # It is said again where it was killed, and the pod may be gone by then.
        "release": [(["stop", "--time=0", "--ignore"], [member["name"] for member in members if member["infra"]])],
        "stop": [(["stop"], ran[::-1]), (_IS_STOPPED, [name for name in first_to_last if name not in ran])],
        "start": [(["start"], ran), (["container", "exists"], [name for name in first_to_last if name not in ran])],
        "discard": [(["rm", *_AT_ONCE], first_to_last[::-1]), (["pod", "rm", *_AT_ONCE], list(pods))],
    }
    if not any(names for _arguments, names in turns[verb]):
        return []
    words = ["/usr/local/libexec/handover/pcopy", "internal", "in-turn", workload]
    for number, (arguments, names) in enumerate((arguments, names) for arguments, names in turns[verb] if names):
        words += [*(["---"] if number else []), podman, *arguments, "--", *names]
    return words


class FilterModule:
    """Several containers that move as one."""

    def filters(self) -> dict[str, t.Callable]:
        """Name → filter."""
        return {"member_trees": member_trees, "member_bundles": member_bundles, "in_turn": in_turn}
