# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lines of the README's "Installation", typed in a checkout: they install the collection for its user, and need neither root nor a network."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[3]
BESIDE = Path(sys.executable).parent

if not (CHECKOUT / ".git").exists():
    pytest.skip("the lines are typed in a checkout", allow_module_level=True)


def lines():
    text = (CHECKOUT / "README.md").read_text(encoding="utf-8").partition("\n## Installation\n")[2]
    return [line.partition("#")[0].strip() for line in re.search(r"```sh\n(.*?)```", text, flags=re.S)[1].splitlines()]


def test_the_helper_is_built_without_root_and_without_the_lab():
    done = subprocess.run(["make", "--dry-run", "--always-make", "helper"], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "go build" in done.stdout and "setup.sh" not in done.stdout and "id -u" not in done.stdout


def test_the_lines_install_the_collection(tmp_path):
    """In a copy with the checkout's own ansible.cfg, for a user whose home is empty; the helpers are there already."""
    if not (BESIDE / "ansible-galaxy").exists():
        pytest.skip("ansible-galaxy is not installed beside this Python")
    copy, home = tmp_path / "handover", tmp_path / "home"
    home.mkdir()
    for name in subprocess.run(["git", "ls-files", "-z"], cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout.split("\0"):
        if name and (CHECKOUT / name).exists() and not name.startswith(("helper/", "lab/", "molecule/", "tests/", "docs/benchmarks/")):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(CHECKOUT / name, copy / name, follow_symlinks=False)
    # Where the checkout finds its own collection.
    (copy / ".cache" / "collections" / "ansible_collections" / "livefleet").mkdir(parents=True)
    (copy / ".cache" / "collections" / "ansible_collections" / "livefleet" / "handover").symlink_to(copy)
    typed = lines()
    assert typed[0] == "make helper" and len(typed) == 3
    environment = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    environment.update(HOME=str(home), PATH=f"{BESIDE}:{os.environ['PATH']}", ANSIBLE_NOCOLOR="1")
    for line in typed[1:]:
        done = subprocess.run(["sh", "-ec", line], cwd=copy, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert (home / ".ansible" / "collections" / "ansible_collections" / "livefleet" / "handover" / "MANIFEST.json").is_file()
    assert (copy / "galaxy.yml").is_file(), "the checkout was replaced by what was installed"
    # From the user's home, the playbooks are found by their names.
    listed = ["ansible-playbook", "-i", "localhost,", "--syntax-check", "livefleet.handover.migrate"]
    done = subprocess.run(listed, cwd=home, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
