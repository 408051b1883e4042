# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re
import typing as t

HELD = re.compile(r"/run/handover-(?:ceph|vmtouch)/.*osd[.]([0-9]+)")
Osds = t.Sequence[t.Mapping[str, t.Any]]


def osd_names(ids: t.Iterable[int], none: str = "") -> str:
    """The OSDs as an operator writes them: C(osd.1, osd.2)."""
    return ", ".join(f"osd.{osd}" for osd in ids) or none


def osds_asked_for(there: Osds, named: t.Sequence[int], state: str) -> list[int]:
    """The OSDs of a host that a run is about: those that were named, or all. A reboot takes all, and only stopped ones are started."""
    if state != "rebooted" and named:
        return list(named)
    return [osd["id"] for osd in there if state != "started" or not osd["running"]]


def osd_batches(wanted: t.Sequence[int], state: str, run: t.Mapping[str, t.Any], together: int) -> list[list[int]]:
    """The batches that are left of a run. Only a restart has more than one: a host is rebooted, and its OSDs are started, at once."""
    done = set(run.get("done") or [])
    left = list(wanted) if state == "started" else [osd for osd in run["order"] if osd not in done]
    size = int(together) if state == "restarted" else max(1, len(left))
    return [left[at : at + size] for at in range(0, len(left), size)]


def osds_held(files: t.Sequence[t.Mapping[str, t.Any]], wanted: t.Sequence[int]) -> list[int]:
    """The wanted OSDs that an earlier run holds in memory, by its files in C(/run)."""
    found = [int(match[1]) for match in (HELD.match(file["path"]) for file in files) if match]
    return [osd for osd in dict.fromkeys(found) if osd in wanted]


def osds_by_host(answers: t.Mapping[str, t.Mapping[str, t.Any]]) -> dict[str, list[int]]:
    """A host → its OSDs, out of the hosts' answers to C(ceph_osd_info)."""
    return {host: [osd["id"] for osd in answer["osds"]] for host, answer in answers.items()}


def impact_sentence(impact: t.Mapping[str, t.Any], seen: t.Mapping[str, t.Any]) -> str:
    """The impact of one restart on the cluster; without one, why it was not measured."""
    if not impact:
        return f"The effect on the cluster was not measured: {seen.get('msg') or 'the watch did not come to its end'}"
    return "".join(
        (
            f"Placement groups were peering for {impact['score']:.1f} PG·s, up to {impact['peak']} at once",
            "" if impact["clean"] is None else f"; the last was clean {impact['clean']:.1f} s after the OSD was up",
            "" if impact["worst"] is None else f"; the longest operation took {impact['worst']:.2f} s",
            "." if impact["whole"] else ", as far as was seen: the watch did not see it come up.",
        )
    )


def restart_aftermath(reason: str, answers: t.Sequence[t.Mapping[str, t.Any]]) -> str:
    """Why a batch failed and what became of the cluster's flags and options; empty if nothing went wrong."""
    untold = ". ".join(dict.fromkeys(answer["msg"] for answer in answers if answer.get("msg")))
    sentences = [reason, untold or "The flags of its OSDs are as before"] if reason else [untold]
    return ". ".join(sentence[:-1] if sentence.endswith(".") else sentence for sentence in sentences if sentence)


class FilterModule:
    """OSDs and their restarts."""

    def filters(self) -> dict[str, t.Callable]:
        """Name → filter."""
        return {
            "osd_names": osd_names,
            "osds_asked_for": osds_asked_for,
            "osd_batches": osd_batches,
            "osds_held": osds_held,
            "osds_by_host": osds_by_host,
            "impact_sentence": impact_sentence,
            "restart_aftermath": restart_aftermath,
        }
