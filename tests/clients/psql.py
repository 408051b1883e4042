# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""psql sessions that are opened once and left open. At the end each has to be the session that it was: the same backend, the same temporary table."""

from __future__ import annotations

import subprocess
import typing as t
from pathlib import Path

# A temporary table lives as long as its session.
OPEN = "CREATE TEMPORARY TABLE mine AS SELECT {number} AS number;\nSELECT pg_backend_pid();\n"
LOOK = "SELECT pg_backend_pid(), number FROM mine;\n"
ANSWER_SECONDS = 60


def verdict(number: int, output: str, said: str) -> str | None:
    """What is wrong with a session, given all that psql printed; None if it is the same as at its start."""
    lines = output.split()
    if said.strip():
        return said.strip().splitlines()[0]
    if len(lines) != 2:
        return f"it answered {len(lines)} of 2 questions"
    if lines[1] != f"{lines[0]}|{number}":
        return f"it was backend {lines[0]} with {number} in its table, and is {lines[1]}"
    return None


class Sessions:
    """One session for each of the hosts, which may be named more than once; psql comes from a root file system that has it."""

    def __init__(self, root: Path, hosts: t.Sequence[str]) -> None:
        self.root = root
        self.hosts = hosts
        self.processes: list[subprocess.Popen[str]] = []

    def start(self) -> None:
        for number, host in enumerate(self.hosts):
            process = subprocess.Popen(
                [
                    "chroot", str(self.root), "psql", "--no-psqlrc", "--quiet", "--tuples-only", "--no-align",
                    f"--host={host}", "--username=postgres", "postgres",
                ],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
            self.processes.append(process)
            assert process.stdin is not None
            process.stdin.write(OPEN.format(number=number))
            process.stdin.flush()

    def stop(self) -> dict[str, t.Any]:
        """Asks each session who it is, ends it, and says what is wrong with any."""
        wrong = []
        for number, (host, process) in enumerate(zip(self.hosts, self.processes)):
            try:
                output, said = process.communicate(LOOK, timeout=ANSWER_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                output, _said = process.communicate()
                said = f"it has not answered within {ANSWER_SECONDS} s"
            found = verdict(number, output, said)
            if found:
                wrong.append(f"psql at {host}: {found}")
        return {"sessions": len(self.processes), "wrong": wrong}
