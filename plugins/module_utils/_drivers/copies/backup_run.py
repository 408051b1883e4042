# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A backup that a timer of the host takes, without a controller: the program that backup_schedule has left there calls `main`.

It is the module's own work. The lines are for the journal, and begin with their priority.
"""

from __future__ import annotations

import json
import os
import sys
import typing as t

from ansible.module_utils import basic
from ansible.module_utils.basic import AnsibleModule

from ..._core.backup_log import BackupLog
from ..._core.runtime import HandoverError, Runtime
from ..._core.sizes import format_size
from ..._podman.backup_units import LET_RUN
from ..._podman.copies.backup_taker import ARGUMENTS, NotHere
from ..._podman.copies.memory_in_place import LEFT_SECONDS
from .engines import driver_of, engine_of
from .taker import taker

ERROR, WARNING, INFO = 3, 4, 6


def main(words: t.Sequence[str]) -> int:
    """The first word is the file with the module's options, and a second one says that the service is over. A failure is the unit's."""
    with open(words[0], encoding="utf-8") as source:
        settings = json.load(source)
    workload = settings["options"]["workload"]
    if words[1:] == [LET_RUN]:
        return let_run(settings)
    try:
        result = taker(unattended(settings)).run()
    except NotHere:
        # It runs on another host, which has this timer, too.
        say(INFO, "{0} is not on this host, and no backup of it is taken here".format(workload))
        return 0
    except Exception as exc:  # pylint: disable=broad-exception-caught
        # Whatever it is, the backup was not taken, and that has to be seen.
        why = str(exc) if isinstance(exc, HandoverError) else "{0}: {1}".format(type(exc).__name__, exc)
        BackupLog().failed(workload, why)
        say(ERROR, "{0} was not backed up: {1}".format(workload, why))
        return 1
    for backup in result["backups"]:
        gone = sum(not verdict["keep"] for verdict in result["verdicts"] if verdict["workload"] == backup["workload"])
        say(INFO, sentence(backup, gone))
    return 0


def let_run(settings: t.Mapping[str, t.Any]) -> int:
    """systemd has ended what was left of a backup: a container that it has left standing still runs on."""
    if os.environ.get("SERVICE_RESULT") == "success":
        return 0
    workload, module = settings["options"]["workload"], unattended(settings)
    runtime = Runtime(module, LEFT_SECONDS)
    if runtime.find(driver_of(module)) is None:
        return 0
    try:
        if engine_of(module)(runtime).let_left_run(workload):
            say(WARNING, "{0} was left by a backup that was killed, and runs on".format(workload))
    except HandoverError as exc:
        say(ERROR, "{0} may stand still: {1}".format(workload, exc))
        return 1
    return 0


def unattended(settings: t.Mapping[str, t.Any]) -> AnsibleModule:
    """The module as Ansible would have made it, with the options of a file."""
    # Ansible would write the options to the journal, and a command of them may have a password.
    options = {**settings["options"], "_ansible_no_log": True}
    basic._ANSIBLE_ARGS = json.dumps({"ANSIBLE_MODULE_ARGS": options}).encode()
    basic._ANSIBLE_PROFILE = settings["profile"]
    module = AnsibleModule(argument_spec=dict(ARGUMENTS), supports_check_mode=True)
    module.warn = lambda warning: say(WARNING, warning)
    return module


def sentence(backup: t.Mapping[str, t.Any], gone: int) -> str:
    """A backup that was taken, and how many were removed, for the journal."""
    parts = ["{0} by {1}{2}".format(volume["name"], volume["how"], " ({0})".format(volume["why"]) if volume["why"] else "") for volume in backup["volumes"]]
    stored = format_size(sum(volume["stored"] for volume in backup["volumes"]))
    return "{0} was backed up as {1}: {2}; {3} stored, paused for {4:.0f} ms{5}".format(
        backup["workload"], backup["id"], ", ".join(parts), stored, backup["frozen_ms"], "; {0} older removed".format(gone) if gone else ""
    )


def say(priority: int, text: str) -> None:
    """One line of the journal."""
    sys.stdout.write("<{0}>{1}\n".format(priority, " ".join(text.split())))
    sys.stdout.flush()
