# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The processes of a container, and their state that CRIU will refuse to dump.

Read off /proc; only of sockets more has to be known than /proc tells, and for that one is borrowed for a moment. An obstacle is
one thing that one process has; its meaning and its cure are in preflight/processes.py.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import socket
import stat
import struct
import termios
import typing as t
from dataclasses import dataclass

from .._core.databases import database_of, is_sqlites
from .._core.host import read_text

# CRIU copies deleted files that are still open ("ghost files") only up to this size, unless told otherwise.
GHOST_LIMIT = 2**20

# Kinds of files without a name that CRIU knows.
_ANONYMOUS = frozenset(("[eventfd]", "[eventpoll]", "inotify", "[fanotify]", "[signalfd]", "[timerfd]", "bpf-map"))
# Character devices that CRIU knows, by major number: memory (null, zero, random, …) and terminals. Of the miscellaneous ones it knows TUN.
_DEVICE_MAJORS = frozenset((1, 4, 5, *range(128, 144)))
_MISC_MAJOR, _TUN_MINOR = 10, 200

_PROTOCOLS = frozenset((0, socket.IPPROTO_ICMP, socket.IPPROTO_TCP, socket.IPPROTO_UDP, socket.IPPROTO_ICMPV6, 136))
_FAMILIES = frozenset((socket.AF_UNIX, socket.AF_NETLINK, socket.AF_PACKET))
# The names of the kernel's numbers. MPTCP is named here because Go's own listeners have used it since Go 1.24.
_PROTOCOL_NAMES = {33: "DCCP", 132: "SCTP", 262: "MPTCP"}
_FAMILY_NAMES = {29: "CAN", 31: "Bluetooth", 38: "the kernel's cryptography", 40: "virtual machines' sockets (vsock)", 44: "XDP"}

_O_EXCL, _O_DIRECT = 0o200, os.O_DIRECT
# The kernel's files about waiting for memory, processors and disks. One that is open for writing has a trigger.
_PRESSURE = re.compile(r"/proc/pressure/\w+|/sys/fs/cgroup/(.*/)?\w+\.pressure")
# The process that systemd keeps beside the manager of one user, to end the login in the end.
_USER_MANAGER = "(sd-pam)"
_PIDFD_GETFD = 438  # on every architecture

# Namespaces that CRIU restores only if they are the container's own; mount and network namespaces may be nested. The second is the link
# of the container's first process to compare with.
_NAMESPACES = (("pid_for_children", "pid"), ("user", "user"), ("ipc", "ipc"), ("uts", "uts"), ("cgroup", "cgroup"), ("time_for_children", "time"))


@dataclass(frozen=True)
class Obstacle:
    """One thing that CRIU will refuse, and its process."""

    check: str  # the preflight's name for it
    process: str
    pid: int
    detail: str = ""
    size: int = 0


@dataclass(frozen=True)
class Processes:
    """The processes of a container."""

    pids: tuple[int, ...]
    memory: int  # bytes that a dump of them takes
    obstacles: tuple[Obstacle, ...]


def processes_of(root: int, ghost_limit: int = GHOST_LIMIT, proc: str = "/proc") -> Processes:
    """The processes in the process namespace of a container's first process; one below it is an obstacle of the process that made it."""
    own = _link(proc, root, "ns/pid")
    if not own:
        return Processes((), 0, ())
    pids = [pid for pid in sorted(int(entry) for entry in os.listdir(proc) if entry.isdigit()) if _link(proc, pid, "ns/pid") == own]
    inspector = _Inspector(proc, root, ghost_limit)
    found = [obstacle for pid in pids for obstacle in inspector.obstacles(pid)]
    found += inspector.unread_input()
    return Processes(tuple(pids), sum(_dumped_memory(proc, pid) for pid in pids), tuple(dict.fromkeys(found)))


def _link(proc: str, pid: int, name: str) -> str:
    try:
        return os.readlink(os.path.join(proc, str(pid), name))
    except OSError:
        return ""


def _dumped_memory(proc: str, pid: int) -> int:
    """Private and shared memory, each page counted once among the processes that share it; pages of files are not dumped."""
    text = read_text(os.path.join(proc, str(pid), "smaps_rollup"))
    found = dict(re.findall(r"^(Pss|Pss_Anon|Pss_Shmem|SwapPss):\s+(\d+) kB", text, re.MULTILINE))
    # Kernels before 5.4 do not split the sum.
    names = ("Pss_Anon", "Pss_Shmem", "SwapPss") if "Pss_Anon" in found else ("Pss", "SwapPss")
    return sum(int(found.get(name, 0)) for name in names) * 1024


@dataclass(frozen=True)
class _File:
    """An open file of a process."""

    pid: int
    number: int
    path: str  # below /proc
    target: str  # the text of its link
    flags: int
    mount: int


class _Inspector:
    """Goes through the processes of one container."""

    def __init__(self, proc: str, root: int, ghost_limit: int) -> None:
        self.proc = proc
        self.root = root
        self.ghost_limit = ghost_limit
        self.sockets_seen: set[str] = set()
        self.read_from: dict[str, _File] = {}  # pipes, by the text of their links
        self.written_to: set[str] = set()

    def obstacles(self, pid: int) -> t.Iterator[Obstacle]:
        """The state of one process that CRIU will refuse."""
        status = read_text(os.path.join(self.proc, str(pid), "status"))
        name = read_text(os.path.join(self.proc, str(pid), "comm")).strip() or "a process"
        tracer = _number(status, "TracerPid")
        if tracer:
            yield Obstacle("traced", name, pid, str(tracer))
        if name == _USER_MANAGER:
            yield Obstacle("user_managers", name, pid)
        for link, reference in _NAMESPACES:
            theirs, ours = _link(self.proc, pid, "ns/" + link), _link(self.proc, self.root, "ns/" + reference)
            if theirs and ours and theirs != ours:
                yield Obstacle("nested_namespaces", name, pid, reference)
        hidden = hidden_mounts(read_text(os.path.join(self.proc, str(pid), "mountinfo")))
        for file in self._files(pid):
            self._note_pipe(file)
            for check, detail, size in self._refused(file, hidden):
                yield Obstacle(check, name, pid, detail, size)

    def _note_pipe(self, file: _File) -> None:
        if not file.target.startswith("pipe:"):
            return
        access = file.flags & os.O_ACCMODE
        if access != os.O_WRONLY:
            self.read_from.setdefault(file.target, file)
        if access != os.O_RDONLY:
            self.written_to.add(file.target)

    def unread_input(self) -> t.Iterator[Obstacle]:
        """Pipes that hold something written from outside, when all processes have been gone through. In their place CRIU gives a restored process the
        new engine's pipe, which is empty. It carries those that only the container's processes have, even without a writer."""
        for target, file in self.read_from.items():
            size = 0 if target in self.written_to else _unread(file.path)
            if size and self._written_outside(target):
                name = read_text(os.path.join(self.proc, str(file.pid), "comm")).strip() or "a process"
                yield Obstacle("unread_input", name, file.pid, str(file.number), size)

    def _written_outside(self, target: str) -> bool:
        processes = (int(entry) for entry in os.listdir(self.proc) if entry.isdigit())
        return any(file.target == target and file.flags & os.O_ACCMODE != os.O_RDONLY for pid in processes for file in self._files(pid))

    def _files(self, pid: int) -> t.Iterator[_File]:
        directory = os.path.join(self.proc, str(pid), "fd")
        try:
            entries = os.listdir(directory)
        except OSError:
            return
        for entry in sorted(entries, key=int):
            target = _link(self.proc, pid, "fd/" + entry)
            info = read_text(os.path.join(self.proc, str(pid), "fdinfo", entry))
            flags = re.search(r"^flags:\s+([0-7]+)", info, re.MULTILINE)
            if target:
                yield _File(pid, int(entry), os.path.join(directory, entry), target, int(flags.group(1), 8) if flags else 0, _number(info, "mnt_id") or 0)

    def _refused(self, file: _File, hidden: t.Container[int]) -> t.Iterator[tuple[str, str, int]]:
        """(check, detail, size) for an open file's obstacle."""
        kind, _colon, what = file.target.partition(":")
        if file.target == "anon_inode:[io_uring]":
            yield "io_uring", "", 0
        elif kind == "pidfd" or file.target == "anon_inode:[pidfd]":
            yield ("thread_pidfds" if file.flags & _O_EXCL else "pidfds"), "", 0
        elif kind == "anon_inode" and what not in _ANONYMOUS:
            yield "files", what.strip("[]"), 0
        elif kind == "pipe" and file.flags & _O_DIRECT:
            yield "packet_pipes", "", 0
        elif kind == "socket":
            refused = self._socket(file)
            if refused:
                yield "sockets", refused, 0
        elif file.flags & os.O_ACCMODE and _PRESSURE.fullmatch(file.target):
            if not self._trigger_told(file):
                yield "pressure_triggers", file.target, 0
        elif file.target.startswith("/"):
            yield from self._file(file, hidden)

    def _trigger_told(self, file: _File) -> bool:
        """Whether it can be told what was written there, and the session writes it again: as systemd tells a service, or as its own daemons do."""
        environment = read_text(os.path.join(self.proc, str(file.pid), "environ")).split("\0")
        if "MEMORY_PRESSURE_WATCH=" + file.target in environment and any(word.startswith("MEMORY_PRESSURE_WRITE=") for word in environment):
            return True
        program = os.path.basename(_link(self.proc, file.pid, "exe"))
        return program == "systemd" or program.startswith("systemd-")

    def _file(self, file: _File, hidden: t.Container[int]) -> t.Iterator[tuple[str, str, int]]:
        deleted = file.target.endswith(" (deleted)")
        path = file.target[: -len(" (deleted)")] if deleted else file.target
        try:
            status = os.stat(file.path)
        except OSError:
            return
        if stat.S_ISBLK(status.st_mode) or stat.S_ISCHR(status.st_mode) and not _known_device(status.st_rdev):
            yield "files", path, 0
        elif file.mount in hidden and not path.startswith("/memfd:"):
            yield "overmounts", path, 0
        elif deleted and stat.S_ISREG(status.st_mode) and status.st_nlink == 0 and not path.startswith("/memfd:"):
            if status.st_blocks * 512 > self.ghost_limit:
                yield "ghost_files", path, status.st_blocks * 512
        if stat.S_ISREG(status.st_mode) and is_sqlites(file.path, path):
            yield "databases", database_of(path), 0

    def _socket(self, file: _File) -> str:
        """The kind of a socket that CRIU does not know; empty for others. Each is looked at once, even if shared."""
        if file.target in self.sockets_seen or self.proc != "/proc":
            return ""
        self.sockets_seen.add(file.target)
        borrowed = _borrow(file.pid, file.number)
        if borrowed is None:
            return ""
        return unknown_socket(borrowed.family, borrowed.type, borrowed.proto)


def _unread(path: str) -> int:
    """Bytes that wait in a pipe; none where its process has gone since."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return 0
    try:
        return struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))[0]
    finally:
        os.close(descriptor)


def _number(text: str, name: str) -> int | None:
    match = re.search(r"^{0}:\s+(\d+)".format(name), text, re.MULTILINE)
    return int(match.group(1)) if match else None


def _known_device(device: int) -> bool:
    major, minor = os.major(device), os.minor(device)
    return major in _DEVICE_MAJORS or (major, minor) == (_MISC_MAJOR, _TUN_MINOR)


@dataclass(frozen=True)
class _Kind:
    """A socket's facts about itself."""

    family: int
    type: int
    proto: int


def _borrow(pid: int, number: int) -> _Kind | None:
    """Asks a socket of another process for its kind; None where the kernel, Python or the process no longer allows that."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        process = os.pidfd_open(pid)
    except OSError:
        return None
    try:
        descriptor = ctypes.CDLL(None, use_errno=True).syscall(_PIDFD_GETFD, process, number, 0)
    finally:
        os.close(process)
    if descriptor < 0:
        return None
    with socket.socket(fileno=descriptor) as found:
        return _Kind(int(found.family), int(found.type), found.proto)


def unknown_socket(family: int, kind: int, protocol: int) -> str:
    """The name of such a socket, if CRIU does not know it."""
    if family in (socket.AF_INET, socket.AF_INET6):
        if kind == socket.SOCK_RAW or protocol in _PROTOCOLS:
            return ""
        return _PROTOCOL_NAMES.get(protocol, "protocol {0}".format(protocol))
    return "" if family in _FAMILIES else _FAMILY_NAMES.get(family, "address family {0}".format(family))


def hidden_mounts(mountinfo: str) -> frozenset[int]:
    """The mounts that another one lies over: on the same place, or on a directory above it."""
    mounts: dict[int, tuple[int, str]] = {}
    for line in mountinfo.splitlines():
        columns = line.split(" ")
        if len(columns) > 5:
            mounts[int(columns[0])] = (int(columns[1]), columns[4].rstrip("/") + "/")
    children: dict[int, list[int]] = {}
    for mount, (parent, _place) in mounts.items():
        if parent != mount:
            children.setdefault(parent, []).append(mount)

    def covered(mount: int) -> bool:
        """Whether a sibling lies over it."""
        parent, place = mounts[mount]
        return any(other != mount and place.startswith(mounts[other][1]) for other in children.get(parent, ()))

    hidden = set()
    for mount, (_parent, place) in mounts.items():
        current = mount
        seen: set[int] = set()
        over = any(mounts[child][1] == place for child in children.get(mount, ()))
        while not over and current in mounts and current not in seen:
            seen.add(current)
            over = covered(current)
            current = mounts[current][0]
        if over:
            hidden.add(mount)
    return frozenset(hidden)
