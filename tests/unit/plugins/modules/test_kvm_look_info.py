# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""kvm_look_info looks at this host, and with libvirt's test driver at what a guest names."""

from __future__ import annotations

import hashlib

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._kvm import libvirt_schema
from ansible_collections.livefleet.handover.plugins.modules import kvm_look_info


@pytest.fixture(name="ask")
def the_module(run_module):
    return lambda check=False, **params: run_module(kvm_look_info.main, params, check=check)


@pytest.fixture(name="uri")
def a_host_with_a_guest(libvirt, monkeypatch, tmp_path):
    (tmp_path / "node.xml").write_text("<node/>")
    uri = f"test://{tmp_path}/node.xml"
    connection = libvirt.open(uri)
    connection.defineXML(
        "<domain type='test'><name>web1</name><memory>1024</memory><os><type>hvm</type></os>"
        "<devices><disk type='file' device='cdrom'><source file='/srv/install.iso'/><target dev='hda'/><readonly/></disk></devices></domain>"
    )
    # Each connection of the test driver has guests of its own: so all use this one, and nobody closes it.
    opened = libvirt.open
    monkeypatch.setattr(libvirt, "open", lambda asked: connection if asked == uri else opened(asked))
    monkeypatch.setattr(libvirt.virConnect, "close", lambda self: 0)
    return uri


@pytest.mark.parametrize("check", [False, True])
def test_places_files_and_trees_are_looked_at(ask, tmp_path, check):
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "a").write_text("hello")
    file, gone = str(tmp_path / "tree" / "a"), str(tmp_path / "gone")
    answer = ask(check, places=[str(tmp_path), gone], files=[file], trees=[str(tmp_path / "tree"), gone])
    seen = answer["seen"]
    assert (seen["places"][str(tmp_path)]["kind"], seen["places"][gone]) == ("folder", {"exists": False})
    assert (seen["places"][file]["size"], seen["places"][file]["digest"]) == (5, hashlib.sha256(b"hello").hexdigest())
    assert "digest" not in seen["places"][str(tmp_path)]
    assert [entry["path"] for entry in seen["trees"][str(tmp_path / "tree")]] == [".", "a"] and seen["trees"][gone] == []
    assert not answer["changed"] and "wanted" not in answer


def test_of_the_host_its_devices_and_processors_are_told(ask):
    seen = ask()["seen"]
    assert seen["links"]["lo"] == "device" and 0 in seen["processors"]


def test_what_a_guest_names_is_wanted_and_looked_at(ask, uri):
    answer = ask(guest="web1", uri=uri)
    assert "/srv/install.iso" in answer["wanted"]["places"] + answer["wanted"]["files"]
    assert "devices/disk/source/@file" in answer["wanted"]["parts"]
    assert set(answer["wanted"]["places"]) <= set(answer["seen"]["places"])


def test_a_guest_that_is_not_here_wants_nothing(ask, uri):
    assert ask(guest="gone", uri=uri)["wanted"] == {"places": [], "files": [], "trees": [], "parts": []}


def test_a_libvirt_that_does_not_answer_is_told_with_the_way_to_try_it(ask, uri, tmp_path):
    with pytest.raises(Exception, match=r"libvirt of this host cannot be asked \(.*\): try `virsh --connect test:.*nothing.xml list`, as root"):
        ask(guest="web1", uri=f"test://{tmp_path}/nothing.xml")


def test_without_the_binding_the_package_is_named_and_a_host_is_looked_at_all_the_same(ask, monkeypatch):
    monkeypatch.setattr(kvm_look_info, "load_libvirt", lambda: None)
    with pytest.raises(Exception, match="libvirt.*to look at guests; Debian's package is python3-libvirt"):
        ask(guest="web1")
    assert "seen" in ask()


def test_a_file_that_cannot_be_read_is_named(ask, tmp_path, monkeypatch):
    (tmp_path / "a").write_text("x")

    def refuse(_path):
        raise PermissionError(13, "Permission denied", str(tmp_path / "a"))

    monkeypatch.setattr("ansible_collections.livefleet.handover.plugins.module_utils._kvm.host_look.digest", refuse)
    with pytest.raises(Exception, match="/a cannot be read: Permission denied"):
        ask(files=[str(tmp_path / "a")])


def test_a_host_without_a_schema_does_not_know_which_parts_it_knows(ask, monkeypatch):
    monkeypatch.setattr(kvm_look_info, "unknown", lambda parts: libvirt_schema.unknown(parts, "/nowhere/domain.rng"))
    assert ask(parts=["devices/disk"])["seen"]["unknown_parts"] is None
