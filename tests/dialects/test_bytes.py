# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The words of pcopy and of its peers, byte by byte, as the formats are described. All numbers are written out: nothing is shared with a sender or receiver.

A small little-endian host, as all that OpenVZ ran on.
"""

from __future__ import annotations

import hashlib
import os
import socket
import sys
import threading

import pytest
from rig import LIMIT, run

pytestmark = pytest.mark.skipif(sys.byteorder != "little", reason="the bytes are those of a little-endian host")

FRAME = bytes.fromhex("3dacc04c")  # 0x4cc0ac3d
PACKET = bytes.fromhex("3eacc04c")  # 0x4cc0ac3e
END = FRAME + bytes(12)

MIB = 1 << 20
SMALL = b"head" + os.urandom(2 * MIB - 4)


def frames(stream):
    """(size, pos, payload) of each frame of 1.x."""
    while stream:
        assert stream[:4] == FRAME
        size, pos = int.from_bytes(stream[4:8], "little"), int.from_bytes(stream[8:16], "little")
        yield size, pos, stream[16 : 16 + size]
        stream = stream[16 + size :]


@pytest.mark.parametrize(("dialect", "syncs"), [("ploop-1.10", 0), ("ploop-1.12", 1)])
def test_a_stream_of_frames(dialect, syncs, tmp_path):
    image = tmp_path / "image"
    image.write_bytes(SMALL)
    done = run("copy", "-s", image, "--tracker", "none", "--dialect", dialect)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(END) and done.stdout.count(END) == 1
    sync = FRAME + bytes.fromhex("04000000 0000000000000000") + b"head"
    assert done.stdout.count(sync) == syncs
    written = bytearray(len(SMALL))
    for size, pos, payload in frames(done.stdout):
        assert size <= MIB and len(payload) == size
        written[pos : pos + size] = payload
    assert written == SMALL


@pytest.mark.parametrize(
    ("dialect", "feedback", "written", "answered"),
    [
        pytest.param("ploop-1.10", False, b"HEAD" + bytes(508) + b"data", b"", id="1.10 writes the sync command down"),
        pytest.param("ploop-1.11", False, b"abcd" + bytes(508) + b"data", b"", id="1.11 obeys it"),
        pytest.param("ploop-1.12", True, b"abcd" + bytes(508) + b"data", b"SUCCESS\n", id="1.12 answers it"),
    ],
)
def test_frames_that_come_in(dialect, feedback, written, answered, tmp_path):
    stream = (
        FRAME + bytes.fromhex("00020000 0000000000000000") + b"abcd" + bytes(508)
        + FRAME + bytes.fromhex("04000000 0002000000000000") + b"data"
        + FRAME + bytes.fromhex("04000000 0000000000000000") + b"HEAD"
        + END
    )  # fmt: skip
    out = tmp_path / "out"
    done = run("copy", "-d", out, "--dialect", dialect, *(("-f", "1") if feedback else ()), input=stream)
    assert done.returncode == 0, done.stderr
    assert out.read_bytes() == written
    if feedback:
        assert done.stdout == answered


def packet(kind, size, pos, payload=b"", md5=True):
    head = PACKET + kind.to_bytes(4, "little") + size.to_bytes(4, "little") + bytes(4) + pos.to_bytes(8, "little")
    return head + (hashlib.md5(payload).digest() if md5 else b"") + payload


class Receiver(threading.Thread):
    """Answers each packet as it is told to, 0 by default, and keeps all of them."""

    def __init__(self, stream, answers):
        super().__init__()
        self.stream, self.answers, self.packets, self.md5 = stream, answers, [], False

    def take(self, size):
        data = b""
        while len(data) < size and (part := self.stream.recv(size - len(data))):
            data += part
        return data

    def run(self):
        while head := self.take(24):
            size = int.from_bytes(head[8:12], "little")
            self.packets.append(head + self.take((16 if self.md5 else 0) + size))
            answer = self.answers(head) or 0
            self.md5 = self.md5 or answer == -1
            self.stream.sendall(answer.to_bytes(4, "little", signed=True))


def sent(image, answers, *words):
    here, there = socket.socketpair()
    with here, there:
        receiver = Receiver(there, answers)
        receiver.start()
        done = run("copy", "-s", image, "--tracker", "none", "-o", here.fileno(), *words, pass_fds=(here.fileno(),))
        here.close()
        receiver.join(LIMIT)
    return done, receiver.packets


HANDSHAKE = packet(1, 4, 3, bytes(4), md5=False)
UNMOUNT, FINISH = packet(1, 4, 0, b"\5\0\0\0"), packet(1, 0, 0)


def features(head):
    return -1 if head[16:24] == bytes.fromhex("0300000000000000") else 0


def test_9_asks_for_a_disk_in_sectors_and_unmounts_before_it_finishes(tmp_path):
    """100 MiB are 204800 sectors; a command about clusters of 2048 sectors has 2048 bytes, of which four count."""
    image = tmp_path / "image"
    with image.open("wb") as stream:
        stream.write(SMALL)
        stream.truncate(100 * MIB)
    done, packets = sent(image, features, "-t", "expanded")
    assert done.returncode == 0, done.stderr
    init, sync = packet(1, 2048, 204800, b"\2\0\0\0" + bytes(2044)), packet(1, 4, 0, bytes(4))
    assert [p for p in packets if p[4] == 1] == [HANDSHAKE, init, sync, UNMOUNT, FINISH]
    assert packets[:2] == [HANDSHAKE, init] and packets[-2:] == [UNMOUNT, FINISH]
    disk = bytearray(100 * MIB)
    for data in (p for p in packets if p[4] != 1):
        size, pos = int.from_bytes(data[8:12], "little"), int.from_bytes(data[16:24], "little")
        assert data == packet(3, size, pos, data[40:]) and size <= MIB
        disk[pos : pos + size] = data[40:]
    assert disk == SMALL.ljust(100 * MIB, b"\0")


@pytest.mark.parametrize(("cluster", "size", "sectors", "clusters"), [(16 * MIB, 100 * MIB, 32768, 7), (32768, 33280, 64, 2)])
def test_9_asks_for_whole_clusters_of_any_size(cluster, size, sectors, clusters, tmp_path):
    image = tmp_path / "image"
    with image.open("wb") as stream:
        stream.truncate(size)
    done, packets = sent(image, features, "-t", "raw", "--cluster", cluster)
    assert done.returncode == 0, done.stderr
    assert packets[1] == packet(1, sectors, clusters * sectors, b"\2\0\0\0" + bytes(sectors - 4))


def test_7_hears_data_and_the_end_alone(tmp_path):
    image = tmp_path / "image"
    image.write_bytes(SMALL)
    done, packets = sent(image, lambda head: 0 if head[4:8] == bytes(4) or head[8:12] == bytes(4) else 38, "--dialect", "ploop-7")
    assert done.returncode == 0, done.stderr
    assert packets[-1][8:12] == bytes(4)
    assert all(data == packet(0, len(data) - 24, int.from_bytes(data[16:24], "little"), data[24:], md5=False) for data in packets[:-1])
    disk = bytearray(len(SMALL))
    for data in packets[:-1]:
        pos = int.from_bytes(data[16:24], "little")
        disk[pos : pos + len(data) - 24] = data[24:]
    assert disk == SMALL


@pytest.mark.parametrize(
    ("words", "answer", "text", "code"),
    [
        pytest.param(("--dialect", "ploop-7"), lambda head: 7 if head[4:8] == bytes(4) else 0, "it answered 7 (a write failed)", 7, id="a write of 7.x"),
        pytest.param(("-t", "raw"), lambda head: features(head) or (7 if head[4] == 3 else 0), "it answered 7 (a write failed)", 7, id="a write of 9.x"),
        pytest.param(("-t", "raw"), lambda head: 38, "answered the handshake with 38", 13, id="a handshake with 7.x"),
        pytest.param(("-t", "raw"), lambda head: features(head) or (1 if head[9] == 8 else 0), "asked to make an image and answered 1", 13, id="an image"),
        pytest.param(("-t", "raw"), lambda head: features(head) or Unmount.answer(head), "asked to unmount and answered 22", 16, id="an unmount"),
    ],
)
def test_an_answer_that_is_not_0_ends_the_copy(words, answer, text, code, tmp_path):
    image = tmp_path / "image"
    image.write_bytes(SMALL)
    Unmount.commands = 0
    done, _packets = sent(image, answer, *words)
    assert done.returncode == code, done.stderr
    assert text in done.stderr.decode()


class Unmount:
    """Of the three commands of four bytes the last: handshake, sync, unmount."""

    commands = 0

    @classmethod
    def answer(cls, head):
        cls.commands += head[4:12] == bytes.fromhex("0100000004000000")
        return 22 if cls.commands == 2 and head[4:12] == bytes.fromhex("0100000004000000") else 0


def hears(stream_bytes, out):
    """pcopy's answers to a sender that does not wait for them."""
    here, there = socket.socketpair()
    with here, there:
        here.sendall(stream_bytes)
        here.shutdown(socket.SHUT_WR)
        done = run("copy", "-d", out, "-i", there.fileno(), pass_fds=(there.fileno(),))
        here.setblocking(False)
        answers = here.recv(4096)
    return done, [int.from_bytes(answers[n : n + 4], "little", signed=True) for n in range(0, len(answers), 4)]


def test_packets_that_come_in(tmp_path):
    """As a real sender of 9.x has them: an image of 100 MiB, one packet of the device, one that is not answered, sync, unmount, the end."""
    out = tmp_path / "out"
    stream = (
        HANDSHAKE
        + packet(1, 2048, 204800, b"\2\0\0\0" + bytes(2044))
        + packet(3, 512, 0, b"a" * 512)
        + packet(2, 512, 512, b"b" * 512)
        + packet(4, 8, 0, b"cbt page")
        + packet(1, 4, 0, bytes(4))
        + UNMOUNT
        + FINISH
    )
    done, answers = hears(stream, out)
    assert done.returncode == 0, done.stderr
    assert answers == [-1, 0, 0, 0, 0, 0, 0]
    assert out.stat().st_size == 100 * MIB
    with out.open("rb") as disk:
        assert disk.read(1025) == b"a" * 512 + b"b" * 512 + b"\0"


@pytest.mark.parametrize(
    ("asked", "answers"),
    [
        pytest.param(packet(1, 2048, 204801, b"\2\0\0\0" + bytes(2044), md5=False), [0, 7], id="half a cluster"),
        pytest.param(packet(1, 4, 3, bytes(4), md5=False) + packet(3, 4, 0, b"data")[:-1] + b"!", [0, -1, 7], id="another byte"),
        pytest.param(packet(1, 4, 0, b"\7\0\0\0", md5=False), [0, 7], id="an unknown command"),
        pytest.param(packet(6, 4, 0, b"data", md5=False), [0, 7], id="an unknown type"),
    ],
)
def test_packets_that_are_refused_are_answered_with_a_positive_number(asked, answers, tmp_path):
    out = tmp_path / "out"
    done, answered = hears(packet(0, 512, 0, bytes(512), md5=False) + asked, out)
    assert done.returncode == 13, done.stderr
    assert answered == answers
    assert not out.exists()
