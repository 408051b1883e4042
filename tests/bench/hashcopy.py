#!/usr/bin/env python
# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hash copier of the benchmark: what is known as bscp or blocksync, over ssh. Both sides digest each cluster, side by side, and
those that differ are sent. It runs on both hosts and needs nothing but Python, whose digests are made by OpenSSL.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import typing as t

CLUSTER = 64 << 10
BATCH = 256
LENGTH = 20


def digests(fd: int) -> t.Iterator[bytes]:
    """One digest for each cluster, a batch of clusters at a time."""
    size = os.lseek(fd, 0, os.SEEK_END)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)
    for at in range(0, size, BATCH * CLUSTER):
        data = memoryview(os.pread(fd, BATCH * CLUSTER, at))
        yield b"".join(hashlib.sha1(data[n : n + CLUSTER]).digest() for n in range(0, len(data), CLUSTER))


def receive(path: str) -> None:
    fd = os.open(path, os.O_RDWR)
    for some in digests(fd):
        sys.stdout.buffer.write(some)
        sys.stdout.buffer.flush()
    while place := sys.stdin.buffer.read(8):
        os.pwrite(fd, sys.stdin.buffer.read(CLUSTER), CLUSTER * int.from_bytes(place, "big"))
    os.fsync(fd)


def send(path: str, host: str, target: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    argv = ["ssh", host, "python3", os.path.abspath(__file__), "receive", target]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdin and other.stdout
        differ = []
        first = 0
        for mine in digests(fd):
            theirs = other.stdout.read(len(mine))
            differ += [first + n // LENGTH for n in range(0, len(mine), LENGTH) if mine[n : n + LENGTH] != theirs[n : n + LENGTH]]
            first += len(mine) // LENGTH
        for cluster in differ:
            other.stdin.write(cluster.to_bytes(8, "big") + os.pread(fd, CLUSTER, cluster * CLUSTER))
        other.stdin.close()
        if other.wait():
            sys.exit(f"hashcopy: on {host}: ssh ended with status {other.returncode}")


if __name__ == "__main__":
    {"send": send, "receive": receive}[sys.argv[1]](*sys.argv[2:])
