# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The gate before every start of a container: a script that OpenVZ runs before it mounts one.

vzctl mounts a container anew at each start and each restore, and begins with the host's own script vps.premount. If that fails nothing is mounted, and
nothing starts.
"""

from __future__ import annotations

import os

from ..._core.host import read_text
from ..action_scripts import GATE, asks_the_helper

SCRIPT = "/etc/vz/conf/vps.premount"
OWN = GATE
TURN = "/usr/local/libexec/handover/openvz/turn"
# CRIU's own, which every CRIU of the host reads, and the script that holds it at its steps.
CONFIGURATION = "/etc/criu/default.conf"
STEPS = "/usr/local/libexec/handover/openvz/criu-gate"
CURE = "apply the role livefleet.handover.pcopy to it with pcopy_openvz_gate=true"


def obstacle(script: str = SCRIPT, own: str = OWN, turn: str = TURN) -> str:
    """Why a container could start here without the helper being asked; empty where it could not."""
    missing = [path for path in (own, turn) if not os.access(path, os.X_OK)]
    if missing:
        return "{0} is missing".format(missing[0])
    if not os.access(script, os.X_OK):
        return "{0} is missing".format(script)
    if not any(asks_the_helper(line, own) for line in read_text(script).splitlines()):
        return "{0} is the host's own and does not ask the helper: put the line `{1} || exit 1` at its beginning".format(script, own)
    return ""


def obstacle_to_criu(configuration: str = CONFIGURATION, script: str = STEPS) -> str:
    """Why CRIU could dump or restore a container here without being held; empty where it could not. Several scripts may be named, each in a line."""
    if not os.access(script, os.X_OK):
        return "{0} is missing".format(script)
    lines = (line.split("#", 1)[0].replace("=", " ").split() for line in read_text(configuration).splitlines())
    if not any(words == ["action-script", script] for words in lines):
        return "{0} does not name {1} as an action script".format(configuration, script)
    return ""
