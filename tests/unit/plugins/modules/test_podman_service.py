# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module takes each state to the step of a move that it is."""

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import HandoverError
from ansible_collections.livefleet.handover.plugins.module_utils._podman.podman import Podman
from ansible_collections.livefleet.handover.plugins.module_utils._podman.service_move import Unit
from ansible_collections.livefleet.handover.plugins.modules import podman_service

SERVICE = {"unit": "shop.service"}
TWIN = {"Id": "f" * 64, "OCIConfigPath": "/c/config.json"}


@pytest.fixture
def unit(monkeypatch, run_module):
    """Remembers the steps, and runs the module."""
    steps = []

    def step(name, answer=None):
        def take(itself, *words):
            itself.reasons.append(name)
            steps.append((name, *words))
            return answer

        return take

    for name in ("keep", "hold", "free", "put_aside", "withdraw", "settle"):
        monkeypatch.setattr(Unit, name, step(name))
    monkeypatch.setattr(Unit, "prepare", step("prepare", "/sys/fs/cgroup/system.slice/shop.service"))
    monkeypatch.setattr(Podman, "containers", lambda _podman: [{"Names": ["shop"], "Id": TWIN["Id"]}])
    monkeypatch.setattr(Podman, "inspect", lambda _podman, _name: TWIN)

    def run(state, **params):
        return steps, run_module(podman_service.main, {"service": SERVICE, "state": state, **params})

    return run


@pytest.mark.parametrize(
    "state, params, step",
    [
        ("dumpable", {}, ("keep", False)),
        ("held", {"session": "/s", "mode": "offline"}, ("hold", "/s", False)),
        ("freed", {"start": True}, ("free", True)),
        ("aside", {}, ("put_aside",)),
        ("withdrawn", {}, ("withdraw",)),
        ("settled", {"container": "shop", "start": True}, ("settle", TWIN, True)),
        ("settled", {"container": "other"}, ("settle", None, False)),
    ],
)
def test_each_state_is_a_step(unit, state, params, step):
    steps, result = unit(state, **params)
    assert steps == [step] and result["changed"] and result["reasons"] == [step[0]]


def test_prepared_it_tells_the_cgroup(unit):
    steps, result = unit("prepared", session="/s", container="shop")
    assert result["cgroup"] == "/sys/fs/cgroup/system.slice/shop.service"
    assert steps == [("prepare", "/s", True, True, {"id": TWIN["Id"], "oci_config": "/c/config.json"})]


def test_without_a_twin_nothing_is_prepared(unit):
    with pytest.raises(Exception, match="there is no container named gone on this host that shop.service could have"):
        unit("prepared", session="/s", container="gone")


def test_a_fault_is_the_modules_message(unit, monkeypatch):
    def fail(_unit):
        raise HandoverError("shop.service is active")

    monkeypatch.setattr(Unit, "put_aside", fail)
    with pytest.raises(Exception, match="shop.service is active"):
        unit("aside")
