#!/usr/bin/env python
# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs a command on a host and tells how long it took, and its peak of memory, as JSON. It needs nothing but Python.

With --cutover the command is a pcopy session, and is asked to come to its end as soon as it listens. With --go-on SESSION it is one
that was stopped by a signal, is let go on, asked to come to its end, and timed from there.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import typing as t

STEP = 0.002


def ask(session: str) -> None:
    """Asks as soon as the session takes the question; it comes to its end when everything is sent."""
    while not os.path.exists(os.path.join(session, "control.sock")):
        time.sleep(STEP)
    for words in (["wait", session, "--until=presync"], ["cutover", session]):
        subprocess.run(["pcopy", "session", *words], stdout=subprocess.DEVNULL, check=False)


def go_on(session: str, pid: int) -> dict[str, t.Any]:
    began = time.monotonic()
    os.kill(pid, signal.SIGCONT)
    ask(session)
    return {"seconds": time.monotonic() - began}


def timed(command: list[str], session: str) -> dict[str, t.Any]:
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as child:
        if session:
            ask(session)
        assert child.stderr
        said = child.stderr.read().decode(errors="replace")
        _pid, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    return {"seconds": time.monotonic() - began, "peak": used.ru_maxrss << 10, "status": child.returncode, "said": said[-2000:]}


def main() -> None:
    parser = argparse.ArgumentParser(description=t.cast(str, __doc__).splitlines()[0])
    parser.add_argument("--cutover", metavar="SESSION", default="")
    parser.add_argument("--go-on", nargs=2, metavar=("SESSION", "PID"))
    parser.add_argument("command", nargs="*")
    given = parser.parse_args()
    if given.go_on:
        print(json.dumps(go_on(given.go_on[0], int(given.go_on[1]))))
        return
    print(json.dumps(timed(given.command, given.cutover)), flush=True)


if __name__ == "__main__":
    sys.exit(main())
