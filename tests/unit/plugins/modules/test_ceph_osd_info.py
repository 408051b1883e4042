# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import types

from ansible_collections.livefleet.handover.plugins.module_utils._core import pcopy
from ansible_collections.livefleet.handover.plugins.modules import ceph_osd_info


def test_what_a_host_lacks_is_told_by_store(monkeypatch, tmp_path):
    monkeypatch.setattr(ceph_osd_info, "Pcopy", lambda runtime: pcopy.Pcopy(runtime, str(tmp_path / "pcopy")))
    bare = types.SimpleNamespace(find=lambda name: None)
    helper = "the helper {0} is missing: apply the role livefleet.handover.pcopy to this host".format(tmp_path / "pcopy")
    assert ceph_osd_info.lacks(bare, {"bluestore"}) == [helper]
    assert ceph_osd_info.lacks(bare, {"filestore"}) == ["vmtouch is missing: install the package vmtouch on this host"]
    assert ceph_osd_info.lacks(bare, {"bluestore", "filestore"}) == [helper, "vmtouch is missing: install the package vmtouch on this host"]
    assert ceph_osd_info.lacks(bare, {""}) == []
    (tmp_path / "pcopy").write_text("#!/bin/sh\n", encoding="utf-8")
    (tmp_path / "pcopy").chmod(0o755)
    assert ceph_osd_info.lacks(types.SimpleNamespace(find=lambda name: "/usr/bin/vmtouch"), {"bluestore", "filestore"}) == []
