# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._kvm import foretold

MIB = 2**20
IMAGE = {"path": "/web1.qcow2", "size": 2048 * MIB}


@pytest.mark.parametrize(
    ("memory", "images", "limit", "said"),
    [
        (512 * MIB, [IMAGE], 0, ["takes 300 ms or less (kvm_migrate_max_downtime_ms)", "512 MiB of memory and disks of up to 2 GiB would be sent."]),
        (512 * MIB, [], 50, ["takes 50 ms or less", "512 MiB of memory would be sent."]),
        (None, [IMAGE, IMAGE], 0, ["disks of up to 4 GiB would be sent."]),
        (None, [], 0, ["Nothing but its definition would be sent."]),
    ],
)
def test_people_read_the_pause_and_the_bytes(memory, images, limit, said):
    lines = foretold.lines(memory, images, limit, 48)
    assert [part in line for part, line in zip(said, lines)] == [True] * len(said)
    assert lines[len(said) :] == ["48 checks of both hosts found nothing in the way."]
