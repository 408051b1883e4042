# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A container that is made again from a backup with memory, and runs on from it."""

from __future__ import annotations

import json

import pytest
from unit.plugins.modules import test_clone

host, act = test_clone.host, test_clone.act


def with_memory(host, memory=True):
    host.take()
    place = host.root / "shop" / "before"
    for name, text in (("layer/file", "layer"), ("checkpoint/pages.img", "memory"), ("network.status", "{}")):
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text(text)
    record = json.loads((place / "snapshot.json").read_text())
    (place / "snapshot.json").write_text(json.dumps({**record, "memory": memory}))
    host.podman_volumes.clear()


def run_on(host, monkeypatch, fails=""):
    """podman keeps its own files of a container in a folder of each."""
    real = host.podman

    def podman(*words):
        if words[0] == "info":
            return "{}"
        answer = real(*words)
        if words[0] == "create" and words[-1] != "--help":
            static = host.folder / "static"
            static.mkdir()
            (host.folder / "volumes").mkdir()
            host.containers["shop"]["StaticDir"] = str(static)
        return answer

    monkeypatch.setattr(host, "podman", podman)
    host.fails = fails


def test_a_container_that_is_made_again_runs_on(host, act, monkeypatch):
    with_memory(host)
    run_on(host, monkeypatch)
    act(name="shop", own_name=True, memory=True)
    done = [each for each in host.commands if each.startswith(("podman", "systemd-run"))]
    assert done == ["podman create", "podman init shop", "podman container cleanup", "systemd-run --scope"]
    assert (host.folder / "static/checkpoint/pages.img").read_text() == "memory"
    assert (host.folder / "static/network.status").exists() and (host.folder / "layers/shop/file").read_text() == "layer"


def test_one_that_starts_anew_has_no_dump(host, act, monkeypatch):
    with_memory(host)
    run_on(host, monkeypatch)
    act(name="shop", own_name=True)
    assert "podman start shop" in host.commands and not (host.folder / "static/checkpoint").exists()


def test_one_that_does_not_run_on_stays_with_its_disks(host, act, monkeypatch):
    with_memory(host)
    run_on(host, monkeypatch, "systemd-run")
    test_clone.refused(act, r"shop is there with the disks .* start it anew \(podman start shop\)", name="shop", own_name=True, memory=True)
    assert "shop" in host.containers and (host.folder / "images/pgdata.img").exists()


@pytest.mark.parametrize(("given", "memory"), [({"name": "try"}, True), ({"name": "shop", "own_name": True}, False)])
def test_only_the_container_itself_runs_on_from_a_memory_that_is_there(host, act, given, memory):
    with_memory(host, memory)
    test_clone.refused(act, "cannot run on from the memory of shop@before: that is for the container itself", memory=True, **given)
    assert host.commands == []
