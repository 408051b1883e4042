# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A lease, as its files tell it."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._ceph import lease as ceph_lease
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import HandoverError


def test_a_lease_knows_what_it_takes_back(tmp_path: Path) -> None:
    lease = ceph_lease.Lease("handover-option-x", "x", ("ceph", "config", "set", "osd", "x", "100% of $HOME's 'own' $$"))
    (tmp_path / "handover-option-x.service").write_text(ceph_lease.service(lease, str(tmp_path), "systemctl"))
    assert ceph_lease.Leases(None, str(tmp_path)).undo(lease.name) == lease.undo
    with pytest.raises(HandoverError, match="/y.service does not say how the lease y ends: .*No such file"):
        ceph_lease.Leases(None, str(tmp_path)).undo("y")
