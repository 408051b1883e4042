# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import pathlib

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._openvz.driver import facts, gate, inventory, statuses

PAGE = pathlib.Path(__file__).parents[6] / "docs" / "openvz-inventory.md"
HERE = {"VE_PRIVATE": "/vz/private/101", "VE_ROOT": "/vz/root/101"}


@pytest.mark.parametrize(
    ("status", "word"),
    [
        ("CTID 101 exist mounted running", "running"),
        ("CTID 101 exist unmounted down", "stopped"),
        ("CTID 101 exist unmounted down suspended", "suspended"),
        ("CTID 101 exist mounted down", "mounted"),
        ("VEID 101 exist mounted running", "running"),
        ("VEID 101 exist mounted paused", "paused"),
        ("VEID 101 exist mounted suspended", "suspended"),
    ],
)
def test_one_word_for_the_state_of_either_era(status, word):
    assert facts.state_word(status) == word


def test_the_host_s_places_are_the_destination_s():
    text = 'VE_ROOT="/vz/root/$VEID"\n# VE_PRIVATE="/x"\nVE_PRIVATE="/data/$VEID"\nNAME="shop"\n'
    moved = facts.moved_configuration(text, HERE, "101")
    assert moved == 'VE_ROOT="/vz/root/$VEID"\n# VE_PRIVATE="/x"\nVE_PRIVATE="/vz/private/101"\nNAME="shop"\n'
    assert facts.essence(moved) == facts.essence(text) == [("NAME", "shop")]


def test_of_a_parameter_that_is_set_twice_the_one_that_counts():
    assert facts.effective('NAME="a"\nNAME="b"\n')["NAME"] == "a"
    assert facts.effective('UUID="x"\nNAME="a"\nNAME="b"\n')["NAME"] == "b"
    assert facts.effective('NAME="a"\n', "VE_ROOT=/data/$VEID\n")["VE_ROOT"] == "/data/$VEID"


def test_addresses_in_one_form_and_bridges():
    assert facts.addresses_of({"IP_ADDRESS": "192.0.2.1/24 2001:DB8::0:1 what"}) == ["192.0.2.1", "2001:db8::1", "what"]
    assert facts.bridges_of({"NETIF": "ifname=eth0,bridge=b1,mac=0;ifname=eth1,bridge=b0,"}) == ["b0", "b1"]


def test_a_parameter_without_a_row_is_named_once_it_holds_something():
    assert inventory.unaccounted({"parameters": {"NAME": "shop", "COLOUR": ""}}) == []
    assert inventory.unaccounted({"parameters": {"NAME": "shop", "COLOUR": "red"}}) == ["COLOUR"]


def test_a_status_in_words():
    assert statuses.sentence(79, "no") == "an action script said no; the helper is asked by vps.premount (status 79: no)"
    assert statuses.sentence(160, "") == "an image or a snapshot of a ploop disk is at fault (status 160)"
    assert statuses.sentence(1, "what") == "it ended with status 1: what"


@pytest.mark.parametrize(
    ("text", "stands"),
    [
        ("#!/bin/sh\nexec OWN\n", True),
        ("#!/bin/sh\nOWN || exit 1\nexit 0\n", True),
        ("#!/bin/sh\n# exec OWN\n", False),
        ("#!/bin/sh\nOWN\nexit 0\n", False),
        ("#!/bin/sh\nexit 0\n", False),
        (None, False),
    ],
)
def test_the_gate_stands_where_the_host_s_script_asks_it(tmp_path, text, stands):
    own, turn, script = (tmp_path / name for name in ("premount", "turn", "vps.premount"))
    for path, said in ((own, ""), (turn, ""), (script, text)):
        if said is not None:
            path.write_text(said.replace("OWN", str(own)), encoding="utf-8")
            path.chmod(0o755)
    assert (gate.obstacle(str(script), str(own), str(turn)) == "") is stands
    own.chmod(0o644)
    assert gate.obstacle(str(script), str(own), str(turn)) == f"{own} is missing"


def test_the_page_is_made_of_the_rows():
    if os.environ.get("HANDOVER_WRITE_DOCS"):
        PAGE.write_text(inventory.page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == inventory.page(), "run `make docs`"
