# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs the helper binary `pcopy`: the only place of the collection that does.

The helper takes an argument list and answers with JSON lines on standard output: events first, the result last. Where it
fails, its last line on standard error is one sentence that says what is wrong, where, and what to do; that sentence is
what the user gets to read.
"""

from __future__ import annotations

import json
import os
import typing as t
from dataclasses import dataclass

from ansible_collections.livefleet.handover.plugins.module_utils._runtime import (
    Completed,
    HandoverError,
    Runtime,
)

HELPER = "/usr/local/libexec/handover/pcopy"
INSTALLED_BY = "apply the role livefleet.handover.pcopy to this host"


class PcopyError(HandoverError):
    """The helper ended with an error; the text is its own last sentence, and what it had answered until then is kept."""

    def __init__(self, sentence: str, rc: int, answers: t.Sequence[t.Dict[str, t.Any]]) -> None:
        super().__init__(sentence)
        self.rc = rc
        self.answers = tuple(answers)


@dataclass(frozen=True)
class Pcopy:
    """The helper on this host."""

    runtime: Runtime
    path: str = HELPER

    def call(self, *arguments: str, stdin: t.Optional[str] = None, timeout: t.Optional[float] = None) -> t.Dict[str, t.Any]:
        """Runs one helper command and returns its result, the last JSON object that it answered."""
        answers = self.events(*arguments, stdin=stdin, timeout=timeout)
        if not answers:
            raise HandoverError("{0} answered nothing where JSON was expected".format(self._name(arguments)))
        return answers[-1]

    def events(self, *arguments: str, stdin: t.Optional[str] = None, timeout: t.Optional[float] = None) -> t.List[t.Dict[str, t.Any]]:
        """Runs one helper command and returns every JSON object that it answered, in order."""
        self._check_installed()
        completed = self.runtime.run([self.path, *arguments], accept=range(-255, 256), stdin=stdin, timeout=timeout)
        if completed.rc != 0:
            raise PcopyError(self._sentence(arguments, completed), completed.rc, _lenient(completed.stdout))
        return self._parse(arguments, completed.stdout)

    def version(self) -> t.Dict[str, t.Any]:
        """What the installed helper says of itself."""
        return self.call("version", "--json")

    def _check_installed(self) -> None:
        if not os.path.isfile(self.path):
            raise HandoverError("the helper {0} is missing: {1}".format(self.path, INSTALLED_BY))
        if not os.access(self.path, os.X_OK):
            raise HandoverError("the helper {0} is not executable: {1}".format(self.path, INSTALLED_BY))

    def _parse(self, arguments: t.Sequence[str], stdout: str) -> t.List[t.Dict[str, t.Any]]:
        try:
            return list(_documents(stdout))
        except ValueError as exc:
            raise HandoverError(
                "{0} answered something that is not JSON ({1}): the installed helper is of another version; {2}".format(
                    self._name(arguments), exc, INSTALLED_BY
                )
            ) from exc

    def _sentence(self, arguments: t.Sequence[str], completed: Completed) -> str:
        lines = [line.strip() for line in completed.stderr.splitlines() if line.strip()]
        if lines:
            return lines[-1]
        if completed.rc < 0:
            return "{0} was ended by signal {1}".format(self._name(arguments), -completed.rc)
        return "{0} ended with status {1} and said nothing".format(self._name(arguments), completed.rc)

    def _name(self, arguments: t.Sequence[str]) -> str:
        return " ".join(["pcopy", *arguments[:1]])


def _documents(text: str) -> t.Iterator[t.Dict[str, t.Any]]:
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
            raise ValueError("an object was expected, not {0}".format(type(document).__name__))
        yield document


def _lenient(text: str) -> t.List[t.Dict[str, t.Any]]:
    """The JSON objects up to the point where a failed command broke off."""
    documents: t.List[t.Dict[str, t.Any]] = []
    try:
        for document in _documents(text):
            documents.append(document)
    except ValueError:
        pass
    return documents
