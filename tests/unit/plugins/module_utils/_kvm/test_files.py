# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import re
import shutil

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import HandoverError
from ansible_collections.livefleet.handover.plugins.module_utils._kvm import files


def arriving(path, what="image", by_qemu=False):
    return {"path": str(path), "what": what, "by_qemu": by_qemu, "make": {}}


def copied(path, run, text, what="image"):
    """As the copier leaves it."""
    own = files.own_name(str(path), "web1", run)
    with open(own, "w", encoding="utf-8") as target:
        target.write(text)
    return {"path": str(path), "what": what, "digest": files.contents(own)}


@pytest.fixture(name="image")
def an_image(tmp_path):
    return tmp_path / "images" / "web1.raw"


def there(image):
    return sorted(name.replace(image.name, "*") for name in os.listdir(image.parent))


def test_a_copy_gets_its_name_when_it_is_proven(image):
    run = files.Arrival("web1", "one")
    run.prepare([arriving(image)])
    sent = copied(image, "one", "new")
    run.place([sent])
    assert image.read_text() == "new"
    assert there(image) == ["*", "*.web1.arriving"]
    run.settle([str(image)])
    assert there(image) == ["*"]


def test_a_stale_copy_never_gets_a_name(image):
    run = files.Arrival("web1", "one")
    run.prepare([arriving(image)])
    sent = copied(image, "one", "new")
    copied(image, "one", "old")
    with pytest.raises(HandoverError, match="is not what was sent"):
        run.place([sent])
    assert not image.exists()


def test_a_copy_is_never_written_over_anything(image):
    run = files.Arrival("web1", "one")
    run.prepare([arriving(image)])
    sent = copied(image, "one", "stale")
    image.write_text("the guest that was started meanwhile")
    with pytest.raises(HandoverError, match=re.escape(f"{image} is there already")):
        run.place([sent])
    assert image.read_text() == "the guest that was started meanwhile"
    run.undo([str(image)])
    assert there(image) == ["*"], "and the undo leaves it"


@pytest.mark.parametrize("folder", [False, True])
def test_renaming_is_never_over_anything(tmp_path, folder):
    for name in ("old", "new"):
        if folder:
            (tmp_path / name).mkdir()
        else:
            (tmp_path / name).write_text(name)
    with pytest.raises(HandoverError, match="is there already"):
        files.rename(str(tmp_path / "old"), str(tmp_path / "new"))
    assert sorted(os.listdir(tmp_path)) == ["new", "old"]
    files.rename(str(tmp_path / "old"), str(tmp_path / "newer"))
    assert sorted(os.listdir(tmp_path)) == ["new", "newer"]


def test_the_next_run_takes_away_what_the_last_has_made_and_nothing_else(image):
    first, second = files.Arrival("web1", "one"), files.Arrival("web1", "two")
    first.prepare([arriving(image)])
    first.place([copied(image, "one", "half")])
    copied(image, "one", "late")
    second.prepare([arriving(image)])
    assert there(image) == ["*.web1.arriving"]
    second.place([copied(image, "two", "new")])
    # The first run comes back to life.
    first.undo([str(image)])
    assert image.read_text() == "new"
    with pytest.raises(HandoverError, match="bears no mark of this run any more"):
        first.place([copied(image, "one", "late")])
    assert image.read_text() == "new"


def test_another_file_of_that_name_is_not_taken_for_the_last_runs(image):
    first, second = files.Arrival("web1", "one"), files.Arrival("web1", "two")
    first.prepare([arriving(image)])
    first.place([copied(image, "one", "half")])
    os.rename(image, image.with_suffix(".kept"))
    image.write_text("somebody's")
    with pytest.raises(HandoverError, match="another file than the one that run one has made"):
        second.prepare([arriving(image)])
    assert image.read_text() == "somebody's"


def test_an_image_that_is_there_is_refused_before_anything_is_made(image):
    image.parent.mkdir()
    image.write_text("somebody's")
    with pytest.raises(HandoverError, match="is there already"):
        files.Arrival("web1", "one").prepare([arriving(image)])
    assert there(image) == ["*"]


def test_a_mark_that_says_nothing_is_not_trusted(image):
    image.parent.mkdir()
    image.write_text("somebody's")
    (image.parent / "web1.raw.web1.arriving").write_text("")
    with pytest.raises(HandoverError, match="does not say which run has made"):
        files.Arrival("web1", "one").prepare([arriving(image)])
    assert image.read_text() == "somebody's"


def test_files_that_qemu_makes_are_taken_away_if_there_were_none(tmp_path):
    new, old = tmp_path / "new.fd", tmp_path / "old.fd"
    old.write_text("equal")
    run = files.Arrival("web1", "one")
    run.prepare([arriving(new, "nvram", True), arriving(old, "nvram", True)])
    new.write_text("made")
    run.undo([str(new), str(old)])
    assert sorted(os.listdir(tmp_path)) == ["old.fd"]


def test_a_folder_arrives_whole_and_an_equal_medium_stays(tmp_path):
    tpm, medium = tmp_path / "tpm", tmp_path / "cd.iso"
    medium.write_text("cd")
    run = files.Arrival("web1", "one")
    run.prepare([arriving(tpm, "tpm"), arriving(medium, "medium")])
    own = files.own_name(str(tpm), "web1", "one")
    os.mkdir(own)
    with open(os.path.join(own, "key"), "w", encoding="utf-8") as target:
        target.write("secret")
    run.place([{"path": str(tpm), "what": "tpm", "digest": files.contents(own)}, copied(medium, "one", "cd", "medium")])
    assert (tpm / "key").read_text() == "secret"
    run.undo([str(tpm), str(medium)])
    assert os.listdir(tmp_path) == ["cd.iso"]


@pytest.mark.skipif(shutil.which("qemu-img") is None, reason="no qemu-img")
def test_an_image_that_libvirt_copies_into_is_this_runs(image):
    run = files.Arrival("web1", "one")
    run.prepare([{**arriving(image), "make": {"format": "raw", "size": 1 << 20, "mode": "0640"}}])
    assert (image.stat().st_size, image.stat().st_mode & 0o777) == (1 << 20, 0o640)
    assert json.loads((image.parent / "web1.raw.web1.arriving").read_text()) == {"run": "one", "made": files.identity(str(image))}
    run.undo([str(image)])
    assert there(image) == []


def test_holes_and_zeros_are_the_same_and_nothing_else_is(tmp_path):
    digests = {}
    for name, pieces, size in (
        ("holes", [(5 << 20, b"x")], 8 << 20),
        ("zeros", [(0, bytes(5 << 20)), (5 << 20, b"x")], 8 << 20),
        ("elsewhere", [(6 << 20, b"x")], 8 << 20),
        ("longer", [(5 << 20, b"x")], 9 << 20),
        ("other", [(5 << 20, b"y")], 8 << 20),
        ("empty", [], 8 << 20),
    ):
        with open(tmp_path / name, "wb") as target:
            for at, piece in pieces:
                target.seek(at)
                target.write(piece)
            target.truncate(size)
        digests[name] = files.contents(str(tmp_path / name))
    assert digests["holes"] == digests["zeros"]
    assert len(set(digests.values())) == len(digests) - 1


def test_what_has_left_is_put_aside_with_what_its_link_meant(tmp_path):
    real, link, tpm = tmp_path / "real.raw", tmp_path / "link.raw", tmp_path / "tpm"
    real.write_text("x")
    link.symlink_to(real)
    tpm.mkdir()
    (tmp_path / "tpm.migrated").mkdir()
    (tmp_path / "tpm.migrated" / "older").write_text("x")
    items = [{"path": str(link), "real": str(real)}, {"path": str(tpm)}]
    assert files.depart(items, keep=True) == [str(link), str(real), str(tpm)]
    assert sorted(os.listdir(tmp_path)) == ["link.raw.migrated", "real.raw.migrated", "tpm.migrated"]
    assert os.listdir(tmp_path / "tpm.migrated") == []
    assert files.depart(items, keep=True) == []
