# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The help texts of podman are kept as long as its file is the same, and nothing depends on it."""

from __future__ import annotations

import json
import os

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._podman import help_texts


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "podman"
    path.write_text("#!/bin/sh")
    return path


@pytest.fixture
def ask(program):
    asked = []

    def answer(texts=("run", "create", "all")):
        def question():
            asked.append(1)
            return list(texts)

        return help_texts.remembered(str(program), question), len(asked)

    return answer


def test_it_is_asked_once(ask):
    assert ask() == (["run", "create", "all"], 1)
    assert ask() == (["run", "create", "all"], 1)


def test_another_file_is_asked_again_also_behind_a_link(ask, program, tmp_path):
    newer = tmp_path / "newer"
    newer.write_text("#!/bin/sh\n")
    ask()
    program.unlink()
    program.symlink_to(newer)
    assert ask(["newer"]) == (["newer"], 2)
    os.utime(newer, ns=(1, 1))
    assert ask(["newest"]) == (["newest"], 3)


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "{}", '{"mark": 1, "texts": ["other"]}'])
def test_damaged_notes_are_none(ask, text):
    ask()
    with open(help_texts.NOTES, "w", encoding="utf-8") as target:
        target.write(text)
    assert ask()[1] == 2
    assert ask()[1] == 2


def test_notes_without_a_text_are_none(ask):
    ask()
    with open(help_texts.NOTES, encoding="utf-8") as source:
        notes = json.load(source)
    with open(help_texts.NOTES, "w", encoding="utf-8") as target:
        json.dump({**notes, "texts": []}, target)
    assert ask()[1] == 2


def test_where_nothing_can_be_kept_it_is_asked_each_time(ask, monkeypatch, tmp_path):
    (tmp_path / "a file").write_text("")
    monkeypatch.setattr(help_texts, "NOTES", str(tmp_path / "a file" / "help.json"))
    assert [ask()[1], ask()[1]] == [1, 2]


def test_a_file_that_cannot_be_written_leaves_none_behind(ask, monkeypatch):
    def full(*_paths):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(help_texts.os, "replace", full)
    assert ask()[0] == ["run", "create", "all"]
    assert os.listdir(os.path.dirname(help_texts.NOTES)) == []


def test_a_folder_that_it_makes_is_roots_alone(ask, monkeypatch, tmp_path):
    monkeypatch.setattr(help_texts, "NOTES", str(tmp_path / "handover" / "help.json"))
    ask()
    assert (tmp_path / "handover").stat().st_mode & 0o777 == 0o700


def test_a_program_that_is_not_there_is_not_kept(ask, program):
    program.unlink()
    assert [ask()[1], ask()[1]] == [1, 2]
