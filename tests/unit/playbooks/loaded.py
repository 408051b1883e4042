# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""ansible-playbook, loaded once for many runs: each is a fork of the process that has loaded it.

Loading takes more than half of a run that the door refuses.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import typing as t
from pathlib import Path

SECONDS = 120


class Loaded:
    """The process that has loaded Ansible, in the environment that all runs have."""

    def __init__(self, environment: t.Mapping[str, str], place: Path) -> None:
        self.said = place / "said"
        self.process = subprocess.Popen([sys.executable, __file__], env=environment, cwd=place, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, *words: str) -> tuple[int, str]:
        """The exit status and all that was printed."""
        assert self.process.stdin and self.process.stdout
        print(json.dumps({"words": words, "said": str(self.said)}), file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline()), self.said.read_text(encoding="utf-8")

    def end(self) -> None:
        self.process.communicate(timeout=SECONDS)


def play(words: list[str], said: str) -> t.NoReturn:
    """One run, in a process of its own: the output goes into a file, and what the loading process has to clean up stays."""
    from ansible.cli.playbook import main

    signal.alarm(SECONDS)
    nothing, output = os.open(os.devnull, os.O_RDONLY), os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    sys.argv = ["ansible-playbook", *words]
    try:
        main(sys.argv)
        status = 0
    except SystemExit as end:
        status = int(end.code or 0)
    except BaseException as exc:  # pylint: disable=broad-exception-caught
        print(repr(exc), file=sys.stderr)
        status = 250
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def serve() -> None:
    import ansible.cli.playbook  # noqa: F401  # loaded for the forks

    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if not child:
            play(order["words"], order["said"])
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    serve()
