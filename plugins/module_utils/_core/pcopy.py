# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs the helper binary `pcopy`: the only place of the collection that does.

The helper takes an argument list and answers with JSON lines on standard output: events first, the result last. Where it
fails, its last line on standard error is one sentence with the fault, its place, and the way out; that sentence is
the user's message.
"""

from __future__ import annotations

import json
import os
import typing as t
from dataclasses import dataclass

from .runtime import Completed, HandoverError, Runtime

HELPER = "/usr/local/libexec/handover/pcopy"
# Where its sessions keep their records.
SESSIONS = "/var/lib/handover/sessions"
INSTALLED_BY = "apply the role livefleet.handover.pcopy to this host"
# What this collection asks of the helper: the number in helper/internal/session/record/interface.go.
INTERFACE = 6
UNKNOWN_FIELD = "json: unknown field"


class PcopyError(HandoverError):
    """The helper ended with an error; the text is its own last sentence, and its answer until then is kept."""

    def __init__(self, sentence: str, rc: int, answers: t.Sequence[dict[str, t.Any]]) -> None:
        super().__init__(sentence)
        self.rc = rc
        self.answers = tuple(answers)


@dataclass(frozen=True)
class Pcopy:
    """The helper on this host."""

    runtime: Runtime
    path: str = HELPER

    def call(self, *arguments: str, stdin: str | bytes | None = None, timeout: float | None = None) -> dict[str, t.Any]:
        """Runs one helper command and returns its result, the last JSON object that it answered."""
        answers = self.events(*arguments, stdin=stdin, timeout=timeout)
        if not answers:
            raise HandoverError(f"{self._name(arguments)} answered nothing where JSON was expected")
        return answers[-1]

    def events(self, *arguments: str, stdin: str | bytes | None = None, timeout: float | None = None) -> list[dict[str, t.Any]]:
        """Runs one helper command and returns every JSON object that it answered, in order."""
        self.check_installed()
        completed = self.runtime.run([self.path, *arguments], accept=range(-255, 256), stdin=stdin, timeout=timeout)
        if completed.rc != 0:
            raise PcopyError(self._sentence(arguments, completed), completed.rc, _lenient(completed.stdout))
        return self._parse(arguments, completed.stdout)

    def version(self) -> dict[str, t.Any]:
        """The installed helper's version."""
        return self.call("version", "--json")

    def check_installed(self) -> None:
        """An error if it is not there, or not to be run."""
        if not os.path.isfile(self.path):
            raise HandoverError(f"the helper {self.path} is missing: {INSTALLED_BY}")
        if not os.access(self.path, os.X_OK):
            raise HandoverError(f"the helper {self.path} is not executable: {INSTALLED_BY}")

    def _parse(self, arguments: t.Sequence[str], stdout: str) -> list[dict[str, t.Any]]:
        try:
            return list(_documents(stdout))
        except ValueError as exc:
            raise HandoverError(
                f"{self._name(arguments)} answered something that is not JSON ({exc}): the installed helper is of another version; {INSTALLED_BY}"
            ) from exc

    def _sentence(self, arguments: t.Sequence[str], completed: Completed) -> str:
        lines = [line.strip() for line in completed.stderr.splitlines() if line.strip()]
        if lines:
            # A spec with a field that the helper does not know.
            return f"{lines[-1]}: the installed helper is older than the collection; {INSTALLED_BY}" if UNKNOWN_FIELD in lines[-1] else lines[-1]
        if completed.rc < 0:
            return f"{self._name(arguments)} was ended by signal {-completed.rc}"
        return f"{self._name(arguments)} ended with status {completed.rc} and said nothing"

    def _name(self, arguments: t.Sequence[str]) -> str:
        return " ".join(["pcopy", *arguments[:1]])


def _documents(text: str) -> t.Iterator[dict[str, t.Any]]:
    """The JSON objects of a text, one after the other, however they are broken into lines."""
    decoder = json.JSONDecoder()
    position = 0
    while True:
        while position < len(text) and text[position].isspace():
            position += 1
        if position == len(text):
            return
        document, position = decoder.raw_decode(text, position)
        if not isinstance(document, dict):
            raise ValueError(f"an object was expected, not {type(document).__name__}")
        yield document


def _lenient(text: str) -> list[dict[str, t.Any]]:
    """The JSON objects up to the point where a failed command broke off."""
    documents: list[dict[str, t.Any]] = []
    try:
        for document in _documents(text):
            documents.append(document)
    except ValueError:
        pass
    return documents
