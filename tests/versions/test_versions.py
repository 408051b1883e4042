# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The helper of this tree with one of another version, each as the source and as the destination: they agree, or refuse in words, and nothing is left.

The older one is built from the last release, or, before there is one, from a commit that knows fewer features. The one of the future speaks only a wire
format that does not exist yet; it is this tree's with two numbers changed.
"""

from __future__ import annotations

import json
import platform
import random
import re
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import builds

CHECKOUT = Path(__file__).resolve().parents[2]
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
LIMIT = 60
CONTENT = random.Random(7).randbytes(3 << 20) + bytes(2 << 20)

pytestmark = pytest.mark.skipif(
    not builds.GO or not (CHECKOUT / ".git").exists(), reason="an older helper is built by Go, from the history of a checkout"
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("helpers")


@pytest.fixture(scope="module")
def ours() -> Path:
    """As `make helper` has built it."""
    program = CHECKOUT / "roles" / "pcopy" / "files" / f"pcopy-linux-{MACHINES[platform.machine()]}"
    assert program.exists(), "run `make helper`"
    return program


@pytest.fixture(scope="module")
def older(place: Path) -> Path:
    return builds.build_older(place) or pytest.skip("the history of this checkout does not reach to an older helper: fetch it whole")


@pytest.fixture(scope="module")
def of_the_future(place: Path) -> Path:
    return builds.build_numbered(place, "future", builds.WIRE, 9)


class Side:
    """A helper that runs one side of a session in a folder."""

    def __init__(self, program: Path, folder: Path) -> None:
        self.program, self.folder = program, folder
        folder.mkdir(mode=0o700)
        self.fingerprint = re.search("sha256:[0-9a-f]{64}", self.ask("identity", str(folder)))[0]
        self.process: subprocess.Popen[str] | None = None

    def ask(self, *words: str) -> str:
        done = subprocess.run([self.program, *words], capture_output=True, text=True, timeout=LIMIT, check=False)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def start(self, word: str, spec: dict[str, t.Any]) -> None:
        (self.folder / "spec.json").write_text(json.dumps({"version": 1, "id": "versions", "mode": "copy", **spec}), encoding="utf-8")
        self.process = subprocess.Popen(
            [self.program, word, "--session", str(self.folder)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )  # fmt: skip

    def until(self, word: str) -> dict[str, t.Any]:
        """Its status then."""
        self.ask("session", "wait", str(self.folder), "--until", word, "--timeout", str(LIMIT))
        return json.loads((self.folder / "status.json").read_text(encoding="utf-8"))

    def ended(self) -> tuple[int, str]:
        """With which status, and with which words."""
        said, _none = self.process.communicate(timeout=LIMIT)
        return self.process.returncode, said

    def kill(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def sides(tmp_path: Path) -> t.Iterator[t.Callable[[Path, Path], tuple[Side, Side]]]:
    """Starts a copy from one helper to another."""
    both: list[Side] = []

    def start(source_program: Path, destination_program: Path) -> tuple[Side, Side]:
        (tmp_path / "image").write_bytes(CONTENT)
        source, destination = Side(source_program, tmp_path / "source"), Side(destination_program, tmp_path / "destination")
        both.extend((source, destination))
        volume = {"name": "data", "size": len(CONTENT)}
        destination.start("receive", {
            "role": "destination", "listen": "127.0.0.1:0", "peer": {"fingerprint": source.fingerprint},
            "volumes": [{**volume, "image": str(tmp_path / "arrived")}],
        })  # fmt: skip
        deadline = time.monotonic() + LIMIT
        while not (destination.folder / "status.json").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        address = destination.until("listening")["listen"]
        source.start("send", {
            "role": "source", "peer": {"address": address, "fingerprint": destination.fingerprint},
            "volumes": [{**volume, "device": str(tmp_path / "image"), "tracker": "none"}], "policy": {"connections": 2, "verify": True},
        })  # fmt: skip
        return source, destination

    yield start
    for side in both:
        side.kill()


@pytest.mark.parametrize("direction", ["to the older one", "from the older one"])
def test_an_older_helper_copies_with_this_one(sides, ours: Path, older: Path, tmp_path: Path, direction: str) -> None:
    source, destination = sides(*((ours, older) if direction == "to the older one" else (older, ours)))
    source.until("converged")
    source.ask("session", "cutover", str(source.folder))
    assert (source.ended(), destination.ended()) == ((0, ""), (0, ""))
    assert (tmp_path / "arrived").read_bytes() == CONTENT


@pytest.mark.parametrize("direction", ["to the one of the future", "from the one of the future"])
def test_a_helper_without_a_common_format_is_refused_in_words(sides, ours: Path, of_the_future: Path, tmp_path: Path, direction: str) -> None:
    source, destination = sides(*((ours, of_the_future) if direction == "to the one of the future" else (of_the_future, ours)))
    status, said = source.ended()
    assert status != 0
    assert "the other side speaks another version: it understands version" in said and "install the same pcopy on both hosts" in said
    # The destination waits for a source that it understands; nothing has arrived there.
    destination.ask("session", "abort", str(destination.folder))
    destination.ended()
    assert not (tmp_path / "arrived").exists()
