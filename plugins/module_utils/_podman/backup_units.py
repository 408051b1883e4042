# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The systemd units that back a container up at times: a timer and its service, plain text that an administrator can read."""

from __future__ import annotations

import typing as t

_HEADER = "# Written by livefleet.handover.backup_schedule; changes made here are lost.\n"
# The word of the program for the end of the service.
LET_RUN = "let-run"
# The service ends by itself when the module's own time is up.
_SPARE_SECONDS = 60


def unit_name(workload: str, kind: str) -> str:
    return "handover-backup-{0}.{1}".format(workload, kind)


def quoted(word: str) -> str:
    """A word of a unit file, as it is."""
    return '"{0}"'.format(word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%"))


def backup_units(workload: str, calendar: str, folder: str, argv: t.Sequence[str], timeout: int) -> dict[str, str]:
    """File name → text. The folder is the repository: a file system that is to be mounted there has to be."""
    return {
        unit_name(workload, "service"): _HEADER
        + """\
[Unit]
Description=Backup of the container {workload}
Documentation=https://github.com/livefleet/handover/blob/main/roles/backup/README.md
{mounts}Wants=network-online.target
After=network-online.target

[Service]
Type=oneshot
ExecStart={command}
# A container that stands still for its memory runs on, also if all processes of the backup were killed.
ExecStopPost=-{command} {after}
TimeoutStartSec={limit}
Nice=10
IOSchedulingPriority=7
LogExtraFields=HANDOVER_WORKLOAD={workload}
SyslogIdentifier=handover-backup
UMask=0077
""".format(
            workload=workload,
            mounts="RequiresMountsFor={0}\n".format(quoted(folder)) if folder else "",
            command=" ".join(quoted(word).replace("$", "$$") for word in argv),
            after=LET_RUN,
            limit=timeout + _SPARE_SECONDS,
        ),
        unit_name(workload, "timer"): _HEADER
        + """\
[Unit]
Description=Backups of the container {workload}
Documentation=https://github.com/livefleet/handover/blob/main/roles/backup/README.md

[Timer]
OnCalendar={calendar}
# One that was missed because the host was off is taken when it is on again.
Persistent=true
# The backups of a fleet do not begin together, and each at the same time every day.
RandomizedDelaySec=5min
FixedRandomDelay=true

[Install]
WantedBy=timers.target
""".format(workload=workload, calendar=calendar.replace("%", "%%")),
    }
