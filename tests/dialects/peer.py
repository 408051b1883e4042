#!/usr/bin/env python
# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An old ploop peer, to hold pcopy's dialects against.

Written from the description of the formats alone, and by another hand than pcopy's side: where the two agree they agree for a reason.
It is deliberately plain: one thread, no tracker, and nothing that the old programs did not do either.

    peer.py receive --dialect 1.12 --image FILE [-i FD] [-f FD]      1.x: frames on a descriptor, feedback on another
    peer.py send    --dialect 1.12 --image FILE [-o FD] [-f FD]
    peer.py receive --dialect 9    --image FILE --socket PATH        9.x: listens on a unix socket and serves one sender
    peer.py send    --dialect 9    --image FILE --socket PATH        connects to one
                    --dialect 7                                      7.x and 8.x: packets of data, and no commands

All integers are in the host's byte order. Exit codes are those of ploop: 1 create, 6 read, 7 write, 13 protocol, 16 fsync, 38 parameter.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import os
import socket
import stat
import struct
import sys
import time
import typing as t

CREATE, READ, WRITE, PROTOCOL, FSYNC, PARAMETER = 1, 6, 7, 13, 16, 38
BLOCK = 1 << 20

FRAME = struct.Struct("=IIQ")
FRAME_MARKER = 0x4CC0AC3D
ANSWER_BYTES = 8
SUCCESS, FAILURE = b"SUCCESS\n", b"FAILURE\n"
# What a sender without feedback hopes is enough for the other side's fdatasync.
BLIND_SECONDS = 5.0

SECTOR = 512
PACKET = struct.Struct("=III4xQ")
PACKET_MARKER = 0x4CC0AC3E
WORD = struct.Struct("=I")
ANSWER = struct.Struct("=i")
DATA, CMD, DATA_ASYNC, DATA_DEVICE, DATA_CBT = range(5)
SYNC, FINISH, INIT_PLOOP, INIT_QCOW, MOUNT, UMOUNT = range(6)
MD5, COPY_DEVICE = 1, 2


class Stop(Exception):
    """Ends the program with one of ploop's exit codes."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


@dataclasses.dataclass(frozen=True)
class Version:
    """What a release of the 1.x series could do."""

    syncs: bool
    answers: bool
    sync: t.Callable[[int], None]


VERSIONS = {
    "1.10": Version(syncs=False, answers=False, sync=os.fsync),
    "1.11": Version(syncs=True, answers=False, sync=os.fdatasync),
    "1.12": Version(syncs=True, answers=True, sync=os.fdatasync),
}


def read_exactly(read: t.Callable[[int], bytes], size: int) -> bytes:
    """Bytes until there are so many. Raises Stop(READ) where the stream ends before."""
    parts = []
    while size:
        try:
            part = read(size)
        except OSError as error:
            raise Stop(READ, f"read: {error.strerror}") from error
        if not part:
            raise Stop(READ, f"the stream ended {size} bytes early")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def write_all(write: t.Callable[[bytes], int], data: bytes) -> None:
    while data:
        try:
            data = data[write(data) :]
        except OSError as error:
            raise Stop(WRITE, f"write: {error.strerror}") from error


@contextlib.contextmanager
def new_image(path: str) -> t.Iterator[int]:
    """A file that was not there before, and is gone again if anything goes wrong. /dev/null is what a probe names."""
    if path == "/dev/null":
        descriptor = os.open(path, os.O_WRONLY)
    else:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            raise Stop(CREATE, f"{path}: {error.strerror}") from error
    try:
        yield descriptor
    except BaseException:
        if path != "/dev/null":
            os.unlink(path)
        raise
    finally:
        os.close(descriptor)


def pipe_or_socket(*descriptors: int | None) -> None:
    """A receiver takes nothing else: a probe whose input is /dev/null takes it for one that is too old."""
    for descriptor in descriptors:
        if descriptor is not None:
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISFIFO(mode) and not stat.S_ISSOCK(mode):
                raise Stop(PARAMETER, f"descriptor {descriptor} has to be a pipe or a socket")


def put(image: int, data: bytes, pos: int) -> None:
    while data:
        try:
            written = os.pwrite(image, data, pos)
        except OSError as error:
            raise Stop(WRITE, f"write at {pos}: {error.strerror}") from error
        data, pos = data[written:], pos + written


def to_disk(sync: t.Callable[[int], None], image: int) -> None:
    try:
        sync(image)
    except OSError as error:
        raise Stop(FSYNC, f"sync: {error.strerror}") from error


# --- 1.10 to 1.12 ------------------------------------------------------------


def receive_frames(version: Version, incoming: int, feedback: int | None, path: str) -> None:
    """Until the end frame. Only from 1.12 on, and only with a descriptor for it, is a sync command answered."""
    if feedback is not None and not version.answers:
        raise Stop(PARAMETER, "this version knows no feedback descriptor")

    def read(size: int) -> bytes:
        return os.read(incoming, size)

    with new_image(path) as image:
        while True:
            marker, size, pos = FRAME.unpack(read_exactly(read, FRAME.size))
            if marker != FRAME_MARKER:
                raise Stop(PROTOCOL, f"marker {marker:#x} where {FRAME_MARKER:#x} should be")
            if size == 0:
                to_disk(version.sync, image)
                return
            payload = read_exactly(read, size)
            if version.syncs and size == 4 and pos == 0:
                obey_sync(version, image, feedback)
            else:
                put(image, payload, pos)


def obey_sync(version: Version, image: int, feedback: int | None) -> None:
    answer = SUCCESS
    try:
        to_disk(version.sync, image)
    except Stop:
        if feedback is None:
            raise
        answer = FAILURE
    if feedback is not None:
        write_all(lambda data: os.write(feedback, data), answer)
    if answer == FAILURE:
        raise Stop(FSYNC, "the image could not be synced")


def send_frames(version: Version, outgoing: int, feedback: int | None, path: str, blind_seconds: float = BLIND_SECONDS) -> None:
    """The whole file in order, a sync command where the version has one, the first block once more, the end."""
    if feedback is not None and not version.answers:
        raise Stop(PARAMETER, "this version knows no feedback descriptor")

    def write(data: bytes) -> None:
        write_all(lambda rest: os.write(outgoing, rest), data)

    with open(path, "rb") as image:
        head = image.read(4)
        for pos, block in blocks(image):
            write(FRAME.pack(FRAME_MARKER, len(block), pos) + block)
        if version.syncs:
            write(FRAME.pack(FRAME_MARKER, 4, 0) + head)
            if feedback is None:
                time.sleep(blind_seconds)
            else:
                answer = read_exactly(lambda size: os.read(feedback, size), ANSWER_BYTES)
                if answer != SUCCESS:
                    raise Stop(FSYNC, f"the other side answered {answer!r}")
        # What a tracker would have named: sent again after the barrier.
        for pos, block in blocks(image, last=BLOCK):
            write(FRAME.pack(FRAME_MARKER, len(block), pos) + block)
    write(FRAME.pack(FRAME_MARKER, 0, 0))


def blocks(image: t.BinaryIO, last: int | None = None) -> t.Iterator[tuple[int, bytes]]:
    image.seek(0)
    pos = 0
    while (last is None or pos < last) and (block := image.read(BLOCK)):
        yield pos, block
        pos += len(block)


# --- 9.x ---------------------------------------------------------------------


class Packets:
    """Header, MD5 of the payload where that was agreed, payload."""

    def __init__(self, stream: socket.socket) -> None:
        self.stream, self.md5 = stream, False

    def send(self, kind: int, payload: bytes, pos: int) -> None:
        digest = hashlib.md5(payload).digest() if self.md5 else b""
        write_all(self.stream.send, PACKET.pack(PACKET_MARKER, kind, len(payload), pos) + digest + payload)

    def receive(self) -> tuple[int, bytes, int]:
        marker, kind, size, pos = PACKET.unpack(read_exactly(self.stream.recv, PACKET.size))
        if marker != PACKET_MARKER:
            raise Stop(PROTOCOL, f"marker {marker:#x} where {PACKET_MARKER:#x} should be")
        digest = read_exactly(self.stream.recv, 16) if self.md5 else b""
        payload = read_exactly(self.stream.recv, size)
        if self.md5 and hashlib.md5(payload).digest() != digest:
            raise Stop(PROTOCOL, f"the MD5 of the packet at {pos} is another one")
        return kind, payload, pos

    def ask(self, kind: int, payload: bytes, pos: int) -> int:
        self.send(kind, payload, pos)
        return ANSWER.unpack(read_exactly(self.stream.recv, ANSWER.size))[0]

    def answer(self, value: int) -> None:
        write_all(self.stream.send, ANSWER.pack(value))


class Disk:
    """What a receiver of 9.x writes to: its file, or once it was asked for an image that image's device.

    What goes through the device is in the file for certain when the device was let go, and not before: not after a sync, and not after the
    answer to FINISH either. Here it is not there until then.
    """

    def __init__(self, image: int) -> None:
        self.image = image
        self.cached: list[tuple[bytes, int]] | None = None

    def init(self, sectors: int, cluster: int) -> int:
        """The answer: an image has whole clusters."""
        if not sectors or sectors % cluster:
            return 1
        os.ftruncate(self.image, sectors * SECTOR)
        self.cached = []
        return 0

    def put(self, data: bytes, pos: int) -> None:
        if self.cached is None:
            put(self.image, data, pos)
        else:
            self.cached.append((data, pos))

    def sync(self) -> None:
        if self.cached is None:
            to_disk(os.fdatasync, self.image)

    def unmount(self) -> None:
        for data, pos in self.cached or []:
            put(self.image, data, pos)
        self.cached = None
        to_disk(os.fsync, self.image)


def receive_packets(stream: socket.socket, path: str, knows_features: bool = True, plain: bool = False) -> dict[str, t.Any]:
    """Until FINISH. Answers every packet but DATA_ASYNC. Returns what INIT said, and which features were agreed.

    9.x answers what it cannot do with its exit status, and ends. plain: as 7.x and 8.x do, which know types 0 and 2 alone, answer others
    with a positive number, and go on.
    """
    packets = Packets(stream)
    seen: dict[str, t.Any] = {"init": None, "md5": False, "packets": 0, "unknown": 0}
    with new_image(path) as image:
        disk = Disk(image)
        while True:
            kind, payload, pos = packets.receive()
            seen["packets"] += 1
            # In this series the packet of size 0 is the end, whatever its type.
            if not payload:
                disk.sync()
                packets.answer(0)
                return seen
            if plain and kind not in (DATA, DATA_ASYNC):
                seen["unknown"] += 1
                packets.answer(PARAMETER)
            elif kind == CMD:
                obey_command(packets, disk, payload, pos, knows_features, seen)
            elif kind in (DATA, DATA_DEVICE, DATA_ASYNC):
                disk.put(payload, pos)
                if kind != DATA_ASYNC:
                    packets.answer(0)
            elif kind == DATA_CBT:
                packets.answer(0)
            else:
                raise Stop(PROTOCOL, f"packet type {kind} is unknown")


def obey_command(packets: Packets, disk: Disk, payload: bytes, pos: int, knows_features: bool, seen: dict[str, t.Any]) -> None:
    if len(payload) < WORD.size:
        raise Stop(PROTOCOL, f"a command of {len(payload)} bytes")
    command = WORD.unpack_from(payload)[0]
    if command == SYNC and pos and not packets.md5:
        # The slip of the real peer: it meant to answer the negated flags, and answers -1, which is "MD5 alone".
        packets.answer(-1 if knows_features else 0)
        packets.md5 = seen["md5"] = knows_features
    elif command == SYNC:
        disk.sync()
        packets.answer(0)
    elif command in (INIT_PLOOP, INIT_QCOW):
        seen["init"] = {"format": command, "cluster_sectors": len(payload), "sectors": pos}
        refused = disk.init(pos, len(payload))
        packets.answer(refused)
        if refused:
            raise Stop(refused, f"an image of {pos} sectors in clusters of {len(payload)}")
    elif command == UMOUNT:
        disk.unmount()
        packets.answer(0)
    else:  # MOUNT among them
        packets.answer(PARAMETER)
        raise Stop(PARAMETER, f"command {command} is not done here")


def send_packets(stream: socket.socket, path: str, features: int = MD5 | COPY_DEVICE, cluster: int = BLOCK, plain: bool = False) -> dict[str, t.Any]:
    """Handshake, INIT, the whole file by stop-and-wait, a barrier, the first block once more, UMOUNT, FINISH. plain: data and FINISH alone."""
    packets = Packets(stream)
    seen: dict[str, t.Any] = {"md5": False, "answer": None}
    if features and not plain:
        answer = packets.ask(CMD, WORD.pack(SYNC), features)
        seen["answer"] = answer
        packets.md5 = seen["md5"] = answer < 0 and bool(-answer & MD5)
    if not plain:
        clusters = -(-os.stat(path).st_size // cluster)
        command = WORD.pack(INIT_PLOOP).ljust(cluster // SECTOR, b"\0")
        if packets.ask(CMD, command, clusters * cluster // SECTOR):
            raise Stop(PROTOCOL, "INIT was refused")
    with open(path, "rb") as image:
        for pos, block in blocks(image):
            packets.ask(DATA if plain else DATA_DEVICE, block, pos)
        if not plain and packets.ask(CMD, WORD.pack(SYNC), 0):
            raise Stop(FSYNC, "the other side could not sync")
        for pos, block in blocks(image, last=BLOCK):
            packets.send(DATA_ASYNC, block, pos)
    if not plain and packets.ask(CMD, WORD.pack(UMOUNT), 0):
        raise Stop(FSYNC, "the other side could not let go")
    if packets.ask(DATA, b"", 0):
        raise Stop(FSYNC, "the other side could not finish")
    return seen


# --- the command -------------------------------------------------------------


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description="An old ploop peer.")
    parser.add_argument("side", choices=("send", "receive"))
    parser.add_argument("--dialect", choices=(*VERSIONS, "7", "9"), required=True)
    parser.add_argument("--image", required=True)
    parser.add_argument("-i", type=int, default=0, metavar="FD")
    parser.add_argument("-o", type=int, default=1, metavar="FD")
    parser.add_argument("-f", type=int, default=None, metavar="FD")
    parser.add_argument("--socket", metavar="PATH")
    parser.add_argument("--blind-seconds", type=float, default=BLIND_SECONDS)
    parser.add_argument("--old", action="store_true", help="9.x: know no features and answer the handshake with 0; as a sender, begin without one")
    asked = parser.parse_args(words)
    try:
        if asked.side == "receive" and asked.dialect in VERSIONS:
            pipe_or_socket(asked.i, asked.f)
        plain = asked.dialect == "7"
        if asked.dialect in VERSIONS:
            version = VERSIONS[asked.dialect]
            if asked.side == "receive":
                receive_frames(version, asked.i, asked.f, asked.image)
            else:
                send_frames(version, asked.o, asked.f, asked.image, asked.blind_seconds)
        elif asked.side == "receive":
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(asked.socket)
                listener.listen(1)
                stream, _peer = listener.accept()
                with stream:
                    receive_packets(stream, asked.image, not asked.old, plain)
        else:
            with socket.socket(socket.AF_UNIX) as stream:
                stream.connect(asked.socket)
                send_packets(stream, asked.image, 0 if asked.old else MD5 | COPY_DEVICE, plain=plain)
    except Stop as stop:
        print(f"peer: {stop}", file=sys.stderr)
        return stop.code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
