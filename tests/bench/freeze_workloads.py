# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The workloads of tests/bench/freeze.py: what runs in the container, beside a heartbeat."""

from __future__ import annotations

from dataclasses import dataclass

TOOLS, POSTGRES = "localhost/handover/tools:lab", "localhost/handover/postgres:lab"
# The file is begun again at this size, so that the volume never fills; beside it lies what a volume has that nobody writes to any more.
FILE_BYTES, REST_BYTES = 256 << 20, 640 << 20
FOLDER = "/data"


@dataclass(frozen=True)
class Workload:
    """What runs in the container, beside the heartbeat."""

    what: str
    command: tuple[str, ...]
    volume: str = "256M"
    image: str = TOOLS
    folder: str = FOLDER
    memory: int = 0  # bytes that cannot be packed
    rest: int = 0  # bytes that lie in the volume from the beginning
    environment: tuple[str, ...] = ()

    @property
    def beat(self) -> str:
        return f"{self.folder}/beat"


def shell(line: str) -> tuple[str, ...]:
    return ("sh", "-c", line)


def memory(words: str, size: int, dirty: int = 16) -> Workload:
    command = ("heartbeat", "-file", "/data/beat", "-memory", f"{size >> 20}M", "-dirty", f"{dirty}M")
    return Workload(f"a writer to {words} of memory, {dirty} MiB a second", command, memory=size)


WORKLOADS = {
    "idle": Workload("an idle container", ("heartbeat", "-file", "/data/beat")),
    "od": Workload(
        f"`od -x /dev/urandom > file` on a volume of 1 GiB with {REST_BYTES >> 20} MiB of other data",
        shell(f"heartbeat -file /data/beat & while :; do od -x /dev/urandom | head -c {FILE_BYTES} > /data/file; done"),
        volume="1G",
        rest=REST_BYTES,
    ),
    "postgres": Workload(
        "PostgreSQL under pgbench",
        ("-c", "shared_buffers=64MB"),
        volume="2G",
        image=POSTGRES,
        folder="/var/lib/postgresql",
        environment=("HEARTBEAT=/var/lib/postgresql/beat",),
    ),
    "memory-64M": memory("64 MiB", 64 << 20),
    "memory-256M": memory("256 MiB", 256 << 20),
    "memory-1G": memory("1 GiB", 1 << 30),
    # For lazy pages: each second it writes to a tenth.
    "tenth-64M": memory("64 MiB", 64 << 20, 6),
    "tenth-1G": memory("1 GiB", 1 << 30, 102),
    # CRIU knows no MPTCP, which programs in Go listen with unless they are told not to.
    "files": Workload(
        "1,000 open files and 200 connections",
        ("heartbeat", "-file", "/data/beat", "-files", "1000", "-connections", "200"),
        environment=("GODEBUG=multipathtcp=0",),
    ),
}
