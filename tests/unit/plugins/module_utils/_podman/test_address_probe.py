# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import ipaddress

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import HandoverError
from ansible_collections.livefleet.handover.plugins.module_utils._podman import address_probe

FOUR, SIX = ipaddress.ip_address("10.0.0.9"), ipaddress.ip_address("fd00::9")
OWN, OTHER = bytes.fromhex("020000000001"), bytes.fromhex("020000000002")


def test_the_question_has_no_address_of_its_own():
    asked = address_probe.question(OWN, FOUR)
    assert asked.hex() == "ffffffffffff02000000000108060001080006040001020000000001000000000000000000000a000009"
    assert not address_probe.is_answer(asked, FOUR)


def test_the_question_of_ipv6_goes_to_the_group_of_the_address():
    asked = address_probe.question(OWN, SIX)
    group = "ff0200000000000000000001ff000009"
    assert asked[:14].hex() == "3333ff00000902000000000186dd"
    assert asked[14:54].hex() == "6000000000183aff" + "00" * 16 + group
    assert asked[54:58].hex()[:4] == "8700" and asked[62:] == SIX.packed
    # The checksum over the pseudo header and the message is right if it sums to nothing.
    assert address_probe._sum(bytes(16) + bytes.fromhex(group) + bytes.fromhex("000000180000003a") + asked[54:]) == 0
    assert not address_probe.is_answer(asked, SIX)


def test_an_answer():
    arp = OWN + OTHER + bytes.fromhex("08060001080006040002") + OTHER + FOUR.packed + OWN + bytes(4)
    assert address_probe.is_answer(arp, FOUR)
    assert not address_probe.is_answer(arp, ipaddress.ip_address("10.0.0.8"))
    advertised = OWN + OTHER + bytes.fromhex("86dd6000000000203aff") + SIX.packed + OWN[:1] * 16 + bytes.fromhex("8800000020000000") + SIX.packed
    assert address_probe.is_answer(advertised, SIX)
    assert not address_probe.is_answer(advertised, ipaddress.ip_address("fd00::8"))
    assert not address_probe.is_answer(advertised[:60], SIX)


def test_an_interface_that_is_not_there():
    with pytest.raises(HandoverError, match="none0: it cannot be asked whether 10.0.0.9 is in use there"):
        address_probe.in_use("none0", FOUR)
