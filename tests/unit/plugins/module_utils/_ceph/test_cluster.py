# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command by which a cluster is asked, for each way in which it can be deployed."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._ceph import cluster as ceph
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import HandoverError


def test_a_host_that_cannot_administer_is_told_so(tmp_path: Path, monkeypatch) -> None:
    runtime = t.cast(t.Any, type("Runtime", (), {"find": staticmethod(lambda tool: None)}))
    with pytest.raises(HandoverError, match="this host cannot administer a Ceph cluster"):
        ceph.find_command(runtime, str(tmp_path))


@pytest.mark.parametrize(
    ("mark", "tools", "command"),
    [
        ("etc/ceph/ceph.client.admin.keyring", ["ceph", "cephadm"], ["/bin/ceph"]),
        ("etc/systemd/system/ceph-mon@.service", ["podman"], ["/bin/podman", "exec", "ceph-mon-store1", "ceph"]),
        ("var/lib/ceph/5ad7e3a2/mon.store1", ["cephadm"], ["/bin/cephadm", "shell", "--fsid", "5ad7e3a2", "--", "ceph"]),
    ],
)
def test_how_each_deployment_is_administered(tmp_path: Path, monkeypatch, mark, tools, command) -> None:
    (tmp_path / mark).parent.mkdir(parents=True)
    (tmp_path / mark).touch()
    monkeypatch.setattr("os.uname", lambda: type("uname", (), {"nodename": "store1.example"}))
    runtime = t.cast(t.Any, type("Runtime", (), {"find": staticmethod(lambda tool: f"/bin/{tool}" if tool in tools else None)}))
    assert ceph.find_command(runtime, str(tmp_path)) == command
