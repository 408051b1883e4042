# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.livefleet.handover.plugins.filter.audit import audit_hosts, audit_rows

DISK = {
    "target": "vda", "source": "/srv/web1.raw", "bus": "virtio", "format": "raw", "cache": "writeback", "cache_set": False, "io": "threads",
    "discard": "unmap", "shared": "no", "power_loss": {"verdict": "yes", "reason": "it flushes"},
    "live_migration": {"verdict": "no", "reason": "the cache stays"}, "faster": {"mode": "none", "reason": "little memory"},
}  # fmt: skip
GUEST = {
    "name": "web1",
    "state": "running",
    "flushes": {"verdict": "unknown", "reason": "no agent"},
    "disks": [DISK, {**DISK, "target": "vdb", "cache_set": True}],
}
SEEN = {"node2": {"guests": [GUEST]}, "node1": {"guests": []}, "node3": None, "node4": {"unreachable": True}}


def test_a_host_without_guests_has_answered_and_a_silent_one_has_not():
    assert audit_hosts(SEEN) == ["node1", "node2"]


def test_a_row_a_disk():
    first, second = audit_rows(SEEN)
    assert (first["host"], first["guest"], first["disk"], first["cache"]) == ("node2", "web1", "vda", "writeback (default)")
    assert (second["disk"], second["cache"]) == ("vdb", "writeback")
    verdicts = ("flushes", "flushes_why", "power_loss", "power_loss_why", "live_migration", "live_migration_why", "faster", "faster_why")
    assert [first[key] for key in verdicts] == ["unknown", "no agent", "yes", "it flushes", "no", "the cache stays", "none", "little memory"]


def test_without_an_answer_there_is_no_row():
    assert audit_rows({"node3": None}) == [] == audit_rows({})
