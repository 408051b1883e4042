# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A guest's destination is reached as the inventory says, by whatever way."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

try:
    from ansible.template import trust_as_template
except ImportError:  # before ansible-core 2.19 every text is a template

    def trust_as_template(value: str) -> str:
        return value


ROLE = Path(__file__).resolve().parents[3] / "roles" / "kvm_migrate"
ASKED = ("kvm_migrate_uri", "kvm_migrate_memory_uri", "__kvm_migrate_target")


def role_variables() -> dict[str, t.Any]:
    found: dict[str, t.Any] = {}
    for part in ("defaults", "vars"):
        found.update(yaml.safe_load((ROLE / part / "main.yml").read_text(encoding="utf-8")))
    return {name: trust_as_template(value) if isinstance(value, str) else value for name, value in found.items()}


@pytest.mark.parametrize(
    ("host", "uri", "memory", "target"),
    [
        ({}, "qemu+ssh://root@node2:22/system", "tcp://node2", "root@node2:"),
        ({"ansible_host": "192.0.2.7"}, "qemu+ssh://root@192.0.2.7:22/system", "tcp://192.0.2.7", "root@192.0.2.7:"),
        ({"ansible_host": "2001:db8::7"}, "qemu+ssh://root@[2001:db8::7]:22/system", "tcp://[2001:db8::7]", "root@[2001:db8::7]:"),
        (
            {"ansible_host": "192.0.2.7", "ansible_port": 2222, "ansible_user": "ops"},
            "qemu+ssh://ops@192.0.2.7:2222/system", "tcp://192.0.2.7", "ops@192.0.2.7:",
        ),
    ],
    ids=["a name alone", "an address", "an IPv6 address", "a port and a user"],
)  # fmt: skip
def test_the_inventory_says_how_a_destination_is_reached(host: dict[str, t.Any], uri: str, memory: str, target: str) -> None:
    known = {**role_variables(), "kvm_migrate_destination": "node2", "inventory_hostname": "node1", "hostvars": {"node2": host}}
    templar = Templar(loader=DataLoader(), variables=known)
    assert [templar.template(known[name]).strip() for name in ASKED] == [uri, memory, target]
    assert f"--rsh=ssh -p {host.get('ansible_port', 22)}" in templar.template(known["__kvm_migrate_rsync"])
