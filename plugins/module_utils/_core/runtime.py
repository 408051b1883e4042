# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs the host's tools for the modules of this collection.

Every command is an argument list, speaks the C locale, and has a time limit. A failure becomes a HandoverError:
one sentence for the user with the fault, its place, and the way out. Modules turn it into their failure message.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import subprocess
import threading
import time
import typing as t
from dataclasses import dataclass

from ansible.module_utils.basic import AnsibleModule

# A command that has outlived its limit is asked to end; it has this long to clean up before it is killed.
GRACE_SECONDS = 10.0


class HandoverError(Exception):
    """One sentence for the user."""


# The option of podman and docker after which NAME=VALUE stands, and the value may be a password.
_ENVIRONMENT = "--env"


def shown(command: t.Sequence[str]) -> list[str]:
    """A command for people: without the values of a container's variables."""
    found = []
    before = ""
    for word in command:
        option, equals, variable = word.partition("=") if word.startswith(_ENVIRONMENT + "=") else ("", "", word if before == _ENVIRONMENT else "")
        name, valued, _value = variable.partition("=")
        found.append(option + equals + name + "=***" if valued else word)
        before = word
    return found


@dataclass(frozen=True)
class Completed:
    """A command that ran to its end."""

    argv: tuple[str, ...]
    rc: int
    stdout: str
    stderr: str

    @property
    def last_words(self) -> str:
        """The last line that the command wrote, standard error before standard output: where tools put their reason."""
        for stream in (self.stderr, self.stdout):
            lines = [line.strip() for line in stream.splitlines() if line.strip()]
            if lines:
                return lines[-1]
        return f"it ended with status {self.rc} and said nothing"


class _Watchdog:
    """Ends a process that outlives its limit, first politely."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.fired = False
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._done = False

    def watch(self, process: subprocess.Popen) -> None:
        self._schedule(self.seconds, self._terminate, process)

    def stop(self) -> None:
        with self._lock:
            self._done = True
            if self._timer is not None:
                self._timer.cancel()

    def _schedule(self, seconds: float, action: t.Callable, process: subprocess.Popen) -> None:
        with self._lock:
            if self._done:
                return
            self._timer = threading.Timer(seconds, action, [process])
            self._timer.daemon = True
            self._timer.start()

    def _terminate(self, process: subprocess.Popen) -> None:
        self.fired = True
        with contextlib.suppress(OSError):
            process.terminate()
        self._schedule(GRACE_SECONDS, self._kill, process)

    def _kill(self, process: subprocess.Popen) -> None:
        with contextlib.suppress(OSError):
            process.kill()


class Runtime:
    """The host as a module sees it: tools with a time budget.

    The budget, in seconds, is for the module as a whole: each command may use the rest of it.
    """

    def __init__(self, module: AnsibleModule, timeout: float) -> None:
        self.module = module
        self.timeout = timeout
        self._deadline = time.monotonic() + timeout

    def remaining(self) -> float:
        """Seconds left of the budget, never negative."""
        return max(0.0, self._deadline - time.monotonic())

    def find(self, tool: str) -> str | None:
        """The tool's absolute path, or None if the host does not have it."""
        return self.module.get_bin_path(tool)

    def tool(self, tool: str, package: str) -> str:
        """The tool's absolute path; the error names the package that brings it."""
        path = self.find(tool)
        if path is None:
            raise HandoverError(f"{tool} is missing on this host: install the package {package}")
        return path

    def run(
        self,
        argv: t.Sequence[str],
        accept: t.Container[int] = (0,),
        stdin: str | bytes | None = None,
        timeout: float | None = None,
    ) -> Completed:
        """Runs a command to its end and returns its output; a status outside `accept` is an error with its own last words.

        Text on standard input is a line; bytes go as they are.
        """
        command = [str(argument) for argument in argv]
        limit = self.remaining() if timeout is None else min(timeout, self.remaining())
        if limit <= 0:
            raise HandoverError(f"the timeout of {self.timeout:g} s was used up before this command: {shlex.join(shown(command))}")
        watchdog = _Watchdog(limit)
        try:
            rc, stdout, stderr = self.module.run_command(
                command,
                data=stdin,
                binary_data=isinstance(stdin, bytes),
                environ_update={"LC_ALL": "C", "LANGUAGE": "C"},
                errors="surrogate_then_replace",
                expand_user_and_vars=False,
                handle_exceptions=False,
                before_communicate_callback=watchdog.watch,
            )
        except OSError as exc:
            raise HandoverError(f"{command[0]} could not be started: {exc.strerror or exc}") from exc
        finally:
            watchdog.stop()
        completed = Completed(tuple(command), rc, stdout, stderr)
        if watchdog.fired and rc != 0:
            raise HandoverError(
                f"this command did not finish within {limit:.1f} s and was ended; raise timeout if the host is only slow: {shlex.join(shown(command))}"
            )
        if rc not in accept:
            raise HandoverError(f"{shlex.join(shown(command))} failed: {completed.last_words}")
        return completed

    def run_json(self, argv: t.Sequence[str], accept: t.Container[int] = (0,)) -> t.Any:
        """Runs a command whose answer is one JSON document; no output at all is None."""
        completed = self.run(argv, accept=accept)
        if not completed.stdout.strip():
            return None
        try:
            return json.loads(completed.stdout)
        except ValueError as exc:
            raise HandoverError(f"{shlex.join(shown(completed.argv))} answered something that is not JSON: {exc}") from exc

    def wait_for(self, condition: t.Callable[[], bool], seconds: float, interval: float = 0.05) -> bool:
        """Waits until the condition holds, and says whether it does.

        Half of the budget is left at the latest: the condition runs commands, and so may the search for the reason.
        """
        deadline = time.monotonic() + min(seconds, self.remaining() / 2)
        while not condition():
            if time.monotonic() >= deadline:
                return False
            time.sleep(interval)
        return True


def finish(module: AnsibleModule, work: t.Callable[[], t.Mapping[str, t.Any]], place: str) -> None:
    """Ends the module with the result of its work. A fault of the system is told with its file, or else with this place."""
    try:
        result = work()
    except HandoverError as exc:
        module.fail_json(msg=str(exc))
    except OSError as exc:
        module.fail_json(msg="{0}: {1}".format(exc.filename or place, exc.strerror or exc))
    else:
        module.exit_json(**result)
