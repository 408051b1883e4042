# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The person and the process behind a run, so that another run can tell a move that is prepared from one that was left.

Until a helper runs, a move is held by nothing but the Ansible process that prepares it. The record of the move names that process.
"""

from __future__ import annotations

import calendar
import getpass
import os
import socket
import time
import typing as t

_TIME = "%Y-%m-%dT%H:%M:%SZ"
# A process on another controller cannot be looked at. Its move is taken for one under way for so long after its beginning.
PATIENCE = 300.0

_PROGRAMS = ("ansible", "ansible-playbook", "ansible-console")

By = t.Mapping[str, t.Any]


def myself(variables: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """This run: who, on which controller, since when, and its process."""
    pid = _leader(os.getpid())
    return {
        "who": str(variables.get("awx_user_name") or variables.get("tower_user_name") or os.environ.get("SUDO_USER") or _user()),
        "on": socket.gethostname(),
        "since": time.strftime(_TIME, time.gmtime()),
        "boot": _read("/proc/sys/kernel/random/boot_id"),
        "pid": pid,
        "began": _began(pid),
    }


def at_work(by: By | None, now: float | None = None) -> bool:
    """Whether the run that has written this is still at work, as far as can be told from here."""
    if not by:
        return False
    if by.get("boot") and by.get("boot") == _read("/proc/sys/kernel/random/boot_id"):
        return bool(by.get("began")) and _began(int(by["pid"])) == by["began"]
    if by.get("on") == socket.gethostname():
        return False
    try:
        began = calendar.timegm(time.strptime(str(by.get("since")), _TIME))
    except ValueError:
        return False
    return abs((time.time() if now is None else now) - began) < PATIENCE


def same_run(by: By, other: By) -> bool:
    """Whether both are one process of Ansible."""
    return bool(by.get("began")) and all(by.get(key) == other.get(key) for key in ("boot", "pid", "began"))


def prepares(side: t.Mapping[str, t.Any]) -> bool:
    """Whether a run is preparing a side of a move that has no helper yet."""
    plan = side.get("plan") or {}
    return not side.get("running") and side.get("state") == "prepare" and not side.get("restarted") and at_work(side.get("by") or plan.get("by"))


def _leader(pid: int) -> int:
    """The process of Ansible that a process belongs to: its workers are forks with its command line.

    A wrapper may have Ansible's name somewhere in its own command line, and lives on when the run has ended.
    """
    found = pid
    while found > 1 and not _runs_ansible(_words(found)):
        found = _parent(found)
    if found <= 1:
        return pid
    while _words(_parent(found)) == _words(found):
        found = _parent(found)
    return found


def _runs_ansible(words: t.Sequence[str]) -> bool:
    """Whether a command line is a program of Ansible's: directly, by its interpreter, or as `python -m ansible`."""
    return any(os.path.basename(word) in _PROGRAMS for word in words[:3])


def _words(pid: int) -> list[str]:
    return _read("/proc/{0}/cmdline".format(pid)).split("\0")


def _parent(pid: int) -> int:
    fields = _fields(pid)
    return int(fields[1]) if fields else 0


def _began(pid: int) -> str:
    """When a process began, in the kernel's ticks: a number may be another process's by now."""
    fields = _fields(pid)
    return fields[19] if fields else ""


def _fields(pid: int) -> list[str]:
    """The fields of a process behind its name, which may have spaces in it."""
    return _read("/proc/{0}/stat".format(pid)).rpartition(")")[2].split()


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as source:
            return source.read().strip()
    except OSError:
        return ""


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "user {0}".format(os.getuid())
