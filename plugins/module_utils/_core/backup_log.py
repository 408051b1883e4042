# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How the last backup of each container of this host went: one file a container. `pcopy host metrics` tells Prometheus of it."""

from __future__ import annotations

import contextlib
import json
import os
import time
import typing as t

FOLDER = "/var/lib/handover/backups/last"


class BackupLog:
    """Of this host."""

    def __init__(self, folder: str | None = None) -> None:
        self.folder = folder or FOLDER

    def taken(self, workload: str, backup: t.Mapping[str, t.Any]) -> None:
        """A backup was taken. A failure before it counts no more."""
        stored = sum(volume["stored"] for volume in backup["volumes"])
        self._write(workload, {"workload": workload, "taken": time.time(), "pause_ms": backup["frozen_ms"], "stored": stored, "failed": None, "why": ""})

    def failed(self, workload: str, why: str) -> None:
        """A backup was not taken. That of the one before stays."""
        self._write(workload, {**self.last(workload), "workload": workload, "failed": time.time(), "why": why})

    def last(self, workload: str) -> dict[str, t.Any]:
        """Empty where there was none, or where what is there cannot be read: the next backup writes it again."""
        try:
            with open(self._path(workload), encoding="utf-8") as source:
                found = json.load(source)
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def forget(self, workload: str) -> None:
        """This host backs the container up no more."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path(workload))

    def _path(self, workload: str) -> str:
        return os.path.join(self.folder, workload + ".json")

    def _write(self, workload: str, record: t.Mapping[str, t.Any]) -> None:
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        path = self._path(workload)
        with open(path + ".new", "w", encoding="utf-8") as target:
            json.dump(record, target)
        os.replace(path + ".new", path)
