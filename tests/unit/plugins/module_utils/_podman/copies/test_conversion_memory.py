# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a container cannot keep its memory while its volume becomes another."""

from __future__ import annotations

import copy

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import host
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import HandoverError
from ansible_collections.livefleet.handover.plugins.module_utils._podman.copies import conversion_memory
from ansible_collections.livefleet.handover.tests.unit.plugins.module_utils._podman.test_preflight import Facts

UNIT = {"adoption": "inside"}


@pytest.fixture
def asked():
    """All that workload_info says of a container that can be dumped, and of its host."""
    return copy.deepcopy(dict(Facts().here))


@pytest.mark.parametrize(
    ("where", "key", "value", "says"),
    [
        ("workload", "pid_mode", "host", "shop uses the process namespace of the host and not one of its own (host)"),
        ("workload", "conmon_gone", True, "the conmon of shop on "),
        ("workload", "multicast", ["224.1.1.1 (eth0)"], "shop has joined multicast groups on 224.1.1.1 (eth0), in which it would not be when podman has"),
        ("workload", "devices", ["/dev/kvm"], "shop has devices of "),
        ("workload", "own_tables", ["inet filter"], "shop has the nftables table inet filter in its network namespace, which podman makes anew"),
        ("workload", "own_network", ["the interface tun0"], "shop has made the interface tun0 in its network namespace"),
        ("workload", "own_mounts", ["/mnt"], "shop has mounted /mnt by itself"),
        ("workload", "obstacles", [{"check": "io_uring", "process": "db", "pid": 7, "detail": "", "size": 0}], "(pid 7) uses io_uring"),
        ("criu", "version", [], "CRIU is missing on "),
        ("criu", "network_lock", {"method": "skip", "works": True}, "is told not to lock the network"),
    ],
)
def test_each_reason_is_said_without_a_moves_way_out(asked, where, key, value, says):
    assert conversion_memory.misfits("shop", asked) == []
    (asked["host"]["criu"] if where == "criu" else asked["workload"])[key] = value
    (found,) = conversion_memory.misfits("shop", asked)
    assert says in found and "migrate_mode" not in found


def test_the_helper_and_the_unit_are_asked_first(asked, monkeypatch):
    mounts = [{"Name": "shop", "Destination": "/data"}, {"Name": "other", "Destination": "/other"}]
    inspect = {"Id": "111", "Name": "shop", "State": {"Pid": 7}, "Mounts": mounts}
    podman = type("Podman", (), {"inspect": lambda _self, _name: inspect})()
    answers = {"last": {"workload_info": asked}}
    monkeypatch.setattr(conversion_memory, "in_turn", lambda _module, _table, _asked: answers)
    monkeypatch.setattr(conversion_memory, "why_halted", lambda _podman, _facts: halted)
    monkeypatch.setattr(host, "free_space", lambda folder: free if folder == "/static" else 0)
    asked["workload"].update(static_dir="/static", memory=2**30)
    free = 2**31
    monkeypatch.setattr(conversion_memory, "open_databases", lambda root, places: databases if (root, places) == (7, ["/data"]) else ["?"])
    halted, databases = "", []

    def why(unit="", service=None):
        return conversion_memory.why_unkept(None, podman, "shop", "shop", unit, service or UNIT)

    assert why() == "" == why("a.service")
    assert "its unit a.service could not take it over again" in why("a.service", {"adoption": ""})
    free = 2**30
    assert why() == "the copy of the memory of shop takes 1 GiB, and 1 GiB is free in /static"
    halted = "it runs under crun, and only runc passes CRIU's hooks on"
    assert why() == halted
    halted, databases = "", ["/data/a.db"]
    assert "it has SQLite's files open (/data/a.db), " in why()
    databases, answers = [], {"msg": "podman does not answer"}
    with pytest.raises(HandoverError, match="podman does not answer"):
        why()
