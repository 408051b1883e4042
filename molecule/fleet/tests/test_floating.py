# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A container behind the NAT of podman's own bridge, whose published port has an address of its own: the address moves along, and connections live on.

One client holds a connection over each version of IP through ten moves there and back, a move that is killed before the release, and one that is killed
after it. In the order of this file: each test finds the container where the one before it left it.
"""

from __future__ import annotations

import os
import re
import time
import typing as t
from pathlib import Path

import pytest
from floating import BIND, NAME, NETWORK, PODMAN, PORT, Floating
from hosts import Hosts, boot, said

MOVES = 10


@pytest.fixture(scope="module")
def hosts() -> Hosts:
    return Hosts(Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "reports")


@pytest.fixture(scope="module")
def floating(hosts: Hosts) -> t.Iterator[Floating]:
    made = Floating(hosts, PODMAN)
    try:
        made.make()
        made.begin()
        yield made
    finally:
        made.remove()


def test_ports_on_an_address_that_does_not_float_are_refused(floating: Floating) -> None:
    status, text = floating.move(floating.names[0], "--check", handover_floating_addresses=[])
    assert status != 0
    assert f"publishes port {PORT}/tcp on {floating.addresses[0]}, an address of {floating.names[0]} that {floating.names[1]} does not have" in said(text)
    assert re.search(rf"{NAME} has 2 TCP connections open over the network {NETWORK}", said(text)), text[-4000:]


def test_connections_live_through_ten_moves_there_and_back(floating: Floating) -> None:
    here = floating.home()
    for _number in range(MOVES):
        here = floating.moved(here)
        assert floating.leads_alone(here)
    assert floating.client is not None and floating.client.poll() is None


def test_a_move_killed_before_the_release_is_rolled_back(floating: Floating) -> None:
    here = floating.home()
    floating.killed(here, "source", "prepared")
    floating.recover()
    assert floating.home() == here
    assert floating.leads_alone(here)


def test_a_release_of_which_the_destination_has_not_heard_gives_the_addresses_back(floating: Floating) -> None:
    here = floating.home()
    floating.killed(here, "source", "released")
    floating.recover()
    assert floating.home() == here


def test_a_move_killed_after_the_release_ends_on_the_destination(floating: Floating) -> None:
    here = floating.home()
    floating.killed(here, "destination", "released")
    floating.recover()
    assert floating.home() == floating.other(here)
    floating.lived(1000)


def test_the_addresses_come_back_with_the_container_after_a_boot(hosts: Hosts, floating: Floating) -> None:
    here = floating.home()
    if here == floating.names[0]:
        here = floating.moved(here)
    boot(hosts.hosts[here], "multi-user.target")
    floating.run(here, f"sysctl {' '.join(each + '=1' for each in BIND)}")
    assert floating.has(here) == []
    floating.run(here, f"podman start {NAME}")
    assert floating.home() == here
    floating.begin()
    floating.moved(here)
    floating.lived()


def test_it_moves_offline_with_its_addresses(floating: Floating) -> None:
    here = floating.home()
    floating.moved(here, handover_mode="offline")
    floating.begin()
    time.sleep(1)
    floating.lived(10)
