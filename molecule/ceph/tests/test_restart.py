# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""OSDs restarted, one after the other. In the order in which they stand: each test begins with the healthy cluster that the one before left."""

from __future__ import annotations

import typing as t

import pytest
from conftest import ADMIN, HOST_OF, ONE_OF_EACH, VARIABLES, Cluster, reads
from fleet import sentences

# What a start has to read whatever is in memory: superblocks, labels, and the log of BlueFS, past the page cache.
UNAVOIDABLE = 60
OMAP = "/var/lib/ceph/osd/ceph-1/current/omap"


def test_all_were_restarted(cluster: Cluster, before: dict[int, int]) -> None:
    cluster.gets_well()
    now = cluster.up_from()
    assert all(now[osd] > before[osd] for osd in HOST_OF)
    # Failure domain by failure domain: the hosts of one are done before the other's begin.
    assert max(now[osd] for osd in (0, 1)) < min(now[osd] for osd in (2, 3)) or max(now[osd] for osd in (2, 3)) < min(now[osd] for osd in (0, 1))
    assert not cluster.under_way()
    assert cluster.left_over() == {}
    flags = cluster.flags()
    assert flags == {"cluster": flags["cluster"]}


@pytest.fixture
def flagged(cluster: Cluster) -> t.Iterator[dict[str, list[str]]]:
    """Somebody has set the flag of an OSD and an option of the monitors, and both are to stay."""
    cluster.hosts[ADMIN].run("ceph osd set-group noout osd.2; ceph config set mon paxos_propose_interval 0.9")
    yield cluster.flags()
    cluster.hosts[ADMIN].run("ceph osd unset-group noout osd.2; ceph config rm mon paxos_propose_interval")
    cluster.gets_well()


def test_health_that_was_bad_before_keeps_everything_as_it_is(cluster: Cluster, flagged: dict[str, list[str]]) -> None:
    epochs = cluster.up_from()
    refused = cluster.begin("ceph2", [2])
    assert refused.end() != 0, refused.text[-4000:]
    assert "osd.2 may not be stopped: the cluster is not healthy (OSD_FLAGS:" in sentences(refused.text)
    assert (cluster.up_from(), cluster.flags()) == (epochs, flagged)


@pytest.mark.parametrize("osd", ONE_OF_EACH)
def test_a_held_one_reads_little_and_flags_stay_as_somebody_set_them(cluster: Cluster, flagged: dict[str, list[str]], osd: int) -> None:
    """Reads are counted, whatever the machine does beside: what a plain start reads is in memory after a held one's stop."""
    named = {"ceph_osd_restart_ignore": ["OSD_FLAGS"], "ceph_osd_restart_afresh": True}
    epochs = cluster.up_from()
    plain = reads(cluster.restarted(HOST_OF[osd], [osd], ceph_osd_restart_prewarm="never", **named), osd)
    between = cluster.up_from()
    assert cluster.flags() == flagged
    held = reads(cluster.restarted(HOST_OF[osd], [osd], ceph_osd_restart_prewarm="required", **named), osd)
    now = cluster.up_from()
    assert cluster.flags() == flagged
    assert epochs[osd] < between[osd] < now[osd]
    assert {**now, osd: 0} == {**epochs, osd: 0}
    assert held <= UNAVOIDABLE
    assert held * 3 <= plain, f"{held} reads held, {plain} plain"
    assert cluster.left_over() == {}


@pytest.mark.skipif("filestore" not in VARIABLES["ceph_stores"][1], reason="this release has no FileStore")
def test_a_filestore_starts_from_memory(cluster: Cluster) -> None:
    host = cluster.hosts["ceph1"]
    cluster.module("ceph1", "vmtouch", paths=[OMAP], state="evicted")
    play = cluster.begin("ceph1", [1], stop_at="Wait until it may be stopped")
    try:
        assert play.stopped.wait(180), play.text[-4000:]
        locked = cluster.module("ceph1", "vmtouch", paths=[f"{OMAP}/*.sst"], state="queried")
        assert locked["files"] > 0 and locked["resident"] == locked["pages"]
        assert host.run("systemctl is-active handover-vmtouch-osd.1.service").strip() == "active"
        # Nobody can throw out what is locked.
        assert cluster.module("ceph1", "vmtouch", paths=[f"{OMAP}/*.sst"], state="evicted")["resident"] >= locked["resident"]
        play.go_on()
        assert play.end() == 0, play.text[-5000:]
    finally:
        play.kill()
    cluster.gets_well()
    assert cluster.left_over() == {}
    # Let go of, so that it can be thrown out.
    gone = cluster.module("ceph1", "vmtouch", paths=[f"{OMAP}/*.sst"], state="evicted")
    assert gone["resident"] < gone["resident_before"]


def test_what_reads_past_the_cache_is_refused(cluster: Cluster) -> None:
    """Where nothing can be held, it is said before anything is done, if it was asked for."""
    cluster.hosts["ceph1"].run("ceph tell osd.0 config set bluefs_buffered_io false")
    try:
        epochs = cluster.up_from()
        play = cluster.begin("ceph1", [0], ceph_osd_restart_prewarm="required")
        assert play.end() != 0, play.text[-4000:]
        assert "osd.0 read past the page cache (bluefs_buffered_io=false): nothing can be kept in memory for them" in sentences(play.text)
        assert cluster.up_from() == epochs
        held = cluster.module("ceph1", "ceph_osd_hold", osd=0)
        assert (held["usable"], held["changed"]) == (False, False)
    finally:
        cluster.hosts["ceph1"].run("ceph tell osd.0 config unset bluefs_buffered_io")
    assert cluster.left_over() == {}
    assert not cluster.under_way()
