# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What kvm_consolidation takes away: the script itself, with a virsh that has two guests."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import jinja2
import pytest
import yaml

ROLE = Path(__file__).resolve().parents[3] / "roles" / "kvm_consolidation"
VARS = yaml.safe_load((ROLE / "vars" / "main.yml").read_text(encoding="utf-8"))
RECORD = VARS["__kvm_consolidation_record"]


@pytest.fixture(name="folder")
def a_folder(tmp_path):
    folder = tmp_path / "a folder"
    folder.mkdir()
    (tmp_path / "virsh").write_text(
        f'#!/bin/sh\ncase "$2" in list) printf "handover-tile-1-1\\nhandover-tile-web\\n";; destroy) echo "$3" >>"{tmp_path}/destroyed";; esac\n'
    )
    (tmp_path / "virsh").chmod(0o755)
    return folder


def put(folder, first, *names):
    (folder / RECORD).write_text("\n".join([first, *names, ""]))


def remove(folder):
    engine = jinja2.Environment(keep_trailing_newline=True)
    engine.filters["quote"] = shlex.quote
    script = engine.from_string(VARS["__kvm_consolidation_remove"]).render({**VARS, "kvm_consolidation_folder": str(folder)})
    subprocess.run(["/bin/sh", "-c", script], check=True, env={**os.environ, "PATH": f"{folder.parent}:{os.environ['PATH']}"})
    destroyed = folder.parent / "destroyed"
    return destroyed.read_text().split() if destroyed.exists() else []


@pytest.mark.parametrize(("first", "stays"), [("#made", False), ("#found", True)])
def test_what_the_record_names_goes_and_the_folder_if_it_was_made(folder, first, stays):
    put(folder, first, "handover-tile-1-1", "handover-tile-1-2")
    for name in ("handover-tile-1-1.raw", "handover-tile-1-1.xml", "handover-tile-1-2.raw"):
        (folder / name).write_text("")
    assert remove(folder) == ["handover-tile-1-1"]
    assert folder.exists() is stays
    assert not stays or os.listdir(folder) == []


def test_nothing_else_goes(folder):
    put(folder, "#made", "handover-tile-1-1", "handover-tile-web", "../other", "important")
    kept = ["handover-tile-2-1.raw", "handover-tile-web.raw", "important", "important.raw"]
    for name in [*kept, "handover-tile-1-1.raw", "../other.raw"]:
        (folder / name).write_text("")
    assert remove(folder) == ["handover-tile-1-1"]
    assert sorted(os.listdir(folder)) == kept
    assert (folder.parent / "other.raw").exists()


def test_without_a_record_nothing_goes(folder):
    (folder / "handover-tile-1-1.raw").write_text("")
    assert remove(folder) == []
    assert os.listdir(folder) == ["handover-tile-1-1.raw"]
