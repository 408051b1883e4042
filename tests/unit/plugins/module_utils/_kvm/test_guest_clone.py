# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import json
import os
from xml.etree import ElementTree

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import clones, host
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import HandoverError, Runtime
from ansible_collections.livefleet.handover.plugins.module_utils._drivers.copies import cloner as door
from ansible_collections.livefleet.handover.plugins.module_utils._kvm import lock
from ansible_collections.livefleet.handover.plugins.module_utils._kvm.copies import (
    apart,
    guest_cloner,
    guest_restorer,
    guest_snapshot,
    image_servers,
    restore_checks,
)
from ansible_collections.livefleet.handover.plugins.module_utils._kvm.copies.restored_xml import Names, restored

UUID = "5d8f8a3c-7e0b-4b52-9a30-5f4a5c1c0a01"
MAC = "52:54:00:12:34:56"
LAN = "<interface type='network'><mac address='52:54:00:aa:aa:aa'/><source network='default'/></interface>"


@pytest.fixture
def web(guest_host, guest_module, tmp_path, monkeypatch):
    """A guest that runs, and its snapshot `one`."""
    monkeypatch.setattr(image_servers, "FOLDER", str(tmp_path))
    monkeypatch.setattr(restore_checks, "saved", lambda name: str(tmp_path / (name + ".save")))
    monkeypatch.setattr(guest_restorer, "BROUGHT", str(tmp_path / "brought"))
    monkeypatch.setattr(guest_cloner, "NOTES", str(tmp_path / "notes"))
    monkeypatch.setattr(clones, "LOCKS", str(tmp_path / "locks/clones"))
    monkeypatch.setattr(Runtime, "remaining", lambda self: 600.0)
    (tmp_path / "web.fd").write_bytes(b"variables")
    guest_host.firmware = "<nvram>{0}/web.fd</nvram>".format(tmp_path)
    guest_host.devices += LAN + "<serial type='file'><source path='{0}/web.log'/></serial>".format(tmp_path)
    guest_snapshot.GuestSnapshot(guest_module(name="one", state="present", root=str(tmp_path / "root"), memory=False, keep=False)).run()
    for target in ("vda", "vdb"):
        (tmp_path / (target + ".layer")).write_bytes(b"then " + target.encode())
    guest_host.said, guest_host.defined = [], {"web": guest_host.domain()}
    # Each guest has a state of its own here.
    guest_host.states = {"web": "running"}
    guest_host._virsh_domstate = lambda rest: guest_host.states.get(rest[-1], "shut off") + "\n"
    guest_host._virsh_start = lambda rest: guest_host.states.update({rest[-1]: "running"})
    guest_host._virsh_destroy = lambda rest: guest_host.states.pop(rest[-1])
    guest_host._virsh_domuuid = lambda rest: ElementTree.fromstring(guest_host.defined[rest[-1]]).findtext("uuid") + "\n"
    return guest_host


@pytest.fixture
def act(web, guest_module, tmp_path):
    def run(state="present", check=False, **given):
        params = {"name": "try", "state": state, "snapshot": "one", "repository": None, "addresses": [], "macs": [], "start": None, "own_name": False,
                  "memory": False, "root": str(tmp_path / "root"), **given}  # fmt: skip
        return door.clone(guest_module(check, **params))

    return run


@pytest.fixture(autouse=True)
def containers(monkeypatch):
    listed = []
    monkeypatch.setattr(door.Podman, "__init__", lambda self, runtime: None)
    monkeypatch.setattr(door.Podman, "containers", lambda self: listed)
    return listed


def files(folder):
    return sorted(path.name for path in folder.iterdir() if path.is_file() and path.name.startswith("try"))


MADE = ["try-vda.qcow2", "try-vdb.raw", "try_VARS.fd"]


def test_it_is_another_guest_with_the_files_of_that_moment(web, act, tmp_path):
    result = act()
    root = ElementTree.fromstring(web.defined["try"])
    assert root.findtext("name") == "try" and root.findtext("uuid") == result["clone"]["uuid"] != UUID
    assert root.find("devices/interface/mac") is None, "libvirt draws it"
    assert files(tmp_path) == MADE and (tmp_path / "try-vda.qcow2").read_bytes() == b"then vda" and (tmp_path / "try_VARS.fd").read_bytes() == b"variables"
    assert result["lines"] == ["try is as web@one, and is off: the addresses in it are those of web"] and web.said == ["define"]
    assert (result["changed"], result["reasons"], result["clone"]["whole"]) == (True, ["there is no guest named try"], True)
    again = act()
    assert (again["changed"], again["lines"], again["clone"]) == (False, [], result["clone"]) and web.said == ["define"]


def test_it_is_started_if_that_is_asked_for(web, act):
    assert act(start=True)["lines"] == ["try is as web@one, and runs"] and web.states == {"web": "running", "try": "running"}


def test_one_that_does_not_start_stays(web, act, tmp_path):
    def fail(rest):
        raise HandoverError("cannot set up guest memory")

    web._virsh_start = fail
    with pytest.raises(HandoverError, match="try is made and defined, but does not start: cannot set up guest memory"):
        act(start=True)
    assert files(tmp_path) == MADE and act()["changed"] is False


def test_hardware_addresses_are_given(web, act):
    act(macs=[MAC])
    assert ElementTree.fromstring(web.defined["try"]).find("devices/interface/mac").get("address") == MAC


def test_check_mode_touches_nothing(web, act, tmp_path):
    assert act(check=True)["changed"] is True
    assert files(tmp_path) == [] and not (tmp_path / "root/.clones").exists() and web.said == []
    act()
    assert act("absent", check=True)["changed"] is True and files(tmp_path) == MADE and "try" in web.defined


def test_it_is_removed_with_its_files_and_the_first_stays(web, act, tmp_path):
    before = {path.name for path in tmp_path.iterdir()}
    act(start=True)
    (tmp_path / "web.log.try").write_bytes(b"of its serial port")
    web.said = []
    assert act("absent")["reasons"] == ["there is a clone try of web@one"]
    assert web.said == ["destroy try", "undefine try --managed-save --snapshots-metadata --checkpoints-metadata --keep-nvram"]
    assert {path.name for path in tmp_path.iterdir()} - before <= {"notes", "locks"} and list(web.defined) == ["web"] and web.states == {"web": "running"}
    assert act("absent")["changed"] is False


def test_a_clone_of_another_snapshot_is_left_alone(web, act, tmp_path):
    act()
    with pytest.raises(HandoverError, match="try is a clone of web@one: give this one another name, or remove that one"):
        act(snapshot="two")
    assert files(tmp_path) == MADE and web.said == ["define"]


def test_the_snapshot_may_be_gone(web, act, tmp_path):
    act()
    web.points = []
    (tmp_path / "root/web/one/snapshot.json").unlink()
    assert act()["changed"] is False and act("absent")["changed"] is True


def test_one_that_fails_leaves_nothing(web, act, tmp_path):
    web.written = {"vdb": b"something else"}
    with pytest.raises(HandoverError, match="the image of vdb is not the disk of the backup"):
        act()
    assert files(tmp_path) == [] and not list((tmp_path / "root/.clones").iterdir()) and list(web.defined) == ["web"]


class Killed(BaseException):
    """As by SIGKILL, as far as files go."""


def kill(monkeypatch, where):
    def killed(*_words, **_named):
        raise Killed

    monkeypatch.setattr(guest_cloner.GuestCloner, "_undo", lambda self, record: None)
    monkeypatch.setattr(*where, killed)


PLACES = {
    "before the images": (guest_restorer.GuestRestorer, "_write"),
    "before the definition": (guest_restorer.Libvirt, "define"),
    "after it": (guest_restorer.Switch, "_forget"),
}


def killed(act, monkeypatch, place):
    with monkeypatch.context() as patch:
        if place == "before the definition":
            patch.setattr(guest_restorer.Switch, "undo", lambda self: None)
        kill(patch, PLACES[place])
        if place == "before the images":
            patch.setattr(guest_restorer, "remove", lambda path: None)
        with pytest.raises(Killed):
            act()


@pytest.mark.parametrize("place", PLACES)
def test_a_half_is_removed_with_the_note_that_another_restore_would_go_by(web, act, tmp_path, monkeypatch, place):
    killed(act, monkeypatch, place)
    (tmp_path / "try-vda.qcow2.handover-restored").write_bytes(b"half")
    (tmp_path / "try_VARS.fd.handover-restored.tar").write_bytes(b"half")
    (tmp_path / "brought/try/0abc").mkdir(parents=True)
    assert act("absent")["changed"] is True
    assert files(tmp_path) == [] and list(web.defined) == ["web"] and not list((tmp_path / "root/.clones").iterdir())
    assert not (tmp_path / "notes/try.json").exists() and not (tmp_path / "brought/try").exists()


@pytest.mark.parametrize("place", PLACES)
def test_what_a_killed_run_has_left_is_cleared_up_by_the_next(web, act, tmp_path, monkeypatch, place):
    killed(act, monkeypatch, place)
    first = json.loads((tmp_path / "root/.clones/try.json").read_text())
    assert first["whole"] is False
    (tmp_path / "try-vda.qcow2.handover-restored").write_bytes(b"half")
    (tmp_path / "try_VARS.fd.handover-restored.tar").write_bytes(b"half")
    (tmp_path / "brought/try/0abc").mkdir(parents=True)
    assert act(check=True)["reasons"] == ["a run that was cut off has left a part of try"]
    result = act()
    assert result["reasons"] == ["a run that was cut off has left a part of try", "there is no guest named try"]
    assert files(tmp_path) == MADE and result["clone"]["uuid"] != first["uuid"] and sorted(web.defined) == ["try", "web"]


def test_one_that_was_started_since_is_not_cleared_up(web, act, tmp_path, monkeypatch):
    act(start=True)
    half(tmp_path)
    with pytest.raises(HandoverError, match="try was left by a run that was cut off, and has been started since: remove the clone first"):
        act()
    assert web.states["try"] == "running" and files(tmp_path) == MADE


def half(tmp_path):
    record = tmp_path / "root/.clones/try.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "whole": False}))


OTHERS = {
    "of the name": ("try", "<domain><name>try</name><uuid>{uuid}</uuid></domain>", "the guest try is another than the clone of web@one: remove it first"),
    "of a file": (
        "prod",
        "<domain><devices><disk><source file='{folder}/try-vda.qcow2'/></disk></devices></domain>",
        "/try-vda.qcow2 of the clone try of web@one is in use by the guest prod: remove that one first",
    ),
    "of an image below its own": (
        "prod",
        "<domain><devices><disk><source file='/p'/><backingStore><source file='{folder}/try-vdb.raw'/></backingStore></disk></devices></domain>",
        "/try-vdb.raw of the clone try of web@one is in use by the guest prod: remove that one first",
    ),
    "of its firmware": (
        "prod",
        "<domain><os><nvram>{folder}/try_VARS.fd</nvram></os></domain>",
        "/try_VARS.fd of the clone try of web@one is in use by the guest prod: remove that one first",
    ),
}


@pytest.mark.parametrize("check", (False, True))
@pytest.mark.parametrize("state", ("present", "absent"))
@pytest.mark.parametrize("case", OTHERS)
def test_another_guest_has_come_since_a_run_was_cut_off(web, act, tmp_path, case, state, check):
    act()
    half(tmp_path)
    del web.defined["try"]
    name, definition, sentence = OTHERS[case]
    web.defined[name] = definition.format(folder=tmp_path, uuid=UUID)
    web.states[name], web.said = "running", []
    with pytest.raises(HandoverError) as refused:
        act(state, check)
    assert sentence in str(refused.value)
    assert files(tmp_path) == MADE and web.said == [] and web.states[name] == "running" and (tmp_path / "root/.clones/try.json").exists()


def test_another_guest_that_comes_meanwhile_keeps_its_files(web, act, tmp_path, monkeypatch):
    def come(self, plan, here):
        (tmp_path / "try-vda.qcow2").write_bytes(b"another's")
        web.defined["prod"] = OTHERS["of a file"][1].format(folder=tmp_path)
        raise HandoverError("no space left on device")

    monkeypatch.setattr(guest_restorer.GuestRestorer, "make", come)
    with pytest.raises(HandoverError, match="no space left on device"):
        act()
    assert (tmp_path / "try-vda.qcow2").read_bytes() == b"another's" and (tmp_path / "root/.clones/try.json").exists()


def cut_off(tmp_path):
    """A restore of `lost` that was killed when libvirt had forgotten the guest, and its image had another name: the note alone has the definition."""
    lost = "<domain><name>lost</name><uuid>{0}</uuid></domain>".format(UUID.replace("5", "6"))
    path = str(tmp_path / "lost-vda.qcow2")
    (tmp_path / "lost-vda.qcow2.kept").write_bytes(b"the only one")
    (tmp_path / "notes").mkdir(exist_ok=True)
    note = {"items": [{"path": path, "new": path + ".new", "kept": path + ".kept"}], "there": [path], "old": lost}
    (tmp_path / "notes/lost.json").write_text(json.dumps(note))
    return lost


def test_a_restore_of_the_name_that_was_cut_off_is_undone_first(web, act, tmp_path):
    lost = cut_off(tmp_path)
    with pytest.raises(HandoverError, match="there is a guest lost already: choose another name"):
        act(name="lost")
    assert web.defined["lost"] == lost and (tmp_path / "lost-vda.qcow2").read_bytes() == b"the only one" and not (tmp_path / "notes/lost.json").exists()


@pytest.mark.parametrize("state", ("present", "absent"))
def test_the_files_of_a_guest_that_comes_back_by_it_stay(web, act, tmp_path, state):
    act(name="lost")
    record = tmp_path / "root/.clones/lost.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "whole": False}))
    del web.defined["lost"]
    (tmp_path / "lost-vda.qcow2").unlink()
    lost = cut_off(tmp_path)
    with pytest.raises(HandoverError, match="the guest lost is another than the clone of web@one: remove it first"):
        act(state, name="lost")
    assert web.defined["lost"] == lost and (tmp_path / "lost-vda.qcow2").read_bytes() == b"the only one"


def test_a_note_of_another_restore_is_never_written_over(web, act, tmp_path):
    cut_off(tmp_path)
    before = (tmp_path / "notes/lost.json").read_text()
    switch = guest_restorer.Switch(guest_cloner.Libvirt(Runtime(None, 60), "x"), "lost", str(tmp_path / "notes"))
    with pytest.raises(HandoverError, match="a restore of lost was cut off: run it again first"):
        switch.make([], "", "<domain/>")
    assert (tmp_path / "notes/lost.json").read_text() == before


def test_another_guest_that_has_taken_the_name_since_is_not_undefined(web, act, tmp_path):
    """By the UUIDs in the note; one of an earlier version has none."""
    lost = cut_off(tmp_path)
    note = json.loads((tmp_path / "notes/lost.json").read_text())
    (tmp_path / "notes/lost.json").write_text(json.dumps({**note, "uuids": [UUID.replace("5", "6")]}))
    other = lost.replace(UUID.replace("5", "6"), UUID.replace("5", "7"))
    web.defined["lost"] = other
    with pytest.raises(HandoverError, match="a restore of lost was cut off, and another guest has that name since"):
        act(name="lost")
    assert web.defined["lost"] == other and (tmp_path / "lost-vda.qcow2.kept").exists() and (tmp_path / "notes/lost.json").exists()
    web.defined["lost"] = lost
    with pytest.raises(HandoverError, match="there is a guest lost already"):
        act(name="lost")
    assert (tmp_path / "lost-vda.qcow2").read_bytes() == b"the only one"


def test_the_note_has_the_guests_that_it_is_of(web, tmp_path, monkeypatch):
    noted = []
    monkeypatch.setattr(guest_restorer.Switch, "_write", lambda self, note: noted.append(note["uuids"]))
    monkeypatch.setattr(guest_restorer.Switch, "_forget", lambda self: None)
    switch = guest_restorer.Switch(guest_cloner.Libvirt(Runtime(None, 60), "x"), "lost", str(tmp_path / "notes"))
    switch.make([], "", "<domain><name>lost</name><uuid>1</uuid></domain>")
    switch.make([], "<domain><name>lost</name><uuid>1</uuid></domain>", "<domain><name>lost</name><uuid>2</uuid></domain>")
    assert noted == [["1"], ["1", "2"]]


def test_one_address_for_two_interfaces():
    names = Names("web", "try", UUID, (MAC, MAC.upper()))
    coming = restore_checks.Coming(names, "<domain><devices>{0}{0}</devices></domain>".format(LAN), (), {}, ())
    here = restore_checks.Here("", "", "", frozenset(), 0, "", frozenset())
    assert restore_checks._macs(here, coming) == "the hardware address {0} is given to two interfaces: give each its own".format(MAC)
    assert restore_checks._macs(here, dataclasses.replace(coming, names=Names("web", "try", UUID, (MAC, MAC[:-1] + "7")))) is None


def test_a_clone_that_moved_away_keeps_its_files(web, act, tmp_path):
    act()
    del web.defined["try"]
    with pytest.raises(HandoverError, match="the clone try is not on this host any more, and .*try-vda.qcow2, .* may be in use where it is now"):
        act("absent")
    assert files(tmp_path) == MADE
    with pytest.raises(HandoverError, match="the guest try is gone, and the clone's record is there"):
        act()
    for name in MADE:
        (tmp_path / name).unlink()
    assert act("absent")["changed"] is True and not list((tmp_path / "root/.clones").iterdir())


def test_another_guest_of_the_name_stays(web, act, tmp_path):
    act()
    web.defined["try"] = web.defined["web"].replace(">web<", ">try<")
    with pytest.raises(HandoverError, match="the guest try is another than the clone of web@one: remove it first"):
        act("absent")
    os.unlink(tmp_path / "root/.clones/try.json")
    with pytest.raises(HandoverError, match="try is no clone of a snapshot below .*: remove it with virsh"):
        act("absent")
    assert files(tmp_path) == MADE and "try" in web.defined


REFUSED = {
    "its own name": ({"name": "web"}, "web is the name of the guest itself, which may run on another host: give the clone another name"),
    "a guest's name": ({"name": "other"}, "there is a guest other already: choose another name"),
    "a container's name": ({"name": "shop"}, "shop is a container of this host, and a guest of that name could not be told from it"),
    "addresses": ({"addresses": ["10.0.0.1"]}, "web is a KVM guest, and its addresses are set in it: leave handover_addresses away"),
    "memory": ({"memory": True}, "web is a KVM guest, and no snapshot has its memory"),
    "an address of others": ({"macs": ["52:54:00:AA:AA:AA"]}, "the hardware address 52:54:00:aa:aa:aa is another guest's of this host"),
    "a group's address": ({"macs": ["53:54:00:12:34:56"]}, "'53:54:00:12:34:56' is no hardware address that an interface can have"),
    "no address": ({"macs": ["52-54"]}, "'52-54' is no hardware address"),
    "one too many": ({"macs": [MAC, MAC]}, "2 hardware addresses are given, and web has 1 interfaces"),
    "no such snapshot": ({"snapshot": "two"}, "there is no snapshot two in"),
    "a file in the way": ({"name": "taken"}, "taken-vda.qcow2 is there and none of its files"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_before_anything_is_touched(web, act, tmp_path, containers, case):
    given, sentence = REFUSED[case]
    web.defined["other"] = "<domain/>"
    containers.append({"Id": "1", "Names": ["shop"]})
    (tmp_path / "taken-vda.qcow2").write_bytes(b"")
    with pytest.raises(HandoverError) as refused:
        act(**given)
    assert sentence in str(refused.value)
    assert web.said == [] and files(tmp_path) == [] and not (tmp_path / "root/.clones").exists()


NEEDS = {
    "<hostdev/>": "web has devices of the host (<hostdev>), which two guests cannot have: take that out",
    "<filesystem><source dir='/srv'/></filesystem>": "web has folders of the host that it may write to (<filesystem>)",
    "<interface type='vhostuser'/>": "web has an interface on a socket of another program",
    "<interface type='ethernet'><target dev='tap0' managed='no'/></interface>": "web has an interface that another program has made",
    "<interface type='hostdev'/>": "web has a network card of the host",
    "<memory model='nvdimm'/>": "web has a file as its non-volatile memory",
    "<tpm><backend type='passthrough'/></tpm>": "web has the TPM of the host",
    "<serial type='tcp'><source mode='bind' host='127.0.0.1' service='4555'/></serial>": "web has a port of the host on which its serial port listens",
    "<disk type='file' device='disk'><source file='{0}/more.raw'/><target dev='vdc'/></disk>": "vdc of web is no part of it, and both guests would write",
    "<disk type='block' device='disk'><source dev='/dev/sdz'/><target dev='vdc'/></disk>": "vdc of web is no part of it, and both guests would write",
    "<disk type='network' device='lun'><source protocol='rbd' name='p/i'/><target dev='vdc'/></disk>": "vdc of web is no part of it",
    "<disk type='file' device='floppy'><source file='{0}/more.raw'/><target dev='fda'/></disk>": "fda of web is no part of it",
    "</devices><commandline xmlns='http://libvirt.org/schemas/domain/qemu/1.0'/><devices>": "web has words of its own for QEMU (<qemu:commandline>)",
    "<interface type='network'><source network='dmz'/></interface>": "its network dmz is not active here",
    "<interface type='bridge'><source bridge='br-none'/></interface>": "its bridge br-none is missing here",
}


@pytest.mark.parametrize("device", NEEDS)
def test_two_guests_cannot_share_it_or_the_host_has_it_not(web, act, tmp_path, device):
    document = json.loads(web.files_of["one"]["configuration.json"])
    document["definition"] = document["definition"].replace("</devices>", device.format(tmp_path) + "</devices>")
    web.files_of["one"]["configuration.json"] = web.files["configuration.json"] = json.dumps(document).encode()
    (tmp_path / "more.raw").write_bytes(b"")
    with pytest.raises(HandoverError) as refused:
        act()
    assert NEEDS[device] in str(refused.value) and web.said == [] and files(tmp_path) == []


def test_media_that_both_only_read_are_shared(web, act, tmp_path):
    document = json.loads(web.files_of["one"]["configuration.json"])
    more = "<source file='{0}/more.raw'/>".format(tmp_path)
    devices = "<disk type='file' device='cdrom'>{0}<target dev='sdb'/></disk><disk type='file' device='disk'>{0}<target dev='vdc'/><readonly/></disk>"
    document["definition"] = document["definition"].replace("</devices>", devices.format(more) + "<disk device='floppy'><target dev='fda'/></disk></devices>")
    web.files_of["one"]["configuration.json"] = web.files["configuration.json"] = json.dumps(document).encode()
    (tmp_path / "more.raw").write_bytes(b"")
    assert act()["changed"] is True and web.defined["try"].count("more.raw") == 2


def test_room_is_looked_for_first(web, act, monkeypatch, tmp_path):
    monkeypatch.setattr(host, "free_space", lambda path: 8)
    with pytest.raises(HandoverError, match="it takes 8 B in .*, and 8 B is free: free 64 MiB there"):
        act()
    assert files(tmp_path) == [] and not (tmp_path / "root/.clones").exists()


def test_another_run_has_the_name(act):
    with lock.hold("try"), pytest.raises(lock.Busy):
        act()


def test_of_a_backup_of_another_host(web, act, monkeypatch, tmp_path):
    monkeypatch.setattr(guest_restorer.Backups, "all", lambda self: web.points)
    result = act(repository="node1:/var/lib/handover/snapshots/.disks", snapshot="0abc")
    assert web.said == ["copy node1:/var/lib/handover/snapshots/.disks/web 0abc", "define"] and result["clone"]["origin"] == "web@0abc"
    assert files(tmp_path) == MADE and not list((tmp_path / "brought/try").iterdir())
    web.files_of.clear()
    web.files["backup.json"] = b"{}"
    with pytest.raises(HandoverError, match="web in node1:.* is a container, and this repository is for clones of guests: use the playbook backup_restore"):
        act(name="x", repository="node1:/srv/backups", snapshot="0abc")


def test_a_container_has_no_hardware_addresses(act, tmp_path):
    path = tmp_path / "root/web/one/snapshot.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "kind": "container"}))
    with pytest.raises(HandoverError, match="web is a container, and podman draws its hardware addresses: leave clone_macs away"):
        act(macs=[MAC])


SHARED = """<domain><name>web</name><uuid>u</uuid><devices>
  <graphics type='vnc' port='5901' autoport='no' websocket='5701'/><graphics type='spice' port='-1' autoport='yes'/>
  <interface type='bridge'><mac address='52:54:00:aa:aa:aa'/><target dev='web-lan'/><virtualport type='openvswitch'>
    <parameters interfaceid='09b11c53' profileid='p'/></virtualport></interface><interface type='bridge'/>
  <vsock><cid auto='no' address='3'/></vsock>
  <filesystem><readonly/></filesystem>
</devices></domain>"""


def test_what_both_would_claim_is_left_out_and_told():
    told = apart.left_out(ElementTree.fromstring(SHARED), "web")
    assert told == [
        "the port 5901 of web's screen", "the name web-lan of web's interface on the host", "the port 09b11c53 of web on its virtual switch",
        "the address 3 of web for sockets to the host (vsock)",
    ]  # fmt: skip
    root = ElementTree.fromstring(restored(SHARED, Names("web", "try", "v", (MAC,)), {}))
    assert [graphics.attrib for graphics in root.findall("devices/graphics")] == [
        {"type": "vnc", "autoport": "yes"}, {"type": "spice", "port": "-1", "autoport": "yes"}
    ]  # fmt: skip
    assert root.find("devices/interface/virtualport/parameters").attrib == {"profileid": "p"}
    assert root.find("devices/interface/target") is None and root.find("devices/vsock/cid").attrib == {"auto": "yes"}
    assert [mac.get("address") for mac in root.findall("devices/interface/mac")] == [MAC]
    assert apart.alone(root) == [] and restored(SHARED, Names("web", "web", "u"), {}).count("5901") == 1
