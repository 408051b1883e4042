# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""pcopy's dialects against the old peer: each as a sender and as a receiver, with feedback and without.

The two were written from one description by different hands. A byte on which they disagree is one that somebody misread.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rig import IMAGE, LIMIT, PCOPY

PEER = Path(__file__).resolve().parent / "peer.py"

OLD_SENDER = ("ploop-1.10", False), ("ploop-1.11", False), ("ploop-1.12", False), ("ploop-1.12", True)


@pytest.fixture(scope="session", autouse=True)
def binary():
    if not PCOPY.exists():
        pytest.fail(f"{PCOPY} is missing: run `make helper` first")


@pytest.fixture
def image(tmp_path):
    path = tmp_path / "image"
    path.write_bytes(IMAGE)
    return path


@contextlib.contextmanager
def pipes(count):
    ends = [os.pipe() for _index in range(count)]
    try:
        yield ends
    finally:
        for end in sum(ends, ()):
            with contextlib.suppress(OSError):
                os.close(end)


@contextlib.contextmanager
def loop_device(image):
    device = subprocess.run(["losetup", "--find", "--show", str(image)], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    try:
        yield device
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)


def start(program, *words, descriptors=(), **streams):
    command = [str(PCOPY)] if program == "pcopy" else [sys.executable, str(PEER)]
    return subprocess.Popen(
        [*command, *map(str, words)], pass_fds=descriptors, stderr=subprocess.PIPE, **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, **streams}
    )


def end(process):
    out, err = process.communicate(timeout=LIMIT)
    return process.returncode, (out or b"").decode(), err.decode()


def join(sender, receiver, feedback):
    """Runs both with a pipe from one to the other, and one back where there is feedback. Each is a program and its words."""
    with pipes(2) as ((inlet, outlet), (back, answer)):
        there = start(receiver[0], *receiver[1:], "-i", inlet, *(("-f", answer) if feedback else ()), descriptors=(inlet, answer))
        here = start(sender[0], *sender[1:], "-o", outlet, *(("-f", back) if feedback else ()), descriptors=(outlet, back))
        for descriptor in (inlet, outlet, back, answer):
            os.close(descriptor)  # an end that we hold open would hide that a side is gone
        return end(here), end(there)


def good(*ends):
    assert [code for code, _out, _err in ends] == [0] * len(ends), ends


@pytest.mark.parametrize(("dialect", "feedback"), OLD_SENDER)
def test_pcopy_sends(dialect, feedback, image, tmp_path):
    out = tmp_path / "out"
    good(
        *join(
            ("pcopy", "send", "--dialect", dialect, "--device", image, "--tracker", "none"),
            ("peer", "receive", "--dialect", dialect.removeprefix("ploop-"), "--image", out),
            feedback,
        )
    )
    assert out.read_bytes() == IMAGE
    assert out.stat().st_blocks * 512 < len(IMAGE)


@pytest.mark.parametrize(("dialect", "feedback"), OLD_SENDER)
def test_pcopy_receives(dialect, feedback, image, tmp_path):
    out = tmp_path / "out"
    good(
        *join(
            ("peer", "send", "--dialect", dialect.removeprefix("ploop-"), "--image", image, "--blind-seconds", 0),
            ("pcopy", "receive", "--dialect", dialect, "-d", out),
            feedback,
        )
    )
    assert out.read_bytes() == IMAGE
    assert out.stat().st_mode & 0o777 == 0o600
    assert out.stat().st_blocks * 512 < len(IMAGE)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: gives up its privileges")
@pytest.mark.parametrize(("tracker", "keeps"), [("none", 0x22), ("auto", 0x1200022)])
def test_a_sender_gives_up_what_it_does_not_do_itself(tracker, keeps, image):
    """Looked at while it sends to a peer that takes nothing: more of the image is left than there is room for in a pipe."""
    with loop_device(image) as device, pipes(1) as ((inlet, outlet),):
        sender = start("pcopy", "send", "--dialect", "ploop-1.12", "--device", device, "--tracker", tracker, "-o", outlet, descriptors=(outlet,))
        try:
            assert select.select([inlet], [], [], LIMIT)[0]
            status = dict(line.split(":\t") for line in Path(f"/proc/{sender.pid}/status").read_text(encoding="ascii").splitlines() if line.startswith("Cap"))
        finally:
            os.close(inlet)
            os.close(outlet)
            end(sender)
    ours = int(next(line.split()[1] for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines() if line.startswith("CapPrm")), 16)
    assert {name: int(status[name], 16) for name in ("CapPrm", "CapEff", "CapAmb")} == {"CapPrm": keeps & ours, "CapEff": keeps & ours, "CapAmb": 0}


@pytest.mark.parametrize("newer", ["ploop-1.11", "ploop-1.12"])
def test_an_older_receiver_is_not_harmed_by_a_sync_command(newer, image, tmp_path):
    out = tmp_path / "out"
    good(
        *join(
            ("pcopy", "send", "--dialect", newer, "--device", image, "--tracker", "none"),
            ("peer", "receive", "--dialect", "1.10", "--image", out),
            False,
        )
    )
    assert out.read_bytes() == IMAGE


def when_listening(path):
    for _tenth in range(LIMIT * 10):
        if path.is_socket():
            return
        time.sleep(0.1)
    pytest.fail(f"nobody listens on {path}")


@pytest.mark.parametrize(("dialect", "features"), [("9", ()), ("9", ("--old",)), ("7", ())], ids=["with MD5", "without features", "data alone"])
@pytest.mark.parametrize("pcopy_sends", [True, False], ids=["pcopy sends", "pcopy receives"])
def test_packets(pcopy_sends, dialect, features, image, tmp_path):
    out, sock = tmp_path / "out", tmp_path / "socket"
    if pcopy_sends:
        there = start("peer", "receive", "--dialect", dialect, "--image", out, "--socket", sock, *features)
        when_listening(sock)
        here = start("pcopy", "send", "--dialect", f"ploop-{dialect}", "--device", image, "--tracker", "none", "--socket", sock)
    else:
        there = start("pcopy", "receive", "--dialect", f"ploop-{dialect}", "-d", out, "--socket", sock)
        when_listening(sock)
        here = start("peer", "send", "--dialect", dialect, "--image", image, "--socket", sock, *features)
    good(end(here), end(there))
    # An image that was asked for has whole clusters.
    assert out.read_bytes() == (IMAGE if dialect == "7" else IMAGE.ljust(-(-len(IMAGE) // (1 << 20)) << 20, b"\0"))


def test_a_receiver_that_knows_no_commands_is_told_from_one_that_does(image, tmp_path):
    out, sock = tmp_path / "out", tmp_path / "socket"
    there = start("peer", "receive", "--dialect", "7", "--image", out, "--socket", sock)
    when_listening(sock)
    code, _told, err = end(start("pcopy", "send", "--dialect", "ploop-9", "--device", image, "--tracker", "none", "--socket", sock))
    end(there)
    assert code == 13
    assert "the receiver answered the handshake with 38" in err


# What an old host has: `ploop copy` of one release, played by the peer. A release before 1.12 knows neither -i nor -f, and 1.12 wants a pipe.
SHIM = """#!{python}
import os, stat, sys
words = sys.argv[1:]
with open("{calls}", "a") as calls:
    print(*words, file=calls)
assert words.pop(0) == "copy", words
newer = "{version}" == "1.12"
if not newer and any(word[:2] in ("-i", "-f") for word in words) or newer and stat.S_ISCHR(os.fstat(0).st_mode):
    sys.exit(38)
passed = ["receive", "--dialect", "{version}"]
while words:
    word = words.pop(0)
    passed += ["--image", words.pop(0)] if word == "-d" else [word[:2], word[2:]]
os.execv("{python}", ["{python}", "{peer}", *passed])
"""


@pytest.mark.parametrize("version", ["1.10", "1.11", "1.12"])
def test_a_peer_that_pcopy_runs(version, image, tmp_path):
    out, ploop, calls = tmp_path / "out", tmp_path / "ploop", tmp_path / "calls"
    ploop.write_text(SHIM.format(python=sys.executable, version=version, peer=PEER, calls=calls))
    ploop.chmod(0o755)
    code, told, err = end(start("pcopy", "send", "--dialect", "ploop-1.12", "--device", image, "--tracker", "none", "--to", out, "--", ploop))
    assert code == 0, err
    assert json.loads(told)["bytes"] == len(IMAGE)
    assert out.read_bytes() == IMAGE
    assert calls.read_text().splitlines()[-1] == f"copy -d {out}" + (" -i0 -f1" if version == "1.12" else "")


def test_the_peers_exit_status_is_not_lost(image, tmp_path):
    out, ploop = tmp_path / "out", tmp_path / "ploop"
    out.write_text("in the way")
    ploop.write_text(SHIM.format(python=sys.executable, version="1.12", peer=PEER, calls=tmp_path / "calls"))
    ploop.chmod(0o755)
    code, _told, err = end(start("pcopy", "send", "--dialect", "ploop-1.12", "--device", image, "--tracker", "none", "--to", out, "--", ploop))
    assert code != 0
    assert "exit status 1" in err and "File exists" in err
    assert out.read_text() == "in the way"


def test_pcopy_is_probed_as_a_peer_that_knows_feedback():
    assert end(start("pcopy", "copy", "-i0", "-f1", "-d", "/dev/null", stdin=subprocess.PIPE))[0] != 38
    # As 1.12 does: a probe has a pipe.
    assert end(start("pcopy", "copy", "-i0", "-f1", "-d", "/dev/null"))[0] == 38


def test_called_like_ploop(image, tmp_path):
    out = tmp_path / "out"
    marker = tmp_path / "frozen"
    good(*join(("pcopy", "copy", "-s", image, "-F", f"touch {marker}", "--tracker", "none"), ("pcopy", "copy", "-d", out), True))
    assert out.read_bytes() == IMAGE
    assert marker.exists()


@pytest.mark.parametrize(
    ("words", "stream", "code", "text"),
    [
        (("-d", "{out}"), b"", 6, "the stream ended after 0 of 16 bytes of a header"),
        (("-d", "{out}"), b"x" * 16, 13, "and not the marker 0x4cc0ac3d"),
        (("-d", "{out}", "--dialect", "ploop-1.13"), b"", 38, "choose one of ploop-1.10, ploop-1.11, ploop-1.12, ploop-7, ploop-9"),
        (("-d", "{out}", "-f", "1", "--dialect", "ploop-1.11"), b"", 38, "ploop-1.11 knows no feedback descriptor"),
        (("-d", "{out}", "-f", "77"), b"", 38, "there is no open file descriptor 77"),
        (("-d", "{out}", "--max-size", "0"), b"", 38, "--max-size 0: a number of bytes above 0"),
        (("-d", "{out}", "--frobnicate"), b"", 38, "unknown flag: --frobnicate"),
        (("-d", "/nowhere/at/all"), b"", 1, "/nowhere/at/all: no such file or directory"),
        (("-d", "{out}", "-t", "qcow2"), b"", 38, "-t qcow2: choose one of raw, ploop1, expanded, preallocated"),
        (("-d", "{out}", "--dialect", "ploop-9"), b"x", 38, "descriptor 0 has to be a socket"),
        ((), b"", 38, "name the device to send with -s, or the file to write with -d"),
    ],
)
def test_a_bad_call_and_a_bad_peer(words, stream, code, text, tmp_path):
    out = tmp_path / "out"
    process = subprocess.run([PCOPY, "copy", *[w.format(out=out) for w in words]], input=stream, capture_output=True, timeout=LIMIT, check=False)
    assert process.returncode == code, process.stderr
    assert text in process.stderr.decode()
    assert not list(tmp_path.iterdir())
