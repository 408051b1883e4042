# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""With a real rsync, or a program of its name that does what one of them may do."""

from __future__ import annotations

import os
import shutil
import signal
import time

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import HandoverError
from ansible_collections.livefleet.handover.plugins.module_utils._kvm import copy, files, lock


@pytest.fixture(name="image")
def an_image(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "FOLDER", str(tmp_path / "run"))
    path = tmp_path / "web1.raw"
    path.write_bytes(b"data")
    os.truncate(path, 4 << 20)
    return path


def pretend(tmp_path, monkeypatch, script):
    """An rsync that does what a script says."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "rsync"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")


def send(image, awaited=lambda: True, target=""):
    with lock.hold("web1", "one") as descriptor:
        return copy.send("web1", "one", {"path": str(image), "what": "image"}, target, [], descriptor, awaited)


@pytest.mark.skipif(shutil.which("rsync") is None, reason="no rsync")
def test_a_copy_arrives_under_a_name_of_its_own(image):
    sent = send(image)
    own = files.own_name(str(image), "web1", "one")
    assert sent == {"path": str(image), "what": "image", "digest": files.contents(own)}
    assert sorted(name for name in os.listdir(image.parent) if name != "run") == ["web1.raw", "web1.raw.web1.one.copying"]


def test_an_image_that_changes_meanwhile_is_not_sent(image, tmp_path, monkeypatch):
    pretend(tmp_path, monkeypatch, f"echo more >>{image}")
    with pytest.raises(HandoverError, match="was written to while it was copied: somebody has started web1"):
        send(image)


def test_the_copiers_own_words_are_the_reason(image, tmp_path, monkeypatch):
    pretend(tmp_path, monkeypatch, "echo 'No space left on device' >&2; exit 11")
    with pytest.raises(HandoverError, match=r"could not be copied to root@node2: No space left"):
        send(image, target="root@node2:")


def test_a_copy_that_nobody_waits_for_ends(image, tmp_path, monkeypatch):
    pretend(tmp_path, monkeypatch, f"echo $$ >{tmp_path}/pid; exec sleep 600")
    with pytest.raises(HandoverError, match="was given up"):
        send(image, awaited=lambda: not (tmp_path / "pid").exists())
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert lock.look("web1")["held"] is False


def killed_in_the_middle(image, pid):
    """Sends it from a process that is killed when the copier works."""
    worker = os.fork()
    if worker == 0:
        try:
            send(image)
        finally:
            os._exit(1)
    until = time.monotonic() + 30
    try:
        while not pid.exists() or not pid.read_text():
            assert time.monotonic() < until
            time.sleep(0.05)
    finally:
        os.kill(worker, signal.SIGKILL)
        os.waitpid(worker, 0)


def test_a_copier_ends_with_the_process_that_started_it(image, tmp_path, monkeypatch):
    pretend(tmp_path, monkeypatch, f"echo $$ >{tmp_path}/pid; exec sleep 600")
    killed_in_the_middle(image, tmp_path / "pid")
    until = time.monotonic() + 30
    while lock.look("web1")["held"]:
        assert time.monotonic() < until, "the copier lives on"
        time.sleep(0.05)


def test_one_that_lives_on_has_the_lock(image, tmp_path, monkeypatch):
    pretend(tmp_path, monkeypatch, f"trap '' TERM; echo $$ >{tmp_path}/pid; exec sleep 600")
    killed_in_the_middle(image, tmp_path / "pid")
    try:
        time.sleep(0.3)
        assert lock.look("web1")["held"] is True
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def test_a_play_that_has_ended_does_not_read_any_more():
    reader, writer = os.pipe()
    try:
        assert copy.somebody_reads(writer) is True
        os.close(reader)
        assert copy.somebody_reads(writer) is False
    finally:
        os.close(writer)
