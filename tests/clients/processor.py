#!/usr/bin/env python
# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tells how much of a processor the processes of a container use: one that turns in a circle after a move uses all of one.

    processor.py CGROUP      prints, for each name of a program in the cgroup, the share of a processor that its processes have used in a second

Standard library only: it runs on the lab's hosts.
"""

from __future__ import annotations

import base64
import json
import os
import pathlib
import sys
import time
import typing as t

SECONDS = 1.0
# A busy machine gives less to one that turns in a circle, and one that works as before may use somewhat more.
MORE = 0.4


def used(cgroup: str) -> dict[tuple[int, str], int]:
    """The processor time of each process of a cgroup and of those below it, in the kernel's ticks."""
    found = {}
    for listed in pathlib.Path(cgroup).rglob("cgroup.procs"):
        for pid in listed.read_text(encoding="ascii").split():
            try:
                name, _bracket, rest = pathlib.Path("/proc", pid, "stat").read_text(encoding="utf-8", errors="replace").partition("(")[2].rpartition(")")
            except (FileNotFoundError, ProcessLookupError):  # it has ended
                continue
            found[int(pid), name] = sum(map(int, rest.split()[11:13]))
    return found


def shares(cgroup: str, seconds: float = SECONDS) -> dict[str, float]:
    """By the name of a program: the part of a processor that its processes have used. Those that end meanwhile, or begin, count for nothing."""
    began, before = time.monotonic(), used(cgroup)
    time.sleep(seconds)
    took, after = time.monotonic() - began, used(cgroup)
    found: dict[str, float] = {}
    for (pid, name), ticks in after.items():
        if (pid, name) in before:
            found[name] = found.get(name, 0.0) + (ticks - before[pid, name]) / os.sysconf("SC_CLK_TCK") / took
    return found


def circling(before: t.Mapping[str, float], after: t.Mapping[str, float]) -> list[str]:
    """The programs that use much more of a processor than before a move."""
    return sorted(name for name, share in after.items() if share > before.get(name, 0.0) + MORE)


def command(cgroup: str) -> str:
    """Runs this on a host that does not have it."""
    text = base64.b64encode(pathlib.Path(__file__).read_bytes()).decode("ascii")
    return f"echo {text} | base64 --decode | python3 - {cgroup}"


if __name__ == "__main__":
    print(json.dumps(shares(sys.argv[1])))
