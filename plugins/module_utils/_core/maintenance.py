# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The mark of a host that is under maintenance: a file on the host itself, so that every controller sees it."""

from __future__ import annotations

import json
import os
import typing as t

PATH = "/var/lib/handover/maintenance.json"


def read(path: str = PATH) -> dict[str, t.Any] | None:
    """Since when and why, or None. A mark that cannot be read is a mark."""
    try:
        with open(path, encoding="utf-8") as source:
            found = json.load(source)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as exc:
        return {"since": "", "reason": "{0} cannot be read: {1}".format(path, exc)}
    return found if isinstance(found, dict) else {"since": "", "reason": str(found)}


def write(mark: t.Mapping[str, str], path: str = PATH) -> None:
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    unfinished = path + ".new"
    with open(unfinished, "w", encoding="utf-8") as target:
        json.dump(mark, target)
        target.write("\n")
        target.flush()
        os.fsync(target.fileno())
    os.replace(unfinished, path)
