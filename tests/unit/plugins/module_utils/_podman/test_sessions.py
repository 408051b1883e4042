# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._podman.sessions import _FLAGS, _NUMBERS, begun, outcome, typed


def status(state, error=""):
    return {"id": "shop-1", "workload": "shop", "state": state, "error": error}


@pytest.mark.parametrize("state", ["done", "settled"])
def test_a_workload_that_has_moved_needs_no_sentence(state):
    assert outcome(status(state), "node1", "node2") is None


@pytest.mark.parametrize(
    "state, sentence",
    [
        ("thawed", "shop was not moved and runs on node1 as before: the disk is full"),
        ("failed", "shop was not moved and was never stopped on node1: the disk is full"),
        ("resumed", "shop runs on node2, but that host has not said yet that its disk is safe, so node1 keeps everything: the disk is full"),
        ("in_doubt", "it is not known whether shop runs on node2, so it stays frozen on node1 and must not be started there: the disk is full"),
        ("released", "it is not known whether shop runs on node2"),
        ("presync", "shop has not been moved yet, its session shop-1 on node1 is in the state presync"),
    ],
)
def test_where_it_is_otherwise(state, sentence):
    assert outcome(status(state, "the disk is full"), "node1", "node2").startswith(sentence)


def test_numbers_that_templates_made_text_are_numbers_again():
    spec = {
        "mode": "live",
        "id": "7",
        "volumes": [{"name": "1", "size": "1024"}],
        "hooks": {"freeze": {"argv": ["podman", "stop", "60"], "timeout": "60"}},
        "policy": {"max_passes": 3, "verify": "False", "precopy": "True", "limit": "0"},
    }
    assert typed(spec) == {
        "mode": "live",
        "id": "7",
        "volumes": [{"name": "1", "size": 1024}],
        "hooks": {"freeze": {"argv": ["podman", "stop", "60"], "timeout": 60}},
        "policy": {"max_passes": 3, "verify": False, "precopy": True, "limit": 0},
    }


GO = Path(__file__).resolve().parents[5] / "helper" / "internal"


@pytest.mark.skipif(not GO.is_dir(), reason="the helper's source is not part of the published collection")
@pytest.mark.parametrize("kinds, known", [("int|int64", _NUMBERS), (r"\*?bool", _FLAGS)])
def test_every_number_and_flag_of_the_helper_s_specification_is_known(kinds, known):
    text = (GO / "session" / "record" / "spec.go").read_text(encoding="utf-8") + (GO / "hooks" / "command.go").read_text(encoding="utf-8")
    found = set(re.findall(r"^\t\w+ +(?:{0}) +`json:\"(\w+)".format(kinds), text, flags=re.MULTILINE)) - {"version"}
    assert len(found) > 4 and found <= known, found - known


def test_a_trial_has_begun_when_it_is_over():
    assert begun("source", {"mode": "live"}) == "presync"
    assert begun("destination", {}) == "listening"
    assert begun("source", {"mode": "trial"}) == "ended"
