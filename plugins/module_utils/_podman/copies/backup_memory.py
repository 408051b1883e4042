# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a backup has the memory, too, and whether it can be taken: before anything is touched."""

from __future__ import annotations

import typing as t

from ..._core.disk_store import is_elsewhere
from ..._core.room import look_for_room
from ..._core.runtime import HandoverError

Document = t.Mapping[str, t.Any]

# Of a container: whether its memory is taken, where the option does not say so.
LABEL = "livefleet.handover.backup.memory"
ANSWERS = {"": False, "false": False, "true": True}
WITHOUT = "back it up without its memory (handover_memory=false)"

# Why the memory of a container that runs cannot be taken.
OBSTACLES: tuple[tuple[t.Callable[[Document, str], t.Any], str], ...] = (
    (
        lambda container, halted: _unit(container) and not _unit(container).get("adoption"),
        "{name} is run by {unit}, which could not take it over again when it goes back: use a quadlet without Notify=, or {without}",
    ),
    (
        lambda container, halted: halted and _unit(container),
        "{name} is run by {unit}, which would take its halt for its end and start it anew, and it has to be halted: {halted}: mend that, or {without}",
    ),
    (
        lambda container, halted: container.get("auto_remove") and not _unit(container),
        "{name} is removed when it ends (--rm), and could not go back: create it without, or {without}",
    ),
    (
        lambda container, halted: _database(container),
        "{name} has the SQLite database {database} open, known to it by device and inode, which may be others when it goes back: {without}",
    ),
)


def _unit(container: Document) -> Document:
    service = container.get("service") or {}
    return service if service.get("unit") else {}


def _database(container: Document) -> str:
    return next((each["detail"] for each in container.get("obstacles") or [] if each["check"] == "databases"), "")


def wants_memory(members: t.Sequence[Document], asked: bool | None, why_halted: t.Callable[[Document], str]) -> bool:
    """By the option, or else by the containers' labels. An error where it is wanted and cannot be taken."""
    if not any(_label(member) for member in members) if asked is None else not asked:
        return False
    if len(members) > 1:
        names = " and ".join(member["name"] for member in members)
        raise HandoverError("{0} are {1} containers, and memory is taken of one at a time: {2}".format(names, len(members), WITHOUT))
    if not members[0]["running"]:
        raise HandoverError("{0} does not run, and has no memory: start it first, or {1}".format(members[0]["name"], WITHOUT))
    look_for_obstacles(members[0], WITHOUT, why_halted(members[0]))
    return True


def look_for_obstacles(container: Document, without: str, halted: str) -> None:
    """An error where the memory of a container cannot be taken, or not gone back to. `without` is the way that is left, `halted` why it has to be halted."""
    for applies, sentence in OBSTACLES:
        if applies(container, halted):
            words = {"name": container["name"], "unit": _unit(container).get("unit"), "database": _database(container), "without": without, "halted": halted}
            raise HandoverError(sentence.format(**words))


def _label(container: Document) -> bool:
    said = container["labels"].get(LABEL, "")
    if said not in ANSWERS:
        raise HandoverError("the label {0} of {1} is '{2}': write true or false".format(LABEL, container["name"], said))
    return ANSWERS[said]


def look_for_memory(container: Document, repository: str) -> None:
    """An error where the dump and its archive do not fit beside the container, or the archive not into a repository of this host."""
    size = container["memory"] + container["layer"]
    look_for_room("the memory of " + container["name"], 2 * size, container["static_dir"])
    if not is_elsewhere(repository):
        look_for_room("the memory of " + container["name"], size, repository)
