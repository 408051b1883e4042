# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A program that lies in a volume is there for the runtime before the volume is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._podman import command_places


def inspect(path: str, folder: str = "/", *environment: str) -> dict:
    return {"Path": path, "Config": {"WorkingDir": folder, "Env": list(environment)}}


@pytest.mark.parametrize(
    ("container", "programs", "folders"),
    [
        (inspect("/app/run.sh"), ["app/run.sh"], []),
        (inspect("./run.sh", "/app/bin"), ["app/bin/run.sh"], ["app/bin"]),
        (inspect("bin/../run.sh", "/app"), ["app/run.sh"], []),
        (inspect("server", "/", "PATH=/app/bin:/usr/bin", "HOME=/app"), ["app/bin/server"], []),
        (inspect("server", "/app/below/deep", "PATH=/bin"), [], ["app/below/deep"]),
        (inspect("/app/data/tool"), ["data/tool"], []),  # a volume within a volume: the inner one shows it
        (inspect("/application/run.sh", "/approach"), [], []),
        (inspect("/bin/sh"), [], []),
        (inspect(""), [], []),
    ],
)
def test_what_the_runtime_looks_for(tmp_path: Path, container: dict, programs: list[str], folders: list[str]) -> None:
    shown = {"/app": str(tmp_path / "app"), "/app/data": str(tmp_path / "data")}
    for folder in shown.values():
        os.mkdir(folder, 0o755)
    old = os.umask(0o077)
    try:
        command_places.make(container, shown)
    finally:
        os.umask(old)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(str(path.relative_to(tmp_path)) for path in files) == programs
    assert all(path.stat().st_mode & 0o777 == 0o755 and path.stat().st_size == 0 for path in files)
    assert all((tmp_path / folder).stat().st_mode & 0o777 == 0o755 for folder in folders)


def test_a_volume_that_is_everything(tmp_path: Path) -> None:
    command_places.make(inspect("/app/run.sh"), {"/": str(tmp_path)})
    assert (tmp_path / "app" / "run.sh").exists()
