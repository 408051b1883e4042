#!/usr/bin/env python
# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How long it takes to go back to a snapshot, by marks and by digests, against copying the whole image back, in turn, on this host.

The volume is an ext4 of 2 GiB, of which nine tenths are a file of noise. For each cell a hundredth of its clusters is written, a snapshot is taken of that
as the playbook takes its undo, and a little more is written. Then it is unmounted. The cells:

* ``marks``: `pcopy snapshot note` before it is detached, and `pcopy snapshot restore --current`, each timed;
* ``digests``: the same restore without the note;
* ``cp``: `cp --sparse=always` of the exported image to the volume's; and the same with `sync` behind it.

The pages of all files are thrown away first. The disk is compared with the exported image each time. Run as root.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import typing as t
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
PCOPY = CHECKOUT / "roles" / "pcopy" / "files" / "pcopy-linux-amd64"
MIB = 1 << 20
CLUSTER = 64 << 10
INSIDE = "BENCH_ROLLBACK_INSIDE"


def run(*words: str | Path) -> str:
    return subprocess.run(list(map(str, words)), check=True, capture_output=True, text=True).stdout


@contextlib.contextmanager
def timed(times: list[float]) -> t.Iterator[None]:
    began = time.monotonic()
    yield
    times.append(time.monotonic() - began)


class Volume:
    """The volume of the benchmark, its store, and the image of the snapshot that is gone back to."""

    def __init__(self, folder: Path, size: int, part: int) -> None:
        self.image, self.exported, self.store, self.mountpoint = (folder / name for name in ("image", "exported", "store", "mnt"))
        self.words = ("--track-root", folder / "track")
        self.file = self.mountpoint / "file"
        self.chance, self.changes = random.Random(1), size // CLUSTER // part
        self.clusters = size * 9 // 10 // CLUSTER
        self.mountpoint.mkdir()
        run("truncate", "--size", str(size), self.image)
        run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=1", self.image)
        self.attach()
        with open(self.file, "wb") as out:
            for _mib in range(self.clusters * CLUSTER // MIB):
                out.write(self.chance.randbytes(MIB))
        os.sync()
        self.take()
        run(PCOPY, "snapshot", "export", self.store, self.now(), self.exported, "--volume", "data", "--format", "raw")
        self.target = self.now()
        self.leave()

    def attach(self) -> None:
        self.device = run("losetup", "--find", "--show", "--direct-io=on", self.image).strip()
        run("mount", "-o", "noatime,discard", self.device, self.mountpoint)

    def leave(self, noted: list[float] | None = None) -> None:
        """Unmounts and detaches; in between what a rollback has to know is noted."""
        run("umount", self.mountpoint)
        if noted is not None:
            with timed(noted):
                said = run(PCOPY, "snapshot", "note", "--json", *self.words, self.store, f"--volume=data={self.image}")
            assert "why" not in said, said
        run("losetup", "--detach", self.device)

    def take(self) -> None:
        run(PCOPY, "snapshot", "take", *self.words, self.store, f"--volume=data={self.image}")

    def now(self) -> str:
        rows = json.loads(run(PCOPY, "snapshot", "list", "--json", self.store))["snapshots"]
        return next(row["id"] for row in rows if row["current"])

    def change(self, count: int) -> None:
        with open(self.file, "r+b", buffering=0) as out:
            for cluster in self.chance.sample(range(self.clusters), count):
                os.pwrite(out.fileno(), self.chance.randbytes(CLUSTER), cluster * CLUSTER)
            os.fsync(out.fileno())

    def differ(self, noted: list[float] | None = None) -> None:
        """A hundredth of the volume differs from the target, and nothing of it is in memory."""
        self.attach()
        self.take()  # begins a tracker anew
        self.change(self.changes)
        self.take()
        self.change(20)
        self.leave(noted)
        for path in [self.image, self.exported, *self.store.rglob("*")]:
            if path.is_file():
                with open(path, "rb") as file:
                    os.fdatasync(file.fileno())
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def restore(self, how: str, times: list[float]) -> dict[str, t.Any]:
        with timed(times):
            said = run(PCOPY, "snapshot", "restore", "--json", "--current", *self.words, self.store, self.target, f"--volume=data={self.image}")
        done: dict[str, t.Any] = json.loads(said)["volumes"][0]
        assert done["how"] == how, done
        run("cmp", self.image, self.exported)
        return done

    def copy(self, times: list[float], synced: list[float]) -> None:
        with timed(synced):
            with timed(times):
                run("cp", "--sparse=always", self.exported, self.image)
            run("sync", self.image)


def measure(volume: Volume, runs: int) -> dict[str, list[float]]:
    names = ("note", "restore by marks", "restore by digests", "cp", "cp and sync")
    times: dict[str, list[float]] = {name: [] for name in names}
    for number in range(runs):
        volume.differ(times["note"])
        done = volume.restore("marks", times["restore by marks"])
        volume.differ()
        volume.restore("digests", times["restore by digests"])
        volume.differ()
        volume.copy(times["cp"], times["cp and sync"])
        print(f"run {number + 1}: by marks {done['read'] >> 20} MiB read, {done['written'] >> 20} written", file=sys.stderr)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=t.cast(str, __doc__).splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--size", type=int, default=2048, help="MiB")
    parser.add_argument("--part", type=int, default=100, help="one of so many clusters differs")
    parser.add_argument("--folder", default="/var/tmp")
    given = parser.parse_args()
    if INSIDE not in os.environ:
        # Other trackers of this host are pinned in the usual place, and a second folder of records would end them.
        os.environ[INSIDE] = "1"
        os.execvp("unshare", ["unshare", "--mount", "sh", "-c", 'mount -t bpf bpf /sys/fs/bpf && exec "$@"', "sh", sys.executable, *sys.argv])
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        volume = Volume(Path(folder), given.size * MIB, given.part)
        try:
            times = measure(volume, given.runs)
        finally:
            subprocess.run([PCOPY, "snapshot", "untrack", *volume.words, volume.store], check=False)
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, values in times.items():
        print(f"{name:20} {medians[name]:7.3f} s   ({', '.join(f'{value:.3f}' for value in values)})")
    for name in ("restore by digests", "cp", "cp and sync"):
        ratios = [other / mine for other, mine in zip(times[name], times["restore by marks"])]
        print(f"{name} takes {statistics.median(ratios):.1f} times as long as the restore by marks ({', '.join(f'{each:.1f}' for each in ratios)})")


if __name__ == "__main__":
    main()
