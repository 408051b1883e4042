# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._podman import rollback


class Killed(Exception):
    pass


PIECES = ("one.img", "two.img", "layer")


def lay(folder):
    """What a staged rollback leaves: the files in use, and a whole copy beside each."""
    for name in PIECES:
        if name == "layer":
            for each in (name, name + rollback.STAGED):
                (folder / each).mkdir(exist_ok=True)
        for path, text in ((folder / name, "old"), (folder / (name + rollback.STAGED), "new")):
            (path / "file" if path.is_dir() else path).write_text(text)


def restage(folder):
    for name in PIECES:
        path = folder / (name + rollback.STAGED)
        rollback.remove(str(path))
        if name == "layer":
            path.mkdir()
        (path / "file" if path.is_dir() else path).write_text("new")


def seen(folder):
    found = {}
    for name in PIECES:
        path = folder / name / "file" if name == "layer" else folder / name
        found[name] = path.read_text() if path.exists() else None
    return found


def swap(folder):
    rollback.swap([str(folder / name) for name in PIECES[:2]], [str(folder / PIECES[2])])


def test_a_kill_at_any_step_leaves_all_old_or_all_new_or_an_image_missing(tmp_path, monkeypatch):
    names = ("rename", "unlink", "fsync")
    steps = 0
    for struck in range(100):
        folder = tmp_path / str(struck)
        folder.mkdir()
        lay(folder)
        left = [struck]

        def step(real, left):
            def act(*args, **kwargs):
                if not left[0]:
                    raise Killed
                left[0] -= 1
                return real(*args, **kwargs)

            return act

        with monkeypatch.context() as patch:
            for name in names:
                patch.setattr(os, name, step(getattr(os, name), left))
            patch.setattr(rollback.shutil, "rmtree", step(rollback.shutil.rmtree, left))
            try:
                swap(folder)
                ended = True
            except Killed:
                ended = False
        found = seen(folder)
        missing = None in (found["one.img"], found["two.img"])
        assert missing or len(set(found.values())) == 1, (struck, found)
        if ended:
            break
        steps += 1
        restage(folder)
        swap(folder)
        assert set(seen(folder).values()) == {"new"}
        assert sorted(path.name for path in folder.iterdir()) == sorted(PIECES)
    assert steps > 10


def test_a_path_that_cannot_be_removed_is_named(tmp_path, monkeypatch):
    def refuse(path):
        raise PermissionError(1, "Operation not permitted", path)

    monkeypatch.setattr(rollback.os, "unlink", refuse)
    (tmp_path / "x").write_text("")
    with pytest.raises(rollback.HandoverError, match="x cannot be removed: Operation not permitted: remove it, and go back once more"):
        rollback.remove(str(tmp_path / "x"))
