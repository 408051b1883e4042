# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`pcopy copy` with the command lines of `ploop copy`, of 1.x and of 9.x: the same files and the same exit statuses."""

from __future__ import annotations

import os
import socket
import subprocess
import threading

import peer
import pytest
from rig import IMAGE, run

UNTRACKED = ("--tracker", "none")


@pytest.fixture
def image(tmp_path):
    path = tmp_path / "image"
    path.write_bytes(IMAGE)
    return path


@pytest.mark.parametrize("talkative", [(), ("-v",), ("-vvv", "-v3")], ids=["quiet", "one -v", "more of them"])
@pytest.mark.parametrize(
    "words", [("-s", "{image}", "-d", "{out}"), ("-s{image}", "-d{out}", "-F", "touch {frozen}"), ("-t", "raw", "-s", "{image}", "-d", "{out}")]
)
def test_a_copy_within_a_host(words, talkative, image, tmp_path):
    out, frozen = tmp_path / "out", tmp_path / "frozen"
    done = run(*talkative, "copy", *[word.format(image=image, out=out, frozen=frozen) for word in words], *UNTRACKED)
    assert done.returncode == 0, done.stderr
    assert out.read_bytes() == IMAGE
    assert out.stat().st_mode & 0o777 == 0o600
    assert out.stat().st_blocks * 512 < len(IMAGE)
    assert frozen.exists() == ("-F" in words)


@pytest.mark.parametrize("words", [(), ("-t", "raw")], ids=["1.x", "9.x"])
def test_an_output_that_is_a_file_gets_the_image_and_no_frames(words, image, tmp_path):
    out = tmp_path / "out"
    with out.open("wb") as stream:
        done = run("copy", "-s", image, *words, *UNTRACKED, stdout=stream)
    assert done.returncode == 0, done.stderr
    assert out.read_bytes() == IMAGE


def test_the_senders_line_of_9_makes_an_image_over_there(image, tmp_path):
    out = tmp_path / "out"
    here, there = socket.socketpair()
    seen = []
    receiver = threading.Thread(target=lambda: seen.append(peer.receive_packets(there, str(out))))
    receiver.start()
    done = run("copy", "-s", image, "-t", "expanded", "-o", here.fileno(), *UNTRACKED, pass_fds=(here.fileno(),))
    here.close()
    receiver.join()
    there.close()
    assert done.returncode == 0, done.stderr
    assert seen[0]["init"] == {"format": peer.INIT_PLOOP, "cluster_sectors": 2048, "sectors": -(-len(IMAGE) // peer.BLOCK) * 2048}
    assert out.read_bytes() == IMAGE.ljust(-(-len(IMAGE) // peer.BLOCK) * peer.BLOCK, b"\0")


@pytest.mark.parametrize("era", ["1.x", "7.x", "9.x"])
def test_the_receivers_line_is_the_same_in_all_eras(era, image, tmp_path):
    """Only the sender's first bytes tell."""
    out = tmp_path / "out"
    here, there = socket.socketpair()
    errors = []

    def send():
        try:
            if era == "1.x":
                peer.send_frames(peer.VERSIONS["1.11"], here.fileno(), None, str(image), blind_seconds=0)
            else:
                peer.send_packets(here, str(image), plain=era == "7.x")
        except peer.Stop as stop:
            errors.append(stop)

    sender = threading.Thread(target=send)
    sender.start()
    done = run("copy", "-d", out, "-i", there.fileno(), pass_fds=(there.fileno(),))
    there.close()
    sender.join()
    here.close()
    assert done.returncode == 0, done.stderr
    assert not errors
    assert out.read_bytes() == IMAGE.ljust(-(-len(IMAGE) // peer.BLOCK) * peer.BLOCK if era == "9.x" else len(IMAGE), b"\0")


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        pytest.param(("-s", "{image}", "-d", "{there}"), 1, "exists already", id="the file is there"),
        pytest.param(("-s", "{image}", "-d", "/nowhere/out"), 1, "no such file or directory", id="no folder"),
        pytest.param(("-s", "{missing}", "-d", "{out}"), 2, "no such file or directory", id="no device"),
        pytest.param(("-s", "{image}", "-d", "{out}", "-F", "exit 5"), 12, "exit status 5", id="a freeze that fails"),
        pytest.param(("-s", "{image}", "-d", "{out}", "-f", "1"), 38, "there is no peer", id="an answer of nobody"),
        pytest.param(("-s", "{image}", "-o", "77"), 38, "there is no open file descriptor 77", id="no descriptor"),
        pytest.param(("-s", "{image}", "-t", "qcow2", "-d", "{out}"), 38, "-t qcow2: choose one of", id="no format"),
        pytest.param(("-s", "{image}", "-d", "{out}", "more"), 38, '"more" is a word too many', id="a word too many"),
        pytest.param(("-s", "{image}", "-t", "raw"), 38, "descriptor 1 has to be a socket", id="9.x over a pipe"),
        pytest.param(("-s", "{image}", "-x"), 38, "unknown shorthand flag", id="an unknown word"),
    ],
)
def test_exit_statuses(words, code, text, image, tmp_path):
    there = tmp_path / "there"
    there.write_bytes(b"mine")
    names = {"image": image, "there": there, "missing": tmp_path / "missing", "out": tmp_path / "out"}
    done = run("copy", *[word.format(**names) for word in words], *UNTRACKED)
    assert done.returncode == code, done.stderr
    assert text in done.stderr.decode()
    assert there.read_bytes() == b"mine"
    assert not (tmp_path / "out").exists()


def test_a_device_of_no_use_as_an_output(image):
    done = run("copy", "-s", image, *UNTRACKED, stdout=subprocess.DEVNULL)
    assert done.returncode == 38
    assert "descriptor 1 has to be a pipe or a socket" in done.stderr.decode()


def test_a_full_output_is_a_write_that_failed(image, tmp_path):
    """The pipe's other end is closed."""
    inlet, outlet = os.pipe()
    os.close(inlet)
    done = run("copy", "-s", image, *UNTRACKED, "-o", outlet, pass_fds=(outlet,))
    os.close(outlet)
    assert done.returncode == 7, done.stderr
