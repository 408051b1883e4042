# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Incremental backups with `pcopy track`, as docs/track.md describes them: the built helper, and a reader of its bitmaps made from that page."""

from __future__ import annotations

import json
import os
import platform
import random
import struct
import subprocess
import threading
import typing as t
import uuid
from pathlib import Path

import pytest

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
PCOPY = Path(__file__).resolve().parent.parent.parent / "roles" / "pcopy" / "files" / f"pcopy-linux-{ARCHITECTURES[platform.machine()]}"

MIB = 2**20
SIZE = 64 * MIB
CLUSTER = 65536


def crc32c(data: bytes) -> int:
    """Bit by bit, so that it shares nothing with the helper's."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _bit in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


class Bitmap(t.NamedTuple):
    identity: str
    boot: str
    size: int
    cluster: int
    start: int
    end: int
    is_open: bool
    clusters: set[int]


def read_bitmap(path: Path) -> Bitmap:
    data = path.read_bytes()
    magic, version, length, size, cluster, flags = struct.unpack_from("<8sIIQII", data)
    start, end = struct.unpack_from("<QQ", data, 48)
    (words,) = struct.unpack_from("<Q", data, 88)
    assert (magic, version, length) == (b"HANDBMAP", 1, 128)
    assert data[96:124] == bytes(28)
    assert struct.unpack_from("<I", data, 124)[0] == crc32c(data[:124])
    assert len(data) == 128 + 8 * words + 4
    assert struct.unpack_from("<I", data, len(data) - 4)[0] == crc32c(data[:-4])
    marks = struct.unpack_from(f"<{words}Q", data, 128)
    clusters = {64 * number + bit for number, word in enumerate(marks) for bit in range(64) if word >> bit & 1}
    return Bitmap(data[32:48].hex(), str(uuid.UUID(bytes=data[64:80])), size, cluster, start, end, bool(flags & 1), clusters)


@pytest.fixture
def device(host: Path) -> str:
    if not PCOPY.exists():
        pytest.skip("the helper is not built: make helper")
    image = host / "disk.img"
    image.write_bytes(b"")
    os.truncate(image, SIZE)
    return subprocess.run(["losetup", "--find", "--show", str(image)], check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def track(host: Path, device: str) -> t.Iterator[t.Callable[..., t.Any]]:
    """`pcopy track`, with its folders below the test's directory."""

    def run(*words: str) -> t.Any:
        done = subprocess.run([str(PCOPY), "track", *words, "--root", str(host / "track")], check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout) if done.stdout else None

    yield run
    for tracker in run("list"):
        run("stop", tracker["name"])


def read_device(device: str, offset: int, length: int) -> bytes:
    """Past the page cache, which does not show what others write."""
    return subprocess.run(
        ["dd", f"if={device}", "bs=64k", "iflag=direct,skip_bytes,count_bytes", f"skip={offset}", f"count={length}", "status=none"],
        check=True,
        capture_output=True,
    ).stdout


def write_device(device: str, offset: int, data: bytes) -> None:
    descriptor = os.open(device, os.O_RDWR | os.O_DSYNC)
    try:
        os.pwrite(descriptor, data, offset)
    finally:
        os.close(descriptor)


def test_increments_under_a_writer_restore_to_the_device(host: Path, device: str, track: t.Callable[..., t.Any]) -> None:
    stop = threading.Event()

    def write() -> None:
        while not stop.wait(0.002):
            write_device(device, random.randrange(SIZE // 4096) * 4096, random.randbytes(4096))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        started = track("start", device, "--name", "db")
        backup = bytearray(read_device(device, 0, SIZE))
        generation = 0
        for number in range(5):
            if number == 4:
                stop.set()
                writer.join()
            path = host / f"{number}.bitmap"
            answer = track("swap", "db", "--bitmap", str(path))
            bitmap = read_bitmap(path)
            assert (bitmap.identity, bitmap.start, bitmap.size, bitmap.cluster, bitmap.is_open) == (started["id"], generation, SIZE, CLUSTER, False)
            assert bitmap.boot == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
            assert answer["marked_bytes"] == len(bitmap.clusters) * CLUSTER
            generation = bitmap.end
            extents = subprocess.run([str(PCOPY), "bitmap", str(path), "--extents"], check=True, capture_output=True, text=True).stdout
            named = set()
            for line in extents.splitlines():
                offset, length = map(int, line.split())
                backup[offset : offset + length] = read_device(device, offset, length)
                named |= set(range(offset // CLUSTER, (offset + length) // CLUSTER))
            assert named == bitmap.clusters
    finally:
        stop.set()
        writer.join()
    assert bytes(backup) == read_device(device, 0, SIZE)


def test_marks_outlive_the_command_and_are_gone_on_stop(host: Path, device: str, track: t.Callable[..., t.Any]) -> None:
    track("start", device, "--name", "db")
    write_device(device, 3 * MIB, b"x" * 4096)
    assert [(tracker["name"], tracker["marked_bytes"], tracker["lost"]) for tracker in track("list")] == [("db", CLUSTER, False)]
    track("export", "db", "--bitmap", str(host / "a"))
    track("swap", "db", "--bitmap", str(host / "b"))
    track("swap", "db", "--bitmap", str(host / "c"), "--again")
    assert [read_bitmap(host / name).clusters for name in "abc"] == [{48}, {48}, {48}]
    assert [read_bitmap(host / name).is_open for name in "abc"] == [True, False, False]
    track("stop", "db")
    assert track("list") == []
