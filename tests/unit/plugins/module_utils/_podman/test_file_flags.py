# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.pcopy import PcopyError
from ansible_collections.livefleet.handover.plugins.module_utils._podman import container_look, file_flags


class Helper:
    """Answers as pcopy does, and notes the words that it was called with."""

    def __init__(self, path, **answers):
        self.path, self.answers, self.calls = str(path), answers, []

    def call(self, *words):
        self.calls.append(words)
        return self.answers


def installed(tmp_path, **answers):
    path = tmp_path / "pcopy"
    path.touch(mode=0o755)
    return Helper(path, **answers)


def test_the_flags_of_a_tree_are_asked_of_the_helper(tmp_path):
    flag = {"name": "immutable", "path": str(tmp_path), "carried": True}
    helper = installed(tmp_path, found={str(tmp_path): [flag]})
    assert file_flags.found(helper, str(tmp_path)) == [flag]
    assert helper.calls == [("internal", "flags-in", str(tmp_path))]
    assert file_flags.found(helper, str(tmp_path / "nothing")) == []


def test_those_of_a_file_system_where_the_folder_will_be(tmp_path):
    helper = installed(tmp_path, missing={str(tmp_path): ["synchronous"]})
    assert file_flags.missing(helper, str(tmp_path / "not" / "yet")) == ["synchronous"]


def test_without_the_helper_nothing_is_asked(tmp_path):
    helper = Helper(tmp_path / "absent")
    assert (file_flags.found(helper, str(tmp_path)), file_flags.missing(helper, str(tmp_path)), helper.calls) == ([], [], [])


def test_a_helper_that_is_too_old_for_the_question_is_told_by_a_check_of_its_own(tmp_path):
    helper = installed(tmp_path)
    for status, raises in ((file_flags.UNKNOWN_WORD, False), (1, True)):

        def refuse(*words, status=status):
            raise PcopyError("pcopy: no", status, ())

        helper.call = refuse
        with pytest.raises(PcopyError) if raises else contextlib.nullcontext():
            assert file_flags.found(helper, str(tmp_path)) == []


def test_the_folder_of_a_log_is_one_that_somebody_named():
    beside = "/var/lib/containers/storage/overlay-containers/1/userdata"
    for kind, path, folder in (
        ("k8s-file", "/var/log/shop/c.log", "/var/log/shop"),
        ("json-file", "/var/log/shop/c.log", "/var/log/shop"),
        ("k8s-file", beside + "/ctr.log", ""),
        ("journald", "", ""),
        ("passthrough", "/var/log/shop/c.log", ""),
    ):
        assert container_look.log_folder({"Type": kind, "Path": path}, beside) == folder
