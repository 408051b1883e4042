# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The unit of systemd that starts and stops a container of podman's which has a whole system in it: only with its volumes in place."""

from __future__ import annotations

import typing as t

FOLDER = "/etc/systemd/system"
# Processes of a container that end by reboot() in it are killed by SIGHUP (again) or SIGINT (off): wait says 128 and the signal.
TEXT = """\
# Written by livefleet.handover.{role}.
[Unit]
Description={description}
Wants=network-online.target
After=network-online.target{after}
{more}
[Service]
Type=forking
PIDFile={pid_file}
ExecStart={podman} start {name}
ExecStop={podman} stop --ignore {name}
ExecStopPost={podman} stop --ignore {name}
TimeoutStopSec={stop}
# A reboot in the container starts it again, and a shutdown does not.
Restart=no
RestartForceExitStatus=129
SuccessExitStatus=129 130 143 SIGINT SIGHUP

[Install]
WantedBy=multi-user.target
"""


def name_of(container: str) -> str:
    return f"container-{container}.service"


def text(name: str, role: str, description: str, mountpoints: t.Sequence[str], **more: t.Any) -> str:
    """Its file; `before` and `after` are units, `own` are further lines of its section [Unit]."""
    places = [line for each in mountpoints for line in (f"RequiresMountsFor={each}", f"AssertPathIsMountPoint={each}")]
    lines = [f"Before={' '.join(more.pop('before'))}"] if more.get("before") else []
    lines += [*places, *more.pop("own", [])]
    after = "".join(" " + each for each in more.pop("after", []))
    more.pop("before", None)
    return TEXT.format(name=name, role=role, description=description, after=after, more="".join(line + "\n" for line in lines), **more)
