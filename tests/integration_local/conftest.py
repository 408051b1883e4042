# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Image volumes for real: image files, loop devices and mounts of this machine.

Needs root and loop devices. Every volume lives below one temporary directory, and whatever a test leaves attached or
mounted there is taken down again, also after a failure.
"""

from __future__ import annotations

import json
import os
import subprocess
import typing as t
from pathlib import Path

import pytest


def attached(directory: Path) -> list[str]:
    """Loop devices whose backing file is below this directory."""
    text = subprocess.run(["losetup", "--list", "--json", "--output", "NAME,BACK-FILE"], check=True, capture_output=True, text=True).stdout
    rows = json.loads(text)["loopdevices"] if text.strip() else []
    return [row["name"] for row in rows if row["back-file"].startswith(f"{directory}/")]


def mounted(directory: Path) -> list[str]:
    """Mount points below this directory, the latest first."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [point for point in reversed([line.split()[4] for line in lines]) if point.startswith(f"{directory}/")]


@pytest.fixture
def host(tmp_path: Path) -> t.Iterator[Path]:
    """A directory for one test's volumes; fails the test that leaves something behind it did not mean to."""
    if os.geteuid() != 0 or not os.path.exists("/dev/loop-control"):
        pytest.skip("image volumes need root and loop devices")
    yield tmp_path
    for point in mounted(tmp_path):
        subprocess.run(["umount", point], check=True)
    for device in attached(tmp_path):
        subprocess.run(["losetup", "--detach", device], check=True)
    assert not attached(tmp_path)


@pytest.fixture
def run_volume(host: Path, run_module: t.Callable) -> t.Callable[..., dict[str, t.Any]]:
    """Applies image_volume below the test's directory, without podman and systemd, which a build machine need not have."""
    from ansible_collections.livefleet.handover.plugins.modules import image_volume

    def run(check: bool = False, diff: bool = False, **params: t.Any) -> dict[str, t.Any]:
        defaults = {
            "name": "shop",
            "image": str(host / "volumes" / "shop.img"),
            "mountpoint": str(host / "mnt" / "shop"),
            "podman_volume": "",
            "boot": False,
            "timeout": 60,
        }
        return run_module(image_volume.main, {**defaults, **params}, check=check, diff=diff)

    return run
