# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The commands that change root's keys on a source, as its shell runs them."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

TASKS = Path(__file__).parents[3] / "roles/import_openvz/tasks/keyless.yml"
OTHERS = "ssh-rsa AAAA admin\nssh-rsa BBBB handover-import-web-1\n"


@pytest.fixture(name="forget")
def some_source(tmp_path):
    """Runs the command for the import of web.1; the disk of the source may be full."""
    command = next(task["ansible.builtin.raw"] for task in yaml.safe_load(TASKS.read_text(encoding="utf-8")) if "ansible.builtin.raw" in task)
    name = re.search(r"\{\{.*?\}\}", command).group(0)
    assert "plan.name | replace('.', '[.]')" in name
    keys = tmp_path / "authorized_keys"
    # As grep ends where it could write half of it.
    (tmp_path / "grep").write_text('#!/bin/sh\ncase $1 in -v) echo "ssh-rsa AAAA"; exit 2 ;; esac\n', encoding="utf-8")
    (tmp_path / "grep").chmod(0o755)
    command = command.replace(name, "web[.]1").replace("/root/.ssh/authorized_keys", str(keys))

    def run(text, full=False):
        keys.write_text(text, encoding="utf-8")
        path = f"{tmp_path}:{os.environ['PATH']}" if full else os.environ["PATH"]
        done = subprocess.run(["sh", "-c", command], check=False, env={"PATH": path}, timeout=30)
        return done.returncode, keys.read_text(encoding="utf-8")

    return run


def test_its_own_key_alone_goes(forget):
    assert forget(OTHERS + "ssh-rsa CCCC handover-import-web.1\n") == (0, OTHERS)
    assert forget("ssh-rsa CCCC handover-import-web.1\n") == (0, "")
    assert forget(OTHERS) == (0, OTHERS)


def test_on_a_full_disk_no_key_is_lost(forget):
    text = OTHERS + "ssh-rsa CCCC handover-import-web.1\n"
    status, left = forget(text, full=True)
    assert status != 0 and left == text
