# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import host
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import HandoverError
from ansible_collections.livefleet.handover.plugins.module_utils._drivers import workload_info
from ansible_collections.livefleet.handover.plugins.module_utils._drivers.copies import restorer
from ansible_collections.livefleet.handover.plugins.module_utils._kvm import guests
from ansible_collections.livefleet.handover.plugins.module_utils._kvm.copies import (
    guest_files,
    guest_restorer,
    guest_taker,
    restore_checks,
    restored_xml,
    switch,
)
from ansible_collections.livefleet.handover.plugins.module_utils._kvm.copies.restored_xml import Names, restored
from ansible_collections.livefleet.handover.plugins.module_utils._kvm.libvirt import Libvirt

UUID = "5d8f8a3c-7e0b-4b52-9a30-5f4a5c1c0a01"


@pytest.fixture
def taken(guest_host, guest_module, tmp_path, monkeypatch):
    """A backup of web, which is off now and has other disks."""
    (tmp_path / "web.fd").write_bytes(b"variables")
    guest_host.firmware = "<nvram>{0}/web.fd</nvram>".format(tmp_path)
    guest_taker.GuestTaker(guest_module(repository=str(tmp_path / "backups"))).run()
    for target, name in (("vda", "web.qcow2"), ("vdb", "data.raw")):
        (tmp_path / (target + ".layer")).write_bytes(b"then " + target.encode())
        (tmp_path / name).write_bytes(b"now " + target.encode())
    (tmp_path / "web.fd").write_bytes(b"changed")
    guest_host.state, guest_host.said, guest_host.defined = "shut off", [], {"web": guest_host.domain()}
    monkeypatch.setattr(restore_checks, "saved", lambda name: str(tmp_path / (name + ".save")))
    monkeypatch.setattr(guest_restorer, "BROUGHT", str(tmp_path / "brought"))
    return guest_host


@pytest.fixture
def restore(taken, guest_module, tmp_path):
    def run(check=False, **given):
        params = {"backup": "", "name": None, "repository": str(tmp_path / "backups"), "notes": str(tmp_path / "notes"), **given}
        return guest_restorer.GuestRestorer(guest_module(check, **params)).run()

    return run


def content(folder):
    """All files, but for the backup itself."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.suffix != ".layer"}


NOW = {"web.qcow2": b"now vda", "data.raw": b"now vdb", "web.fd": b"changed"}
THEN = {"web.qcow2": b"then vda", "data.raw": b"then vdb", "web.fd": b"variables"}


def test_a_guest_that_is_off_goes_back_and_its_files_are_kept(taken, restore, tmp_path):
    result = restore()
    found = content(tmp_path)
    assert {name: found.pop(name) for name in THEN} == THEN
    assert sorted(found.values()) == sorted(NOW.values()) and all(".handover-undo-" in name for name in found)
    assert sorted(result["kept"]) == sorted(str(tmp_path / name) for name in found) and result["started"] is True
    assert taken.said == ["undefine web --checkpoints-metadata --keep-nvram", "define", "start web"]
    assert UUID in taken.defined["web"] and not (tmp_path / "notes/web.json").exists()


def test_one_that_is_no_more_is_made_again(taken, restore, tmp_path):
    taken.defined = {}
    for name in NOW:
        (tmp_path / name).unlink()
    assert restore()["kept"] == []
    assert content(tmp_path) == THEN and taken.said == ["define", "start web"]


def test_another_name_is_another_guest(taken, restore, tmp_path):
    taken.state = "running"
    result = restore(name="web-then")
    assert (result["started"], result["kept"], result["guest"]) == (False, [], "web-then")
    assert {name: content(tmp_path)[name] for name in NOW} == NOW
    assert (tmp_path / "web-then-vda.qcow2").read_bytes() == b"then vda" and (tmp_path / "web-then_VARS.fd").read_bytes() == b"variables"
    assert UUID not in taken.defined["web-then"] and "web.qcow2" not in taken.defined["web-then"] and taken.said == ["define"]


def test_check_mode_touches_nothing(taken, restore, tmp_path):
    assert restore(check=True)["changed"] is True
    assert content(tmp_path) == NOW and taken.said == [] and list(taken.defined) == ["web"]


def test_an_image_that_is_not_the_disk_of_the_backup_is_not_used(taken, restore, tmp_path):
    taken.written = {"vdb": b"something else"}
    with pytest.raises(HandoverError, match="the image of vdb is not the disk of the backup .error: Content mismatch at offset 0!.: verify the repository"):
        restore()
    assert content(tmp_path) == NOW and taken.said == []


def test_a_definition_that_libvirt_refuses_leaves_everything_as_it_was(taken, restore, tmp_path):
    before = dict(taken.defined)
    taken.refuses_definition = "no"
    with pytest.raises(HandoverError):
        restore()
    taken.refuses_definition = ""
    # libvirt took not even the old one back, and the note says so to the next run.
    assert content(tmp_path / "notes") and content(tmp_path) == NOW
    switch.Switch(Libvirt(guest_restorer.Runtime(None, 60), "x"), "web", str(tmp_path / "notes")).undo()
    assert taken.defined == before and content(tmp_path) == NOW and not content(tmp_path / "notes")


def killed_after(steps, act):
    """The act of a process that is killed when so many are done."""

    def run(*words, **named):
        if not steps:
            raise Killed
        steps.pop()
        return act(*words, **named)

    return run


@pytest.mark.parametrize("again", (0, 2, 100))
@pytest.mark.parametrize("after", range(6))  # three files are kept, and three put in their places
def test_a_restore_that_is_killed_is_undone_by_the_next(taken, restore, tmp_path, monkeypatch, after, again):
    undo = switch.Switch.undo
    with monkeypatch.context() as patch:
        left = [0] * after
        for name in ("rename", "remove"):
            patch.setattr(switch, name, killed_after(left, getattr(switch, name)))
        patch.setattr(switch.Switch, "undo", lambda self: None)
        with pytest.raises(Killed):
            restore()
    assert taken.defined == {}, "it cannot be started on halves"
    with monkeypatch.context() as patch:
        left = [0] * again
        for name in ("rename", "remove"):
            patch.setattr(switch, name, killed_after(left, getattr(switch, name)))
        if again < 100:
            with pytest.raises(Killed):
                undo(switch.Switch(Libvirt(guest_restorer.Runtime(None, 60), "x"), "web", str(tmp_path / "notes")))
            assert taken.defined == {}
    result = restore()
    found = content(tmp_path)
    assert {name: found.pop(name) for name in THEN} == THEN and list(taken.defined) == ["web"]
    assert sorted(found.values()) == sorted(NOW.values()) and len(result["kept"]) == 3


class Killed(BaseException):
    """As by SIGKILL, as far as files go."""


def test_a_host_that_never_had_a_tpm_gets_the_folder_for_it(guest_host, guest_module, taken, restore, tmp_path, monkeypatch):
    (tmp_path / "tpm").mkdir()
    (tmp_path / "tpm/state").write_bytes(b"state")
    guest_host.devices += "<tpm><backend type='emulator'><source type='dir' path='{0}/tpm'/></backend></tpm>".format(tmp_path)
    guest_host.state = "running"
    guest_host.defined = {"web": guest_host.domain()}
    guest_taker.GuestTaker(guest_module(repository=str(tmp_path / "backups"))).run()
    for module in (restored_xml, restore_checks, guest_restorer):
        monkeypatch.setattr(module, "TPM_FOLDER", str(tmp_path / "swtpm"))
    restore(name="web-then")
    (folder,) = (tmp_path / "swtpm").iterdir()
    assert (folder / "state").read_bytes() == b"state" and folder.name in guest_host.defined["web-then"]
    assert (tmp_path / "swtpm").stat().st_mode & 0o777 == 0o711


REFUSED = {
    "running": (lambda guest, folder: setattr(guest, "state", "running"), {}, "it is 'running' here and must not run twice: end it first"),
    "paused": (lambda guest, folder: setattr(guest, "state", "paused"), {}, "it is 'paused' here and must not run twice"),
    "taken": (lambda guest, folder: guest.defined.update(other="<domain/>"), {"name": "other"}, "there is a guest other already: choose another name"),
    "another guest": (
        lambda guest, folder: guest.defined.update(web=guest.defined["web"].replace(UUID, "1-2-3")), {},
        "the web of this host is another guest (UUID 1-2-3, and " + UUID,
    ),
    "renamed": (lambda guest, folder: guest.defined.update(old=guest.defined.pop("web")), {}, "it is here by the name old"),
    "its memory": (lambda guest, folder: (folder / "web.save").write_bytes(b""), {}, "libvirt has saved its memory"),
    "snapshots": (lambda guest, folder: setattr(guest, "snapshots", "a\nb\n"), {}, "it has 2 snapshots of libvirt's"),
    "a file of others": (lambda guest, folder: (folder / "x-vda.qcow2").write_bytes(b""), {"name": "x"}, "x-vda.qcow2 is there and none of its files"),
    "unknown here": (lambda guest, folder: setattr(guest, "unfit", "unsupported machine type"), {}, "libvirt does not take its definition here (error: unsupp"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_before_anything_is_touched(taken, restore, tmp_path, case):
    change, given, sentence = REFUSED[case]
    change(taken, tmp_path)
    before, defined = content(tmp_path), dict(taken.defined)
    with pytest.raises(HandoverError) as refused:
        restore(**given)
    assert sentence in str(refused.value)
    assert content(tmp_path) == before and taken.said == [] and taken.defined == defined


def test_room_is_looked_for_first(taken, restore, monkeypatch, tmp_path):
    monkeypatch.setattr(host, "free_space", lambda path: 8)
    with pytest.raises(HandoverError, match="it takes 8 B in .*, and 8 B is free: free 64 MiB there"):
        restore()
    assert content(tmp_path) == NOW


NEEDS = {
    "<interface type='bridge'><source bridge='br-none'/></interface>": "its bridge br-none is missing here: make it",
    "<interface type='network'><source network='dmz'/></interface>": "its network dmz is not active here: define and start it",
    "<tpm><backend type='emulator'><encryption secret='s-1'/></backend></tpm>": "the secret s-1 is missing here, with which its TPM's state is encrypted",
    "<disk type='file' device='cdrom'><source file='/iso/x.iso'/><target dev='sdb'/><readonly/></disk>": "/iso/x.iso is missing, which it reads",
}


@pytest.mark.parametrize("device", NEEDS)
def test_the_host_has_to_have_what_the_guest_needs(taken, restore, tmp_path, device):
    document = json.loads(taken.files["configuration.json"])
    document["definition"] = document["definition"].replace("</devices>", device + "</devices>")
    taken.files["configuration.json"] = json.dumps(document).encode()
    with pytest.raises(HandoverError) as refused:
        restore()
    assert NEEDS[device] in str(refused.value) and content(tmp_path) == NOW


def test_a_repository_on_another_host_is_brought_and_removed(taken, restore, tmp_path, monkeypatch):
    monkeypatch.setattr(guest_restorer.Backups, "all", lambda self: taken.points)
    restore(repository="backup1:/srv/backups")
    assert taken.said[0] == "copy backup1:/srv/backups/web 0abc" and not list((tmp_path / "brought/web").iterdir())


def test_a_backup_of_a_container_is_none_of_a_guest(taken, restore):
    taken.files["backup.json"] = b'{"workload": "web"}'
    with pytest.raises(HandoverError, match="the backup 0abc of web is of a container: restore it with backup_restore"):
        restore()


def test_a_container_of_the_name_is_in_the_way(taken, guest_module, monkeypatch):
    monkeypatch.setattr(restorer.Podman, "containers", lambda self: [{"Id": "1", "Names": ["web"]}])
    with pytest.raises(HandoverError, match="web is a container of this host, and a guest of that name could not be told from it"):
        restorer.restore(guest_module(name=None))


def test_each_host_tells_of_its_guest(taken, monkeypatch):
    def told(name):
        return workload_info.with_guest(guest_restorer.Runtime(None, 60), name, {"problems": []})

    assert told("web")["guest"] == {"exists": True, "state": "shut off"}
    assert told("other")["guest"] == {"exists": False, "state": ""}
    monkeypatch.setattr(guests, "state_of", lambda runtime, name: refuse())
    assert told("web") == {"guest": {"exists": False, "state": "unknown"}, "problems": ["libvirt is down"]}


def refuse():
    raise HandoverError("libvirt is down")


def test_a_guest_of_another_name_is_not_taken_for_the_first():
    text = """<domain xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'><name>web</name><uuid>u</uuid><genid>g</genid>
      <sysinfo><system><entry name='uuid'>u</entry></system></sysinfo><os><nvram>/n/web.fd</nvram></os>
      <devices><disk><source file='/d/a.raw'/><backingStore><source file='/d/base'/></backingStore><target dev='vda'/></disk>
      <disk><source file='/iso'/><target dev='sda'/></disk><interface><mac address='52:54'/><source bridge='b'/></interface>
      <serial><source path='/log/web'/></serial><tpm><backend type='emulator'><source type='dir' path='/t'/></backend></tpm></devices>
      <qemu:commandline><qemu:arg value='-x'/></qemu:commandline></domain>"""
    root = ElementTree.fromstring(restored(text, Names("web", "then", "v"), {"vda": "/d/then-vda.raw"}))
    assert [root.findtext(path) for path in ("name", "uuid", "genid", "os/nvram")] == ["then", "v", "", "/n/then_VARS.fd"]
    assert [each.get("file") for each in root.findall("devices/disk/source")] == ["/d/then-vda.raw", "/iso"]
    assert root.findtext("sysinfo/system/entry") == "v" and root.find("devices/interface/mac") is None and root.find("devices/tpm/backend/source") is None
    assert root.find("devices/serial/source").get("path") == "/log/web.then" and root.find("devices/disk/backingStore") is None
    assert restored(text, Names("web", "then", "v"), {}).count("qemu:") == 3
    same = ElementTree.fromstring(restored(text, Names("web", "web", "u"), {"vda": "/d/a.raw"}))
    assert same.findtext("uuid") == "u" and same.findtext("genid") == "" and same.find("devices/interface/mac") is not None


def test_an_archive_with_anything_else_is_refused(tmp_path):
    (tmp_path / "tpm").mkdir()
    (tmp_path / "tpm/link").symlink_to("/etc/shadow")
    packed = guest_files.archive(str(tmp_path / "tpm"))
    with pytest.raises(HandoverError, match="the backup has link beside the guest's disks, which is no file of a TPM or a firmware"):
        guest_files.unpack(packed, str(tmp_path / "again"))
