# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The init of a root file system: which it is, and what it needs of an engine to come up and to be stopped.

A root file system is looked at by a program for a shell, since it may be on a host with a Python that Ansible no longer supports.
"""

from __future__ import annotations

import re
import typing as t

from .runtime import Runtime

SYSTEMD, UPSTART, SYSVINIT = "systemd", "upstart", "sysvinit"

# Of a root file system, here or on a volume: the kind of its init, and the versions that the mends ask for.
ROOT_SCRIPT = r"""
# One line, whatever a name or a link in the container has in it: an answer of its own would be believed.
say() { printf '%s\n' "$*" | head -n 1; }
look_at_root() {
    say "@root path $1"
    for init in sbin/init usr/sbin/init; do
        if [ -L "$1/$init" ]; then say "@root init $(readlink "$1/$init")"; break; fi
        if [ -f "$1/$init" ]; then say "@root init $init"; break; fi
    done
    for each in etc/inittab etc/init/rc.conf sbin/initctl etc/rc.d/rc.sysinit etc/fstab run etc/network/interfaces \
        etc/sysconfig/network-scripts; do
        [ -e "$1/$each" ] && say "@root has $each"
    done
    [ -n "$(ls -A "$1/var/lib/systemd/linger" 2>/dev/null)" ] && say "@root has linger"
    [ -d "$1/tmp" ] && [ ! -L "$1/tmp" ] && say "@root has tmp"
    for each in "$1"/lib/systemd/libsystemd-shared-*.so "$1"/usr/lib/systemd/libsystemd-shared-*.so "$1"/usr/lib/*/systemd/libsystemd-shared-*.so; do
        [ -e "$each" ] && say "@root systemd $(basename "$each" .so | sed 's/libsystemd-shared-//')"
    done
    for each in "$1"/lib/libc-2.*.so "$1"/lib64/libc-2.*.so "$1"/lib/*/libc-2.*.so; do
        [ -e "$each" ] && say "@root glibc $(basename "$each" .so | sed 's/libc-//')"
    done
    # A link within the folder is usual (centos-release); another would show a file of the host.
    for each in etc/debian_version etc/redhat-release; do
        case $(readlink "$1/$each") in */*) continue ;; esac
        [ -f "$1/$each" ] && say "@root release $each $(head -n 1 "$1/$each")"
    done
    return 0
}
"""

# System V's init cannot mount a tmpfs on these itself, and marks of the last start would keep services down.
RUN = {"/run": "rw,nosuid,nodev,mode=0755", "/run/lock": "rw,nosuid,nodev,noexec,mode=1777"}

Change = t.Callable[[str], str]


def empty_root() -> dict[str, t.Any]:
    return {"path": "", "init": "", "has": [], "systemd": 0, "glibc": "", "release": ""}


def add_root(root: dict[str, t.Any], text: str) -> None:
    """One line about a root file system."""
    key, _blank, rest = text.partition(" ")
    if key == "has":
        root["has"].append(rest)
    elif key == "systemd":
        match = re.match(r"\d+", rest)
        root["systemd"] = int(match.group(0)) if match else root["systemd"]
    elif key == "release":
        root["release"] = rest.partition(" ")[2]
    elif key in root:
        root[key] = rest


def root_of(text: str) -> dict[str, t.Any]:
    """The lines of ROOT_SCRIPT alone."""
    root = empty_root()
    for line in text.splitlines():
        if line.startswith("@root "):
            add_root(root, line[len("@root ") :].strip())
    return root


def look_at(runtime: Runtime, folder: str) -> dict[str, t.Any]:
    """A root file system that is mounted on this host."""
    return root_of(runtime.run(["sh", "-c", ROOT_SCRIPT + 'look_at_root "$1"', "sh", folder]).stdout)


def init_of(root: t.Mapping[str, t.Any]) -> str:
    """systemd, upstart, sysvinit, or nothing that is known here."""
    if root["init"].endswith("systemd"):
        return "systemd"
    if "sbin/initctl" in root["has"] and "etc/init/rc.conf" in root["has"]:
        return "upstart"
    if root["init"] and "etc/inittab" in root["has"]:
        return "sysvinit"
    return ""


def comment(pattern: str) -> Change:
    """A hash before each line that matches from its beginning."""
    expression = re.compile(pattern)
    return lambda text: "".join("# " + line if expression.match(line) else line for line in text.splitlines(keepends=True))


# There are no virtual terminals: a getty would end at once and be started for ever.
without_getty = comment(r"[^#:\n]+:[^:\n]*:(respawn|ondemand):.*getty\b")


def power(text: str) -> str:
    """An inittab in which a failing power means: shut down. SIGTERM means nothing to this init."""
    if re.search(r"^[^#\n]*:powerfail:/sbin/init 0\s*$", text, re.MULTILINE):
        return text
    without = re.sub(r"^([^#\n:]*:[^:\n]*:(?:powerfail|powerwait|powerfailnow):.*)$", r"# \1", text, flags=re.MULTILINE)
    return without.rstrip("\n") + "\nvz:12345:powerfail:/sbin/init 0\n"
