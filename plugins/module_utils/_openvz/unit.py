# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The unit of systemd that starts an imported container: only with its volume in place, and in OpenVZ's order."""

from __future__ import annotations

import os
import re
import typing as t

from .._core import container_unit
from .._core.container_unit import FOLDER, name_of

__all__ = ("FOLDER", "name_of", "orders", "text")

_ORDER = re.compile(r"^X-OpenVZ-BootOrder=(\d+)$", re.MULTILINE)


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


def text(name: str, ctid: str, order: int, others: t.Mapping[str, int], mountpoint: str, **places: t.Any) -> str:
    """OpenVZ starts the container with the greatest number first."""
    earlier = [each for each, number in others.items() if number > order]
    later = [each for each, number in others.items() if number < order]
    return container_unit.text(
        name, "import_openvz", f"Container {name}, which was {ctid} in OpenVZ", [mountpoint], before=later, after=earlier,
        own=[f"X-OpenVZ-BootOrder={order}"], **places,
    )  # fmt: skip
