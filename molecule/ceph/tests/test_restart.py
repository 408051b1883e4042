# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""OSDs restarted, one after the other. In the order in which they stand: each test begins with the healthy cluster that the one before left."""

from __future__ import annotations

import json
import os
import typing as t
from pathlib import Path

import pytest
from conftest import ADMIN, DEPLOYMENTS, HOST_OF, ONE_OF_EACH, VARIABLES, Cluster, last_record, reads
from fleet import sentences

# What a start has to read whatever is in memory: superblocks, labels, and the log of BlueFS, past the page cache.
UNAVOIDABLE = 60
# Ceph's library for Python, which a watch needs, is on the hosts of packaged OSDs alone.
WATCHED = set(DEPLOYMENTS.values()) == {"packaged"}
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


@pytest.mark.skipif(not WATCHED, reason="nothing is measured without python3-rados")
@pytest.mark.parametrize(("host", "osds"), [("ceph1", "osd.0, osd.1"), ("ceph2", "osd.2, osd.3")])
def test_what_the_restarts_did_to_the_cluster_is_measured_and_drawn(host: str, osds: str) -> None:
    record = last_record(Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "reports", host)
    [row] = json.loads(record.read_text(encoding="utf-8"))["restarts"]
    assert (row["osds"], row["how"], row["whole"]) == (osds, "prewarm auto", True)
    assert all(row[what] > 0 for what in ("away", "stop", "up", "reads", "score", "peak")) and row["clean"] >= 0
    page = record.with_suffix(".html").read_text(encoding="utf-8")
    assert page.count("<path d=") == 2 and f"{row['score']:.1f} PG·s" in page


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
    named: dict[str, t.Any] = {"ceph_osd_restart_ignore": ["OSD_FLAGS"], "ceph_osd_restart_afresh": True}
    if WATCHED:
        named |= {"watched": True, "ceph_osd_restart_probe_pool": "probe"}
    epochs = cluster.up_from()
    plain = reads(cluster.restarted(HOST_OF[osd], [osd], ceph_osd_restart_prewarm="never", **named), osd)
    between = cluster.up_from()
    assert cluster.flags() == flagged
    if WATCHED:
        named["ceph_osd_restart_before"] = str(last_record(cluster.reports, HOST_OF[osd]))
    held = reads(cluster.restarted(HOST_OF[osd], [osd], ceph_osd_restart_prewarm="required", **named), osd)
    now = cluster.up_from()
    assert cluster.flags() == flagged
    assert epochs[osd] < between[osd] < now[osd]
    assert {**now, osd: 0} == {**epochs, osd: 0}
    assert held <= UNAVOIDABLE
    assert held * 3 <= plain, f"{held} reads held, {plain} plain"
    assert cluster.left_over() == {}
    if WATCHED:
        beside(json.loads(Path(named["ceph_osd_restart_before"]).read_text(encoding="utf-8")), last_record(cluster.reports, HOST_OF[osd]), osd)


def beside(before: dict[str, t.Any], record: Path, osd: int) -> None:
    """Before and after are on one page, with what a client has waited for."""
    restarts = [*before["restarts"], *json.loads(record.read_text(encoding="utf-8"))["restarts"]]
    assert [(row["osds"], row["how"]) for row in restarts] == [(f"osd.{osd}", "prewarm never"), (f"osd.{osd}", "prewarm required")]
    assert all(0 < row["p50"] <= row["worst"] for row in restarts)
    page = record.with_suffix(".html").read_text(encoding="utf-8")
    assert page.count('<tr class="before">') == page.count('<tr class="now">') == 1
    assert all(f"{row['score']:.1f} PG·s" in page and f"<td>{row['worst']}</td>" in page for row in restarts)


def test_what_is_no_record_of_restarts_is_refused(cluster: Cluster) -> None:
    epochs = cluster.up_from()
    play = cluster.begin("ceph1", [0], ceph_osd_restart_before="no-such-record.json")
    assert play.end() != 0, play.text[-4000:]
    assert "no-such-record.json is no record of restarts: name a file ceph-….json" in sentences(play.text)
    assert (cluster.up_from(), cluster.under_way()) == (epochs, False)


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
        held = cluster.module("ceph1", "ceph_osd_pin", osd=0)
        assert (held["usable"], held["changed"]) == (False, False)
    finally:
        cluster.hosts["ceph1"].run("ceph tell osd.0 config unset bluefs_buffered_io")
    assert cluster.left_over() == {}
    assert not cluster.under_way()
