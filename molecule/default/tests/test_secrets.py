# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A move with everything written down that can be, while its processes are looked at: each of its secrets is where it belongs, and nowhere else.

The scenario's workload is on node1 when this begins, and on node2 afterwards.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets as randomness
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import Fleet
from scan import found_in

SCAN = Path(__file__).with_name("scan.py")
PCOPY = "/usr/local/libexec/handover/pcopy"
KEY_FILE = "identity/session.key"
# Where podman keeps secrets, and hands them to a container.
PODMANS = r"^/var/lib/containers/storage/(secrets|overlay-containers/[0-9a-f]{64}/userdata/secrets|overlay/[0-9a-f]{64}/merged/run/secrets)/"
SECONDS_BETWEEN_LOOKS = 0.25
TOKEN_DIGITS, DIGEST_DIGITS = 32, 64


class Processes(threading.Thread):
    """Everything that a process of this machine was called with, as long as it runs. The processes of the lab's hosts are among them."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.ended = threading.Event()
        self.seen: set[bytes] = set()

    def run(self) -> None:
        while not self.ended.wait(SECONDS_BETWEEN_LOOKS):
            for process in Path("/proc").glob("[0-9]*"):
                for name in ("cmdline", "environ"):
                    try:
                        self.seen.add((process / name).read_bytes())
                    except OSError:
                        continue  # it has ended

    def stop(self) -> bytes:
        self.ended.set()
        self.join()
        return b"\n".join(self.seen)


def on(fleet: Fleet, name: str, *command: str, text: str = "", accept: tuple[int, ...] = (0,)) -> str:
    """By ssh itself: Ansible's modules write their arguments into the host's journal, and what is looked for would be found there."""
    words = fleet.hosts[name].backend.ansible_runner.get_variables(name)
    ssh = ["ssh", *words["ansible_ssh_common_args"].split(), f"{words['ansible_user']}@{words['ansible_host']}", *command]
    done = subprocess.run(ssh, input=text, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in accept, done.stderr
    return done.stdout


def forms(secret: bytes) -> list[str]:
    """As it is, and as a log or a file might have it."""
    written = {secret.hex(), base64.b64encode(secret).decode().rstrip("=")[:-1]}
    return sorted(written | ({secret.decode()} if secret.isascii() else set()))


def run_token(fleet: Fleet, folder: str) -> bytes:
    """It is in the memory of the source alone: the one text whose digest the destination has in its memory."""

    def seen(name: str, length: int) -> set[str]:
        return set(on(fleet, name, "python3", "/run/scan.py", folder, str(length)).split())

    digests = seen("node2", DIGEST_DIGITS)
    tokens = [text for text in seen("node1", TOKEN_DIGITS) if hashlib.sha256(text.encode()).hexdigest() in digests]
    assert len(tokens) == 1, "the run token was not found in the memory of the source"
    return tokens[0].encode()


def places(fleet: Fleet, name: str, needles: dict[str, list[str]], since: float) -> list[tuple[str, str]]:
    """(secret, place) for everything on a host that was written since then, and for its journal."""
    asked = json.dumps({"needles": needles, "since": since})
    return [tuple(row) for row in json.loads(on(fleet, name, "python3", "/run/scan.py", text=asked))]


@pytest.fixture
def scanner(fleet: Fleet):
    for name in fleet.hosts:
        on(fleet, name, "cat > /run/scan.py", text=SCAN.read_text(encoding="utf-8"))
    yield
    for name in fleet.hosts:
        on(fleet, name, "rm --force --recursive /run/scan.py /run/__pycache__")


def test_no_secret_of_a_move_is_left_or_shown_anywhere(fleet: Fleet, scanner: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANSIBLE_LOG_PATH", str(tmp_path / "ansible.log"))
    # The key under which secrets are compared is drawn by the role. It is given here, so that it is known.
    digest_key = randomness.token_hex(22)
    given = tmp_path / "given"
    given.mkdir()
    (given / "key.json").write_text(json.dumps({"__migrate_secrets_key": digest_key}), encoding="utf-8")
    folder = f"/var/lib/handover/sessions/{fleet.next_session}"
    began = time.time()
    processes = Processes()
    processes.start()
    with ThreadPoolExecutor(1) as pool:
        moving = pool.submit(
            fleet.migrate, "-vvv", f"--extra-vars=@{given / 'key.json'}",
            handover_destination="node2", migrate_verify=True, migrate_pause_at={"source": "presync"},
        )  # fmt: skip
        try:
            while not moving.done() and "paused" not in on(fleet, "node1", "cat", f"{folder}/events.jsonl", accept=(0, 1)):
                time.sleep(0.2)
            assert not moving.done(), moving.result().text[-6000:]
            keys = {name: on(fleet, name, "cat", f"{folder}/{KEY_FILE}") for name in fleet.hosts}
            needles = {f"the session's key of {name}": pem_forms(key) for name, key in keys.items()}
            needles["the run token"] = forms(run_token(fleet, folder))
            needles["podman's secret"] = forms(b"known to one container")
            needles["the key of the secrets' digests"] = forms(digest_key.encode())
            during = {name: places(fleet, name, needles, began) for name in fleet.hosts}
            told = "".join(on(fleet, name, words) for name in fleet.hosts for words in (f"{PCOPY} --json session show {folder}", f"{PCOPY} host metrics"))
        finally:
            on(fleet, "node1", f"{PCOPY} session continue {folder}", accept=(0, 1))
            played = moving.result()
    called_with = processes.stop()
    assert played.status == 0, played.text[-6000:]
    after = {name: places(fleet, name, needles, began) for name in fleet.hosts}

    misplaced = [
        (name, secret, place)
        for name, rows in (*during.items(), *after.items())
        for secret, place in rows
        if not belongs(secret, place, name, folder)
    ]  # fmt: skip
    assert misplaced == []
    # Each was looked for where it has to be: a search that finds nothing proves nothing.
    for name in fleet.hosts:
        assert (f"the session's key of {name}", f"{folder}/{KEY_FILE}") in during[name]
    assert [place for secret, place in after["node2"] if secret == "podman's secret"], "podman's secret was not found even in podman's own store"
    assert not [row for rows in after.values() for row in rows if row[0].startswith("the session's key")]
    assert found_in(called_with, needles) == []
    assert found_in(told.encode(), needles) == []
    left = {path: path.read_bytes() for place in (tmp_path, fleet.reports) for path in place.rglob("*") if path.is_file() and given not in path.parents}
    assert tmp_path / "ansible.log" in left and "TASK [livefleet.handover.migrate" in left[tmp_path / "ansible.log"].decode()
    assert {path.suffix for path in left} >= {".json", ".html", ".log"}
    assert [(str(path), secret) for path, content in left.items() for secret in found_in(content, needles)] == []
    assert found_in(played.text.encode(), needles) == []


def pem_forms(key: str) -> list[str]:
    """The line of the file, and the 32 bytes of the key that end its structure."""
    (line,) = re.findall(r"^([A-Za-z0-9+/=]{40,})$", key, flags=re.M)
    return [line.rstrip("="), *forms(base64.b64decode(line)[-32:])]


def belongs(secret: str, place: str, name: str, folder: str) -> bool:
    if secret == f"the session's key of {name}":
        return place == f"{folder}/{KEY_FILE}"
    return secret == "podman's secret" and bool(re.match(PODMANS, place))
