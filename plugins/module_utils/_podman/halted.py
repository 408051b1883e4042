# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A container whose memory is dumped, and that runs on where it stood."""

from __future__ import annotations

import contextlib
import os
import shutil
import typing as t

from .._core.pcopy import Pcopy
from .._core.runtime import HandoverError, Runtime
from .podman import Podman, network_backend
from .sessions import Sessions, has_moved, moved_names

Network = t.Mapping[str, str]

ESTABLISHED = ("--tcp-established", "--file-locks")
# Has the helper's netavark, which the role pcopy lays down.
STAND_IN = "/usr/local/libexec/handover/podman"
GO_ON_SECONDS = 600


def look_for_move(runtime: Runtime, name: str) -> None:
    """An error while a move has the container, or a workload that it is a member of, or has left it to be removed.

    Its dump lies in the same place, and to restore that here would be a second copy of the workload that runs over there.
    """
    for status in Sessions(Pcopy(runtime)).statuses():
        moved = status["role"] == "source" and has_moved(status)
        if name in moved_names(status) and (moved or not status["ended"]):
            raise HandoverError("{0} is being moved (session {1}): wait until that has ended".format(name, status["id"]))


@contextlib.contextmanager
def halted(runtime: Runtime, podman: Podman, name: str, facts: t.Mapping[str, t.Any], runs: t.Callable[[], bool]) -> t.Iterator[None]:
    """Nothing of it runs inside. It runs on afterwards in any case; if it does not, both reasons are told."""
    look_for_move(runtime, name)
    # podman restores any dump that it finds, and one of an earlier halt is of another moment.
    shutil.rmtree(facts["checkpoint_dir"], ignore_errors=True)
    try:
        runtime.run(halt_words(runtime, podman, name, facts))
        yield
    except BaseException as exc:
        # A halt that failed may have left it running, or it has ended by itself.
        if runs() or not os.path.isdir(facts["checkpoint_dir"]):
            raise
        try:
            go_on(runtime, name, facts)
        except HandoverError as second:
            raise HandoverError("{0}; and {1} does not run on: {2}".format(exc, name, second)) from exc
        raise
    go_on(runtime, name, facts)


def go_on(runtime: Runtime, name: str, facts: t.Mapping[str, t.Any], within: str = "", network: Network | None = None) -> None:
    """Has it run on where it stood, also if the time for all else is up; within: in the cgroup of its unit. With `network` that comes up silent."""
    late = Runtime(runtime.module, GO_ON_SECONDS)
    if network:
        with open(_silent(facts), "w", encoding="utf-8"):
            pass
    late.run(go_on_words(late, Podman(late), name, facts, within, network))


def halt_words(runtime: Runtime, podman: Podman, name: str, facts: t.Mapping[str, t.Any]) -> list[str]:
    """The command that dumps it, and ends it."""
    return [*_door(runtime, facts), podman.path, "container", "checkpoint", "--keep", *ESTABLISHED, name]


def go_on_words(runtime: Runtime, podman: Podman, name: str, facts: t.Mapping[str, t.Any], within: str = "", network: Network | None = None) -> list[str]:
    """The command that restores it.

    Its sockets need its addresses at once, also those of IPv6, for which the kernel would ask the segment first."""
    asked = network or network_backend(podman.info())
    environment = ["CONTAINERS_HELPER_BINARY_DIR=" + STAND_IN, "HANDOVER_NETAVARK=" + asked["path"], "HANDOVER_GATE=" + facts["checkpoint_dir"]]
    environment += ["HANDOVER_SILENT=" + _silent(facts)] if network else []
    through = [runtime.tool("env", "coreutils"), *environment] if asked["backend"] == "netavark" and asked["path"] else []
    # What watches over the container would end with the unit of a timer, if it were a part of it.
    apart = [runtime.tool("systemd-run", "systemd"), "--scope", "--quiet", "--collect", "--"]
    inside = [Pcopy(runtime).path, "internal", "within", within]
    return [*(inside if within else apart), *through, podman.path, "container", "restore", *ESTABLISHED, name]


def _silent(facts: t.Mapping[str, t.Any]) -> str:
    """The mark by which CRIU's action script ends the silence, when all sockets are there. It goes with the dump."""
    return os.path.join(facts["checkpoint_dir"], "handover-silent")


def _door(runtime: Runtime, facts: t.Mapping[str, t.Any]) -> list[str]:
    """The words that keep new connections away while it is dumped: CRIU refuses a listener at whose door somebody waits."""
    if not facts["network_namespace"]:
        return []
    pcopy = Pcopy(runtime)
    pcopy.check_installed()
    return [pcopy.path, "internal", "shut-door", "--namespace=" + facts["network_namespace"], "--"]
