# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.parts import DOCKER_NETWORK, NETWORK, POD, Parts
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import HandoverError


def test_the_last_move_that_is_taken_back_removes_it(tmp_path):
    parts = Parts(str(tmp_path / "parts"))
    with parts.alone():
        assert not parts.claimed(NETWORK, "shop_default")
        for move in ("db", "web"):
            parts.claim(NETWORK, "shop_default", move)
        parts.claim(POD, "pod_shop", "db")
    assert parts.claimed(NETWORK, "shop_default")
    assert not parts.release(NETWORK, "shop_default", "stranger")
    assert not parts.release(NETWORK, "shop_default", "db")
    assert parts.release(NETWORK, "shop_default", "web")
    assert not parts.claimed(NETWORK, "shop_default")
    assert not parts.release(NETWORK, "shop_default", "web")


def test_what_a_move_that_has_ended_well_needs_stays(tmp_path):
    parts = Parts(str(tmp_path / "parts"))
    parts.keep("db", (NETWORK, POD))  # where nothing was ever made
    for move in ("db", "web"):
        parts.claim(NETWORK, "shop_default", move)
    parts.claim(NETWORK, "other", "web")
    parts.keep("db", (NETWORK, POD))
    assert not parts.release(NETWORK, "shop_default", "web")
    assert parts.release(NETWORK, "other", "web")


def test_what_is_there_and_no_move_has_made_is_nobodys(tmp_path):
    parts, made = Parts(str(tmp_path / "parts")), []
    assert not parts.need(NETWORK, "shop_default", "db", True, lambda: made.append("db"))
    assert made == [] and not parts.release(NETWORK, "shop_default", "db")


def test_several_need_what_one_has_made(tmp_path):
    parts, made = Parts(str(tmp_path / "parts")), []
    assert parts.need(NETWORK, "shop_default", "db", False, lambda: made.append("db"))
    assert not parts.need(NETWORK, "shop_default", "web", True, lambda: made.append("web"))
    assert made == ["db"] and not parts.release(NETWORK, "shop_default", "db") and parts.release(NETWORK, "shop_default", "web")


def test_a_mark_that_was_left_of_one_that_is_gone_keeps_nothing(tmp_path):
    parts = Parts(str(tmp_path / "parts"))
    parts.claim(NETWORK, "shop_default", "killed")
    assert parts.need(NETWORK, "shop_default", "db", False, lambda: None)
    assert parts.release(NETWORK, "shop_default", "db")


def test_what_could_not_be_made_is_not_marked(tmp_path):
    parts = Parts(str(tmp_path / "parts"))

    def fails():
        raise HandoverError("no room")

    with pytest.raises(HandoverError, match="no room"):
        parts.need(NETWORK, "shop_default", "db", False, fails)
    assert not parts.claimed(NETWORK, "shop_default")


def test_a_move_keeps_the_things_of_its_own_engine(tmp_path):
    parts = Parts(str(tmp_path / "parts"))
    for kind in (NETWORK, DOCKER_NETWORK):
        parts.claim(kind, "shop_default", "shop")
    parts.keep("shop", (DOCKER_NETWORK,))
    assert parts.claimed(NETWORK, "shop_default") and not parts.claimed(DOCKER_NETWORK, "shop_default")
