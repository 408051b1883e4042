# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Helpers of other versions: an older one from the history, and this tree's with some numbers changed."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
HELPER = CHECKOUT / "helper"
# Before memory could follow, and before a container's own network went along.
BEFORE = "c70fe084ba908d9f788235f225afb9fb76c19f0a"
GO = shutil.which("go", path=f"{os.environ['PATH']}:/usr/local/go/bin")
# The file and the numbers in it: the formats of the wire, and what the collection asks of the helper.
WIRE = (HELPER / "internal" / "wire" / "wire.go", r"(?m)^(\t(?:Min|Max)Version) = \d+$", 2)
INTERFACE = (HELPER / "internal" / "session" / "record" / "interface.go", r"(?m)^(const Interface) = \d+$", 1)


def git(*words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=CHECKOUT, capture_output=True, check=False).stdout


def build(source: Path, target: Path, *flags: str) -> Path:
    command = [GO, "build", "-trimpath", "-buildvcs=false", *flags, "-o", str(target), "./cmd/pcopy"]
    done = subprocess.run(command, cwd=source, env={**os.environ, "CGO_ENABLED": "0"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


def build_older(place: Path) -> Path | None:
    """From the last release, or, before there is one, from a commit that knows fewer features; None where the history does not reach so far."""
    release = git("describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", "HEAD~1").decode().strip()
    packed = git("archive", release or BEFORE, "helper")
    if not packed:
        return None
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(place / "older")
    return build(place / "older" / "helper", place / "theirs")


def build_numbered(place: Path, name: str, numbers: tuple[Path, str, int], number: int) -> Path:
    """This tree's with another number in one file."""
    source, pattern, count = numbers
    text, changed = re.subn(pattern, rf"\1 = {number}", source.read_text(encoding="utf-8"))
    assert changed == count, f"{source}: {changed} numbers instead of {count}"
    (place / f"{name}.go").write_text(text, encoding="utf-8")
    (place / f"{name}.json").write_text(json.dumps({"Replace": {str(source): str(place / f"{name}.go")}}), encoding="utf-8")
    return build(HELPER, place / name, f"-overlay={place / name}.json")
