# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A container whose memory is dumped, and that runs on where it stood."""

from __future__ import annotations

import contextlib
import typing as t

from .._core.pcopy import Pcopy
from .._core.runtime import HandoverError, Runtime
from .podman import Podman


@contextlib.contextmanager
def halted(runtime: Runtime, podman: Podman, name: str, facts: t.Mapping[str, t.Any], runs: t.Callable[[], bool]) -> t.Iterator[None]:
    """Nothing of it runs inside. It runs on afterwards in any case; if it does not, both reasons are told."""
    options = ("--tcp-established", "--file-locks")
    halt, go_on = ("container", "checkpoint", "--keep", *options), ("container", "restore", *options)
    try:
        runtime.run([*_door(runtime, facts), podman.path, *halt, name])
        yield
    except BaseException as exc:
        # A halt that failed may have left it running.
        if runs():
            raise
        try:
            podman.run(*go_on, name)
        except HandoverError as second:
            raise HandoverError("{0}; and {1} does not run on: {2}".format(exc, name, second)) from exc
        raise
    podman.run(*go_on, name)


def _door(runtime: Runtime, facts: t.Mapping[str, t.Any]) -> list[str]:
    """The words that keep new connections away while it is dumped: CRIU refuses a listener at whose door somebody waits."""
    if not facts["network_namespace"]:
        return []
    pcopy = Pcopy(runtime)
    pcopy.check_installed()
    return [pcopy.path, "internal", "shut-door", "--namespace=" + facts["network_namespace"], "--"]
