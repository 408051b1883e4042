# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The old peer against itself, and against bytes laid out by hand: a reference that is wrong proves nothing."""

from __future__ import annotations

import os
import socket
import struct
import threading

import peer
import pytest

IMAGE = os.urandom(3 * peer.BLOCK + 4096)


@pytest.fixture(name="image")
def some_image(tmp_path):
    path = tmp_path / "image"
    path.write_bytes(IMAGE)
    return str(path)


def received(version, stream, tmp_path, feedback=None):
    """What a receiver of this version makes of a stream of bytes."""
    out = tmp_path / "out"
    inlet, outlet = os.pipe()
    writer = threading.Thread(target=lambda: (os.write(outlet, stream), os.close(outlet)))
    writer.start()
    try:
        peer.receive_frames(peer.VERSIONS[version], inlet, feedback, str(out))
    finally:
        writer.join()
        os.close(inlet)
    return out.read_bytes()


def frame(data, pos):
    return struct.pack("=IIQ", 0x4CC0AC3D, len(data), pos) + data


END = frame(b"", 0)


def test_frames_land_where_they_say(tmp_path):
    assert received("1.10", frame(b"world", 6) + frame(b"hello ", 0) + END, tmp_path) == b"hello world"


def test_the_oldest_receiver_writes_the_sync_command_down(tmp_path):
    stream = frame(b"abcdefgh", 0) + frame(b"ABCD", 0) + END
    assert received("1.10", stream, tmp_path) == b"ABCDefgh"


def test_a_newer_receiver_discards_it_and_answers(tmp_path):
    back, answer = os.pipe()
    stream = frame(b"abcdefgh", 0) + frame(b"ABCD", 0) + END
    assert received("1.12", stream, tmp_path, feedback=answer) == b"abcdefgh"
    assert os.read(back, 100) == b"SUCCESS\n"


@pytest.mark.parametrize(
    ("stream", "code"),
    [
        pytest.param(frame(b"abc", 0), peer.READ, id="no end"),
        pytest.param(frame(b"abcdef", 0)[:-1], peer.READ, id="cut payload"),
        pytest.param(b"\0" * 16, peer.PROTOCOL, id="no marker"),
    ],
)
def test_an_error_has_its_code_and_leaves_no_file(stream, code, tmp_path):
    with pytest.raises(peer.Stop) as stop:
        received("1.12", stream, tmp_path)
    assert stop.value.code == code
    assert not (tmp_path / "out").exists()


def test_an_old_receiver_knows_no_feedback(tmp_path):
    with pytest.raises(peer.Stop) as stop:
        peer.receive_frames(peer.VERSIONS["1.11"], 0, 1, "/dev/null")
    assert stop.value.code == peer.PARAMETER


@pytest.mark.parametrize(("version", "with_feedback"), [("1.10", False), ("1.11", False), ("1.12", False), ("1.12", True)])
def test_frames_from_peer_to_peer(version, with_feedback, image, tmp_path):
    out = tmp_path / "out"
    inlet, outlet = os.pipe()
    back, answer = os.pipe()
    errors = []

    def send():
        try:
            peer.send_frames(peer.VERSIONS[version], outlet, back if with_feedback else None, image, blind_seconds=0)
        except peer.Stop as stop:
            errors.append(stop)
        finally:
            os.close(outlet)

    sender = threading.Thread(target=send)
    sender.start()
    peer.receive_frames(peer.VERSIONS[version], inlet, answer if with_feedback else None, str(out))
    sender.join()
    for descriptor in (inlet, back, answer):
        os.close(descriptor)
    assert not errors
    assert out.read_bytes() == IMAGE


@pytest.mark.parametrize(
    ("features", "knows", "md5"),
    [(peer.MD5 | peer.COPY_DEVICE, True, True), (peer.MD5 | peer.COPY_DEVICE, False, False), (0, True, False)],
)
def test_packets_from_peer_to_peer(features, knows, md5, image, tmp_path):
    here, there = socket.socketpair()
    out, sent = tmp_path / "out", []
    sender = threading.Thread(target=lambda: sent.append(peer.send_packets(here, image, features)))
    sender.start()
    seen = peer.receive_packets(there, str(out), knows)
    sender.join()
    here.close()
    there.close()
    # A disk of whole clusters.
    assert out.read_bytes() == IMAGE.ljust(4 * peer.BLOCK, b"\0")
    assert seen["md5"] == md5 == sent[0]["md5"]
    assert seen["init"] == {"format": peer.INIT_PLOOP, "cluster_sectors": 2048, "sectors": 4 * 2048}


def conversation(tmp_path, *asked, plain=False):
    """What a receiver answers to packets, and what is in its file when the last of them was answered."""
    here, there = socket.socketpair()
    receiver = threading.Thread(target=lambda: peer.receive_packets(there, str(tmp_path / "out"), plain=plain))
    receiver.start()
    packets = peer.Packets(here)
    answers = [packets.ask(*packet) for packet in asked]
    receiver.join()
    here.close()
    there.close()
    return answers, (tmp_path / "out").read_bytes()


def command(number, size=4):
    return struct.pack("=I", number).ljust(size, b"\0")


DATA, END_9 = (peer.DATA_DEVICE, b"data", 0), (peer.CMD, b"", 0)
INIT = (peer.CMD, command(peer.INIT_PLOOP, 8), 8)


def test_without_an_unmount_nobody_has_promised_anything(tmp_path):
    sync, unmount = (peer.CMD, command(peer.SYNC), 0), (peer.CMD, command(peer.UMOUNT), 0)
    answers, held = conversation(tmp_path, INIT, DATA, sync, END_9)
    assert (answers, held) == ([0, 0, 0, 0], bytes(4096))
    (tmp_path / "out").unlink()
    answers, held = conversation(tmp_path, INIT, DATA, unmount, END_9)
    assert (answers, held) == ([0, 0, 0, 0], b"data".ljust(4096, b"\0"))


@pytest.mark.parametrize(
    ("packet", "code"),
    [
        pytest.param((peer.CMD, command(peer.INIT_PLOOP, 8), 9), 1, id="half clusters"),
        pytest.param((peer.CMD, command(peer.MOUNT), 0), peer.PARAMETER, id="mount"),
    ],
)
def test_a_command_that_is_not_done_ends_the_receiver(packet, code, tmp_path):
    here, there = socket.socketpair()
    stops = []

    def receive():
        try:
            peer.receive_packets(there, str(tmp_path / "out"))
        except peer.Stop as stop:
            stops.append(stop.code)

    receiver = threading.Thread(target=receive)
    receiver.start()
    assert peer.Packets(here).ask(*packet) == code
    receiver.join()
    here.close()
    there.close()
    assert stops == [code]
    assert not (tmp_path / "out").exists()


def test_older_receivers_of_packets_know_data_alone_and_go_on(tmp_path):
    answers, held = conversation(tmp_path, INIT, DATA, (peer.DATA, b"data", 4), END_9, plain=True)
    assert (answers, held) == ([38, 38, 0, 0], bytes(4) + b"data")


def test_a_changed_byte_is_found_where_md5_was_agreed(tmp_path):
    here, there = socket.socketpair()
    errors = []

    def receive():
        try:
            peer.receive_packets(there, str(tmp_path / "out"))
        except peer.Stop as stop:
            errors.append(stop)

    receiver = threading.Thread(target=receive)
    receiver.start()
    packets = peer.Packets(here)
    assert packets.ask(peer.CMD, struct.pack("=I", peer.SYNC), peer.MD5) == -1
    here.sendall(struct.pack("=III4xQ", 0x4CC0AC3E, peer.DATA_DEVICE, 4, 0) + b"\0" * 16 + b"data")
    receiver.join()
    assert errors[0].code == peer.PROTOCOL
    assert not (tmp_path / "out").exists()
