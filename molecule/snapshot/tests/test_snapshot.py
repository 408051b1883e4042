# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A snapshot with memory, and the way back, of a container that writes."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from hosts import Hosts


@pytest.fixture(scope="module")
def fleet() -> Hosts:
    return Hosts(Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "reports")


def test_a_snapshot_and_the_way_back(fleet: Hosts) -> None:
    first = fleet.names[0]
    asked = {"handover_source": first, "handover_workload": "tenant1", "handover_snapshot": "before", "handover_memory": True}
    status, text = fleet.play("snapshot", **asked)
    assert status == 0, text[-4000:]
    assert re.search(r"^  tenant1 +before +2\d{3}-", text, flags=re.MULTILINE)
    beats = json.loads(fleet.hosts[first].check_output("podman exec tenant1 heartbeat -gaps /data/heartbeat"))
    fleet.hosts[first].check_output("podman exec tenant1 sh -c 'echo mistake > /data/mistake; echo mistake > /mistake'")
    status, text = fleet.play("rollback", **asked)
    assert status == 0, text[-4000:]
    # The process itself runs on from that moment, on the files of that moment.
    again = json.loads(fleet.hosts[first].check_output("podman exec tenant1 heartbeat -gaps /data/heartbeat"))
    assert (again["missed"], again["broken"]) == (0, 0)
    assert fleet.hosts[first].run("podman exec tenant1 ls /data/mistake /mistake").stdout == ""
    assert again["gap_ms"] >= beats["gap_ms"]
    # The disks of the moment before the rollback were kept, and can be gone back to: the container starts again on them.
    status, text = fleet.play("snapshot", handover_source=first, handover_workload="tenant1")
    assert status == 0, text[-4000:]
    (undo,) = re.findall(r"^  tenant1 +(undo-\d{8}T\d{6}) +2\d{3}-", text, flags=re.MULTILINE)
    back = {"handover_source": first, "handover_workload": "tenant1", "handover_snapshot": undo}
    status, text = fleet.play("rollback", snapshot_keep=False, **back)
    assert status == 0, text[-4000:]
    assert fleet.hosts[first].check_output("podman exec tenant1 cat /data/mistake") == "mistake"
    # Beside the container's own volume the one of the snapshot is mounted, without the mistake.
    status, text = fleet.play("snapshot", **{**asked, "handover_state": "mounted"})
    assert status == 0, text[-4000:]
    (place,) = re.findall(r"mounted on (/\S+)", text)
    names = fleet.hosts[first].check_output(f"ls {place}").split()
    assert "heartbeat" in names
    assert "mistake" not in names
    assert fleet.hosts[first].run(f"touch {place}/new").rc != 0
    status, text = fleet.play("snapshot", **{**asked, "handover_state": "unmounted"})
    assert status == 0, text[-4000:]
    assert not fleet.hosts[first].file(place).exists
    for name in (undo, "before"):
        status, text = fleet.play("snapshot", **{**asked, "handover_snapshot": name, "handover_state": "absent"})
        assert status == 0, text[-4000:]
    assert "There is no snapshot." in text
    left = fleet.hosts[first].check_output("/usr/local/libexec/handover/pcopy snapshot list --json /var/lib/handover/snapshots/.disks/tenant1")
    assert json.loads(left) == {"snapshots": []}
