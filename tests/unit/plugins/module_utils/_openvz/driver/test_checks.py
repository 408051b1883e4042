# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two hosts of OpenVZ's between which container 101 can move; each test breaks one fact and reads the sentence."""

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.inventory import REFUSED, TOLD
from ansible_collections.livefleet.handover.plugins.module_utils._core.move import Move
from ansible_collections.livefleet.handover.plugins.module_utils._drivers.examiners import EXAMINERS
from ansible_collections.livefleet.handover.plugins.module_utils._openvz.driver import checks, facts, gate, inventory, look, told

GIB = 2**30
CONF = """ONBOOT="yes"
NAME="shop"
IP_ADDRESS="192.0.2.101 2001:db8::101"
NETIF="ifname=eth0,bridge=vmbr0,mac=00:18:51:A0:8F:61"
DEVNODES="net/tun:rw"
VE_PRIVATE="/vz/private/$VEID"
VE_LAYOUT="simfs"
"""


def seen(conf=CONF, **more):
    return {
        "id": "101", "status": "CTID 101 exist mounted running", "vzctl": "vzctl version 4.11.1", "private": "/vz/private/101", "mountpoint": "/vz/root/101",
        "layout": "simfs", "kib": 4, "files": {"conf": conf, "vz.conf": ""}, "scripts": {"101.mount": "", "vps.mount": "", "vps.premount": ""}, **more,
    }  # fmt: skip


def host(address):
    return {
        "arch": "x86_64", "clock": 1000.0, "systemd": [257], "interfaces": ["lo", "host0", "vmbr0"], "cpu_features": ["sse2"],
        "addresses": [{"address": address, "prefix": 24, "interface": "host0"}], "sessions": {"path": "/var/lib/handover/sessions", "free": GIB},
        "pcopy": {"installed": True, "interface": 99, "protocol": 1, "sessions": []},
        "openvz": {
            "installed": True, "version": [4, 11, 1], "kernel": False, "ploop": False, "gate": "", "private": "/vz/private/101", "root": "/vz/root/101",
            "private_exists": False, "store": {"path": "/vz/private/101", "free": GIB}, "lock": "", "containers": [], "taken": [], "ipv6": True,
            "dump": "/vz/dump/handover.101", "dump_store": {"path": "/vz/dump", "free": GIB}, "checkpoint": 776, "capabilities": 63, "quota": True,
        },
    }  # fmt: skip


@pytest.fixture
def world():
    workload = {**facts.facts_of(seen()), "unaccounted": [], "dump": "", "linked": False, "fstype": "ext4", "unreadable": [], "inside": False}
    directory = {"name": "private", "path": "/vz/private/101", "size": 4096, "anonymous": False, "shared_with": []}
    workload["mounts"] = [{"type": "private", "name": "private", "source": "/vz/private/101", "destination": "/", "directory_volume": directory}]
    return {
        "here": {"workload": workload, "host": host("192.0.2.1"), "problems": []},
        "there": {"workload": {"exists": False, "running": False, "held": False, "state": ""}, "host": host("192.0.2.2"), "problems": []},
        "mode": "offline",
        "source": "node1",
        "options": {},
    }


def move(world):
    return Move("101", world["source"], "node2", world["mode"], world["here"], world["there"], **world["options"])


def put(path, value):
    def break_it(world):
        *keys, last = path.split("/")
        for key in keys:
            world = world[key]
        world[last] = value

    return break_it


def parameter(name, value):
    return lambda world: world["here"]["workload"]["parameters"].update({name: value})


def live(*steps):
    def break_it(world):
        for step in (put("mode", "live"), *steps):
            step(world)

    return break_it


def quota(step):
    def break_it(world):
        world["here"]["workload"]["quota"] = True
        step(world)

    return break_it


@pytest.mark.parametrize(
    ("name", "value", "layout", "carried"),
    [
        ("QUOTAUGIDLIMIT", "200", "simfs", True),
        ("QUOTAUGIDLIMIT", "0", "simfs", False),
        ("QUOTAUGIDLIMIT", "200", "ploop", False),
        ("DISK_QUOTA", "yes", "simfs", False),
    ],
)
def test_limits_of_its_users_are_carried_where_the_host_keeps_them(world, name, value, layout, carried):
    found = facts.facts_of(seen(CONF + f'{name}="{value}"\n', layout=layout))
    assert found["quota"] is carried and not facts.facts_of(seen(CONF + f'{name}="{value}"\nDISK_QUOTA="no"\n', layout=layout))["quota"]
    world["here"]["workload"]["quota"] = carried
    assert checks.examine(move(world)) == ([], []) and checks.twin(move(world))["dump"] is carried


def newer(*steps):
    """Both hosts have libvzctl, and the container is one of its own."""

    def break_it(world):
        for side in ("here", "there"):
            world[side]["host"]["openvz"]["version"] = [7, 0, 280]
        world["here"]["workload"].update(newer=True, inside=True)
        for step in steps:
            step(world)

    return break_it


def test_nothing_is_in_the_way_of_one_of_a_later_era(world):
    newer()(world)
    assert checks.examine(move(world)) == ([], [])
    put("there/host/openvz/root", "/srv/root/101")(world)
    assert "root" not in " ".join(told.told(move(world)))


def test_a_later_configuration_under_vzctl_4_is_one_of_vzctl_4(world):
    later = CONF + 'VEFORMAT="ploop"\n'
    assert not facts.facts_of(seen(later))["newer"] and facts.facts_of(seen(later, vzctl="vzctl version 7.0.280"))["newer"]
    assert not facts.facts_of(seen(CONF, vzctl="vzctl version 7.0.280"))["newer"]


def test_nothing_is_in_the_way(world):
    assert checks.examine(move(world)) == ([], [])
    assert EXAMINERS["openvz"].directories(move(world)) == [world["here"]["workload"]["mounts"][0]["directory_volume"]]
    assert checks.twin(move(world)) == {"made": True, "volumes": ["private"], "folders": [], "secrets": [], "dump": False}


def test_nothing_is_in_the_way_of_a_live_move(world):
    put("mode", "live")(world)
    assert checks.examine(move(world)) == ([], [])
    assert checks.twin(move(world))["dump"]


BROKEN = [
    ("same_host", put("source", "node2"), "is on node2 already"),
    ("openvz", put("there/host/openvz/installed", False), "OpenVZ is not on node2"),
    ("workload", put("here/workload/exists", False), "OpenVZ has no container 101 on node1"),
    ("name", put("here/workload/id", "102"), "name it 102"),
    ("gate", put("there/host/openvz/gate", "vps.premount is missing"), "nothing would keep OpenVZ on node2 from starting 101"),
    ("gate", put("here/host/openvz/gate", "vps.premount is missing"), "nothing would keep OpenVZ on node1 from starting 101"),
    ("running", put("here/workload/state", "suspended"), "let it go on there with `vzctl restore 101`"),
    ("running", put("here/workload/state", "paused"), "let it go on there with `vzctl chkpnt 101 --resume`"),
    ("running", put("here/workload/state", "mounted"), "unmount it there with `vzctl umount 101`"),
    ("running", put("here/workload/dump", "/vz/dump/Dump.101"), "has a dump of its memory on node1 (/vz/dump/Dump.101)"),
    ("live", live(put("here/workload/running", False), put("here/workload/state", "stopped")), "101 is stopped on node1 and has no memory to hand over"),
    ("live", live(put("here/host/openvz/checkpoint", 0)), "the kernel of node1 cannot dump 101 (`vzcptcheck version` gives none)"),
    ("live", live(put("there/host/openvz/capabilities", 0)), "the kernel of node2 cannot restore 101 (`vzcptcheck caps` gives none)"),
    ("checkpoint", live(put("there/host/openvz/checkpoint", 775)), "node1 writes dumps of version 776, and that of node2 reads them up to version 775"),
    ("cpu", live(put("there/host/openvz/capabilities", 31)), "(`vzcptcheck caps` says 31 there and 63 here)"),
    ("databases", live(put("here/workload/databases", ["/srv/wiki.db"])), "101 has the SQLite database /srv/wiki.db open on node1, known to it by device"),
    ("cpu", live(put("there/host/cpu_features", [])), "the processor of node2 lacks sse2"),
    ("space", live(put("here/host/openvz/dump_store", {"path": "/vz/dump", "free": 0})), "for the dump of its memory"),
    ("workload", put("here/workload", {"exists": False, "held": False, "machine": True}), "101 is a virtual machine on node1"),
    ("era", put("there/host/openvz/version", [7, 0, 280]), "vzctl is 4.11.1 on node1 and 7.0.280 on node2, and the two read other configurations"),
    ("era", newer(put("here/workload/newer", False)), "101 is of an earlier OpenVZ than node1 itself"),
    ("era", newer(put("here/workload/inside", False)), "is not /vz/private/101/ve.conf: register it there with `vzctl register /vz/private/101 101`"),
    ("layout", newer(put("here/workload/fstype", "fuse.vstorage")), "is on fuse.vstorage, which other hosts see as well"),
    ("files", put("here/workload/unreadable", ["101.conf"]), "the file /etc/vz/conf/101.conf on node1 is no plain text of UTF-8"),
    ("engine_lock", put("here/host/openvz/lock", "4711"), "process 4711 has its lock"),
    ("layout", put("here/workload/layout", "vzfs"), "is vzfs, and only simfs and ploop can move"),
    ("layout", put("here/workload/layout", ""), "of no kind that is known here"),
    ("layout", put("here/workload/linked", True), "is a link"),
    ("filesystem", put("here/workload/fstype", "overlay"), "put it on ext4 or xfs"),
    ("ploop", put("here/workload/layout", "ploop"), "node2 gives it no device (`ploop getdev`)"),
    ("already_there", lambda world: world["there"]["workload"].update(exists=True, state="running"), "node2 has a container 101 already, which is running"),
    ("already_there", put("there/host/openvz/private_exists", True), "/vz/private/101 is on node2 already, and is never overwritten"),
    ("names", put("there/host/openvz/containers", [{"id": "7", "name": "shop"}]), "the container 7 on node2 is called shop"),
    ("addresses", put("there/host/openvz/taken", [{"address": "2001:db8::101", "container": "7"}]), "2001:db8::101 of 101 is that of the container 7"),
    ("bridges", put("there/host/interfaces", ["lo"]), "an interface on the bridge vmbr0, which node2 does not have"),
    ("ipv6", put("there/host/openvz/ipv6", False), "the module ipv6 is not loaded on node2"),
    ("devices", parameter("NETDEV", "eth5"), "has devices of node1 (eth5)"),
    ("devices", parameter("DEVNODES", "net/tun:rw,sdb:rw"), "has devices of node1 (sdb:rw)"),
    ("devices", parameter("DEVICES", "b:8:16:rw"), "has devices of node1 (b:8:16:rw)"),
    ("disks", parameter("DISK", "enabled=yes,image=/data/x.hdd"), "has a disk beside that of its root"),
    ("bind_mounts", parameter("BINDMOUNT", "/srv:/srv"), "mounts a folder of node1"),
    ("cluster", parameter("HA_ENABLE", "yes"), "is under high availability"),
    ("quota", quota(put("here/host/openvz/quota", False)), "in its quota (QUOTAUGIDLIMIT), and node1 lacks vzdqdump, vzdqload or vzquota"),
    ("quota", quota(put("there/host/openvz/quota", False)), "or list the check 'quota' in handover_ignore_checks"),
    ("scripts", put("here/workload/scripts", {"101.reinstall": ""}), "has the script 101.reinstall on node1"),
    ("vzctl_version", put("there/host/openvz/version", [4, 9, 4]), "vzctl is 4.11.1 on node1 and 4.9.4 on node2, which is older"),
    ("openvz_kernel", put("here/host/openvz/kernel", True), "node1 runs OpenVZ's kernel and node2 does not"),
    ("arch", put("there/host/arch", "aarch64"), "node2 is aarch64"),
    ("space", put("there/host/openvz/store", {"path": "/vz", "free": 0}), "for its private area"),
    ("memory_options", put("options", {"lazy_pages": True}), "migrate_lazy_pages is about the memory of podman's containers"),
    ("pcopy", put("there/host/pcopy/installed", False), "the helper pcopy is missing on node2"),
    ("systemd", put("there/host/systemd", []), "node2 does not run systemd"),
    ("clock", put("there/host/clock", 2000.0), "the clocks of node1 and node2"),
    ("unanswered", put("there/problems", ["vzctl was slow"]), "could not be examined in full: vzctl was slow"),
    ("inventory:COLOUR", put("here/workload/unaccounted", ["COLOUR"]), "has the parameter COLOUR in its configuration on node1"),
]  # fmt: skip


@pytest.mark.parametrize(("check", "break_it", "says"), BROKEN, ids=[row[0] for row in BROKEN])
def test_a_fault_is_named(world, check, break_it, says):
    break_it(world)
    found, _ignored = checks.examine(move(world))
    assert check in {each.check for each in found} and says in " ".join(each.sentence for each in found), found


def test_each_check_is_broken_once_here():
    tried = {check for check, _break_it, _says in BROKEN}
    assert {*checks.BASICS, *checks.FIRM, *checks.CHECKS} - tried == {"locked"}


def test_what_would_lose_something_cannot_be_ignored(world):
    assert checks.unknown_names([*checks.BASICS, *checks.FIRM]) == [*checks.BASICS, *checks.FIRM]
    assert checks.unknown_names(["space", "inventory:COLOUR"]) == []
    put("there/host/openvz/store", {"path": "/vz", "free": 0})(world)
    found, ignored = checks.examine(move(world), ["space"])
    assert found == [] and [each.check for each in ignored] == ["space"]


def test_the_disk_of_ploop_and_the_host_s_scripts_are_told(world):
    world["here"]["workload"].update(layout="ploop")
    parameter("CPUMASK", "0-3")(world)
    put("there/host/openvz/private", "/data/private/101")(world)
    said = " / ".join(told.told(move(world)))
    for part in ("is sent twice", "the scripts vps.mount of node1 stay there", "CPUMASK of 101 is 0-3", "will be /data/private/101 on node2", "(101.mount)"):
        assert part in said


def test_the_disk_of_a_live_one_is_compared(world):
    world["here"]["workload"].update(layout="ploop")
    world["there"]["host"]["openvz"]["ploop"] = True
    world["mode"] = "live"
    assert checks.examine(move(world))[0] == []
    assert "is read as a whole for each pass, and while 101 stands still" in " / ".join(told.told(move(world)))


def test_a_row_that_is_told_or_refused_has_a_check():
    rows = [*inventory.PARAMETERS.values(), *inventory.STATE.values()]
    known = {*EXAMINERS["openvz"].checks, *checks.FIRM, *told.TOLD}
    assert {row.check for row in rows if row.check} <= known
    assert all(row.check for row in rows if row.fate in (TOLD, REFUSED))


# Where the kernel is not OpenVZ's, CRIU dumps and restores.
STOCK = {"way": facts.CRIU, "criu": [4, 2, 1], "criu_gate": "", "freezer": True, "checkpoint": 0, "capabilities": 0}


@pytest.fixture(name="stock")
def stock_hosts(world):
    world["mode"] = "live"
    for side in ("here", "there"):
        world[side]["host"]["openvz"].update(STOCK)
    return world


def sentences(hosts):
    return [(finding.check, finding.sentence) for finding in checks.examine(move(hosts))[0]]


def test_nothing_is_in_the_way_by_criu(stock):
    assert sentences(stock) == []


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (put("here/host/openvz/criu", []), "the kernel of node1 is not OpenVZ's, and there is no CRIU: install criu there"),
        (put("there/host/openvz/criu", []), "the kernel of node2 is not OpenVZ's, and there is no CRIU"),
        (put("here/host/openvz/criu_gate", "X is missing"), "nothing would hold CRIU on node1 before the release (X is missing): apply the role"),
        (put("there/host/openvz/criu_gate", "X is missing"), "nothing would hold CRIU on node2 before the release (X is missing)"),
        (put("here/host/openvz/freezer", False), "node1 has no freezer of cgroup v1, and the tasks of 101 would run on if CRIU were killed"),
        (put("there/host/openvz/freezer", False), "node2 has no freezer of cgroup v1, and a command could run in 101 before the release: mount it there"),
        (put("there/host/openvz/criu", [4, 1, 9]), "CRIU is 4.2.1 on node1 and 4.1.9 on node2, which is older"),
        (put("here/host/openvz/criu", [3, 10]), "CRIU is 3.10 on node1, which does not read /etc/criu/default.conf, and nothing would hold it"),
        (put("here/workload/layout", "ploop"), "101 has a ploop disk, and no stock kernel has a device for it: move it with migrate_mode=offline"),
        (parameter("DUMPDIR", "/big"), "101 has a DUMPDIR of its own (/big), and the dumps of node1 are in /vz/dump, where alone CRIU is held"),
        (put("there/host/openvz/way", facts.KERNEL), "CRIU holds the memory of a container on node1, and OpenVZ's kernel on node2"),
        (put("here/host/openvz/way", facts.KERNEL), "CRIU holds the memory of a container on node2, and OpenVZ's kernel on node1"),
    ],
)
def test_each_obstacle_is_firm_and_says_its_cure(stock, spoil, says):
    spoil(stock)
    found = sentences(stock)
    assert any(check == "live" and says in sentence for check, sentence in found), found
    # It cannot be ignored.
    assert "live" in checks.unknown_names(["live"])


def test_a_dump_s_place_that_moves_with_it_has_to_be_each_host_s(stock):
    put("there/host/openvz/dump", "/big/handover.101")(stock)
    # Without a setting of its own each host has its own place.
    assert sentences(stock) == []
    parameter("DUMPDIR", "/vz/dump/")(stock)
    ((check, sentence),) = sentences(stock)
    assert check == "live" and "and the dumps of node2 are in /big" in sentence
    put("there/host/openvz/dump", "/vz/dump/handover.101")(stock)
    assert sentences(stock) == []


def test_the_way_and_its_losses_are_told(stock):
    said = told.told(move(stock))
    assert any(sentence.startswith("CRIU dumps 101 on node1 and restores it on node2") and "EINTR" in sentence for sentence in said)
    assert any("announces the addresses of 101 from node2 before the release" in sentence for sentence in said)
    put("here/workload/addresses", [])(stock)
    assert not any("announces" in sentence for sentence in told.told(move(stock)))
    put("mode", "offline")(stock)
    assert not any("CRIU" in sentence for sentence in told.told(move(stock)))


@pytest.mark.parametrize(
    ("version", "kernel", "way"),
    [
        ([4, 11, 1], False, facts.CRIU),
        ([4, 11, 1], True, facts.KERNEL),
        ([7, 0, 280], False, facts.LIBVZCTL),
        ([9, 0, 1], True, facts.LIBVZCTL),
        ([], False, facts.KERNEL),
    ],
)
def test_the_host_says_which_way_it_is(version, kernel, way):
    assert facts.way(version, kernel) == way


def test_a_freezer_is_one_of_cgroup_v1():
    v1 = "cgroup /sys/fs/cgroup/freezer cgroup rw,relatime,freezer 0 0\n"
    assert look.has_freezer("proc /proc proc rw 0 0\n" + v1)
    assert look.has_freezer("cgroup /x cgroup rw,cpu,freezer 0 0\n")
    assert not look.has_freezer("cgroup2 /sys/fs/cgroup cgroup2 rw,freezer 0 0\ncgroup /x cgroup rw,cpu 0 0\nshort\n")


def test_the_script_has_to_be_there_and_named(tmp_path):
    script, configuration = tmp_path / "criu-gate", tmp_path / "default.conf"
    asked = (str(configuration), str(script))
    assert gate.obstacle_to_criu(*asked) == f"{script} is missing"
    script.write_text("#!/bin/sh\n", encoding="utf-8")
    assert gate.obstacle_to_criu(*asked) == f"{script} is missing"
    script.chmod(0o755)
    for text in ("", f"# action-script={script}\n", f"action-script={script}x\n", "action-script\n"):
        configuration.write_text(text, encoding="utf-8")
        assert gate.obstacle_to_criu(*asked) == f"{configuration} does not name {script} as an action script"
    for text in (f"link-remap\naction-script={script}\n", f"action-script /other\naction-script {script}  # ours\n"):
        configuration.write_text(text, encoding="utf-8")
        assert gate.obstacle_to_criu(*asked) == ""
