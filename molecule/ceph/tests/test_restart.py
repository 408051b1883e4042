# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""OSDs restarted, one after the other. In the order in which they stand: each test begins with the healthy cluster that the one before left."""

from __future__ import annotations

from conftest import ADMIN, HOST_OF, Cluster, reads
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
    assert set(cluster.flags()) == {"cluster"}


def test_a_held_one_reads_little(cluster: Cluster) -> None:
    """Counts, whatever the machine does beside: what a plain start reads is in memory after a held one's stop."""
    plain = reads(cluster.restarted("ceph1", [0], ceph_osd_restart_prewarm="never"), 0)
    cluster.gets_well()
    held = reads(cluster.restarted("ceph1", [0], ceph_osd_restart_prewarm="required"), 0)
    cluster.gets_well()
    assert held <= UNAVOIDABLE
    assert held * 3 <= plain, f"{held} reads held, {plain} plain"
    assert cluster.left_over() == {}


def test_flags_stay_as_somebody_set_them(cluster: Cluster) -> None:
    """And health that was bad before keeps everything as it is, unless it is named."""
    cluster.hosts[ADMIN].run("ceph osd set-group noout osd.2")
    try:
        flags, epochs = cluster.flags(), cluster.up_from()
        refused = cluster.begin("ceph2", [2, 3])
        assert refused.end() != 0, refused.text[-4000:]
        assert "osd.2 may not be stopped: the cluster is not healthy (OSD_FLAGS:" in sentences(refused.text)
        assert (cluster.up_from(), cluster.flags()) == (epochs, flags)
        cluster.restarted("ceph2", [2, 3], ceph_osd_restart_ignore=["OSD_FLAGS"], ceph_osd_restart_together=2, ceph_osd_restart_afresh=True)
        now = cluster.up_from()
        assert now[2] > epochs[2] and now[3] > epochs[3]
        assert (now[0], now[1]) == (epochs[0], epochs[1])
        assert cluster.flags() == flags
    finally:
        cluster.hosts[ADMIN].run("ceph osd unset-group noout osd.2")
    cluster.gets_well()
    assert cluster.left_over() == {}


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


def test_pages_of_real_files(cluster: Cluster) -> None:
    """What the module says is what another program sees."""
    host = cluster.hosts["ceph2"]
    host.run("head -c 4M /dev/urandom >/var/tmp/pages && sync /var/tmp/pages")
    asked = {"paths": ["/var/tmp/page*"]}
    try:
        assert cluster.module("ceph2", "vmtouch", state="evicted", **asked)["resident"] == 0
        assert cluster.module("ceph2", "vmtouch", state="locked", name="scenario", seconds=120, **asked)["resident"] == 1024
        assert cluster.module("ceph2", "vmtouch", state="evicted", **asked)["resident"] == 1024
        assert "Locked:" in host.run("grep Locked: /proc/$(systemctl show --property=MainPID --value handover-vmtouch-scenario)/smaps | grep -v ' 0 kB'")
        assert cluster.module("ceph2", "vmtouch", state="unlocked", name="scenario")["changed"]
        assert cluster.module("ceph2", "vmtouch", state="evicted", **asked)["resident"] == 0
        refused = cluster.module("ceph2", "vmtouch", state="touched", limit="1M", **asked)
        assert refused["msg"] == "what is to be in memory is 4 MiB, more than the limit of 1 MiB: raise the limit, or name less"
        assert cluster.module("ceph2", "vmtouch", state="queried", **asked)["resident"] == 0
    finally:
        host.ask("systemctl stop handover-vmtouch-scenario; rm -f /var/tmp/pages /run/handover-vmtouch/scenario")


def test_what_reads_past_the_cache_is_refused(cluster: Cluster) -> None:
    """Where nothing can be held, it is said before anything is done, if it was asked for."""
    cluster.hosts["ceph1"].run("ceph daemon osd.0 config set bluefs_buffered_io false")
    try:
        epochs = cluster.up_from()
        play = cluster.begin("ceph1", [0], ceph_osd_restart_prewarm="required")
        assert play.end() != 0, play.text[-4000:]
        assert "osd.0 read past the page cache (bluefs_buffered_io=false): nothing can be kept in memory for them" in sentences(play.text)
        assert cluster.up_from() == epochs
        held = cluster.module("ceph1", "ceph_osd_hold", osd=0)
        assert held["usable"] is False
        assert "osd.0 has bluefs_buffered_io=false and reads its database past the page cache" in str(held["warnings"])
    finally:
        cluster.hosts["ceph1"].run("ceph daemon osd.0 config unset bluefs_buffered_io")
    assert cluster.left_over() == {}
    assert not cluster.under_way()
