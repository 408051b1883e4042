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
import time
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


def take_down(directory: Path, seconds: float = 60) -> None:
    """Unmounts and detaches what is below this directory. A busy machine takes its time to let go of a loop device."""
    deadline = time.monotonic() + seconds
    while mounted(directory) or attached(directory):
        assert time.monotonic() < deadline, f"still there: {mounted(directory)} {attached(directory)}"
        for point in mounted(directory):
            subprocess.run(["umount", point], check=False, capture_output=True)
        for device in attached(directory):
            subprocess.run(["losetup", "--detach", device], check=False, capture_output=True)
        time.sleep(0.05)


@pytest.fixture
def host(tmp_path: Path) -> t.Iterator[Path]:
    """A directory for one test's volumes."""
    if os.geteuid() != 0 or not os.path.exists("/dev/loop-control"):
        pytest.skip("image volumes need root and loop devices")
    yield tmp_path
    take_down(tmp_path)


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


PODMAN = """#!/bin/sh
# A podman with volumes and containers and nothing else. $here/podman/<name> holds a volume's device, $here/ps the containers,
# $here/ps-volume the names of those that name a volume.
here={here}
case "$1 $2" in
"volume create")
    for word in "$@"; do
        case $word in --opt=device=*) device=${{word#--opt=device=}} ;; esac
        name=$word
    done
    printf '%s' "$device" > "$here/podman/$name" ;;
"volume ls")
    comma=
    printf '['
    for volume in "$here"/podman/*; do
        [ -e "$volume" ] || continue
        printf '%s{{"Name": "%s", "Options": {{"device": "%s", "o": "bind", "type": "none"}}}}' "$comma" "${{volume##*/}}" "$(cat "$volume")"
        comma=,
    done
    printf ']' ;;
"volume rm") rm "$here/podman/$3" ;;
"ps --all") case "$*" in *--filter*) cat "$here/ps-volume" ;; *) cat "$here/ps" ;; esac ;;
*) echo "Error: this podman knows no $*" >&2; exit 125 ;;
esac
"""

SYSTEMCTL = """#!/bin/sh
here={here}
echo "$*" >> "$here/systemctl.log"
for unit; do :; done
case "$1" in
enable) ln -sf "../$unit" "$here/units/multi-user.target.wants/$unit" ;;
disable) rm "$here/units/multi-user.target.wants/$unit" ;;
esac
"""


@pytest.fixture
def equipped(host: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The test's directory as a host that has podman and systemd, both of scripts that remember what they were told."""
    from ansible_collections.livefleet.handover.plugins.module_utils._podman import volume_units

    for directory in ("tools", "podman", "units/multi-user.target.wants"):
        (host / directory).mkdir(parents=True)
    for name, text in (("podman", PODMAN), ("systemctl", SYSTEMCTL)):
        (host / "tools" / name).write_text(text.format(here=host))
        (host / "tools" / name).chmod(0o755)
    (host / "ps").write_text("[]")
    (host / "ps-volume").touch()
    monkeypatch.setenv("PATH", f"{host}/tools:{os.environ['PATH']}")
    monkeypatch.setattr(volume_units, "UNIT_DIRECTORY", str(host / "units"))
    monkeypatch.setattr(volume_units, "SYSTEMD_RUNS", str(host))
    return host
