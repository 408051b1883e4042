# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The quiet callback, in real plays on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[4]
PLAY = """\
- name: Move
  hosts: shop, blog
  connection: local
  gather_facts: false
  tasks:
    - name: Preflight | Look
      ansible.builtin.debug: {msg: looked}
      changed_when: true
    - name: Preflight | Find something odd
      odd:
    - name: Preflight | Look again
      ansible.builtin.debug: {msg: seen}
      loop: [1, 2]
    - name: Settle | Try
      ansible.builtin.assert: {that: false, fail_msg: this is dealt with, quiet: true}
      ignore_errors: true
    - name: Deal with a failure
      block:
        - ansible.builtin.assert: {that: false, fail_msg: this is dealt with as well, quiet: true}
      rescue:
        - livefleet.handover.show_lines: {lines: ["one line for people"]}
    - name: Cleanup | Fail
      ansible.builtin.assert: {that: "inventory_hostname != 'blog' or not broken", fail_msg: "blog holds it: stop blog first", quiet: true}
"""
ODD = """\
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        return {"changed": False, "warnings": ["the clock of the host stands still"]}
"""


def play(tmp_path: Path, *words: str) -> tuple[int, list[str], str]:
    (tmp_path / "action_plugins").mkdir()
    (tmp_path / "action_plugins" / "odd.py").write_text(ODD, encoding="utf-8")
    (tmp_path / "play.yml").write_text(PLAY, encoding="utf-8")
    environment = {**os.environ, "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"), "ANSIBLE_STDOUT_CALLBACK": "livefleet.handover.quiet", "ANSIBLE_NOCOLOR": "1"}
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "shop,blog,", str(tmp_path / "play.yml"), *words]
    done = subprocess.run(command, cwd=CHECKOUT, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines(), done.stderr


STAGES = {f"{host}: {stage}" for host in ("shop", "blog") for stage in ("preflight", "settle", "cleanup")}


@pytest.mark.parametrize(("broken", "status", "last"), [("false", 0, []), ("true", 2, ["blog: blog holds it: stop blog first"])])
def test_stages_lines_and_the_reason_of_a_failure(tmp_path, broken, status, last):
    ended, lines, errors = play(tmp_path, "-e", f'{{"broken": {broken}}}')
    assert errors.count("the clock of the host stands still") == 1
    assert ended == status
    shown = lines[: len(lines) - len(last)]
    assert sorted(shown) == sorted([*STAGES, "  one line for people", "  one line for people"]) and lines[len(shown) :] == last


def test_with_v_it_is_ansibles_own(tmp_path):
    _ended, lines, _errors = play(tmp_path, "-v", "-e", '{"broken": true}')
    text = "\n".join(lines)
    assert "PLAY RECAP" in text and "TASK [Preflight | Look]" in text and "fatal: [blog]: FAILED!" in text
