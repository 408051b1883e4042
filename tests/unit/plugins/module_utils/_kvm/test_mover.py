# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Against libvirt itself: two hosts of its test driver, whose guests can be run, paused and removed, and not migrated."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import types
from xml.etree import ElementTree

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import runtime
from ansible_collections.livefleet.handover.plugins.module_utils._kvm import (
    cache,
    disk_look,
    findings,
    keep,
    measure,
    migration,
    mover,
    offline,
    releases,
    sides,
)
from ansible_collections.livefleet.handover.plugins.modules import kvm_disks_info

WEB1 = "11111111-1111-4111-8111-111111111111"
OTHER = "22222222-2222-4222-8222-222222222222"


@pytest.fixture(name="libvirt")
def the_binding(libvirt, monkeypatch):
    # What the test driver knows nothing of: firmware, and QEMU.
    monkeypatch.setattr(libvirt, "VIR_DOMAIN_UNDEFINE_NVRAM", 0)
    monkeypatch.setattr(libvirt, "VIR_DOMAIN_UNDEFINE_KEEP_NVRAM", 0)
    monkeypatch.setattr(libvirt, "VIR_DOMAIN_UNDEFINE_KEEP_TPM", 0)
    monkeypatch.setattr(cache, "DROPS_CACHE_SINCE", (0, 0, 0))
    # And the one of this machine may be old.
    monkeypatch.setattr(releases, "PACKS_SINCE", 0)
    return libvirt


@pytest.fixture(name="hosts")
def two_hosts(libvirt, tmp_path, monkeypatch):
    monkeypatch.setattr(keep, "NOTES", str(tmp_path / "notes"))
    uris = {}
    for side in ("source", "destination"):
        (tmp_path / f"{side}.xml").write_text("<node/>")
        uris[side] = f"test://{tmp_path}/{side}.xml"
    return mover.Mover(libvirt, "web1", uris["source"], uris["destination"])


def put(hosts, side, uuid=WEB1, running=True, devices="", memory=1024):
    """A guest on one of them."""
    domain = hosts.connection(side).defineXML(
        f"<domain type='test'><name>web1</name><uuid>{uuid}</uuid><memory>{memory}</memory><os><type>hvm</type></os><devices>{devices}</devices></domain>"
    )
    if running:
        domain.create()
    return domain


def standing(hosts):
    return hosts.standing("source"), hosts.standing("destination")


def test_what_each_side_says(hosts):
    assert standing(hosts) == (migration.ABSENT, migration.ABSENT)
    here, there = put(hosts, "source"), put(hosts, "destination", running=False)
    assert standing(hosts) == (migration.RUNNING, migration.OFF)
    here.suspend()
    there.create()
    there.suspend()
    # Held on the destination, and on the source left so by somebody.
    assert standing(hosts) == (migration.HALTED, migration.PAUSED)


def test_what_has_arrived_is_let_run(hosts):
    put(hosts, "destination").suspend()
    assert hosts.resolve(0, check_mode=True)["changed"] is True
    assert standing(hosts) == (migration.ABSENT, migration.PAUSED), "a check changes nothing"
    outcome = hosts.resolve(0, check_mode=False)
    assert (outcome["changed"], outcome["moved"]) == (True, True)
    assert standing(hosts) == (migration.ABSENT, migration.RUNNING)
    assert hosts.has_moved()


def test_a_guest_that_somebody_else_has_let_run_meanwhile_is_no_error(hosts, libvirt, monkeypatch):
    guest = put(hosts, "destination")
    guest.suspend()
    decision = hosts._decision()
    guest.resume()
    hosts._act(decision)
    guest.suspend()

    def fails(_domain):
        raise libvirt.libvirtError("no")

    monkeypatch.setattr(libvirt.virDomain, "resume", fails)
    with pytest.raises(runtime.HandoverError, match="resume on the destination failed"):
        hosts._act(decision)


def test_what_does_not_run_has_moved_with_its_definition(hosts):
    put(hosts, "destination", running=False)
    assert hosts.has_moved()
    assert hosts.resolve(0, check_mode=False)["moved"] is True
    assert standing(hosts) == (migration.ABSENT, migration.OFF)


def test_what_was_never_let_run_goes_and_its_definition_too(hosts):
    put(hosts, "source")
    put(hosts, "destination").suspend()
    outcome = hosts.resolve(0, check_mode=False)
    assert (outcome["changed"], outcome["moved"]) == (True, False)
    assert standing(hosts) == (migration.RUNNING, migration.ABSENT)


def test_a_namesake_is_nobodys_leftover(hosts):
    put(hosts, "source")
    put(hosts, "destination", uuid=OTHER).suspend()
    with pytest.raises(runtime.HandoverError, match=f"another guest web1, with the UUID {OTHER} and not {WEB1}"):
        hosts.resolve(0, check_mode=False)
    assert standing(hosts) == (migration.RUNNING, migration.PAUSED)


def test_two_that_run_are_left_to_people(hosts, monkeypatch):
    monkeypatch.setattr(mover, "RECONNECT_SECONDS", 0.0)
    put(hosts, "source")
    put(hosts, "destination")
    with pytest.raises(runtime.HandoverError, match="live on both sides"):
        hosts.resolve(0, check_mode=False)
    assert standing(hosts) == (migration.RUNNING, migration.RUNNING)


def test_a_guest_that_somebody_paused_is_not_resumed(hosts):
    put(hosts, "source").suspend()
    assert hosts.resolve(0, check_mode=False)["changed"] is False
    assert standing(hosts) == (migration.HALTED, migration.ABSENT)


def test_a_side_that_is_silent_decides_nothing(hosts, monkeypatch):
    monkeypatch.setattr(mover, "RECONNECT_SECONDS", 0.0)
    put(hosts, "source")
    hosts.uris["destination"] = "test:///there/is/none.xml"
    with pytest.raises(runtime.HandoverError, match="the destination does not answer.*kvm_migrate_state=resolved"):
        hosts.resolve(0, check_mode=False)


def test_a_host_that_never_answers_is_not_waited_for(hosts, monkeypatch):
    monkeypatch.setattr(sides, "OPEN_SECONDS", 0.2)
    answered = threading.Event()
    monkeypatch.setattr(hosts.libvirt, "open", lambda uri: answered.wait(30))
    try:
        with pytest.raises(runtime.HandoverError, match=r"libvirt on the source cannot be reached as test://.* \(no answer within 0 s\)"):
            hosts.__enter__()
    finally:
        answered.set()


IMAGE = "<disk type='file' device='disk'><source file='{path}'/><target dev='vda' bus='virtio'/></disk>"
# The test driver says nothing of machine types.
IGNORE = frozenset(["machine"])
NOTHING_ELSE = {"places": {}, "trees": {}, "hooks": {}, "links": {}, "addresses": [], "ports": []}


def looked(hosts, absent=()):
    """What both hosts see of the guest's disks. Both are this machine, so every path is on both but those that are said to be `absent`."""
    here = kvm_disks_info.here(hosts.libvirt, hosts.connection("source"), "web1", True)
    there = kvm_disks_info.there(hosts.libvirt, hosts.connection("destination"), here)
    disk_look.unstamp(here["stamps"])
    there["images"].update({path: {**there["images"][path], "exists": False, "kind": "nothing"} for path in absent})
    return findings.Looks({**NOTHING_ELSE, "disks": here}, {**NOTHING_ELSE, "disks": there})


@pytest.mark.parametrize(
    ("guest", "wish", "text"),
    [
        ({}, {"mode": "offline"}, "web1 runs, and kvm_migrate_mode=offline moves guests that do not"),
        ({"running": False}, {}, "web1 does not run: start it first"),
        ({"devices": "<interface type='network'><source network='dmz'/></interface>"}, {}, "the network dmz does not exist on the destination"),
        (
            {"devices": "<disk type='volume' device='disk'><source pool='fast' volume='web1'/><target dev='vda' bus='virtio'/></disk>"},
            {},
            "the storage pool fast of web1 does not exist on the destination",
        ),
        ({"devices": IMAGE.format(path="/etc/hostname")}, {}, "vda as it is: the image is on a file system of this host alone"),
        ({"devices": IMAGE.format(path="/etc/hostname")}, {"storage": "copy", "disks": ("vdb",)}, "web1 has no disk vdb: it has vda"),
        (
            {"devices": "<disk type='block' device='disk'><driver name='qemu' cache='unsafe'/><source dev='/dev/null'/><target dev='vda'/></disk>"},
            {},
            "cache=unsafe ignores flushes, also QEMU's own at the switch",
        ),
    ],
)
def test_what_is_in_the_way_is_named_before_anything_is_touched(hosts, guest, wish, text):
    put(hosts, "source", **guest)
    with pytest.raises(runtime.HandoverError, match=text):
        hosts.plan(migration.Wish(**wish), None, IGNORE, looked(hosts))
    assert hosts.standing("destination") == migration.ABSENT


def test_a_paused_guest_is_not_let_run_elsewhere(hosts):
    put(hosts, "source").suspend()
    with pytest.raises(runtime.HandoverError, match="web1 is paused"):
        hosts.plan(migration.Wish(), None, IGNORE)


@pytest.mark.parametrize("source", [True, False])
def test_what_an_earlier_one_left_is_dealt_with_first(hosts, source):
    if source:
        put(hosts, "source")
    put(hosts, "destination").suspend()
    with pytest.raises(runtime.HandoverError, match="an earlier migration has left web1 paused on the destination"):
        hosts.plan(migration.Wish(), None, IGNORE)


def test_a_namesake_on_the_destination_is_not_written_over(hosts):
    put(hosts, "source")
    put(hosts, "destination", uuid=OTHER, running=False)
    with pytest.raises(runtime.HandoverError, match="another guest web1"):
        hosts.plan(migration.Wish(), None, IGNORE)


def test_a_plan_names_the_images_and_says_why(hosts, tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "idle_processors", lambda: 2.0)
    image = tmp_path / "web1.raw"
    image.write_bytes(bytes(4096))
    put(hosts, "source", devices=IMAGE.format(path=image))
    plan = hosts.plan(migration.Wish(storage="copy", compression="auto", connections=0), 1000, IGNORE, looked(hosts, [str(image)]))
    assert [(each["target"], each["path"], each["format"]) for each in plan.images] == [("vda", str(image), "raw")]
    assert plan.parameters["migrate_disks"] == ["vda"]
    assert plan.why == "1000 Mbit/s and 2.0 idle processors: 2 threads of zstd fill more than the link"
    assert (plan.parameters["compression"], plan.parameters["parallel.connections"]) == ("zstd", 2)
    assert "VIR_MIGRATE_NON_SHARED_DISK" in plan.flags


def test_pages_are_not_packed_where_a_libvirt_cannot(hosts, monkeypatch):
    monkeypatch.setattr(releases, "PACKS_SINCE", 99_000_000)
    monkeypatch.setattr(measure, "idle_processors", lambda: 2.0)
    put(hosts, "source")
    plan = hosts.plan(migration.Wish(compression="auto", connections=0), 1000, IGNORE)
    assert "compression" not in plan.parameters
    assert plan.parameters["parallel.connections"] == 2
    assert "cannot have QEMU pack memory on several connections, as 99.0.0 and later do" in plan.why
    with pytest.raises(runtime.HandoverError, match="pack memory on several connections.*: choose kvm_migrate_compression=none"):
        hosts.plan(migration.Wish(compression="zlib", connections=0), 1000, IGNORE)


def test_an_image_that_is_not_copied_is_not_named(hosts, tmp_path):
    image = tmp_path / "web1.raw"
    image.write_bytes(bytes(4096))
    put(hosts, "source", devices=IMAGE.format(path=image))
    assert hosts.plan(migration.Wish(compression="none"), None, IGNORE | {"storage"}, looked(hosts)).images == []


def test_disks_at_which_nobody_has_looked_do_not_move(hosts):
    put(hosts, "source", devices=IMAGE.format(path="/etc/hostname"))
    with pytest.raises(runtime.HandoverError, match="nobody has looked at the disks of web1"):
        hosts.plan(migration.Wish(), None, IGNORE | {"storage"})
    with pytest.raises(runtime.HandoverError, match="kvm_migrate_ignore names disks, which is never ignored"):
        hosts.plan(migration.Wish(), None, IGNORE | {"disks"})


def test_the_binding_may_be_missing(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "libvirt", None)
    assert sides.load_libvirt() is None


def test_the_speed_of_a_link_is_the_kernels_word(tmp_path):
    route = tmp_path / "route"
    route.write_text("Iface\tDestination\n" + "eth1\t00D90A0A\t0\t0\t0\t0\t0\t00FFFFFF\n" + "eth0\t00000000\t0\t0\t0\t0\t0\t00000000\n")
    for device, speed in {"eth0": "1000", "eth1": "25000"}.items():
        (tmp_path / device / "device").mkdir(parents=True)
        (tmp_path / device / "speed").write_text(speed + "\n")
    assert measure.link_speed("10.10.217.9", str(tmp_path), str(route)) == 25000
    assert measure.link_speed("192.0.2.1", str(tmp_path), str(route)) == 1000
    (tmp_path / "eth0" / "speed").write_text("-1\n")
    assert measure.link_speed("192.0.2.1", str(tmp_path), str(route)) is None
    # What is virtual makes its speed up.
    (tmp_path / "eth1" / "device").rmdir()
    assert measure.link_speed("10.10.217.9", str(tmp_path), str(route)) is None


def test_what_stands_on_another_image_is_not_copied_alone(hosts, tmp_path):
    golden, image = tmp_path / "golden.raw", tmp_path / "web1.qcow2"
    golden.write_bytes(bytes(1 << 20))
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", "-b", str(golden), "-F", "raw", str(image)], check=True)
    # Of a guest that is off libvirt names nothing below its image.
    put(hosts, "source", running=False, devices=IMAGE.format(path=image).replace("<target", "<driver name='qemu' type='qcow2'/><target"))
    seen = looked(hosts, [str(image)])
    with pytest.raises(runtime.HandoverError, match=r"stands on another image \(.*golden.raw\): choose kvm_migrate_storage=incremental"):
        hosts.plan(migration.Wish(mode="offline", storage="copy"), None, IGNORE, seen)
    plan = hosts.plan(migration.Wish(mode="offline", storage="incremental"), None, IGNORE, seen)
    assert [each["path"] for each in plan.images] == [str(image)]
    assert "VIR_MIGRATE_NON_SHARED_INC" not in plan.flags
    seen.there["disks"]["images"][str(golden)]["digest"] = "other"
    with pytest.raises(runtime.HandoverError, match="golden.raw, which has other contents on the destination"):
        hosts.plan(migration.Wish(mode="offline", storage="incremental"), None, IGNORE, seen)


def test_there_is_nothing_to_give_up(hosts):
    put(hosts, "source")
    outcome = hosts.cancel(0, check_mode=False)
    assert (outcome["changed"], outcome["moved"]) == (False, False)
    assert outcome["outcome"] == "no migration is under way: the guest runs on the source as before"


class Qemu:
    """Its monitor, as far as a migration's parameters go."""

    def __init__(self, looks="multifd", knows=("multifd", "legacy", "none")):
        self.looks, self.knows, self.asked = looks, knows, []

    def answer(self, _domain, text, _flags):
        command = json.loads(text)
        self.asked.append(command["execute"])
        if command["execute"] == "query-migrate-parameters":
            return json.dumps({"return": {"zero-page-detection": self.looks} if self.looks else {}})
        wanted = command["arguments"]["zero-page-detection"]
        if wanted not in self.knows:
            return json.dumps({"error": {"class": "GenericError", "desc": f"does not accept value '{wanted}'"}})
        self.looks = wanted
        return json.dumps({"return": {}})


@pytest.fixture(name="qemu")
def the_monitor(monkeypatch):
    qemu = Qemu()
    monkeypatch.setitem(sys.modules, "libvirt_qemu", types.SimpleNamespace(qemuMonitorCommand=qemu.answer))
    return qemu


@pytest.mark.parametrize(("who", "asked"), [("default", 0), ("multifd", 3), ("none", 5)])
def test_a_guest_that_stays_has_zero_pages_looked_for_as_before(hosts, qemu, who, asked):
    """The test driver cannot migrate, so that each attempt fails."""
    put(hosts, "source")
    plan = hosts.plan(migration.Wish(compression="none", zero_pages=who), None, IGNORE)
    with pytest.raises(runtime.HandoverError, match="web1 was not migrated"):
        hosts.migrate(plan, 0, 1, 30)
    assert qemu.looks == "multifd"
    assert len(qemu.asked) == asked


def test_a_monitor_that_refuses_stops_it_before_it_begins(hosts, qemu):
    qemu.knows = ()
    put(hosts, "source")
    with pytest.raises(runtime.HandoverError, match="refused migrate-set-parameters: does not accept value 'none': leave kvm_migrate_zero_pages out"):
        hosts.migrate(hosts.plan(migration.Wish(compression="none", zero_pages="none"), None, IGNORE), 0, 1, 30)


def test_a_qemu_that_has_no_word_for_it_is_found_before_anything_is_made(hosts, qemu):
    qemu.looks = None
    put(hosts, "source")
    with pytest.raises(runtime.HandoverError, match=r"QEMU of web1 is not told who looks for zero pages, as 9\.0 and later are"):
        hosts.plan(migration.Wish(compression="none", zero_pages="none"), None, IGNORE)


def test_a_monitor_that_does_not_answer_is_said(hosts, monkeypatch):
    def busy(*_words):
        raise hosts.libvirt.libvirtError("cannot acquire state change lock")

    monkeypatch.setitem(sys.modules, "libvirt_qemu", types.SimpleNamespace(qemuMonitorCommand=busy))
    put(hosts, "source")
    with pytest.raises(runtime.HandoverError, match="could not be asked query-migrate-parameters: cannot acquire state change lock: try again"):
        hosts.plan(migration.Wish(compression="none", zero_pages="none"), None, IGNORE)


def test_a_guest_that_is_off_moves_with_its_autostart(hosts):
    put(hosts, "source", running=False).setAutostart(1)
    plan = hosts.plan(migration.Wish(mode="offline"), None, IGNORE)
    assert hosts.migrate(plan, 0, 1, 30)["moved"] is True
    assert standing(hosts) == (migration.ABSENT, migration.OFF)
    assert hosts.domain("destination").autostart() == 1


def test_a_guest_that_both_hosts_have_is_started_by_no_boot_of_the_destination(hosts, monkeypatch):
    put(hosts, "source", running=False).setAutostart(1)
    plan = hosts.plan(migration.Wish(mode="offline"), None, IGNORE)
    both = []
    kept = offline.keeping
    monkeypatch.setattr(offline, "keeping", lambda libvirt: both.append(hosts.domain("destination").autostart()) or kept(libvirt))
    hosts.migrate(plan, 0, 1, 30)
    assert both == [0]


def test_an_offline_move_that_fails_says_where_the_guest_is(hosts, monkeypatch):
    put(hosts, "source", running=False)

    def fails(*_words):
        raise runtime.HandoverError("the disk is full")

    monkeypatch.setattr(offline, "move", fails)
    plan = hosts.plan(migration.Wish(mode="offline"), None, IGNORE)
    with pytest.raises(runtime.HandoverError) as said:
        hosts.migrate(plan, 0, 1, 60)
    assert str(said.value) == (
        "web1 was not migrated: the disk is full. The guest is on the source and does not run, and the destination has none"
    )


def test_a_definition_that_arrives_with_less_goes_back(hosts, monkeypatch):
    put(hosts, "source", running=False)
    plan = hosts.plan(migration.Wish(mode="offline"), None, IGNORE)
    monkeypatch.setattr(offline, "left_out", lambda _sent, _defined: ["features/new"])
    with pytest.raises(runtime.HandoverError, match="leaves out <features> <new> of the definition"):
        hosts.migrate(plan, 0, 1, 30)
    assert standing(hosts) == (migration.OFF, migration.ABSENT)


def test_autostart_outlives_a_module_that_was_killed(hosts):
    """As it is found then: gone from the source, held on the destination, and a note."""
    keep.note(WEB1, keep.Kept(autostart=True))
    put(hosts, "destination").suspend()
    assert hosts.resolve(0, check_mode=False)["moved"] is True
    assert hosts.domain("destination").autostart() == 1
    assert keep.noted(WEB1) is None


def test_a_drive_is_filled_again_where_the_guest_stays(hosts, monkeypatch):
    filled = []
    monkeypatch.setattr(findings, "insert", lambda _libvirt, _domain, drives: filled.extend(drives))
    keep.note(WEB1, keep.Kept(media=((True, "<disk/>"),)))
    put(hosts, "source")
    assert hosts.resolve(0, check_mode=False)["moved"] is False
    assert filled == [(True, "<disk/>")]


@pytest.mark.parametrize(
    ("prepare", "wish", "text"),
    [
        ("managedSave", {"mode": "offline"}, r"managed save.*start the guest and move it live, or drop the saved state \(`virsh managedsave-remove`\)\. Expl"),
        ("snapshotCreateXML", {}, r"the guest has 1 snapshots: .*kvm_migrate_ignore=snapshots"),
    ],
)
def test_what_libvirt_keeps_beside_a_guest_keeps_it_here(hosts, prepare, wish, text):
    domain = put(hosts, "source")
    getattr(domain, prepare)(*(["<domainsnapshot/>"] if "snapshot" in prepare else []), 0)
    with pytest.raises(runtime.HandoverError, match=text):
        hosts.plan(migration.Wish(**wish), None, IGNORE)


def test_managed_save_is_never_ignored(hosts):
    put(hosts, "source").managedSave(0)
    with pytest.raises(runtime.HandoverError, match="managed_save, which is never ignored"):
        hosts.plan(migration.Wish(mode="offline"), None, IGNORE | {"managed_save"})


def test_a_guest_that_stands_still_by_itself_is_not_moved(hosts, monkeypatch):
    put(hosts, "source")
    monkeypatch.setattr(hosts, "standing", lambda side: migration.PAUSED if side == "source" else migration.ABSENT)
    with pytest.raises(runtime.HandoverError, match="web1 stands still, and nobody has paused it"):
        hosts.plan(migration.Wish(), None, IGNORE)


@pytest.mark.parametrize("kind", ["serial", "parallel", "console", "channel"])
def test_a_file_that_a_port_writes_into_is_told(kind):
    port = "<{0} type='file'><source path='/srv/logs/web1'/></{0}>"
    root = ElementTree.fromstring(f"<domain><devices>{port.format(kind)}{port.format('console')}<serial type='pty'/></devices></domain>")
    (finding,) = findings.written(root)
    assert (finding.check, finding.refuses) == ("logs", False)
    assert finding.sentence.startswith(f"devices/{kind}/source/@path: /srv/logs/web1 begins empty on the destination")


def test_what_is_to_be_looked_at_is_what_the_guest_names(hosts):
    devices = "<serial type='file'><source path='/srv/logs/web1'/></serial><disk device='cdrom'><source file='/srv/a.iso'/><target dev='sda'/></disk>"
    wanted = findings.wanted(hosts.libvirt, put(hosts, "source", devices=devices))
    assert wanted["files"] == ["/srv/a.iso"]
    assert {"/srv/logs", "/var/lib/libvirt/qemu/save/web1.save"} <= set(wanted["places"])
    assert {"name", "devices/disk/source/@file"} <= set(wanted["parts"])
