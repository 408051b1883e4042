# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Of a container, the facts that neither its own inspect nor CRIU reports: those that the kernel and systemd keep beside it.

Everything is read from /proc and from files, of the container as it is now. A function here takes the place of /proc or of a folder as
an argument, and so can be shown a made-up one.
"""

from __future__ import annotations

import os
import re
import typing as t

from .._core.host import read_text

# Kinds of file systems that CRIU itself mounts again.
CRIU_MOUNTS = frozenset(
    (
        "autofs", "binfmt_misc", "cgroup", "cgroup2", "debugfs", "devpts", "devtmpfs", "fusectl", "mqueue", "proc", "pstore", "securityfs",
        "sysfs", "tmpfs", "tracefs",
    )
)  # fmt: skip
# So many files of a tmpfs are looked at for attributes; beyond that the answer is that it is not known.
MOST_FILES = 20000


class Mount(t.NamedTuple):
    """A line of a process's mountinfo."""

    device: str  # major:minor
    root: str
    place: str
    fstype: str


def mounts_of(pid: int, proc: str = "/proc") -> list[Mount]:
    """The mounts that a process sees."""
    found = []
    for line in read_text(os.path.join(proc, str(pid), "mountinfo")).splitlines():
        columns, _dash, tail = line.partition(" - ")
        fields = columns.split(" ")
        if len(fields) > 4 and tail:
            root, place = (text.encode("latin-1", "replace").decode("unicode_escape") for text in fields[3:5])
            found.append(Mount(fields[2], root, place, tail.split(" ")[0]))
    return found


def own_mounts(mounts: t.Iterable[Mount], configured: t.Container[str]) -> list[Mount]:
    """Mounts that the container itself made and CRIU cannot: no part of its configuration, and of no kind that CRIU mounts."""
    return [mount for mount in mounts if mount.place not in configured and mount.place != "/" and mount.fstype not in CRIU_MOUNTS]


def configured_places(document: t.Mapping[str, t.Any]) -> set[str]:
    """Where the OCI configuration has something mounted: by its own list, and by the paths that it masks or makes read-only."""
    linux = document.get("linux") or {}
    places = {mount.get("destination", "") for mount in document.get("mounts") or []}
    # runc mounts a cgroup hierarchy and the terminal into those places.
    return places | set(linux.get("maskedPaths") or []) | set(linux.get("readonlyPaths") or []) | {"/", "/dev/console"}


def own_tmpfs(mounts: t.Iterable[Mount], pid: int, proc: str = "/proc") -> list[dict[str, t.Any]]:
    """Its tmpfs that hold something, each with its device and the first mount in it. Of podman's own files and /dev/shm the bytes go another way."""
    found = []
    mounts = list(mounts)
    for mount in mounts:
        if mount.fstype != "tmpfs" or mount.root != "/" or mount.place in ("/dev", "/dev/shm") or mount.place.startswith(("/proc/", "/sys/")):
            continue
        below = os.path.join(proc, str(pid), "root") + mount.place
        try:
            status, top = os.statvfs(below), os.stat(below).st_dev
        except OSError:
            continue
        used = (status.f_blocks - status.f_bfree) * status.f_frsize
        if used:
            inside = next((other.place for other in mounts if other.place.startswith(mount.place + "/")), "")
            # Another one may lie over it.
            device = mount.device if mount.device == "{0}:{1}".format(os.major(top), os.minor(top)) else ""
            found.append({"place": mount.place, "size": used, "attributes": attributes_below(below), "device": device, "inside": inside})
    return found


def attributes_below(directory: str) -> str:
    """The first file below that has an extended attribute, which CRIU's tar does not keep; "…" where there are too many to look at."""
    seen = 0
    for folder, directories, names in os.walk(directory):
        for name in (*directories, *names):
            seen += 1
            if seen > MOST_FILES:
                return "…"
            path = os.path.join(folder, name)
            try:
                attributes = os.listxattr(path, follow_symlinks=False)
            except OSError:
                continue
            if any(not attribute.startswith("security.selinux") for attribute in attributes):
                return path[len(directory) :]
    return ""


def layer_watches(pids: t.Iterable[int], mounts: t.Iterable[Mount], proc: str = "/proc") -> list[dict[str, t.Any]]:
    """Processes that watch files of the container's own layer by inotify or fanotify; and of how many the kernel tells no handle, by which
    CRIU knows a watch."""
    layers = {_device(mount.device) for mount in mounts if mount.fstype == "overlay"}
    found = []
    for pid in pids:
        directory = os.path.join(proc, str(pid), "fdinfo")
        try:
            numbers = sorted(os.listdir(directory), key=int)
        except OSError:
            continue
        for number in numbers:
            watches = re.findall(r"^(?:inotify|fanotify) .*?\bsdev:([0-9a-f]+)(.*)", read_text(os.path.join(directory, number)), re.MULTILINE)
            ours = [rest for device, rest in watches if int(device, 16) in layers]
            if ours:
                found.append({"process": name_of(pid, proc), "pid": pid, "count": len(ours), "without_handle": sum("f_handle:" not in rest for rest in ours)})
                break
    return found


def _device(text: str) -> int:
    """A device as the kernel numbers it in fdinfo."""
    major, _colon, minor = text.partition(":")
    return int(major) << 20 | int(minor)


def name_of(pid: int, proc: str = "/proc") -> str:
    """How the kernel calls a process."""
    return read_text(os.path.join(proc, str(pid), "comm")).strip() or "a process"


def unattended(identifier: str, proc: str = "/proc") -> bool:
    """The same for a container that runs, without asking podman: no conmon has its id among its words."""
    conmons = (pid for pid in os.listdir(proc) if pid.isdigit() and name_of(int(pid), proc) == "conmon")
    return not any(identifier in read_text(os.path.join(proc, pid, "cmdline")).split("\0") for pid in conmons)


def conmon_gone(inspect: t.Mapping[str, t.Any], proc: str = "/proc") -> bool:
    """Whether the process that podman has beside the container is not there any more: its output is not read then, and its end not seen."""
    pid = (inspect.get("State") or {}).get("ConmonPid") or 0
    return pid != 0 and name_of(pid, proc) != "conmon"


def entered(root: int, pids: t.Iterable[int], proc: str = "/proc") -> list[dict[str, t.Any]]:
    """Processes in the container that its first process has not started, as those of podman exec: a dump does not hold them."""
    parents = {pid: _parent(pid, proc) for pid in pids}
    strangers = []
    for pid in parents:
        current: int | None = pid
        while current in parents and current != root:
            current = parents[current]
        # One that has ended since is no loss.
        if current != root and parents[pid] is not None:
            strangers.append({"process": name_of(pid, proc), "pid": pid})
    return strangers


def _parent(pid: int, proc: str) -> int | None:
    match = re.search(r"^PPid:\s+(\d+)", read_text(os.path.join(proc, str(pid), "status")), re.MULTILINE)
    return int(match.group(1)) if match else None


def huge_pages(pids: t.Iterable[int], proc: str = "/proc") -> int:
    """Bytes of huge pages that its processes have mapped; those that they share are counted once."""
    private, shared = 0, 0
    for pid in pids:
        text = read_text(os.path.join(proc, str(pid), "smaps_rollup"))
        found = {name: int(number) * 1024 for name, number in re.findall(r"^(Private_Hugetlb|Shared_Hugetlb):\s+(\d+) kB", text, re.MULTILINE)}
        private += found.get("Private_Hugetlb", 0)
        shared = max(shared, found.get("Shared_Hugetlb", 0))
    return private + shared


def free_huge_pages(sysfs: str = "/sys") -> int:
    """Bytes of huge pages that are reserved on this host and free."""
    root, total = os.path.join(sysfs, "kernel/mm/hugepages"), 0
    for name in os.listdir(root) if os.path.isdir(root) else []:
        size = re.match(r"hugepages-(\d+)kB$", name)
        free = read_text(os.path.join(root, name, "free_hugepages")).strip()
        total += int(size.group(1)) * 1024 * int(free) if size and free.isdigit() else 0
    return total


def shares_host_processes(pid: int, proc: str = "/proc") -> bool:
    """Whether the processes of the container are those of its host."""
    try:
        return os.readlink(os.path.join(proc, str(pid), "ns/pid")) == os.readlink(os.path.join(proc, "self/ns/pid"))
    except OSError:
        return False
