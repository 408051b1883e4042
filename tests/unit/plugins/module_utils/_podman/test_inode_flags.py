# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._podman import inode_flags


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "root" / "below").mkdir(parents=True)
    (tmp_path / "root" / "below" / "locked").write_text("x")
    (tmp_path / "root" / "log").write_text("x")
    (tmp_path / "outside").write_text("x")
    (tmp_path / "root" / "link").symlink_to(tmp_path / "outside")
    locks = {"+i": ["outside", "root/below/locked", "root/below"], "+a": ["root/log", "root"]}
    try:
        for flag, names in locks.items():
            subprocess.run(["chattr", flag, *(str(tmp_path / name) for name in names)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("flags cannot be set here")
    yield tmp_path
    subprocess.run(["chattr", "-R", "-f", "-i", "-a", str(tmp_path)], check=False, capture_output=True)


def flags(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return inode_flags.flags_of(descriptor)
    finally:
        os.close(descriptor)


def test_what_was_locked_can_be_removed(tree):
    with pytest.raises(OSError):
        shutil.rmtree(tree / "root")
    inode_flags.unlock(str(tree / "root"))
    shutil.rmtree(tree / "root")


def test_nothing_is_unlocked_through_a_link(tree):
    inode_flags.unlock(str(tree / "root"))
    assert flags(tree / "outside") & inode_flags.IMMUTABLE


def test_a_folder_that_is_gone_is_no_error(tmp_path):
    inode_flags.unlock(str(tmp_path / "gone"))
    inode_flags.unlock("")
