# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What may happen in the middle of a restart: the play stops, the flags are as before, one sentence says why, and a second run ends well.

CEPH_FAULTS=all runs every case, CEPH_FAULTS=disk those whose name has the word; without it a sample is run.
"""

from __future__ import annotations

import os
import re
import typing as t
from dataclasses import dataclass, field

import pytest
from conftest import ADMIN, DEPLOYMENTS, HOST_OF, VARIABLES, Cluster, home_of, unit_of
from fleet import Host, Play, play, sentences, until

AWAY, CLEAN, CALM = "Down and up | Restart them", "Wait until the cluster has recovered", "Wait until it may be stopped"
UNITS = "/etc/systemd/system"
# A disk that is full, laid over a folder and with what is in it.
FILL = """
folder={folder}; mkdir -p $folder /run/full && mount -t tmpfs -o size=512k full /run/full && cp -a $folder/. /run/full/
mount --bind /run/full $folder && umount /run/full && rmdir /run/full
dd if=/dev/zero of=$folder/.filler bs=1k 2>/dev/null; ! echo more >$folder/.more; rm -f $folder/.more
"""
# The monitors need some seconds to miss one of them.
SEEN = "for try in $(seq 60); do ceph health detail | grep -q {check} && exit; sleep 1; done; exit 1"


@dataclass(frozen=True)
class Fault:
    """What is done to a restart of one OSD, when, and what the play has to say."""

    osds: tuple[int, ...]  # of one host; the first is struck
    strike: t.Callable[[Cluster], None]
    heal: t.Callable[[Cluster], None]
    says: str
    at: str = ""  # the task before which the play waits meanwhile; none: before it begins
    back: tuple[int, ...] = ()  # those that have been down and up once it is healed, before the second run
    asked: t.Mapping[str, t.Any] = field(default_factory=dict)


def on(name: str, script: str) -> t.Callable[[Cluster], None]:
    def act(cluster: Cluster) -> None:
        cluster.hosts[name].run(script, 120)

    return act


def nothing(_cluster: Cluster) -> None:
    """Nothing is to be healed, or nothing is struck but what the play is asked."""


def fill(name: str, folder: str) -> t.Callable[[Cluster], None]:
    return on(name, FILL.format(folder=folder))


def empty(name: str, folder: str) -> t.Callable[[Cluster], None]:
    return on(name, f"! mountpoint -q {folder} || umount {folder}")


# A host boots from the disk of its release.
RELEASE = {"ceph_release": VARIABLES["ceph_release"]}


def lose_power(cluster: Cluster) -> None:
    play("lab/power.yml", power_host="ceph2", **RELEASE)
    cluster.hosts["ceph2"].ask("true", 20)


def boot(cluster: Cluster) -> None:
    play("lab/power.yml", power_host="ceph2", power_state="started", **RELEASE)
    host: Host = cluster.hosts["ceph2"]
    until("ceph2 answers", lambda: host.ask("systemctl is-system-running --wait || true", 90).returncode == 0, 120)


def never_up(osds: tuple[int, ...]) -> Fault:
    """The first of these OSDs has no key any more."""
    osd = osds[0]
    keyring = f"{home_of(osd)}/keyring"
    return Fault(
        osds=osds,
        strike=on(HOST_OF[osd], f"mv {keyring} {keyring}.aside"),
        heal=on(HOST_OF[osd], f"mv {keyring}.aside {keyring}; systemctl reset-failed {unit_of(osd)}; systemctl start {unit_of(osd)}"),
        says=rf"osd\.{osd} (has failed to start|did not come up within 8 s): .*keyring.*The flags of its OSDs are as before",
        back=(osd,),
        asked={"ceph_osd_restart_up_timeout": 8},
    )


FAULTS = {
    "OSD never comes up": never_up((2, 3)),
    **({"OSD of cephadm never comes up": never_up((0, 1))} if DEPLOYMENTS[0] == "cephadm" else {}),
    "monitor lost": Fault(
        osds=(3,),
        at=CLEAN,
        strike=on(ADMIN, f"systemctl stop ceph-mon@c; {SEEN.format(check='MON_DOWN')}"),
        heal=on(ADMIN, "systemctl start ceph-mon@c"),
        says=r"osd\.3 came back, but the cluster is not healthy any more \(MON_DOWN: .*\).*The flags of its OSDs are as before",
        back=(3,),
        # What is measured goes on, and is in nobody's way.
        asked={"watched": True},
    ),
    "limit of memory": Fault(
        osds=(0,),
        strike=nothing,
        heal=nothing,
        says=r"the database of osd\.0 is .*, more than the limit of 1 MiB: raise the limit.*The flags of its OSDs are as before",
        asked={"ceph_osd_restart_limit": "1M"},
    ),
    "MemAvailable too small": Fault(
        osds=(3,),
        strike=nothing,
        heal=nothing,
        says=r"(what is to be in memory|the database of osd\.3) is .*, and this host has .* of memory available, of which 8 TiB are to stay free: free memory"
        r".*The flags of its OSDs are as before",
        asked={"ceph_osd_restart_reserve": "8T"},
    ),
    "disk of the lease full": Fault(
        osds=(3,),
        at=CALM,
        strike=fill(ADMIN, UNITS),
        heal=empty(ADMIN, UNITS),
        says=r"the lease of noout of osd\.\d cannot be written to .*: No space left on device; nothing was set.*The flags of its OSDs are as before",
    ),
    "disk of the pinned list full": Fault(
        osds=(2,),
        strike=fill("ceph2", "/run/handover-ceph"),
        heal=empty("ceph2", "/run/handover-ceph"),
        says=r"/run/handover-ceph/\S+?( cannot be written: No|: no) space left on device; make room there.*The flags of its OSDs are as before",
    ),
    "OSDs full": Fault(
        osds=(3,),
        at=CLEAN,
        strike=on(ADMIN, f"ceph osd set-nearfull-ratio 0.001; {SEEN.format(check='OSD_NEARFULL')}"),
        heal=on(ADMIN, "ceph osd set-nearfull-ratio 0.85"),
        says=r"osd\.3 came back, but the cluster is not healthy any more \(OSD_NEARFULL: .*\).*The flags of its OSDs are as before",
        back=(3,),
    ),
    "host rebooted": Fault(
        osds=(2,),
        at=AWAY,
        strike=lose_power,
        heal=boot,
        says=r"ceph2 could not be reached any more while osd\.2 was restarted.*The flags of its OSDs are as before",
        back=(2, 3),
    ),
}
# Where nothing is stopped yet, one after the other befalls the same OSD before the run that ends well.
TOGETHER = "MemAvailable too small, disk of the lease full"
SAMPLE = [*(name for name in FAULTS if "never comes up" in name), "monitor lost", TOGETHER, "host rebooted"]


def asked(cases: t.Sequence[str], sample: t.Sequence[str]) -> list[str]:
    word = os.environ.get("CEPH_FAULTS", "")
    if not word:
        return list(sample)
    return [case for case in cases if word == "all" or word in case]


def stopped(play: Play) -> None:
    assert play.stopped.wait(240), play.text[-5000:]


@pytest.mark.parametrize("case", asked([*FAULTS, TOGETHER], SAMPLE))
def test_a_restart_that_is_struck(cluster: Cluster, case: str) -> None:
    faults = [FAULTS[name] for name in case.split(", ")]
    cluster.gets_well()
    flags, epochs = cluster.flags(), cluster.up_from()
    for fault in faults:
        strike(cluster, fault)
    # Of a host that lost power nobody may have noticed yet that it is gone, and the cluster looks well.
    until("what was struck is back", lambda: all(cluster.up_from()[osd] > epochs[osd] for osd in faults[-1].back))
    cluster.gets_well()
    ends_well(cluster, faults[-1].osds, epochs)
    assert cluster.flags() == flags


def strike(cluster: Cluster, fault: Fault) -> None:
    """Restarts, strikes, and sees that the play stops, says why, and leaves everything else as it was."""
    struck = fault.osds[0]
    flags, epochs = cluster.flags(), cluster.up_from()
    try:
        if not fault.at:
            fault.strike(cluster)
        play = cluster.begin(HOST_OF[struck], fault.osds, stop_at=fault.at, **fault.asked)
        try:
            if fault.at:
                stopped(play)
                fault.strike(cluster)
                play.go_on()
            assert play.end() != 0, play.text[-5000:]
        finally:
            play.kill()
        assert re.search(fault.says, sentences(play.text)), play.text[-5000:]
        assert cluster.flags() == flags
        standing = {osd: epoch for osd, epoch in cluster.up_from().items() if osd != struck}
        assert standing == {osd: epoch for osd, epoch in epochs.items() if osd != struck}, "it went on after the first that did not come back"
    finally:
        fault.heal(cluster)


def ends_well(cluster: Cluster, osds: t.Sequence[int], epochs: t.Mapping[int, int], watched: bool = False) -> None:
    """The same again: what is back already is not restarted twice, and nothing is left of either run."""
    between = cluster.up_from()
    again = cluster.restarted(HOST_OF[osds[0]], osds, watched=watched)
    now = cluster.up_from()
    assert all(now[osd] > epochs[osd] for osd in osds), again[-5000:]
    done = [osd for osd in osds if between[osd] > epochs[osd]]
    assert [now[osd] for osd in done] == [between[osd] for osd in done], f"restarted twice:\n{again[-5000:]}"
    assert {osd: now[osd] for osd in now if osd not in osds} == {osd: between[osd] for osd in now if osd not in osds}
    assert cluster.left_over() == {}
    assert not cluster.under_way()


@pytest.mark.parametrize("moment", asked(["killed while it is down", "killed while it recovers"], ["killed while it is down"]))
def test_a_controller_that_is_killed(cluster: Cluster, moment: str) -> None:
    """The restart comes to its end all the same. The flag has a lease, and the next run does not wait for that."""
    cluster.gets_well()
    flags, epochs = cluster.flags(), cluster.up_from()
    host, process = cluster.hosts["ceph2"], "systemctl show --property=MainPID --value ceph-osd@2"
    before = host.run(process)
    play = cluster.begin("ceph2", [2], stop_at=CLEAN if moment.endswith("recovers") else "", watched=True)
    try:
        if moment.endswith("recovers"):
            stopped(play)
        else:
            until("osd.2 goes down", lambda: host.run(process) != before or play.process.poll() is not None)
        assert play.process.poll() is None, play.text[-5000:]
    finally:
        play.kill()
    until("osd.2 is back", lambda: cluster.up_from()[2] > epochs[2], 120)
    meanwhile = ["bluestore_default_buffered_write=true", "mgr/balancer/active=false", "paxos_propose_interval=0.100000"]
    assert cluster.flags() == {**flags, "osd.2": ["noout"], "options": meanwhile}
    admin = cluster.hosts[ADMIN]
    assert admin.run("systemctl is-active handover-noout-osd.2.timer").strip() == "active"
    if moment.endswith("recovers"):
        # What the timer does when the time is up.
        names = ("mon-paxos_propose_interval", "mgr-mgr-balancer-active", "osd-bluestore_default_buffered_write")
        options = [f"handover-option-{name}.service" for name in names]
        admin.run(f"systemctl start handover-noout-osd.2.service {' '.join(options)}")
        assert cluster.flags() == flags
        assert "leases" not in cluster.left_over().get(ADMIN, {})
    ends_well(cluster, [2], epochs, watched=True)
    assert cluster.flags() == flags


@pytest.mark.skipif(DEPLOYMENTS[2] != "packaged", reason="nothing is read ahead at boot for OSDs in containers")
@pytest.mark.skipif(not asked(["rebooted by the role"], []), reason="only with CEPH_FAULTS")
def test_a_host_that_is_rebooted_reads_ahead(cluster: Cluster) -> None:
    """Once for that boot, before the OSD starts; and the OSD then finds in memory what it would read."""
    cluster.gets_well()
    flags, epochs = cluster.flags(), cluster.up_from()
    host = cluster.hosts["ceph2"]
    own = "for osd in 2 3; do grep ^read_bytes: /proc/$(systemctl show --property=MainPID --value ceph-osd@$osd)/io; done"
    read = {}
    for boot, compact in (("never", "never"), ("once", "auto")):
        cluster.restarted(
            "ceph2", ceph_osd_restart_state="rebooted", ceph_osd_restart_boot=boot, ceph_osd_restart_compact=compact, ceph_osd_restart_afresh=True
        )
        read[boot] = sum(map(int, host.run(own).split()[1::2]))
        now = cluster.up_from()
        assert all(now[osd] > epochs[osd] for osd in (2, 3))
        epochs = now
        cluster.gets_well()
    assert read["once"] * 4 < read["never"] * 3, read
    assert cluster.flags() == flags
    assert cluster.left_over() == {}


@pytest.mark.skipif(not asked(["cannot be rebooted"], []), reason="only with CEPH_FAULTS")
def test_a_host_that_cannot_be_rebooted(cluster: Cluster) -> None:
    """Nothing was stopped for it, and so the next run does not take it for done."""
    cluster.gets_well()
    flags, epochs = cluster.flags(), cluster.up_from()
    host = cluster.hosts["ceph2"]
    host.run("mv /usr/sbin/shutdown /usr/sbin/shutdown.away && ln -s /bin/false /usr/sbin/shutdown")
    try:
        play = cluster.begin("ceph2", ceph_osd_restart_state="rebooted", ceph_osd_restart_afresh=True)
        try:
            assert play.end() != 0, play.text[-5000:]
        finally:
            play.kill()
        assert re.search("Reboot command failed.*The flags of its OSDs are as before", sentences(play.text)), play.text[-5000:]
    finally:
        host.run("mv --force /usr/sbin/shutdown.away /usr/sbin/shutdown")
    assert (cluster.flags(), cluster.up_from()) == (flags, epochs)
    cluster.restarted("ceph2", ceph_osd_restart_state="rebooted")
    now = cluster.up_from()
    assert all(now[osd] > epochs[osd] for osd in (2, 3))
    assert cluster.flags() == flags
    assert cluster.left_over() == {}


@pytest.mark.skipif(not asked(["monitors lost"], []), reason="only with CEPH_FAULTS")
def test_a_cluster_that_does_not_answer_any_more(cluster: Cluster) -> None:
    """Without most of its monitors no flag can be taken back by the play. The host of the administrator does it as soon as it can."""
    cluster.gets_well()
    flags, epochs = cluster.flags(), cluster.up_from()
    lost = {ADMIN: "ceph-mon@c", "ceph2": "ceph-mon@b"}
    play = cluster.begin("ceph2", [3], stop_at=CLEAN)
    try:
        stopped(play)
        for name, unit in lost.items():
            cluster.hosts[name].run(f"systemctl stop {unit}")
        play.go_on()
        assert play.end() != 0, play.text[-5000:]
        assert "this host takes noout of osd.3 back by itself as soon as the cluster answers" in sentences(play.text)
    finally:
        play.kill()
        for name, unit in lost.items():
            cluster.hosts[name].run(f"systemctl start {unit}")
    until("the flag is taken back", lambda: cluster.flags() == flags, 90)
    cluster.gets_well()
    ends_well(cluster, [3], epochs)
