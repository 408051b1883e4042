# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""kvm_migrate against two hosts of libvirt's test driver: its states, the lock, and refusals. The steps of a move are in the tests of the mover."""

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._kvm import keep, lock, sides
from ansible_collections.livefleet.handover.plugins.modules import kvm_migrate

WEB1 = "11111111-1111-4111-8111-111111111111"


class Hosts:
    """Two libvirts, with connections of the test's own."""

    def __init__(self, libvirt, folder):
        self.libvirt = libvirt
        self.uris = {}
        for side in ("source", "destination"):
            (folder / f"{side}.xml").write_text("<node/>")
            self.uris[side] = f"test://{folder}/{side}.xml"
        self.open = {side: libvirt.open(uri) for side, uri in self.uris.items()}

    def put(self, side, running=True, uuid=WEB1):
        domain = self.open[side].defineXML(f"<domain type='test'><name>web1</name><uuid>{uuid}</uuid><memory>1024</memory><os><type>hvm</type></os></domain>")
        if running:
            domain.create()
        return domain

    def standing(self, side):
        mover = sides.Sides(self.libvirt, "web1", self.uris["source"], self.uris["destination"])
        return mover.standing(side)


@pytest.fixture(name="hosts")
def two_hosts(libvirt, monkeypatch, tmp_path):
    # Both are on this machine.
    monkeypatch.setattr(libvirt.virConnect, "getHostname", lambda self: self.getURI())
    monkeypatch.setattr(lock, "FOLDER", str(tmp_path / "run"))
    monkeypatch.setattr(keep, "NOTES", str(tmp_path / "notes"))
    made = Hosts(libvirt, tmp_path)
    # Each connection of the test driver has guests of its own: so all use this one, and nobody closes it.
    monkeypatch.setattr(libvirt, "open", lambda uri: next(made.open[side] for side in made.open if made.uris[side] == uri))
    monkeypatch.setattr(libvirt.virConnect, "close", lambda self: 0)
    return made


@pytest.fixture(name="act")
def the_module(run_module, hosts):
    def act(state="migrated", check=False, **params):
        asked = {"guest": "web1", "uri": hosts.uris["source"], "destination_uri": hosts.uris["destination"], "state": state, "run": "one", "timeout": 0}
        return run_module(kvm_migrate.main, {**asked, **params}, check=check)

    return act


def test_a_guest_that_has_arrived_is_let_run_once(act, hosts):
    hosts.put("destination").suspend()
    would = act("resolved", check=True)
    assert would["changed"] and hosts.standing("destination") == "paused"
    done = act("resolved")
    assert (done["changed"], done["moved"]) == (True, True) and hosts.standing("destination") == "running"
    again = act("resolved")
    assert (again["changed"], again["moved"]) == (False, True)


@pytest.mark.parametrize("check", [False, True])
def test_a_guest_that_is_there_already_is_no_change(act, hosts, check):
    hosts.put("destination")
    answer = act(check=check)
    assert (answer["changed"], answer["moved"], answer["images"]) == (False, True, [])
    assert answer["outcome"] == "the guest is on the destination, and the source has none"


@pytest.mark.parametrize(
    ("plant", "params", "sentence"),
    [
        (lambda hosts: None, {}, "this host has no guest web1: `virsh list --all` names those it has"),
        (lambda hosts: hosts.put("source", running=False), {}, "web1 does not run: start it first, or choose kvm_migrate_mode=offline"),
        (lambda hosts: hosts.put("source"), {"mode": "offline"}, "web1 runs, and kvm_migrate_mode=offline moves guests that do not"),
        (lambda hosts: hosts.put("source").suspend(), {}, "web1 is paused, and would be let run where it arrives"),
        (
            lambda hosts: (hosts.put("source"), hosts.put("destination", uuid=WEB1.replace("1", "2"))),
            {},
            "another guest web1, with the UUID 22222222-2222-4222-8222-222222222222",
        ),
    ],
)
def test_what_is_in_the_way_is_said_before_anything_is_touched(act, hosts, plant, params, sentence):
    plant(hosts)
    before = [hosts.standing(side) for side in ("source", "destination")]
    with pytest.raises(Exception, match=sentence):
        act(check=True, **params)
    with pytest.raises(Exception, match=sentence):
        act(**params)
    assert [hosts.standing(side) for side in ("source", "destination")] == before


def test_the_destination_is_another_host(act, hosts):
    hosts.put("source")
    with pytest.raises(Exception, match="the destination test://.*source.xml is this host itself: name another one"):
        act(destination_uri=hosts.uris["source"])


def test_another_run_has_the_guest(act, hosts):
    hosts.put("source")
    lock.take("web1", {"run": "theirs", "destination": "node9", "since": "now"})
    with pytest.raises(Exception, match=r"web1 is being moved to node9 since now \(run theirs\)"):
        act()
    assert "changed" in act("cancelled", check=True), "an operator may give it up"


def test_a_move_that_is_cancelled_before_it_migrates_ends_at_its_step(act, hosts):
    hosts.put("source")
    assert not act("cancelled")["changed"]
    lock.take("web1", {"run": "theirs", "destination": "node9", "since": "now"})
    assert not act("cancelled", check=True)["changed"] and not lock.look("web1")["claim"].get("given_up")
    answer = act("cancelled")
    assert answer["changed"] and answer["outcome"] == "the move had not come to the migration yet, and ends with the step that it is at"
    assert lock.look("web1")["claim"]["given_up"]


@pytest.mark.parametrize(("mode", "hold", "held"), [("live", True, True), ("live", False, False), ("postcopy", True, False), ("offline", True, False)])
def test_only_a_live_move_is_held_where_it_arrives(mode, hold, held):
    lists = {"disks": ["vda"], "shared_disks": [], "require": []}
    same = dict.fromkeys(
        ("storage", "compression", "connections", "bandwidth", "auto_converge", "tls", "synchronous_writes", "listen", "migrate_uri", "zero_pages")
    )
    wish = kvm_migrate.wish({**lists, **same, "mode": mode, "hold": hold})
    assert (wish.hold, wish.mode, wish.disks) == (held, mode, ("vda",))


def test_without_the_binding_the_package_is_named(act, monkeypatch):
    monkeypatch.setattr(kvm_migrate, "load_libvirt", lambda: None)
    with pytest.raises(Exception, match="libvirt.*to migrate guests; Debian's package is python3-libvirt"):
        act()


@pytest.mark.parametrize(("option", "value"), [("state", "moved"), ("mode", "warm"), ("compression", "gzip"), ("require", ["luck"])])
def test_a_value_that_is_none_of_the_choices(act, option, value):
    with pytest.raises(Exception, match=f"value of {option} must be one (or more )?of: "):
        act(**{option: value})
