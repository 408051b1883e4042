#!/usr/bin/env python
# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fills a container's folder, and writes to it. It runs on the host of a benchmark and needs nothing but Python.

fill FOLDER MIB makes files up to so many MiB in all, of 1 MiB and of 16 KiB, which are a month old. write FOLDER PIDFILE writes to a few of them,
appends to a log, makes files and removes them, a hundred times a second, until the process in PIDFILE has ended.
"""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path

MIB, SMALL = 1 << 20, 16 << 10
# So many of the large files are in use.
HOT = 64
MONTH = 30 * 86400


def used(folder: Path) -> int:
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*"))


def fill(folder: Path, mib: int) -> None:
    data = folder / "srv/data"
    data.mkdir(parents=True, exist_ok=True)
    left, old = mib * MIB - used(folder), time.time() - MONTH
    for number in range(left // 2 // MIB):
        _file(data / f"large/{number % 16}/{number}", MIB, old)
    for number in range(left // 2 // SMALL):
        _file(data / f"small/{number % 256}/{number}", SMALL, old)


def _file(path: Path, size: int, old: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(size))
    os.utime(path, (old, old))


def write(folder: Path, pidfile: Path) -> None:
    data, chance = folder / "srv/data", random.Random(1)
    files = sorted(data.glob("large/*/*"))[:HOT]
    pid = pidfile.read_text(encoding="utf-8").strip()
    number = 0
    while os.path.exists(f"/proc/{pid}"):
        number += 1
        with chance.choice(files).open("r+b") as file:
            os.pwrite(file.fileno(), os.urandom(SMALL), chance.randrange(MIB // SMALL) * SMALL)
        with (data / "log").open("a", encoding="utf-8") as log:
            log.write(f"{number} {time.time()}\n")
        (data / f"new-{number % 100}").write_text(str(number), encoding="utf-8")
        (data / f"new-{(number + 50) % 100}").unlink(missing_ok=True)
        time.sleep(0.01)


def main(verb: str, folder: str, more: str) -> None:
    if verb == "fill":
        fill(Path(folder), int(more))
    else:
        write(Path(folder), Path(more))


if __name__ == "__main__":
    main(*sys.argv[1:])
