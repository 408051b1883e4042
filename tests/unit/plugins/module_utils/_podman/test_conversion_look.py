# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The facts about a plain volume, and what the module image_volume says before it touches one."""

from __future__ import annotations

import types
import typing as t

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import runtime
from ansible_collections.livefleet.handover.plugins.module_utils._podman import conversion, conversion_look
from ansible_collections.livefleet.handover.plugins.modules import image_volume

BOUND = {"type": "none", "o": "bind", "device": "/mnt/shop"}


class Podman:
    """podman with one volume and the containers that are put here."""

    runtime: t.Any = None

    def __init__(self, root):
        self.kept_in = str(root)
        self.own = root / "volumes/shop/_data"
        self.volume: dict[str, t.Any] = {"Name": "shop", "Driver": "local", "Options": {}, "Mountpoint": str(self.own), "Anonymous": False}
        self.inspects: dict[str, dict[str, t.Any]] = {}

    def add(self, name, naming=True, **changes):
        found = {"Id": name * 3, "Name": name, "Config": {"Labels": {}, "StopTimeout": 3}, "State": {"Pid": 0}, "HostConfig": {}, "Mounts": [], **changes}
        self.inspects[name] = {**found, "naming": naming}

    def volumes(self):
        return [{"Name": "other", "Options": {}}, self.volume]

    def containers(self):
        return [{"Id": found["Id"], "Names": [name], "State": "running"} for name, found in self.inspects.items()]

    def users_of_volume(self, _name):
        return [name for name, found in self.inspects.items() if found["naming"]]

    def inspect(self, identifier):
        return next(found for found in self.inspects.values() if found["Id"] == identifier)

    def inspect_many(self, identifiers):
        return [self.inspect(each) for each in identifiers]

    def root(self):
        return self.kept_in


@pytest.fixture
def podman(monkeypatch, tmp_path):
    fake = Podman(tmp_path)
    fake.own.mkdir(parents=True)
    (fake.own / "file").write_text("x" * 5000)
    monkeypatch.setattr(conversion_look.book, "bound_to", lambda *_words, write: "")
    monkeypatch.setattr(conversion_look.loop, "read_mounts", lambda: [types.SimpleNamespace(mountpoint=str(fake.own) + "2")])
    monkeypatch.setattr(conversion_look.unit_facts, "units_of", lambda _engine, name, _identifier: [name + ".service"] if name == "web" else [])
    monkeypatch.setattr(conversion_look.unit_facts, "unit_exists", lambda _unit: True)
    monkeypatch.setattr(conversion_look.unit_facts, "acting", lambda _runtime, names: list(names))
    for module in (conversion_look.unit_facts, conversion_look.service):
        monkeypatch.setattr(module, "show", lambda _runtime, unit: {"ActiveState": "active"})
    sessions = [{"id": "shop-1", "workload": "shop", "ended": False}, {"workload": "web", "ended": True}]
    monkeypatch.setattr(conversion_look.Sessions, "statuses", lambda _self: sessions)
    return fake


def find(podman, begun=False):
    return conversion_look.PlainLook(podman, "shop", "/mnt/shop").find(begun)


def test_a_plain_volume_and_its_container(podman):
    podman.add("web")
    podman.add("else", naming=False)
    found = find(podman)
    assert (found.folder, found.driver, found.files, found.missing, found.kept) == (str(podman.own), "local", 1, False, False)
    assert found.used >= 5000 and not found.mounts and not found.bound
    user = found.user
    assert (user.name, user.state, user.units, user.active, user.session, user.patience) == ("web", "running", ("web.service",), True, "", 3)
    conversion.check(found, begun=False)


def test_a_move_that_has_not_ended_is_found(podman):
    podman.add("shop")
    assert find(podman).user.session == "shop-1"


def test_a_move_of_its_pod_is_found(podman, monkeypatch):
    sessions = [{"id": "front-1", "workload": "front", "ended": False, "plan": {"members": ["shop", "db"]}}]
    monkeypatch.setattr(conversion_look.Sessions, "statuses", lambda _self: sessions)
    podman.add("shop")
    assert find(podman).user.session == "front-1"


def test_one_that_mounts_the_folder_by_its_path_is_found(podman):
    podman.add("backup", naming=False, Mounts=[{"Type": "bind", "Source": str(podman.own / "more")}])
    assert find(podman).bound == ("backup",)


def test_no_plain_volume(podman):
    podman.volume["Options"] = BOUND
    assert find(podman) is None
    podman.volume["Name"] = "another"
    assert find(podman) is None


def test_what_an_earlier_run_has_left(podman):
    aside = podman.own.parent.parent / conversion.KEPT / "shop"
    aside.parent.mkdir()
    podman.own.rename(aside)
    found = find(podman, begun=True)
    assert (found.files, found.missing, found.kept) == (1, True, False)
    assert find(podman).kept
    podman.own.mkdir()
    podman.volume["Options"] = BOUND
    assert find(podman, begun=True).files == 1, "the files are still where they were copied from"


def test_dockers_volumes_are_known_by_their_folder(podman, monkeypatch, tmp_path):
    monkeypatch.setattr(conversion_look, "DOCKER_VOLUMES", str(tmp_path / "volumes"))
    look = conversion_look.PlainLook(podman, "shop", "/mnt/shop")
    assert look.is_dockers()
    (tmp_path / "volumes").rename(tmp_path / "gone")
    assert not look.is_dockers()


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"state": "mounted"}, "a conversion of podman's volume shop was begun and has not ended: run it again, with convert=true"),
        ({"state": "absent", "force": True}, "a conversion of podman's volume shop was begun"),
        ({"state": "present", "convert": True}, "convert=true is for state=mounted, and state=present is asked for"),
        ({"state": "mounted", "convert": True, "podman_volume": ""}, "podman_volume is empty"),
    ],
)
def test_the_module_refuses_before_it_looks(run_module, monkeypatch, tmp_path, params, says):
    monkeypatch.setattr(runtime.Runtime, "run", lambda *_words, **_more: pytest.fail("a command was run"))
    (tmp_path / ("shop.img" + conversion.RECORD)).write_text("{}")
    with pytest.raises(Exception, match=says):
        run_module(image_volume.main, {"name": "shop", "image": str(tmp_path / "shop.img"), **params})
