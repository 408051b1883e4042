# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host is emptied of its guests, and of a container beside them: one that does not run, since CRIU of Debian 13 is too old for the lab's kernel."""

from __future__ import annotations

import typing as t

import pytest
from conftest import Guests
from fleet import Play, play

COUNTER = "podman create --name counter --network none localhost/handover/tools:lab heartbeat -file /run/beat"
NAMES = "podman ps --all --format '{{.Names}} {{.State}}'"


@pytest.fixture(name="counter")
def a_container_beside_them(guests: Guests) -> t.Iterator[None]:
    (source,) = guests.running_on("own")
    try:
        guests.hosts[source].run(COUNTER)
        yield
    finally:
        for host in guests.hosts.values():
            host.ask("podman rm --force --ignore --time 0 counter")


def test_a_host_is_emptied(guests: Guests, counter: None) -> None:
    (source,) = guests.running_on("own")
    destination = guests.other(source)
    asked = {"handover_source": source, "handover_hosts": "lab", "handover_spare_memory": "64M", "handover_report_dir": str(guests.reports)}
    try:
        drain = Play("playbooks/drain.yml", asked)
        assert drain.end() == 0, drain.text[-6000:]
    finally:
        play("playbooks/maintenance.yml", handover_host=source, handover_maintenance=False)
    assert guests.standing("own") == {destination: "running"}
    assert guests.standing("shared") == {destination: "running"}
    assert guests.left_over() == {source: {"images": "own.raw.migrated"}, destination: {}}
    assert {name: host.run(NAMES).strip() for name, host in guests.hosts.items()} == {source: "", destination: "counter created"}
    guests.hosts[source].run("rm /var/lib/libvirt/images/own.raw.migrated")
    guests.is_whole("own")
    guests.is_whole("shared")
