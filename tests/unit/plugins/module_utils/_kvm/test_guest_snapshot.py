# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import shutil

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import host
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import HandoverError, Runtime
from ansible_collections.livefleet.handover.plugins.module_utils._core.snapshot_mounts import SnapshotMounts
from ansible_collections.livefleet.handover.plugins.module_utils._drivers.copies import snapshots as door
from ansible_collections.livefleet.handover.plugins.module_utils._kvm import lock
from ansible_collections.livefleet.handover.plugins.module_utils._kvm.copies import guest_mounts, guest_snapshot, image_servers, restore_checks, still_moment
from ansible_collections.livefleet.handover.plugins.module_utils._kvm.partitions import Area
from ansible_collections.livefleet.handover.plugins.module_utils._podman.copies import snapshot_group
from ansible_collections.livefleet.handover.plugins.module_utils._podman.podman import Podman

UUID = "5d8f8a3c-7e0b-4b52-9a30-5f4a5c1c0a01"


@pytest.fixture
def web(guest_host, tmp_path, monkeypatch):
    monkeypatch.setattr(image_servers, "FOLDER", str(tmp_path))
    monkeypatch.setattr(restore_checks, "saved", lambda name: str(tmp_path / (name + ".save")))
    monkeypatch.setattr(Runtime, "remaining", lambda self: 600.0)
    (tmp_path / "web.fd").write_bytes(b"variables")
    guest_host.firmware = "<nvram>{0}/web.fd</nvram>".format(tmp_path)
    return guest_host


@pytest.fixture
def act(web, guest_module, tmp_path):
    """The module, as the roles call it: the way back is three calls."""

    def run(state="present", name="one", check=False, **given):
        module = guest_module(check, **{"name": name, "state": state, "root": str(tmp_path / "root"), "memory": False, "keep": False, **given})
        return {**guest_snapshot.GuestSnapshot(module).run(), "warned": module.warned}

    return run


@pytest.fixture
def back(act):
    def run(name="one", keep=True, **given):
        for state in ("staged", "placed", "restored"):
            result = act(state, name, keep=keep, **given)
        return result

    return run


def records(tmp_path):
    return {path.parent.name: json.loads(path.read_text()) for path in (tmp_path / "root").glob("web/*/snapshot.json")}


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def grow_old(web, word=b"now"):
    for name in ("web.qcow2", "data.raw", "web.fd"):
        (web.folder / name).write_bytes(word + b" " + name.encode())


# Taken


def test_it_is_taken_as_a_backup_is_and_recorded_as_a_containers(web, act, tmp_path):
    result = act()
    assert web.said[:6] == ["guard off", "guard on", "freeze", "backup-begin --backupxml --checkpointxml", "thaw", "guard off"]
    assert (result["changed"], result["reasons"], result["volumes"], result["left_out"]) == (True, ["there is no snapshot one"], [], [])
    assert web.pulled[0]["store"] == str(tmp_path / "root/.disks/web") and web.pulled[0]["name"] == "one"
    record = records(tmp_path)["one"]
    assert {key: record[key] for key in ("kind", "container", "memory", "running", "disks", "size", "volumes")} == {
        "kind": "KVM guest", "container": UUID, "memory": False, "running": True, "disks": True, "size": 8, "volumes": []
    }  # fmt: skip
    assert record["drives"][0] == {"name": "vda", "image": str(tmp_path / "web.qcow2"), "format": "qcow2", "size": 4}
    assert json.loads((tmp_path / "root/web/one/configuration.json").read_text())["definition"] == web.domain()
    (one,) = web.checkpoints
    assert act()["changed"] is False and len(web.pulled) == 1
    act(name="two")
    assert web.pulled[1]["disks"][0]["since"] == one and one not in web.checkpoints
    act(name="three", track=False)
    assert web.pulled[2]["disks"][0]["bitmap"] == "" and not web.checkpoints, "a guest that is not tracked writes as fast as before"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, ""),
        ({"flags": ["in-use", "auto"]}, "the bitmap {mark} was left open, as by a crash of the guest"),
        ({"flags": []}, "the bitmap {mark} does not record"),
        ({"checkpoints": {}}, "the image has no bitmap {mark} any more"),
        ({"image": {"backing-filename": "base.qcow2"}}, "the image stands on another, and no bitmap has what is written to that"),
    ],
)
def test_only_the_writes_since_the_current_one_are_compared(web, act, back, change, why):
    """The bitmap is asked for where QEMU vouches for it, and the play says why else."""
    act()
    act(name="two")
    (mark,) = web.checkpoints
    web.state = "shut off"
    for key, value in change.items():
        setattr(web, key, value)
    web.marked = []
    act("staged", "one")
    lines = act("placed", "one")["lines"]
    assert web.marked == ([] if why else ["--bitmap=" + mark, mark])
    assert lines[0].endswith("(by digests, as {0})".format(why.format(mark=mark)) if why else "(by marks)")
    assert lines[1].endswith("(by digests, as the current snapshot has left no checkpoint)"), "a raw image keeps none"


def test_a_current_one_without_a_checkpoint(web, act, back):
    act(track=False)
    act("staged")
    assert all(line.endswith("as the current snapshot has left no checkpoint)") for line in act("placed")["lines"])
    assert web.marked == []


def test_the_difference_is_that_to_the_current_one(web, act, back):
    act()
    act(name="two")
    web.current = "one"  # it was gone back to
    (two,) = web.checkpoints
    web.points[0]["volumes"][0].pop("mark")
    act(name="three")
    assert web.pulled[2]["disks"][0]["since"] == "" and two not in web.checkpoints


def test_a_guest_keeps_the_definition_that_it_has(web, act, back, tmp_path):
    """Asked for by the way back, or by the snapshot itself."""
    act()
    act(name="two", with_configuration=False)
    assert {name: record["configuration"] for name, record in records(tmp_path).items()} == {"one": True, "two": False}
    for name, asked in (("one", {"with_configuration": False}), ("two", {})):
        web.state = "running"
        grow_old(web)
        del web.said[:]
        back(name, **asked)
        assert [word for word in web.said if word.startswith(("define", "autostart"))] == [] and web.said[-1] == "start web"
        assert (web.folder / "web.qcow2").read_bytes() == b"disk" and (web.folder / "web.fd").read_bytes() == b"variables"
    assert all(record["configuration"] for name, record in records(tmp_path).items() if name.startswith("undo-"))
    back("one")
    assert "define" in web.said

    web.state, web.firmware, web.defined = "running", "", None
    grow_old(web)
    back("one", with_configuration=False)
    assert (web.folder / "web.fd").read_bytes() == b"now web.fd", "it has no variables by its present definition"


def test_of_a_guest_that_is_off_qemu_serves_the_disks(web, act, tmp_path):
    web.state = "shut off"
    act()
    assert web.said == ["serve web.qcow2 to read", "serve data.raw to read", "pull"] and not web.served
    assert [(disk["bitmap"], disk["why"]) for disk in web.pulled[0]["disks"]] == [("", still_moment.OFF)] * 2
    assert records(tmp_path)["one"]["running"] is False and json.loads(web.files["backup.json"])["running"] is False


def test_check_mode_touches_nothing(web, act, tmp_path):
    assert act(check=True)["changed"] is True
    act()
    said, found = list(web.said), content(tmp_path)
    for state in ("staged", "absent"):
        assert act(state, check=True, keep=True)["changed"] is True
    assert (web.said, content(tmp_path), list(records(tmp_path))) == (said, found, ["one"])


def test_one_that_fails_leaves_nothing(web, act, tmp_path):
    web.pull_fails = "no space left on device"
    with pytest.raises(HandoverError, match="no space left on device"):
        act()
    assert not records(tmp_path) and not list((tmp_path / "root/web").iterdir()) and not web.checkpoints and web.job == "None"


def test_what_a_killed_run_has_left_under_the_name_goes(web, act, tmp_path):
    act()
    shutil.rmtree(tmp_path / "root/web/one")
    assert act()["changed"] is True
    assert [point["name"] for point in web.points] == ["one"] and "delete one" in web.said


EXTRA = "<disk type='file' device='disk'><source file='/x'/><target dev='vdc'/></disk>"
REFUSED = {
    "paused": ({"state": "paused"}, {}, "web cannot have a snapshot taken: it is not running but 'paused'"),
    "moving": ({"job": "Unbounded"}, {}, "libvirt is at another job on it"),
    "a block device": ({"devices": EXTRA.replace("type='file'", "type='block'")}, {}, "its disk vdc is of type 'block', and only image files can be restored"),
    "memory": ({}, {"memory": True}, "web is a KVM guest, and no snapshot has its memory: leave handover_memory away"),
    "a name": ({}, {"name": "../x"}, "'../x' is no name"),
    "gone": ({"defined": {}}, {}, "there is no guest named web on this host"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_before_anything_is_touched(web, act, tmp_path, case):
    changes, given, sentence = REFUSED[case]
    for key, value in changes.items():
        setattr(web, key, value)
    with pytest.raises(HandoverError) as refused:
        act(**given)
    assert sentence in str(refused.value) and web.said == [] and not records(tmp_path)


def test_snapshots_of_a_container_of_that_name_are_refused(web, act):
    act()
    web.points[0]["description"] = ""
    with pytest.raises(HandoverError, match="has snapshots of a container web: remove those first, or choose another folder"):
        act(name="two")


def test_another_run_has_the_guest(web, act):
    with lock.hold("web"), pytest.raises(lock.Busy):
        act()


def test_it_is_removed_with_its_checkpoint(web, act, tmp_path):
    act()
    act(name="two")
    web.checkpoints["handover-anothers-1"] = ["vda"]
    assert act("absent", "two")["reasons"] == ["there is a snapshot two"]
    assert list(records(tmp_path)) == ["one"] and list(web.checkpoints) == ["handover-anothers-1"]
    assert act("absent", "two")["changed"] is False
    web.defined = {}
    assert act("absent", "one")["changed"] is True and not web.points, "the guest may be gone"


@pytest.fixture
def mounted(web, monkeypatch):
    """Mount points are folders here, and a disk has one partition with a file system and one without."""
    areas = {target: [Area(target + "1", "ext4", 512, 512), Area(target + "2", "swap", 1024, 512)] for target in ("vda", "vdb")}
    monkeypatch.setattr(guest_mounts, "look", lambda runtime, image, target, sector: areas[target])
    there = []
    monkeypatch.setattr(SnapshotMounts, "attach", lambda self, runtime, image, place, fstype, within: there.append(place))
    monkeypatch.setattr(SnapshotMounts, "places", lambda self, name: {os.path.basename(place): place for place in there})
    monkeypatch.setattr(SnapshotMounts, "unmount", lambda self, runtime, name: (there.clear(), shutil.rmtree(self.folder(name))))
    for name in ("vda", "vdb"):
        (web.folder / (name + ".layer")).write_bytes(b"disk")
    return there


def test_its_disks_are_mounted_while_another_run_has_the_guest(web, act, mounted, tmp_path):
    act()
    with lock.hold("web"):
        result = act("mounted", check=True)
        assert result["reasons"] == ["of one these are not mounted: vda, vdb"] and not mounted
        result = act("mounted")
    assert sorted(result["mountpoints"]) == ["vda1", "vdb1"] and result["changed"] is True
    assert result["lines"] == ["vda2 is swap space", "vdb2 is swap space", guest_mounts.WAY_OUT]
    again = act("mounted")
    assert (again["changed"], again["lines"]) == (False, result["lines"])
    with pytest.raises(HandoverError, match="the snapshot one is mounted below .*/.mounted/web/one: unmount it first"):
        act("absent")
    web.defined = {}
    assert act("unmounted", check=True)["changed"] is True and mounted
    assert act("unmounted")["reasons"] == ["one is mounted"] and not mounted
    assert act("unmounted")["changed"] is False and act("absent")["changed"] is True


@pytest.mark.parametrize("state", ("mounted", "unmounted"))
def test_another_run_mounts_at_the_same_time(web, act, mounted, tmp_path, state):
    act()
    if state == "unmounted":
        act("mounted")
    there = list(mounted)
    with SnapshotMounts(str(tmp_path / "root"), "web").held(False):
        assert act(state, check=True)["changed"] is True
        with pytest.raises(HandoverError, match="another run mounts or unmounts copies of web on this host: wait until it has ended"):
            act(state)
    assert mounted == there and act(state)["changed"] is True


def test_a_new_snapshot_is_mounted_with_its_own_files(web, act, mounted, tmp_path):
    """A restart of the host leaves the files of a mount: they go with the snapshot, or with the next of the name."""
    image = tmp_path / "root/.mounted/web/one/vda.img"
    act()
    act("mounted")
    mounted.clear()
    assert act("absent", check=True)["changed"] is True and image.exists()
    assert act("absent")["reasons"] == ["a mount of one has left files", "there is a snapshot one"]
    assert not image.exists() and act("absent")["changed"] is False
    image.parent.mkdir()
    image.write_bytes(b"of a run that was killed")
    assert act("absent")["changed"] is True and not image.exists(), "without a snapshot, too"
    image.parent.mkdir()
    image.write_bytes(b"old")
    assert act(check=True)["changed"] is True and image.exists()
    act()
    act("mounted")
    assert image.read_bytes() == b"disk"


def test_files_that_are_still_mounted_are_in_the_way_of_a_new_snapshot(web, act, mounted, tmp_path):
    act()
    act("mounted")
    shutil.rmtree(tmp_path / "root/web/one")
    with pytest.raises(HandoverError, match="files of an earlier snapshot one are mounted below .*: unmount them first"):
        act()
    assert mounted and act("unmounted")["changed"] is True and act()["changed"] is True


def test_copies_for_a_mount_need_room(web, act, mounted, monkeypatch):
    act()
    with monkeypatch.context() as patch:
        patch.setattr(host, "free_space", lambda path: 8)
        with pytest.raises(HandoverError, match="the copy of web takes 8 B, and 8 B is free in .*/root: free 64 MiB there, or remove older snapshots"):
            act("mounted")
    act("mounted")
    mounted.clear()  # a restart of the host
    monkeypatch.setattr(host, "free_space", lambda path: 8)
    assert act("mounted")["changed"] is True, "the copies are there"


# Gone back to

FILES = ("web.qcow2", "data.raw", "web.fd")


def test_it_goes_back_and_forwards_again(web, act, back, tmp_path):
    act()
    then = content(tmp_path)
    grow_old(web)
    now = content(tmp_path)
    web.defined, web.said = {"web": web.domain().replace("q35", "pc")}, []
    result = back()
    found = content(tmp_path)
    assert {name: found[name] for name in FILES} == {name: then[name] for name in FILES} and ".handover-" not in "".join(found)
    assert "q35" in web.defined["web"] and web.state == "running" and result["changed"] is True and result["volumes"] == []
    kept = next(name for name in records(tmp_path) if name.startswith("undo-"))
    order = [word.partition(" ")[0] for word in web.said if word not in ("guard on", "guard off")]
    assert order[:5] == ["freeze", "backup-begin", "thaw", "pull", "domjobabort"]
    assert order[5:] == ["checkpoint-delete", "destroy", "serve", "serve", "roll", "define", "autostart", "start"], web.said
    assert "serve web.qcow2.handover-rollback" in web.said and not web.served
    back(kept)
    found = content(tmp_path)
    assert {name: found[name] for name in FILES} == {name: now[name] for name in FILES} and "pc" in web.defined["web"]
    assert not list(tmp_path.glob("handover-*")), "the sockets are gone"


def test_one_that_was_off_stays_off_and_nothing_is_kept_if_not_asked(web, act, back, tmp_path):
    web.state = "shut off"
    act()
    grow_old(web)
    back(keep=False)
    assert web.state == "shut off" and list(records(tmp_path)) == ["one"] and (tmp_path / "web.qcow2").read_bytes() == b"disk"


BACK_REFUSED = {
    "paused": (lambda web: setattr(web, "state", "paused"), "web cannot go back to one: it is 'paused': end it first"),
    "a job": (lambda web: setattr(web, "job", "Unbounded"), "libvirt is at another job on it"),
    "transient": (lambda web: setattr(web, "persistent", "no"), "libvirt forgets its definition when it ends"),
    "another guest": (lambda web: change(web, UUID, "1-2-3"), "the web of this host is another guest (UUID 1-2-3, and " + UUID),
    "another image": (lambda web: change(web, "web.qcow2", "web.snap"), "(vda is {0}/web.snap (qcow2) now, and was {0}/web.qcow2 (qcow2))"),
    "another format": (lambda web: change(web, "type='raw'", "type='qcow2'"), "(vdb is {0}/data.raw (qcow2) now, and was {0}/data.raw (raw))"),
    "a disk more": (lambda web: change(web, "</devices>", EXTRA + "</devices>"), "(vdc is /x (raw) now, and was none)"),
    "grown": (lambda web: setattr(web, "virtual_size", 8), "the disk vda has 8 B now, and had 4 B at the snapshot"),
    "no image": (lambda web: (web.folder / "data.raw").unlink(), "the image {0}/data.raw is gone"),
    "two images": (lambda web: (web.folder / "data.raw.handover-rollback").write_bytes(b""), "are both there, and the second one is of a rollback"),
    "saved memory": (lambda web: (web.folder / "web.save").write_bytes(b""), "libvirt has saved its memory"),
    "libvirt's snapshots": (lambda web: setattr(web, "snapshots", "a\n"), "it has 1 snapshots of libvirt's"),
    "variables of others": (lambda web: change(web, "web.fd", "other.fd"), "web.fd is there and none of its files"),
    "unfit": (lambda web: setattr(web, "unfit", "unsupported machine type"), "libvirt does not take its definition here"),
}  # fmt: skip


def change(web, old, new):
    assert old in web.domain()
    web.defined = {"web": web.domain().replace(old, new)}
    (web.folder / "other.fd").write_bytes(b"")


@pytest.mark.parametrize("case", BACK_REFUSED)
def test_a_way_back_is_refused_before_anything_is_touched(web, act, tmp_path, case):
    provoke, sentence = BACK_REFUSED[case]
    act()
    provoke(web)
    said, before = list(web.said), content(tmp_path)
    with pytest.raises(HandoverError) as refused:
        act("staged")  # keeping the guest as it is would refuse some of it, too
    assert sentence.format(tmp_path) in str(refused.value)
    assert (web.said, content(tmp_path)) == (said, before)


def test_room_is_looked_for_before_the_guest_is_ended(web, act, monkeypatch):
    act()
    monkeypatch.setattr(host, "free_space", lambda path: 8)
    with pytest.raises(HandoverError, match="web cannot go back to one: it takes 0 B more in .*, and 8 B is free: free 64 MiB there"):
        act("staged")
    assert web.state == "running"


def test_one_that_was_started_in_between_is_not_written(web, act, tmp_path):
    act()
    act("staged")
    web.state = "running"
    with pytest.raises(HandoverError, match="web cannot go back to one: it is 'running'"):
        act("placed")
    assert "roll back one" not in web.said


def test_a_snapshot_that_cannot_be_read_leaves_the_guest_as_it_was(web, act, tmp_path):
    act()
    grow_old(web)
    before = content(tmp_path)
    act("staged")
    web.rollback_fails = "before anything: layers/x.qcow2 is damaged"
    with pytest.raises(HandoverError, match="web did not go back to one: .*is damaged"):
        act("placed")
    assert content(tmp_path) == before and not web.served


def test_an_image_that_cannot_be_put_away_gives_the_first_its_name_back(web, act, monkeypatch, tmp_path):
    act()
    grow_old(web)
    before = content(tmp_path)
    act("staged")
    rollback = __import__(guest_snapshot.GuestRollback.__module__, fromlist=["rename"])
    real, done = rollback.rename, []

    def rename(old, new):
        done.append(os.path.basename(new))
        if len(done) == 2:
            raise HandoverError(old + " cannot be renamed: Operation not permitted")
        real(old, new)

    monkeypatch.setattr(rollback, "rename", rename)
    with pytest.raises(HandoverError, match="web did not go back to one: .* cannot be renamed: Operation not permitted"):
        act("placed")
    assert content(tmp_path) == before and len(done) == 3 and "roll back one" not in web.said


def test_one_that_ends_in_the_middle_is_shut_until_it_has_ended(web, act, back, tmp_path):
    act()
    then = content(tmp_path)
    grow_old(web)
    act("staged", keep=True)
    web.rollback_fails = "no space left on device"
    with pytest.raises(HandoverError, match="no space left on device"):
        act("placed")
    assert sorted(path.name for path in tmp_path.glob("*.handover-rollback")) == ["data.raw.handover-rollback", "web.qcow2.handover-rollback"]
    with pytest.raises(HandoverError, match="a rollback of web was begun, and has not ended .*web.qcow2.handover-rollback.: run it again"):
        act(name="two")
    web.rollback_fails = ""
    before = list(records(tmp_path))
    back()
    assert {name: content(tmp_path)[name] for name in FILES} == {name: then[name] for name in FILES}
    assert list(records(tmp_path)) == before, "of disks that are neither old nor new nothing is kept"


class Killed(BaseException):
    """As by SIGKILL, as far as files go."""


@pytest.mark.parametrize("after", range(12))
def test_killed_at_any_step_it_is_old_or_new_or_cannot_start(web, act, back, tmp_path, monkeypatch, after):
    act()
    then = content(tmp_path)
    grow_old(web)
    now = content(tmp_path)
    web.defined = {"web": web.domain().replace("q35", "pc")}
    act("staged")
    left = [0] * after

    def killed_after(what):
        def run(*words, **named):
            if not left:
                raise Killed
            left.pop()
            return what(*words, **named)

        return run

    with monkeypatch.context() as patch:
        back_of = guest_snapshot.GuestRollback
        for name in ("_put", "_write_disks", "_begun"):
            patch.setattr(back_of, name, killed_after(getattr(back_of, name)))
        rollback = __import__(back_of.__module__, fromlist=["rename"])
        for name in ("rename", "remove", "unpack"):
            patch.setattr(rollback, name, killed_after(getattr(rollback, name)))
        patch.setattr(web, "_defined", killed_after(web._defined))
        try:
            act("placed")
            ended = True
        except Killed:
            ended = False
    assert ended == (after >= 9)
    found = content(tmp_path)
    if "web.qcow2" in found and "data.raw" in found:
        old_or_new = then if ended else now
        assert {name: found[name] for name in FILES} == {name: old_or_new[name] for name in FILES} and ("q35" in web.defined["web"]) == ended
    back()
    assert {name: content(tmp_path)[name] for name in FILES} == {name: then[name] for name in FILES} and "q35" in web.defined["web"]
    assert ".handover-" not in "".join(content(tmp_path)) and web.state == "running"


# The door


@pytest.mark.parametrize(
    "word, state, containers, guests, found",
    [
        ("web", "present", [], "web\n", "guest"),
        ("web", "present", ["web"], "db\n", "container"),
        ("web", "staged", ["web"], "web\n", "web is a container and a KVM guest on this host"),
        ("web", "present", ["web"], None, "container"),
        ("web", "present", [], None, "libvirt is down"),
        ("db+web", "present", ["db"], "web\n", "web is a KVM guest, and its snapshots are of a moment of its own: take it alone"),
        ("db+shop", "present", ["db", "shop"], "web\n", "container"),
        ("web", "absent", [], "web\n", "guest"),
    ],
    ids=["a guest", "a container", "both", "a container, and libvirt is down", "libvirt is down", "with a container", "two containers", "removed"],
)
def test_the_name_is_the_door(web, guest_module, monkeypatch, tmp_path, word, state, containers, guests, found):
    listed = [{"Id": str(number), "Names": [name]} for number, name in enumerate(containers)]
    monkeypatch.setattr(Podman, "containers", lambda self: listed)

    def names(self):
        if guests is None:
            raise HandoverError("libvirt is down")
        return guests.split()

    monkeypatch.setattr(door.Libvirt, "names", names)
    monkeypatch.setattr(snapshot_group, "act", lambda module, engine_of: "container")
    monkeypatch.setattr(door.GuestSnapshot, "run", lambda self: "guest")
    module = guest_module(workload=word, state=state, name="one", root=str(tmp_path / "root"), memory=False)
    if found in ("guest", "container"):
        assert door.act(module) == found
    else:
        with pytest.raises(HandoverError) as refused:
            door.act(module)
        assert str(refused.value).startswith(found)


def test_a_snapshot_of_a_guest_that_is_gone_is_a_guests(web, act, guest_module, monkeypatch, tmp_path):
    act()
    monkeypatch.setattr(Podman, "containers", lambda self: [])
    web.defined = {}
    module = guest_module(state="absent", name="one", root=str(tmp_path / "root"), memory=False)
    assert door.act(module)["changed"] is True and not records(tmp_path)
    monkeypatch.setattr(Runtime, "find", lambda self, tool: None if tool == "podman" else "/usr/bin/" + tool)
    assert door.members(module, 5) == ["web"], "a host of guests alone has no podman"
