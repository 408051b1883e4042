# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The helper as it was built, and an image for it to copy."""

from __future__ import annotations

import platform
import random
import subprocess
import typing as t
from pathlib import Path

MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
PCOPY = Path(__file__).resolve().parents[2] / "roles" / "pcopy" / "files" / f"pcopy-linux-{MACHINES[platform.machine()]}"
LIMIT = 60

# Noise, zeroes, a little more noise, and an end of zeroes that is no whole block.
IMAGE = random.Random(11).randbytes(2_500_096) + bytes(3 << 20) + random.Random(12).randbytes(512) + bytes(700_416)


def run(*words: t.Any, **streams: t.Any) -> subprocess.CompletedProcess[bytes]:
    """pcopy with these words, to its end. Its input is nothing, unless it is given some."""
    if "input" not in streams:
        streams.setdefault("stdin", subprocess.DEVNULL)
    streams.setdefault("stdout", subprocess.PIPE)
    return subprocess.run([PCOPY, *map(str, words)], **streams, stderr=subprocess.PIPE, timeout=LIMIT, check=False)
