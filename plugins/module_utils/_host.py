# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host has: read off /proc, /sys and /etc, without starting a program."""

from __future__ import annotations

import ipaddress
import os
import re
import stat
import struct
import typing as t
from dataclasses import dataclass

# Docker's and systemd's loopback, and link-local addresses, are on every host and belong to nobody.
_EVERYWHERE = ("127.", "::1", "fe80:", "169.254.")

# CRIU copies deleted files that are still open ("ghost files") only up to this size, unless told otherwise.
GHOST_LIMIT = 2**20


def read_text(path: str) -> str:
    """A small file's text; empty where there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as source:
            return source.read()
    except OSError:
        return ""


def memory_available(proc: str = "/proc") -> int:
    """Bytes that can be taken without swapping."""
    match = re.search(r"^MemAvailable:\s+(\d+) kB", read_text(os.path.join(proc, "meminfo")), re.MULTILINE)
    return int(match.group(1)) * 1024 if match else 0


def cpu_features(proc: str = "/proc") -> t.List[str]:
    """The instruction sets and other features of the first processor."""
    match = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", read_text(os.path.join(proc, "cpuinfo")), re.MULTILINE)
    return sorted(match.group(1).split()) if match else []


def parse_criu_configuration(text: str) -> t.Dict[str, str]:
    """Option → value of a CRIU configuration file; `#` begins a comment, a value may follow a blank or `=`."""
    options = {}
    for line in text.splitlines():
        words = re.split(r"[\s=]+", line.split("#", 1)[0].strip(), maxsplit=1)
        if words[0]:
            options[words[0].lstrip("-")] = words[1].strip().strip("\"'") if len(words) > 1 else ""
    return options


def parse_version(text: str) -> t.List[int]:
    """The first dotted number of a text, as numbers: `Version: 4.2.1` gives [4, 2, 1]."""
    match = re.search(r"\d+(?:\.\d+)+|\d+", text)
    return [int(part) for part in match.group(0).split(".")] if match else []


def free_space(path: str) -> int:
    """Free bytes of the file system that holds this path, or will hold it."""
    while not os.path.exists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    filesystem = os.statvfs(path)
    return filesystem.f_bavail * filesystem.f_frsize


def allocated(path: str) -> int:
    """Bytes that a file, or everything below a directory, takes on the disk; files with several names count once."""
    total = 0
    seen: t.Set[t.Tuple[int, int]] = set()
    pending = [path]
    while pending:
        current = pending.pop()
        try:
            status = os.lstat(current)
            if stat.S_ISDIR(status.st_mode):
                pending.extend(entry.path for entry in os.scandir(current))
        except OSError:
            continue
        if (status.st_dev, status.st_ino) not in seen:
            seen.add((status.st_dev, status.st_ino))
            total += status.st_blocks * 512
    return total


def block_device_size(sysfs: str, name: str) -> int:
    """Bytes of a block device, by its kernel name."""
    sectors = read_text(os.path.join(sysfs, "class/block", name, "size")).strip()
    return int(sectors) * 512 if sectors.isdigit() else 0


def backing_file(sysfs: str, name: str) -> str:
    """The file behind a loop device, by its kernel name; empty for any other device."""
    return read_text(os.path.join(sysfs, "class/block", name, "loop/backing_file")).strip("\n")


def mount_options(mountpoint: str, proc: str = "/proc") -> t.List[str]:
    """The options with which the topmost mount on a directory would be mounted again: what is not the default of every mount."""
    options: t.List[str] = []
    for line in read_text(os.path.join(proc, "self/mountinfo")).splitlines():
        columns, _dash, tail = line.partition(" - ")
        fields = columns.split(" ")
        if len(fields) > 5 and fields[4].encode().decode("unicode_escape") == mountpoint:
            of_filesystem = tail.split(" ")[-1].split(",")
            options = [option for option in fields[5].split(",") if option not in ("rw", "relatime")]
            # Of the file system's own options only this one is a choice of ours; the rest is in its superblock or computed.
            options += ["discard"] if "discard" in of_filesystem else []
    return options


def parse_addresses(document: t.Iterable[t.Mapping[str, t.Any]]) -> t.List[t.Dict[str, t.Any]]:
    """The host's own addresses from `ip -json address`."""
    found = []
    for link in document:
        for address in link.get("addr_info") or []:
            local = address.get("local", "")
            if local and not local.startswith(_EVERYWHERE):
                found.append({"address": local, "prefix": int(address.get("prefixlen", 0)), "interface": link.get("ifname", "")})
    return found


def listening_ports(proc: str = "/proc") -> t.List[t.Dict[str, t.Any]]:
    """Ports of this host's network namespace that somebody listens on."""
    found = {}
    # State 0A is LISTEN; an unconnected UDP socket is in state 07.
    for table, protocol, state in (("tcp", "tcp", "0A"), ("tcp6", "tcp", "0A"), ("udp", "udp", "07"), ("udp6", "udp", "07")):
        for line in read_text(os.path.join(proc, "net", table)).splitlines()[1:]:
            columns = line.split()
            if len(columns) > 3 and columns[3] == state:
                address, _colon, port = columns[1].partition(":")
                entry = {"protocol": protocol, "address": _decode_address(address), "port": int(port, 16)}
                found[tuple(entry.values())] = entry
    return [found[key] for key in sorted(found)]


def _decode_address(text: str) -> str:
    """The kernel prints addresses as 32-bit words in the host's byte order."""
    words = [int(text[index : index + 8], 16) for index in range(0, len(text), 8)]
    return str(ipaddress.ip_address(struct.pack("={0}I".format(len(words)), *words)))


def has_seccomp_filter(pid: t.Union[int, str] = "self", proc: str = "/proc") -> bool:
    """Whether system calls of a process are filtered."""
    return re.search(r"^Seccomp:\s+2$", read_text(os.path.join(proc, str(pid), "status")), re.MULTILINE) is not None


def freezable_cgroup(pid: int, container: str, criu_options: t.Mapping[str, str], proc: str = "/proc", root: str = "/") -> str:
    """The directory of a container's cgroup, if freezing it before CRIU does is of use and harms nothing; else empty.

    It has to be the one that the runtime names to CRIU: the container's own, not one below it that its processes made. And where the
    old hierarchy `freezer` is there too, CRIU would write into its dump that the workload was frozen, and freeze what it restores:
    unless it is told to leave cgroups alone.
    """
    groups = {line.split(":", 2)[1]: line.split(":", 2)[2] for line in read_text(os.path.join(proc, str(pid), "cgroup")).splitlines() if line.count(":") >= 2}
    if "freezer" in groups and criu_options.get("manage-cgroups") != "ignore":
        return ""
    above, found, _below = groups.get("", "").partition(container)
    suffix = ".scope" if found and groups[""][len(above) + len(found) :].startswith(".scope") else ""
    for line in read_text(os.path.join(proc, "self/mounts")).splitlines():
        columns = line.split(" ")
        if found and len(columns) > 2 and columns[2] == "cgroup2":
            directory = columns[1] + above + found + suffix
            if os.path.exists(os.path.join(root, directory.lstrip("/"), "cgroup.freeze")):
                return directory
    return ""


@dataclass(frozen=True)
class Processes:
    """The processes of a container."""

    pids: t.Tuple[int, ...]
    memory: int  # bytes that a dump of them takes
    obstacles: t.Tuple[str, ...]  # what CRIU will refuse, one sentence each


def processes_of(pid: int, proc: str = "/proc") -> Processes:
    """The processes that share the process namespace of `pid`, or live in one below it."""
    own = _namespace(proc, pid, "pid")
    if not own:
        return Processes((), 0, ())
    pids, memory, obstacles = [], 0, []
    for each in sorted(int(entry) for entry in os.listdir(proc) if entry.isdigit()):
        if _namespace(proc, each, "pid") == own:
            pids.append(each)
            memory += _dumped_memory(proc, each)
            obstacles += _obstacles(proc, each)
    for each in _nested(proc, pids):
        obstacles.append(each)
    return Processes(tuple(pids), memory, tuple(dict.fromkeys(obstacles)))


def _namespace(proc: str, pid: int, kind: str) -> str:
    try:
        return os.readlink(os.path.join(proc, str(pid), "ns", kind))
    except OSError:
        return ""


def _nested(proc: str, pids: t.Sequence[int]) -> t.Iterator[str]:
    """Namespaces that a workload made inside its own; CRIU restores only mount and network namespaces among them."""
    for pid in pids:
        for kind in ("pid_for_children", "user", "ipc", "uts"):
            reference = "pid" if kind == "pid_for_children" else kind
            if _namespace(proc, pid, kind) != _namespace(proc, pids[0], reference) and _namespace(proc, pid, kind):
                yield "{0} (pid {1}) is in a {2} namespace of its own".format(_command(proc, pid), pid, reference)


def _command(proc: str, pid: int) -> str:
    return read_text(os.path.join(proc, str(pid), "comm")).strip() or "a process"


def _dumped_memory(proc: str, pid: int) -> int:
    """Private and shared memory, each page counted once among those who share it; pages of files are not dumped."""
    text = read_text(os.path.join(proc, str(pid), "smaps_rollup"))
    found = dict(re.findall(r"^(Pss|Pss_Anon|Pss_Shmem|SwapPss):\s+(\d+) kB", text, re.MULTILINE))
    # Kernels before 5.4 do not split the sum.
    names = ("Pss_Anon", "Pss_Shmem", "SwapPss") if "Pss_Anon" in found else ("Pss", "SwapPss")
    return sum(int(found.get(name, 0)) for name in names) * 1024


def _obstacles(proc: str, pid: int) -> t.Iterator[str]:
    """Open files that CRIU refuses to dump."""
    directory = os.path.join(proc, str(pid), "fd")
    try:
        entries = os.listdir(directory)
    except OSError:
        return
    for entry in entries:
        path = os.path.join(directory, entry)
        try:
            target = os.readlink(path)
            if target == "anon_inode:[io_uring]":
                yield "{0} (pid {1}) uses io_uring, which CRIU cannot dump".format(_command(proc, pid), pid)
            elif target.endswith(" (deleted)") and not target.startswith("/memfd:"):
                status = os.stat(path)
                if stat.S_ISREG(status.st_mode) and status.st_nlink == 0 and status.st_size > GHOST_LIMIT:
                    yield "{0} (pid {1}) holds the deleted file {2} open, which is too large for CRIU to carry ({3} bytes)".format(
                        _command(proc, pid), pid, target[: -len(" (deleted)")], status.st_size
                    )
        except OSError:
            continue
