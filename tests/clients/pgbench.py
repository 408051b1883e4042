# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""pgbench as a load that runs until it is stopped, and what it says of itself meanwhile."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import typing as t
from dataclasses import dataclass
from pathlib import Path

PROGRESS = re.compile(r"progress: (?P<at>[\d.]+) s, (?P<tps>[\d.]+) tps, lat (?P<latency>[\d.]+|NaN) ms.*?(?P<failed>\d+) failed")


@dataclass(frozen=True)
class Second:
    """What pgbench said of one second."""

    at: float
    tps: float
    failed: int


def read_progress(text: str) -> tuple[list[Second], list[str]]:
    """The seconds, and every line that is neither one of them nor said by each pgbench at its start."""
    seconds, rest = [], []
    for line in text.splitlines():
        match = PROGRESS.match(line)
        if match:
            seconds.append(Second(float(match["at"]), float(match["tps"]), int(match["failed"])))
        elif line.strip():
            rest.append(line.strip())
    return seconds, rest


def longest(log: str, since: float, until: float = math.inf) -> float:
    """Seconds: what the longest transaction took that ended after a moment of the wall clock, and not after another, by pgbench's own log.

    Its latency counts from when the transaction was due; one that waits for an earlier one of the same client has lagged, and is no stall of its own.
    """
    found = 0.0
    for line in log.splitlines():
        words = line.split()
        # client, number, latency, script, second, microsecond, lag
        if len(words) < 7 or not all(word.isdigit() for word in words[2:7]):
            continue
        latency, second, micro, lag = (int(words[n]) for n in (2, 4, 5, 6))
        if since <= second + micro / 1e6 <= until:
            found = max(found, (latency - lag) / 1e6)
    return found


class Pgbench:
    """TPC-B transactions at a steady rate, from a root file system that has pgbench in it."""

    def __init__(self, root: Path, host: str, output: Path, rate: int, clients: int = 4) -> None:
        # Where pgbench notes each transaction: the same folder, seen from within the root and from here.
        self.notes = root / "tmp", f"{output.name}-{os.getpid()}-{host}"
        self.command = [
            "chroot", str(root), "pgbench", "--no-vacuum", f"--client={clients}", "--jobs=1", f"--rate={rate}",
            # Longer than anybody waits: it is stopped, and has to be running until then.
            "--time=86400", "--progress=1", "--log", f"--log-prefix=/tmp/{self.notes[1]}", f"--host={host}", "--username=postgres", "postgres",
        ]  # fmt: skip
        self.output = output
        self.process: subprocess.Popen | None = None

    def start(self) -> None:
        with self.output.open("wb") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def stall(self, since: float, until: float = math.inf) -> float:
        """Seconds: the longest transaction between two moments, while it runs. Its log comes in blocks: the last second may be missing."""
        logs = (log.read_text(encoding="ascii", errors="replace") for log in self.notes[0].glob(f"{self.notes[1]}.*"))
        return max((longest(log, since, until) for log in logs), default=0.0)

    def stop(self, since: float = 0.0) -> dict[str, t.Any]:
        """Ends it, and says whether it ran until then, what it did, what went wrong on the way, and how long a client stood still since a moment."""
        assert self.process is not None
        ran = self.process.poll() is None
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=30)
        stall = self.stall(since)
        for log in self.notes[0].glob(f"{self.notes[1]}.*"):
            log.unlink()
        seconds, said = read_progress(self.output.read_text(encoding="utf-8", errors="replace"))
        return {
            "ran_until_stopped": ran,
            "seconds": len(seconds),
            "transactions": round(sum(second.tps for second in seconds)),
            "failed": sum(second.failed for second in seconds),
            "longest_stall": stall,
            "errors": [line for line in said if "error" in line.lower() or "abort" in line.lower()],
        }
