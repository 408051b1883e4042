# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The unit of systemd that starts an imported container: only with its volume in place, and in OpenVZ's order."""

from __future__ import annotations

import os
import re
import typing as t

FOLDER = "/etc/systemd/system"
_ORDER = re.compile(r"^X-OpenVZ-BootOrder=(\d+)$", re.MULTILINE)
# Processes of a container that end by reboot() in it are killed by SIGHUP (again) or SIGINT (off): wait says 128 and the signal.
TEXT = """\
# Written by livefleet.handover.import_openvz.
[Unit]
Description=Container {name}, which was {ctid} in OpenVZ
Wants=network-online.target
After=network-online.target{after}
{before}RequiresMountsFor={mountpoint}
AssertPathIsMountPoint={mountpoint}
X-OpenVZ-BootOrder={order}

[Service]
Type=forking
PIDFile={pid_file}
ExecStart={podman} start {name}
ExecStop={podman} stop --ignore {name}
ExecStopPost={podman} stop --ignore {name}
TimeoutStopSec={stop}
# As in OpenVZ: a reboot in the container starts it again, and a shutdown does not.
Restart=no
RestartForceExitStatus=129
SuccessExitStatus=129 130 143 SIGINT SIGHUP

[Install]
WantedBy=multi-user.target
"""


def name_of(container: str) -> str:
    return f"container-{container}.service"


def orders(folder: str = FOLDER) -> dict[str, int]:
    """The imported containers' units on this host, with their order."""
    found = {}
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        if name.startswith("container-") and name.endswith(".service"):
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                match = _ORDER.search(file.read())
            if match:
                found[name] = int(match.group(1))
    return found


def text(name: str, ctid: str, order: int, others: t.Mapping[str, int], **places: t.Any) -> str:
    """OpenVZ starts the container with the greatest number first."""
    earlier = [each for each, number in others.items() if number > order]
    later = [each for each, number in others.items() if number < order]
    return TEXT.format(
        name=name, ctid=ctid, order=order, after="".join(" " + each for each in earlier),
        before="Before=" + " ".join(later) + "\n" if later else "", **places,
    )  # fmt: skip
