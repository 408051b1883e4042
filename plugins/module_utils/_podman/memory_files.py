# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A container's memory as files: all that has to be in its places before it can run on."""

from __future__ import annotations

import os
import typing as t

# Files that podman lays beside the dump: what is in /dev/shm, and the addresses that it had.
SHARED = "devshm-checkpoint.tar"
BESIDE = (SHARED, "network.status")
DUMP, LAYER = "checkpoint", "layer"


def places(facts: t.Mapping[str, t.Any]) -> dict[str, str]:
    """By their names in a copy, where podman has them. The container's own layer is of the same moment: open files are in it."""
    return {
        LAYER: facts["upper_dir"],
        DUMP: facts["checkpoint_dir"],
        **{name: os.path.join(facts["static_dir"], name) for name in BESIDE},
    }


def present(facts: t.Mapping[str, t.Any]) -> dict[str, str]:
    """Those that are there: podman leaves some out."""
    return {name: path for name, path in places(facts).items() if os.path.exists(path)}


def sources(folder: str, facts: t.Mapping[str, t.Any]) -> dict[str, str]:
    """What a copy in `folder` has, and the place of each in the container."""
    return {os.path.join(folder, name): path for name, path in places(facts).items() if os.path.exists(os.path.join(folder, name))}
