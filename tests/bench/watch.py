#!/usr/bin/env python
# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the second pass over a folder costs: rsync looks at every file, pcopy watch only at those that were touched.

A folder of many files is copied once. Then, in turn: a few of them change, and rsync brings them over as it is used for a second pass; a
few change, and rsync is told by `pcopy watch list` what to look at. Both times the two folders are compared afterwards, by checksums, outside
of what is timed. Both copies lie on this machine, so no network adds to either. Writes docs/benchmarks/watch.json and watch.md.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent.parent
LIMIT = 0.05
FILES_A_FOLDER = 500
WHOLE = ("rsync", "-aHAX", "--numeric-ids", "--delete")
LISTED = ("rsync", "-lptgoDHAX", "--numeric-ids", "--from0", "--files-from=-", "--delete-missing-args", "--force")


class Folders:
    """The folder, and its copy."""

    def __init__(self, top: Path, files: int) -> None:
        self.source, self.copy = top / "source", top / "copy"
        self.names = [f"d{n // FILES_A_FOLDER}/f{n}" for n in range(files)]
        self.random = random.Random(1)
        for name in self.names:
            path = self.source / name
            if not path.parent.is_dir():
                path.parent.mkdir(parents=True)
            path.write_bytes(name.encode() * 40)

    def change(self, count: int) -> None:
        """Most are rewritten, some go, some come."""
        for number, name in enumerate(self.random.sample(self.names, count)):
            path = self.source / name
            if number % 10 == 0:
                path.unlink(missing_ok=True)
            elif number % 10 == 1:
                path.with_suffix(f".{self.random.random()}").write_bytes(b"new")
            else:
                path.write_bytes(self.random.randbytes(2000))

    def rsync(self, command: tuple[str, ...], stdin: bytes = b"") -> None:
        subprocess.run([*command, f"{self.source}/", f"{self.copy}/"], input=stdin, check=True)

    def compare(self) -> None:
        done = subprocess.run([*WHOLE, "-cni", f"{self.source}/", f"{self.copy}/"], stdout=subprocess.PIPE, text=True, check=True)
        if done.stdout:
            sys.exit(f"watch: a pass has missed something:\n{done.stdout[:2000]}")


def timed(what) -> float:
    began = time.monotonic()
    what()
    return time.monotonic() - began


def measure(folders: Folders, pcopy: Path, changes: int, runs: int) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {"rsync": [], "pcopy watch and rsync": []}
    subprocess.run([pcopy, "watch", "start", folders.source], check=True)
    try:
        folders.rsync(WHOLE)
        for run in range(runs):
            folders.change(changes)
            seconds["rsync"].append(timed(lambda: folders.rsync(WHOLE)))
            folders.compare()
            # What rsync has brought over is not to be brought twice.
            subprocess.run([pcopy, "watch", "list", folders.source], check=True, stdout=subprocess.DEVNULL)

            folders.change(changes)

            def listed() -> None:
                names = subprocess.run([pcopy, "watch", "list", "--null", folders.source], check=True, stdout=subprocess.PIPE).stdout
                folders.rsync(LISTED, names)

            seconds["pcopy watch and rsync"].append(timed(listed))
            folders.compare()
            print(f"{run + 1:3} of {runs}  " + "  ".join(f"{name} {values[-1]:7.3f} s" for name, values in seconds.items()), flush=True)
    finally:
        subprocess.run([pcopy, "watch", "stop", folders.source], check=False)
    return seconds


def write(seconds: dict[str, list[float]], files: int, changes: int, runs: int) -> bool:
    ours, theirs = (statistics.median(seconds[name]) for name in ("pcopy watch and rsync", "rsync"))
    record = {
        "bar": f"{files} files of which {changes} change: the second pass, as a part of a full second rsync",
        "figure": round(ours / theirs, 4),
        "limit": LIMIT,
        "met": ours / theirs <= LIMIT,
        "runs": runs,
        "spread": {
            name: {"min": round(min(v), 4), "median": round(statistics.median(v), 4), "max": round(max(v), 4)} for name, v in seconds.items()
        },
        "contender": "rsync -aHAX --delete",
        "date": datetime.date.today().isoformat(),
    }
    folder = CHECKOUT / "docs" / "benchmarks"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "watch.json").write_text(json.dumps([record], indent=2) + "\n", encoding="utf-8")
    rows = "\n".join(f"| {name} | {s['min']:.3f} | {s['median']:.3f} | {s['max']:.3f} |" for name, s in record["spread"].items())
    (folder / "watch.md").write_text(
        f"""# The second pass over a folder

Written by `make bench-watch` on {record["date"]}: {files} files in folders of {FILES_A_FOLDER}, of which {changes} change before each pass; {runs} passes each,
turn about, on one machine with {os.cpu_count()} cores. After each pass both sides were compared by checksums: nothing was missed. Seconds:

| second pass by | shortest | median | longest |
|---|---|---|---|
{rows}

With `pcopy watch` it takes {record["figure"]:.3f} of a full second rsync; the bar is {LIMIT}: {"met" if record["met"] else "missed"}.
""",
        encoding="utf-8",
    )
    return bool(record["met"])


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--files", type=int, default=200_000, help="files in the folder (200000)")
    parser.add_argument("--changes", type=int, default=200, help="of them, changed before each pass (200)")
    parser.add_argument("--runs", type=int, default=5, help="passes of each contender (5)")
    parser.add_argument("--folder", default="/var/tmp", help="where the folders are made for the time being (/var/tmp)")
    arguments = parser.parse_args()
    pcopy = CHECKOUT / "roles" / "pcopy" / "files" / f"pcopy-linux-{'arm64' if os.uname().machine == 'aarch64' else 'amd64'}"
    top = Path(tempfile.mkdtemp(prefix="bench-watch-", dir=arguments.folder))
    try:
        seconds = measure(Folders(top, arguments.files), pcopy, arguments.changes, arguments.runs)
        met = write(seconds, arguments.files, arguments.changes, arguments.runs)
    finally:
        shutil.rmtree(top)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
