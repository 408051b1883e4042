# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a lab has on this machine, read from the live system.

A run may be killed at any instant and the next one has to find its way, so
nothing here rests on notes of an earlier run: processes are found by the
folder they were started on, cgroups and links by their names, loop devices by
the file behind them.

Layout of a state folder:

    fleet/                 shared by all hosts, seen there as /etc/handover-lab/fleet
    hosts/<name>/seed/     this host's own, seen there as /etc/handover-lab/host
    hosts/<name>/root      the mounted overlay: disk-<base>/{upper,work} over the base image
    hosts/<name>/containers, handover
                           real folders under /var/lib/containers and /var/lib/handover
    hosts/<name>/console.log
    shared/                folders that all hosts write to, by their path there
    ssh_config, ssh/       how to reach the hosts; control sockets
    dev/                   nodes of loop devices, bound into every host
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import glob
import os
import signal
import stat
import struct
import subprocess
import time
from typing import Iterator, NamedTuple

LOOP_MAJOR = 7
LOOP_CLR_FD = 0x4C01
LOOP_GET_STATUS64 = 0x4C05
FITHAW = 0xC0045878
# struct loop_info64: device and inode of the file, and the name its user gave for it.
LOOP_INFO = struct.Struct("=QQ40x64s112x")
MNT_DETACH = 2

# Where a host sees the folders that the lab binds into it. A loop device whose
# file was unlinked is known by that name alone.
HOST_FOLDERS = {"containers": "/var/lib/containers", "handover": "/var/lib/handover"}
INSIDE = tuple(f"{folder}/" for folder in HOST_FOLDERS.values())


class Loop(NamedTuple):
    """A loop device in use: its path, the file behind it by name, that file's device and inode, and what the kernel calls it now."""

    device: str
    backing: str
    disk: int
    inode: int
    seen: str

    @property
    def unlinked(self) -> bool:
        return self.backing.endswith(" (deleted)")

    @property
    def is_in_a_host(self) -> bool:
        """Whether the kernel still finds the file where hosts have theirs: then the namespace of some host is there."""
        return self.seen.startswith(INSIDE)

    @property
    def identity(self) -> tuple[str, int, int]:
        """What stays when the name shrinks with the namespace it was given in."""
        return self.device, self.disk, self.inode


def processes() -> Iterator[tuple[int, list[str]]]:
    """Every process with a command line: its id and its arguments."""
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                raw = file.read()
        except OSError:
            continue
        if raw:
            yield int(entry), [os.fsdecode(word) for word in raw.rstrip(b"\0").split(b"\0")]


def running_hosts(state_dir: str) -> dict[str, int]:
    """The systemd-nspawn process of each host that was started on this state folder."""
    prefix = f"--directory={state_dir}/hosts/"
    found = {}
    for pid, argv in processes():
        if os.path.basename(argv[0]) != "systemd-nspawn":
            continue
        for word in argv:
            if word.startswith(prefix) and word.endswith("/root"):
                found[word[len(prefix):-len("/root")]] = pid
    return found


def first_process(nspawn: int) -> int | None:
    """The host's own process 1, once systemd-nspawn has finished setting it up."""
    children: list[int] = []
    for path in glob.glob(f"/proc/{nspawn}/task/*/children"):
        try:
            with open(path, encoding="ascii") as file:
                children += [int(pid) for pid in file.read().split()]
        except OSError:
            return None
    for pid in children:
        try:
            if os.path.basename(os.readlink(f"/proc/{pid}/exe")) == "systemd":
                return pid
        except OSError:
            continue
    return None


def alive(pid: int) -> bool:
    """Whether the process still runs; one that has ended and waits for its parent does not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def ssh_masters(state_dir: str) -> dict[int, str]:
    """Shared ssh connections that linger in the background: process id and control socket."""
    found = {}
    for pid, argv in processes():
        title = argv[0]
        if title.startswith(f"ssh: {state_dir}/ssh/") and title.endswith("[mux]"):
            found[pid] = title[len("ssh: "):-len("[mux]")].strip()
    return found


def cgroup_trees() -> list[str]:
    """The hierarchies a host gets a cgroup in: v2, and where they are mounted name=systemd, to boot, and blkio, to limit its disks."""
    trees = []
    for fields, kind, options in _mountinfo():
        if kind == "cgroup2" or (kind == "cgroup" and {"name=systemd", "blkio"} & set(options.split(","))):
            if os.path.isdir(fields[4]):
                trees.append(fields[4])
    return trees


def cgroups(state_dir: str, name: str | None = None) -> list[str]:
    """The top cgroups of one host, or of all hosts of this state folder."""
    leaf = cgroup_name(state_dir, name) if name else cgroup_name(state_dir, "*")
    return [path for tree in cgroup_trees() for path in glob.glob(os.path.join(tree, leaf))]


def cgroup_name(state_dir: str, name: str) -> str:
    """A cgroup's name tells which lab and which host it belongs to. With the `@` no lab's name begins with another's and its host's."""
    return f"{os.path.basename(state_dir.rstrip('/'))}@{name}"


def cgroup_members(path: str) -> set[int]:
    """Every process in a cgroup and below it."""
    members: set[int] = set()
    for folder, _folders, _files in os.walk(path):
        try:
            with open(os.path.join(folder, "cgroup.procs"), encoding="ascii") as file:
                members.update(int(pid) for pid in file.read().split())
        except OSError:
            continue
    members.discard(0)
    return members


def remove_cgroup(path: str) -> None:
    """Removes an empty cgroup with all that is below it."""
    for folder, _folders, _files in os.walk(path, topdown=False):
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            continue


def mounts_below(path: str) -> list[str]:
    """Mount points at a path and below it, the innermost first."""
    points = [fields[4] for fields, _kind, _options in _mountinfo()]
    return [point for point in reversed(points) if point == path or point.startswith(path + "/")]


def lower_layer(point: str) -> str | None:
    """The base image under a mounted overlay."""
    for fields, kind, options in _mountinfo():
        if kind == "overlay" and fields[4] == point:
            for option in options.split(","):
                if option.startswith("lowerdir="):
                    return option.partition("=")[2]
    return None


def overlays_above(folder: str) -> list[str]:
    """Mounted overlays whose base lies in a folder."""
    points = {fields[4] for fields, kind, _options in _mountinfo() if kind == "overlay"}
    return sorted(point for point in points if (lower_layer(point) or "").startswith(folder + "/"))


def unmount(path: str) -> None:
    """Unmounts all that is at a path and below it, at once or as soon as the last user lets go."""
    libc = ctypes.CDLL(None, use_errno=True)
    for point in mounts_below(path):
        for flags in (0, MNT_DETACH):
            if libc.umount2(os.fsencode(point), flags) == 0:
                break
        else:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error), point)


def bound_loops() -> list[Loop]:
    """Every loop device of this machine that has a file."""
    found = [_loop_status(path) for path in glob.glob("/sys/block/loop*/loop/backing_file")]
    return sorted(loop for loop in found if loop)


def loops(host_dir: str, alive: bool = False) -> list[Loop]:
    """Loop devices whose file belongs to a host; of one that is alive also those that may be its own or another host's.

    The kernel's name of the file is the one in the namespace of whoever set the
    device up, and shrinks when that namespace goes, so files are compared by
    device and inode. What was unlinked meanwhile is in no folder any more. It is
    taken as the host's if it was on one of the host's file systems, under a path
    that only hosts use, and its name has shrunk: under a name that is whole it
    belongs to a host that lives.
    """
    bound = bound_loops()
    if not bound or not os.path.isdir(host_dir):
        return []
    root = os.path.join(host_dir, "root")
    # A file in the overlay has its inode from the upper layer and its device from the overlay.
    disks = {os.stat(path).st_dev for path in (host_dir, root) if os.path.isdir(path)}
    inodes = _inodes(host_dir, without=root)

    def is_ours(loop: Loop) -> bool:
        if not loop.unlinked:
            return loop.inode in inodes
        return loop.backing.startswith(f"{host_dir}/") or (loop.backing.startswith(INSIDE) and (alive or not loop.is_in_a_host))

    return [loop for loop in bound if loop.disk in disks and is_ours(loop)]


class LoopMounts:
    """Every file system on a loop device that some processes see mounted, held open: it can be thawed when the processes are gone, too."""

    def __init__(self, pids: set[int]) -> None:
        self.open: list[tuple[str, int]] = []
        seen = set()
        for pid in pids:
            try:
                namespace = os.readlink(f"/proc/{pid}/ns/mnt")
            except OSError:
                continue
            if namespace in seen:
                continue
            seen.add(namespace)
            for fields, _kind, _options in _mountinfo(pid):
                if not fields[2].startswith(f"{LOOP_MAJOR}:"):
                    continue
                try:
                    self.open.append((fields[4], os.open(f"/proc/{pid}/root{fields[4]}", os.O_RDONLY)))
                except OSError:
                    continue

    def thaw(self) -> list[str]:
        """Those that were frozen. A process that waits for a frozen file system cannot be killed."""
        thawed = []
        for path, point in self.open:
            try:
                fcntl.ioctl(point, FITHAW, 0)
                thawed.append(path)
            except OSError:
                pass
        return thawed

    def __enter__(self) -> LoopMounts:
        return self

    def __exit__(self, *_why: object) -> None:
        for _path, point in self.open:
            os.close(point)


def remove_lock(root: str) -> None:
    """Removes the lock file that a killed systemd-nspawn leaves for its folder."""
    try:
        status = os.stat(root)
        os.unlink(f"/run/systemd/nspawn/locks/inode-{status.st_dev}:{status.st_ino}")
    except FileNotFoundError:
        pass


def detach(loop: Loop) -> None:
    """Takes the file away from a loop device; a device in use lets go with its last user."""
    node = _open_loop(loop.device)
    try:
        fcntl.ioctl(node, LOOP_CLR_FD)
    finally:
        os.close(node)


@contextlib.contextmanager
def exclusive(state_dir: str) -> Iterator[None]:
    """Holds a lab for this process alone, while its folder is there."""
    try:
        folder = os.open(state_dir, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        yield
        return
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def signal_all(pids: set[int], number: signal.Signals) -> None:
    """Sends a signal to processes that may be gone already."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def wait_until(condition, timeout: float, pause: float = 0.05) -> bool:
    """Whether the condition came true in time."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
    return True


def close_ssh(socket: str) -> None:
    """Ends the shared ssh connection behind a control socket, if there is one."""
    if os.path.exists(socket):
        subprocess.run(
            ["ssh", "-F", "none", "-o", f"ControlPath={socket}", "-O", "exit", "lab"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            timeout=10, check=False,
        )
        try:
            os.unlink(socket)
        except FileNotFoundError:
            pass


def _mountinfo(pid: int | str = "self") -> Iterator[tuple[list[str], str, str]]:
    """Fields of each mount, its file system's type and the file system's own options."""
    try:
        with open(f"/proc/{pid}/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            lines = file.readlines()
    except OSError:
        return
    for line in lines:
        before, _dash, after = line.rstrip("\n").partition(" - ")
        fields = before.split(" ")
        fields[4] = fields[4].replace(r"\040", " ").replace(r"\134", "\\")
        kind, _source, options = after.split(" ", 2)
        yield fields, kind, options


def _open_loop(device: str) -> int:
    """Opens a loop device, also one whose node is not in this machine's /dev (any more)."""
    try:
        return os.open(device, os.O_RDONLY)
    except FileNotFoundError:
        node = f"{device}.{os.getpid()}"
        os.mknod(node, stat.S_IFBLK | 0o600, os.makedev(LOOP_MAJOR, int(device.removeprefix("/dev/loop"))))
        try:
            return os.open(node, os.O_RDONLY)
        finally:
            os.unlink(node)


def _loop_status(backing_file: str) -> Loop | None:
    """What one loop device stands on. Of the kernel's name of the file and its user's, the longer one tells more."""
    device = "/dev/" + backing_file.split("/")[3]
    try:
        with open(backing_file, encoding="utf-8", errors="surrogateescape") as file:
            backing = file.read().rstrip("\n")
        node = _open_loop(device)
    except OSError:
        return None
    try:
        status = fcntl.ioctl(node, LOOP_GET_STATUS64, bytes(LOOP_INFO.size))
    except OSError:
        return None
    finally:
        os.close(node)
    disk, inode, name = LOOP_INFO.unpack(status)
    seen, known_as = backing, os.fsdecode(name.rstrip(b"\0"))
    if backing.endswith(" (deleted)") and len(known_as) + len(" (deleted)") > len(backing):
        backing = known_as + " (deleted)"
    return Loop(device, backing, disk, inode, seen)


def _inodes(folder: str, without: str) -> set[int]:
    """The inode of every regular file in a folder, but for one folder in it."""
    found = set()
    for parent, folders, files in os.walk(folder):
        if parent == without:
            folders.clear()
            continue
        for name in files:
            try:
                status = os.lstat(os.path.join(parent, name))
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode):
                found.add(status.st_ino)
    return found
