# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tells systemd which process is a unit's main one, from within the unit: systemd listens to a unit's own processes only."""

from __future__ import annotations

import array
import os
import select
import socket

from .._core.runtime import HandoverError

SOCKET = "/run/systemd/notify"
_PATIENCE = 20.0


def main_process(cgroup: str, pid: int, address: str = SOCKET) -> None:
    """Says that the process is the main one, and that the unit is ready. It returns when systemd has heard it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os._exit(_say(cgroup, pid, address, writing))
    os.close(writing)
    said = b"".join(iter(lambda: os.read(reading, 4096), b"")).decode()
    os.close(reading)
    _child, status = os.waitpid(child, 0)
    if status != 0:
        raise HandoverError(
            "systemd could not be told that process {0} is the main one of the unit in {1}: {2}".format(pid, cgroup, said or "no reason was given")
        )


def _say(cgroup: str, pid: int, address: str, errors: int) -> int:
    """In a process of its own, which goes into the unit's cgroup and ends there."""
    try:
        put_into(cgroup, os.getpid())
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as said:
            said.connect(address)
            said.send("MAINPID={0}\nREADY=1\n".format(pid).encode())
            return _heard(said)
    except BaseException as exc:  # whatever it is, the other process tells it
        os.write(errors, str(exc).encode())
        return 1


def put_into(cgroup: str, pid: int) -> None:
    """Puts a process into a unit's cgroup, or into the part for what manages the others: one that gives controllers to those below has no processes."""
    last: OSError | None = None
    for folder in (cgroup, os.path.join(cgroup, "runtime")):
        try:
            with open(os.path.join(folder, "cgroup.procs"), "w", encoding="ascii") as opened:
                opened.write(str(pid))
            return
        except OSError as exc:
            last = exc
    raise OSError("its cgroup takes no process: {0}".format(last))


def _heard(said: socket.socket) -> int:
    """systemd closes what it gets with this word when it has come to it."""
    reading, writing = os.pipe()
    said.sendmsg([b"BARRIER=1"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [writing]))])
    os.close(writing)
    waiting = select.poll()
    waiting.register(reading, 0)
    if not waiting.poll(_PATIENCE * 1000):
        raise OSError("it did not answer within {0:g} s".format(_PATIENCE))
    return 0
