# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The exit statuses of vzctl in words: it prints its reasons in many forms, or none."""

from __future__ import annotations

VZCTL: dict[int, str] = {
    5: "the kernel is not OpenVZ's",
    9: "another program has locked the container",
    14: "the container has no configuration",
    16: "the checkpoint failed",
    17: "the restore failed",
    20: "it does not know the option, or not in this form",
    21: "it does not take the value of the option",
    31: "the container does not run",
    32: "the container runs already",
    33: "the container was not stopped",
    40: "the private area is not mounted",
    41: "the private area is mounted already",
    43: "there is no private area",
    46: "the disk is full",
    50: "the private area could not be mounted",
    51: "the private area could not be unmounted, as something uses it",
    52: "the private area could not be removed",
    78: "another container has the address",
    79: "an action script said no; the helper is asked by vps.premount",
    99: "the kernel or vzctl has no ploop",
    105: "the container is disabled",
    140: "the container could not be registered",
    **dict.fromkeys(range(151, 168), "an image or a snapshot of a ploop disk is at fault"),
}


def sentence(status: int, said: str) -> str:
    """The reason of a vzctl that failed; `said` are its own last words."""
    meaning = VZCTL.get(status, "it ended with status {0}".format(status))
    return "{0} (status {1}{2})".format(meaning, status, ": " + said if said else "") if status in VZCTL else meaning + (": " + said if said else "")
