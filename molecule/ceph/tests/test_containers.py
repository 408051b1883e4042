# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is different where OSDs are in containers. How they are restarted is in the other files, whose tests are the same for all."""

from __future__ import annotations

import typing as t

import pytest
from conftest import ADMIN, DEPLOYMENTS, FSID, HOST_OF, ONE_OF_EACH, Cluster, unit_of

pytestmark = pytest.mark.skipif("packaged" in DEPLOYMENTS.values(), reason="its OSDs are not all in containers")

CONTAINERS = {"cephadm": f"ceph-{FSID}-osd-{{}}", "ceph-ansible": "ceph-osd-{}"}


def test_each_is_found_as_what_runs_it(cluster: Cluster) -> None:
    for name, host in cluster.hosts.items():
        here = [osd for osd in HOST_OF if HOST_OF[osd] == name]
        found = {osd["id"]: osd for osd in cluster.module(name, "ceph_osd_info", timeout=60)["osds"]}
        assert {osd: (found[osd]["deployment"], found[osd]["unit"]) for osd in found} == {osd: (DEPLOYMENTS[osd], f"{unit_of(osd)}.service") for osd in here}
        assert all(osd["running"] and osd["store"] == "bluestore" and osd["buffered"] and osd["devices"] for osd in found.values()), found
        assert {CONTAINERS[DEPLOYMENTS[osd]].format(osd) for osd in here} <= set(host.run("podman ps --format '{{.Names}}'").split())
        # So what is asked of a database, is asked in the container.
        assert host.ask("command -v ceph-bluestore-tool").returncode != 0


@pytest.mark.parametrize("osd", ONE_OF_EACH)
def test_one_that_is_down_is_started(cluster: Cluster, osd: int) -> None:
    """Without its container nothing can be brought into memory, and it is started all the same."""
    cluster.gets_well()
    epochs = cluster.up_from()
    cluster.hosts[HOST_OF[osd]].run(f"systemctl stop {unit_of(osd)}", 120)
    cluster.restarted(HOST_OF[osd], ceph_osd_restart_state="started")
    now = cluster.up_from()
    assert now[osd] > epochs[osd]
    assert {**now, osd: 0} == {**epochs, osd: 0}
    cluster.gets_well()
    assert cluster.left_over() == {}


@pytest.fixture
def without_ceph(cluster: Cluster) -> t.Iterator[None]:
    """The cluster can be administered by what is in a container only."""
    path = cluster.hosts[ADMIN].run("command -v ceph").strip()
    cluster.hosts[ADMIN].run(f"mv {path} {path}.aside")
    yield
    cluster.hosts[ADMIN].run(f"mv {path}.aside {path}")


def test_the_cluster_is_administered_through_cephadm(cluster: Cluster, without_ceph: None) -> None:
    said = cluster.restarted("ceph2", [3], ceph_osd_restart_prewarm="never")
    assert "osd.3 was away for" in said
