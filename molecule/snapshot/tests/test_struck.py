# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A database whose snapshots, backups and ways back are struck at random moments; then it is lost, and comes back from a backup.

SNAPSHOT_STROKES rounds, the first of which has the seed SNAPSHOT_SEED: tests/chaos/copies.py says what a round is.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import typing as t
from pathlib import Path

import copies
import pytest
from fleet import PCOPY, VOLUME, WORKLOAD, play

STROKES, SEED = (int(os.environ.get(f"SNAPSHOT_{name}") or usual) for name, usual in (("STROKES", 6), ("SEED", 1)))


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[copies.Harness]:
    made = copies.Harness(tmp_path_factory.mktemp("reports"))
    made.make()
    yield made
    made.end()
    made.empty()


def test_nothing_that_was_acknowledged_is_lost(harness: copies.Harness) -> None:
    found = copies.run(harness, SEED, STROKES)
    assert not found, "\n".join(found)


def test_a_backup_is_read_by_qemu_img_alone(harness: copies.Harness, tmp_path: Path) -> None:
    """The files of the store, on a machine without the helper."""
    _kind, backup = key = harness.last_backup()
    image = harness.shown(backup)
    packed = subprocess.run(
        ["ssh", *harness.host.ssh, harness.host.name, f"tar --create --directory={copies.BACKUPS} layers"], stdout=subprocess.PIPE, check=True, timeout=60
    )
    subprocess.run(["tar", "--extract", f"--directory={tmp_path}"], input=packed.stdout, check=True)
    raw = tmp_path / "raw"
    subprocess.run(["qemu-img", "convert", "-O", "raw", tmp_path / image, raw], check=True)
    assert hashlib.sha256(raw.read_bytes()).hexdigest() == harness.copies[key].digest.split()[0]


def test_a_database_that_is_lost_comes_back_from_its_backup(harness: copies.Harness) -> None:
    copy = harness.copies[harness.last_backup()]
    asked = {"handover_source": harness.host.name, "handover_workload": WORKLOAD, "handover_hosts": "lab"}
    with harness.writer.still():
        play(str(copies.HERE / "no_database.yml"), remove_workload=WORKLOAD, remove_volume=VOLUME)
        play("playbooks/backup_restore.yml", handover_repository=copies.REPOSITORY, **asked)
        wrong = copy.holds(harness.writer.rows())
    assert not wrong
    harness.checks()
    assert harness.host.ask(f"{PCOPY} snapshot verify {copies.BACKUPS}", 120).returncode == 0
