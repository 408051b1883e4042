#!/usr/bin/env python
# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fills a file system, and writes to some clusters of it. It runs on the host of a benchmark and needs nothing but Python.

fill FOLDER MIB writes files of 64 MiB that cannot be packed. rewrite FOLDER CLUSTERS SEED writes so many clusters of 64 KiB, each at a place
that a die has chosen, to these files. All is on the disk when it ends.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

MIB, CLUSTER = 1 << 20, 64 << 10
EACH = 64 * MIB


def fill(folder: Path, mib: int) -> None:
    for number in range(mib * MIB // EACH):
        with (folder / f"file-{number:03}").open("wb") as file:
            for _part in range(EACH // MIB):
                file.write(os.urandom(MIB))
            file.flush()
            os.fsync(file.fileno())


def rewrite(folder: Path, clusters: int, seed: int) -> None:
    files = sorted(folder.glob("file-*"))
    each = EACH // CLUSTER
    chosen = sorted(random.Random(seed).sample(range(len(files) * each), clusters))
    for number, path in enumerate(files):
        with path.open("r+b") as file:
            for place in chosen:
                if place // each == number:
                    os.pwrite(file.fileno(), os.urandom(CLUSTER), place % each * CLUSTER)
            os.fsync(file.fileno())


def main(verb: str, folder: str, *numbers: str) -> None:
    {"fill": fill, "rewrite": rewrite}[verb](Path(folder), *map(int, numbers))


if __name__ == "__main__":
    main(*sys.argv[1:])
