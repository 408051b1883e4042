# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""kvm_files brings real files through their states, under the lock of the guest's move."""

from __future__ import annotations

import os
import shutil

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._kvm import lock
from ansible_collections.livefleet.handover.plugins.module_utils._kvm.files import contents, own_name
from ansible_collections.livefleet.handover.plugins.modules import kvm_files


@pytest.fixture(name="image")
def an_image(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "FOLDER", str(tmp_path / "run"))
    return tmp_path / "images" / "web1.raw"


@pytest.fixture(name="act")
def the_module(run_module, image):
    def act(state, run="one", **params):
        files = [{"path": str(image), "what": "image", "by_qemu": False, "digest": params.pop("digest", "")}]
        return run_module(kvm_files.main, {"guest": "web1", "run": run, "state": state, "files": files, **params})

    return act


def there(image):
    return sorted(name.replace(image.name, "*") for name in os.listdir(image.parent))


def copied(image, run="one", text="data"):
    """As the copier of the other host leaves it; its digest."""
    own = own_name(str(image), "web1", run)
    with open(own, "w", encoding="utf-8") as target:
        target.write(text)
    return contents(own)


def test_a_file_arrives_is_placed_and_is_the_guests(act, image):
    assert act("prepared")["changed"]
    act("placed", digest=copied(image))
    assert image.read_text() == "data"
    act("settled")
    assert there(image) == ["*"]


@pytest.mark.parametrize("placed", [False, True])
def test_a_move_that_is_undone_leaves_nothing(act, image, placed):
    act("prepared")
    digest = copied(image)
    if placed:
        act("placed", digest=digest)
    act("absent")
    assert there(image) == []


def test_a_file_that_is_there_is_not_written_over(act, image):
    image.parent.mkdir()
    image.write_text("another guest's")
    with pytest.raises(Exception, match="web1.raw is there already, and nothing is written over it: move it away"):
        act("prepared")
    act("absent")
    assert image.read_text() == "another guest's"


def test_a_copy_that_is_not_what_was_sent_gets_no_name(act, image):
    act("prepared")
    copied(image)
    with pytest.raises(Exception, match="is not what was sent: look at the disks and the memory of this host"):
        act("placed", digest="another")
    assert not image.exists()


@pytest.mark.skipif(shutil.which("rsync") is None, reason="no rsync")
def test_the_copy_is_told_with_its_digest(act, image):
    image.parent.mkdir()
    image.write_text("data")
    (sent,) = act("copied")["copies"]
    assert sent == {"path": str(image), "what": "image", "digest": contents(str(image))}
    assert contents(own_name(str(image), "web1", "one")) == sent["digest"]


@pytest.mark.parametrize(("keep", "left"), [(True, ["*.migrated"]), (False, [])])
def test_on_the_host_that_it_has_left_images_are_put_aside_or_removed(act, image, keep, left):
    image.parent.mkdir()
    image.write_text("data")
    assert act("departed", keep=keep)["departed"] == [str(image)]
    assert there(image) == left
    assert not act("departed", keep=keep)["changed"]


def test_another_run_s_guest_is_left_alone(act, image):
    lock.take("web1", {"run": "theirs", "destination": "node2", "since": "now"})
    with pytest.raises(Exception, match=r"web1 is being moved to node2 since now \(run theirs\): wait until that has ended"):
        act("prepared")
    assert not image.parent.exists()


@pytest.mark.parametrize("state", kvm_files.FORWARD)
def test_a_run_that_was_given_up_goes_no_further(act, image, state):
    lock.take("web1", {"run": "one", "destination": "node2", "since": "now"})
    lock.give_up("web1")
    with pytest.raises(Exception, match="the move of web1 was given up from elsewhere"):
        act(state)


def test_a_run_that_was_given_up_is_undone_all_the_same(act, image):
    act("prepared")
    copied(image)
    lock.take("web1", {"run": "one", "destination": "node2", "since": "now"})
    lock.give_up("web1")
    act("absent")
    assert there(image) == []


def test_what_the_kernel_refuses_is_a_sentence_with_the_file(act, image):
    image.parent.write_text("no folder")
    with pytest.raises(Exception, match=r"images.* of web1: (Not a directory|File exists)"):
        act("prepared")
