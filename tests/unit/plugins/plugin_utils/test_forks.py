# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.livefleet.handover.plugins.plugin_utils import _forks

COLLECTION = Path(__file__).resolve().parents[4]
MOVES = [COLLECTION / "playbooks" / "migrate.yml", *(COLLECTION / "roles" / "migrate").glob("[tv]a*/**/*.yml")]
# In a process of its own, as a play is: what another test has loaded would count.
LOOK = r"""
import gc, json, re, sys
from ansible.plugins.loader import filter_loader, init_plugin_loader
init_plugin_loader()
import pytest
from ansible_collections.livefleet.handover.plugins.plugin_utils import _forks
before = gc.get_freeze_count()
_forks.prepare()
missing = [name for name in _forks.FILTERS if filter_loader.get(name) is None]
loaded = [
    # ansible-core 2.18 puts a number before the file's name.
    any(re.match(r"ansible\.plugins\.filter\.(-?[0-9]+_)?core", name) for name in sys.modules),
    all(loader.get(name, class_only=True) for loader, name in _forks.PLUGINS),
]
print(json.dumps({"missing": missing, "loaded": loaded, "frozen": gc.get_freeze_count() > before, "ours": [
    name for name in sys.modules if name.startswith("ansible_collections.livefleet.handover.plugins.filter.")]}))
"""


def test_the_filters_are_those_of_a_move():
    text = "\n".join(path.read_text(encoding="utf-8") for path in MOVES)
    used = set(re.findall(r"[|(] ?((?:livefleet.handover|community.general)[.][a-z_]+)", text))
    assert set(_forks.FILTERS) <= used


def test_a_play_has_its_plugins_before_it_starts_a_process(tmp_path):
    pytest.importorskip("ansible_collections.community.general", reason="community.general is not installed beside this ansible-core: the part `python` has it")
    (tmp_path / "ansible_collections" / "livefleet").mkdir(parents=True)
    (tmp_path / "ansible_collections" / "livefleet" / "handover").symlink_to(COLLECTION)
    known = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", LOOK], env=known, cwd=COLLECTION, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["missing"] == [] and seen["loaded"] == [True, True] and seen["frozen"] and len(seen["ours"]) > 5
