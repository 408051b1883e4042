# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What CRIU refuses, found in real processes: each has, in namespaces of its own, one thing that cannot be dumped."""

from __future__ import annotations

import os
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._podman import processes

# What every culprit begins and ends with. `call` is a system call by its number; a culprit that this kernel does not allow says so.
FRAME = """
import ctypes, os, signal, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(*arguments):
    result = libc.syscall(*arguments)
    if result < 0:
        print(f"impossible: {{os.strerror(ctypes.get_errno())}}", flush=True)
        sys.exit()
    return result
{culprit}
print("ready", flush=True)
sys.stdin.read()
"""

CULPRITS = {
    "nothing": ("pass", None),
    "io_uring": ("call(425, 4, ctypes.create_string_buffer(120))", ("io_uring", "")),
    "a user namespace": (
        """
down, up = os.pipe()
if os.fork() == 0:
    if libc.unshare(0x10000000) != 0:
        os._exit(1)
    os.write(up, b"x")
    signal.pause()
os.read(down, 1)
""",
        ("nested_namespaces", "user"),
    ),
    "a process namespace for its children": (
        """
if libc.unshare(0x20000000) != 0:
    sys.exit("unshare")
if os.fork() == 0:
    signal.pause()
""",
        ("nested_namespaces", "pid"),
    ),
    "a large deleted file": (
        "f = open('{tmp}/big', 'wb'); f.write(bytes(2 * 2**20)); f.flush(); os.fsync(f.fileno()); os.unlink('{tmp}/big')",
        ("ghost_files", "{tmp}/big"),
    ),
    "a small deleted file": ("f = open('{tmp}/small', 'wb'); f.write(bytes(4096)); f.flush(); os.unlink('{tmp}/small')", None),
    "a deleted file that is all holes": ("f = open('{tmp}/holes', 'wb'); f.truncate(2**30); os.unlink('{tmp}/holes')", None),
    "a pidfd": ("fd = call(434, os.getpid(), 0)", ("pidfds", "")),
    "a pidfd of a thread": ("fd = call(434, os.getpid(), os.O_EXCL)", ("thread_pidfds", "")),
    "a pipe that holds the rest of a here-document": ("down, up = os.pipe(); os.write(up, b'rest'); os.close(up)", None),
    "a pipe that it writes to itself": ("down, up = os.pipe(); os.write(up, b'rest')", None),
    "a pipe in packet mode": ("pipe = os.pipe2(os.O_DIRECT)", ("packet_pipes", "")),
    "a file below another mount": (
        """
os.mkdir('{tmp}/a')
if libc.mount(b"none", b"{tmp}/a", b"tmpfs", 0, None) != 0:
    sys.exit("mount")
f = open('{tmp}/a/file', 'w')
if libc.mount(b"none", b"{tmp}/a", b"tmpfs", 0, None) != 0:
    sys.exit("mount")
""",
        ("overmounts", "{tmp}/a/file"),
    ),
    "a socket of the kernel's cryptography": (
        """
try:
    s = socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)
except OSError as error:
    print("impossible:", error, flush=True)
    sys.exit()
""",
        ("sockets", "the kernel's cryptography"),
    ),
    "an MPTCP socket": (
        """
try:
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
except OSError as error:
    print("impossible:", error, flush=True)
    sys.exit()
""",
        ("sockets", "MPTCP"),
    ),
    "sockets that CRIU knows": (
        "s = [socket.socket(), socket.socket(socket.AF_INET6, socket.SOCK_DGRAM), *socket.socketpair(), socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)]",
        None,
    ),
    "a device": ("fd = os.open('/dev/loop-control', os.O_RDWR)", ("files", "/dev/loop-control")),
    "devices that CRIU knows": ("fds = [os.open(path, os.O_RDWR) for path in ('/dev/null', '/dev/zero', '/dev/urandom', '/dev/ptmx')]", None),
    "a file without a name": ("fd = call(323 if os.uname().machine == 'x86_64' else 282, os.O_CLOEXEC | 1)", ("files", "userfaultfd")),
    "a child that it traces": (
        """
child = os.fork()
if child == 0:
    signal.pause()
if libc.ptrace(0x4206, child, 0, 0) != 0:
    sys.exit("ptrace")
""",
        ("traced", None),
    ),
}


@pytest.fixture
def start(tmp_path: Path) -> t.Iterator[t.Callable[..., int]]:
    """Starts a culprit as the first process of a process namespace, with mounts of its own; returns its ID."""
    if os.geteuid() != 0:
        pytest.skip("namespaces need root")
    started: list[subprocess.Popen[str]] = []

    def begin(culprit: str, typed: str = "") -> int:
        code = FRAME.format(culprit=culprit.replace("{tmp}", str(tmp_path)))
        process = subprocess.Popen(
            ["unshare", "--fork", "--kill-child", "--pid", "--mount", "--mount-proc", sys.executable, "-c", code],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        started.append(process)
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(typed)
        process.stdin.flush()
        said = process.stdout.readline().strip()
        if said.startswith("impossible"):
            pytest.skip(f"this kernel has no such thing ({said})")
        assert said == "ready"
        return int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])

    yield begin
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("name", CULPRITS)
def test_a_real_culprit_is_found(start: t.Callable[[str], int], tmp_path: Path, name: str) -> None:
    culprit, expected = CULPRITS[name]
    root = start(culprit)
    found = processes.processes_of(root).obstacles
    if expected is None:
        assert found == ()
        return
    check, detail = expected
    detail = detail.replace("{tmp}", str(tmp_path)) if detail is not None else str(root)
    assert {(obstacle.check, obstacle.detail) for obstacle in found} == {(check, detail)}


def test_a_larger_limit_lets_a_larger_file_through(start: t.Callable[[str], int]) -> None:
    root = start(CULPRITS["a large deleted file"][0])
    assert [obstacle.size >= 2 * 2**20 for obstacle in processes.processes_of(root).obstacles] == [True]
    assert processes.processes_of(root, ghost_limit=4 * 2**20).obstacles == ()


def test_input_that_is_not_read(start: t.Callable[..., int]) -> None:
    root = start("print('ready', flush=True); signal.pause()", typed="hello")
    assert [(found.check, found.detail, found.size) for found in processes.processes_of(root).obstacles] == [("unread_input", "0", 5)]


def test_input_that_is_read(start: t.Callable[..., int]) -> None:
    assert processes.processes_of(start("os.read(0, 5)", typed="hello")).obstacles == ()
