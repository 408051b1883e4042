# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The last stage of the role migrate, played alone: the workload has moved, with or without its report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.livefleet.handover.plugins.plugin_utils._declaration import COLLECTION

PLAY = """
- hosts: node1
  gather_facts: false
  vars:
    migrate_workload: shop
    migrate_source: node1
    migrate_destination: node2
  tasks:
    - ansible.builtin.include_role: {name: livefleet.handover.migrate, tasks_from: report, rolespec_validate: false}
    - ansible.builtin.debug: {msg: the play went on}
"""
# A host that answers nobody, and one whose Python is none.
INVENTORY = f"""
[all:vars]
ansible_python_interpreter={sys.executable}
[hosts]
node1 ansible_connection=local
archive ansible_connection=local
silent ansible_host=127.0.0.1 ansible_port=1 ansible_ssh_common_args='-oBatchMode=yes'
"""
SESSION = "shop-20260101t000000z"
STATUS = {"mode": "live", "stages": [{"stage": "dump", "ms": 200.0}], "frozen_ms": 300.0, "error": "", "sent_bytes": 2**20}
RECORD = {
    "session": SESSION,
    "workload": "shop",
    "source": "node1",
    "destination": "node2",
    "frozen_ms": 300.0,
    "memory": 2**20,
    "running": True,
    "volumes": [],
    "directories": [],
    "source_session": STATUS,
}


@pytest.fixture
def play(tmp_path):
    (tmp_path / "hosts").write_text(INVENTORY, encoding="utf-8")
    (tmp_path / "play.yml").write_text(PLAY, encoding="utf-8")
    (tmp_path / "ansible.cfg").touch()
    place = tmp_path / "ansible_collections" / "livefleet"
    place.mkdir(parents=True)
    (place / "handover").symlink_to(COLLECTION)
    environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(tmp_path), "ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}

    def run(given):
        done = subprocess.run(
            [Path(sys.executable).with_name("ansible-playbook"), "-i", "hosts", "-e", json.dumps({"__migrate_report": RECORD, **given}), "play.yml"],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=240,
        )  # fmt: skip
        said = done.stdout + done.stderr
        assert done.returncode == 0 and "the play went on" in said and "shop has moved from node1 to node2" in said, said
        return " ".join(said.split())

    return run


@pytest.mark.parametrize("given, sentence", [
    ({"__migrate_report": {"session": SESSION}}, "Its report could not be made"),
    ({"migrate_report_dir": "/dev/null/reports"}, "the report was not written: /dev/null"),
    ({"migrate_report_host": "silent", "migrate_report_dir": "/srv/reports"}, "the report was not written: /srv/reports"),
])  # fmt: skip
def test_a_report_that_cannot_be_made_does_not_fail_the_move(play, given, sentence):
    """One that cannot be drawn, one without a directory, and one whose host is out of reach."""
    said = play(given)
    assert sentence in said and "Report: " not in said, said


def test_a_host_keeps_the_report(play, tmp_path):
    said = play({"migrate_report_host": "archive", "migrate_report_dir": str(tmp_path / "kept")})
    assert f"Report: archive:{tmp_path}/kept/{SESSION}.html" in said, said
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == [f"{SESSION}.html", f"{SESSION}.json"]
