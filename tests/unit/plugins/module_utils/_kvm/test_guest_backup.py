# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import types

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import host, runtime
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import HandoverError
from ansible_collections.livefleet.handover.plugins.module_utils._drivers.copies import taker as taker_of
from ansible_collections.livefleet.handover.plugins.module_utils._kvm import lock
from ansible_collections.livefleet.handover.plugins.module_utils._kvm.copies import backup_xml, freeze, guest_files, guest_taker
from ansible_collections.livefleet.handover.plugins.module_utils._podman.copies.backup_taker import BackupTaker
from ansible_collections.livefleet.handover.plugins.module_utils._podman.podman import Podman


@pytest.fixture
def take(guest_host, guest_module, tmp_path):
    def run(**given):
        module = guest_module(**{"repository": str(tmp_path / "backups"), **given})
        return {**guest_taker.GuestTaker(module).run(), "warned": module.warned}

    return run


def test_the_first_is_whole_and_the_next_begins_at_its_checkpoint(guest_host, take):
    (first,) = take()["backups"]
    assert guest_host.said[:4] == ["guard off", "guard on", "freeze", "backup-begin --backupxml --checkpointxml"]
    assert guest_host.said[4:] == ["thaw", "guard off", "pull", "domjobabort"]
    assert (first["workload"], first["volumes"][0]["name"], guest_host.job) == ("web", "vda", "None")
    (one,) = guest_host.checkpoints
    vda, vdb = guest_host.pulled[0]["disks"]
    assert (vda["bitmap"], vda["why"], vda["checkpoint"]) == ("", backup_xml.NO_CHECKPOINT, one)
    assert (vdb["bitmap"], vdb["why"], vdb["checkpoint"]) == ("", "an image of the format raw keeps no list of what was written", "")
    assert '<disk name="sda" backup="no" />' in guest_host.begun
    document = json.loads(guest_host.files["configuration.json"])
    assert (document["kind"], document["definition"]) == ("KVM guest", guest_host.domain())
    record = json.loads(guest_host.files["backup.json"])
    assert record["disks"][0] == {"target": "vda", "path": str(guest_host.folder / "web.qcow2"), "format": "qcow2"}

    del guest_host.said[:]
    take()
    vda, _vdb = guest_host.pulled[1]["disks"]
    (two,) = guest_host.checkpoints
    assert (vda["bitmap"], vda["since"], vda["checkpoint"], vda["why"]) == ("handover-vda", one, two, "")
    assert two != one and 'backupmode="incremental" incremental="{0}"'.format(one) in guest_host.begun and 'exportbitmap="handover-vda"' in guest_host.begun
    assert guest_host.said[-1] == "checkpoint-delete " + one, "after the backup is whole, and not before"


@pytest.mark.parametrize(
    "lost, why",
    [
        (lambda guest, name: guest.checkpoints.clear(), "libvirt has lost the checkpoint of the backup before ({0})"),
        (lambda guest, name: guest.checkpoints.update({name: ["vdz"]}), "the checkpoint of the backup before ({0}) is not of this disk"),
        (lambda guest, name: setattr(guest, "refuses_checkpoint", "missing or broken bitmap 'x' for disk 'vda'"), "libvirt cannot use the checkpoint {0} ("),
    ],
    ids=["lost", "of another disk", "broken"],
)
def test_a_lost_or_broken_checkpoint_is_said_and_everything_is_read(guest_host, take, lost, why):
    take()
    (one,) = guest_host.checkpoints
    lost(guest_host, one)
    (taken,) = take()["backups"]
    disk = guest_host.pulled[1]["disks"][0]
    assert (disk["bitmap"], disk["since"]) == ("", "") and disk["why"].startswith(why.format(one)), disk
    assert len(guest_host.checkpoints) == 1 and one not in guest_host.checkpoints and taken["volumes"][0]["how"] == "digests"


def test_another_failure_of_libvirts_is_no_lost_checkpoint(guest_host, take):
    take()
    guest_host.refuses = "internal error: unable to execute QEMU command"
    with pytest.raises(HandoverError, match="libvirt does not begin a backup of web: error: internal error: unable to execute"):
        take()
    assert len(guest_host.checkpoints) == 1 and guest_host.said[-2:] == ["guard off", "checkpoint-delete " + guest_host.said[-1].split()[1]]


def test_a_backup_that_fails_leaves_the_guest_as_it_was(guest_host, take):
    take()
    (one,) = guest_host.checkpoints
    guest_host.pull_fails = "no space left on device"
    with pytest.raises(HandoverError, match="no space left on device"):
        take()
    assert (guest_host.job, list(guest_host.checkpoints)) == ("None", [one]), "the bitmap of the one before goes on"
    guest_host.pull_fails = ""
    take()
    assert guest_host.pulled[-1]["disks"][0]["since"] == one


def test_what_a_killed_run_has_left_goes(guest_host, take):
    take()
    (one,) = guest_host.checkpoints
    left = backup_xml.own(guest_host.pulled[0]["store"]) + "left"
    guest_host.checkpoints.update({left: ["vda"], "handover-anothers-1": ["vda"]})
    guest_host.job, guest_host.dumped = "Unbounded", "<domainbackup><server socket='/x/handover-backup.sock'/></domainbackup>"
    take()
    assert guest_host.pulled[-1]["disks"][0]["since"] == one
    assert left not in guest_host.checkpoints and "handover-anothers-1" in guest_host.checkpoints, "a checkpoint of another store stays"


def test_a_backup_of_another_program_is_not_ended(guest_host, take):
    guest_host.job, guest_host.dumped = "Unbounded", "<domainbackup><server socket='/run/other.sock'/></domainbackup>"
    with pytest.raises(HandoverError, match="libvirt is at another job on it"):
        take()
    assert guest_host.job == "Unbounded" and guest_host.said == []


def test_check_mode_touches_nothing(guest_host, take):
    assert take(check=True)["backups"] == []
    assert guest_host.said == [] and not guest_host.pulled


REFUSED = {
    "off": ({"state": "shut off"}, "it is not running but 'shut off', and only QEMU can tell its disks at one moment: start or resume it"),
    "paused": ({"state": "paused"}, "it is not running but 'paused'"),
    "not defined": ({"persistent": "no"}, "libvirt forgets its definition when it ends"),
    "a migration": ({"job": "Unbounded"}, "libvirt is at another job on it (unbounded), such as a move or a backup"),
    "a disk of the network": ({"devices": "<disk type='network' device='disk'><source protocol='rbd' name='p/x'/><target dev='vdc'/></disk>"},
                              "its disk vdc is of type 'network', and only image files can be restored"),
    "a block device": ({"devices": "<disk type='block' device='disk'><source dev='/dev/x'/><target dev='vdc'/></disk>"}, "its disk vdc is of type 'block'"),
    "a LUN": ({"devices": "<disk type='block' device='lun'><source dev='/dev/x'/><target dev='sdc'/></disk>"}, "its disk sdc is of type 'lun'"),
    "another format": ({"devices": "<disk type='file' device='disk'><driver type='vmdk'/><source file='/x'/><target dev='vdc'/></disk>"},
                       "its disk vdc has the format vmdk: convert it to qcow2"),
    "shared": ({"devices": "<disk type='file' device='disk'><source file='/x'/><target dev='vdc'/><shareable/></disk>"}, "may be written by other guests"),
    "transient": ({"devices": "<disk type='file' device='disk'><source file='/x'/><target dev='vdc'/><transient/></disk>"},
                  "is thrown away when the guest ends"),
    "encrypted": ({"devices": "<disk type='file' device='disk'><source file='/x'><encryption format='luks'/></source><target dev='vdc'/></disk>"},
                  "its disk vdc is encrypted, and its backup would not be"),
    "variables elsewhere": ({"firmware": "<nvram type='network'><source protocol='iscsi' name='x'/></nvram>"},
                            "the variables of its firmware are no file but 'network'"),
    "no variables": ({"firmware": "<nvram>/nowhere/web.fd</nvram>"}, "/nowhere/web.fd is missing, which its definition names"),
    "a TPM elsewhere": ({"devices": "<tpm model='tpm-crb'><backend type='external'/></tpm>"},
                        "the state of its TPM is kept by another program (backend 'external')"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_before_anything_is_touched(guest_host, take, case):
    changes, sentence = REFUSED[case]
    for key, value in changes.items():
        setattr(guest_host, key, value)
    with pytest.raises(HandoverError) as refused:
        take()
    assert str(refused.value).startswith("web cannot be backed up: ") and sentence in str(refused.value)
    assert guest_host.said == [] and not guest_host.pulled


def test_a_move_under_way_is_refused(guest_host, take, tmp_path):
    (tmp_path / "moves").mkdir()
    (tmp_path / "moves/web.json").write_text(json.dumps({"guest": "web", "destination": "kn2"}))
    with pytest.raises(HandoverError, match="a move of it to kn2 has not ended"):
        take()
    (tmp_path / "moves/web.json").unlink()
    with lock.hold("web"), pytest.raises(lock.Busy):
        take()
    assert guest_host.said == []


def test_room_is_looked_for_first(guest_host, take, monkeypatch):
    monkeypatch.setattr(host, "free_space", lambda path: 1 << 20 if path.endswith("backups") else 1 << 40)
    with pytest.raises(HandoverError, match=r"the first backup of web takes .*, and 1 MiB is free in .*backups: free "):
        take()
    monkeypatch.setattr(host, "free_space", lambda path: 1 << 20)
    with pytest.raises(HandoverError, match="1 MiB is free in .*, and what web overwrites during a backup is kept there"):
        take(mode="pull")
    assert guest_host.said == []


def test_parts_beside_its_disks_are_named(guest_host, take):
    guest_host.devices = (
        "<filesystem type='mount'/><disk type='file' device='cdrom'><source file='/iso/x.iso'/><target dev='sdb'/><readonly/></disk>"
        "<disk type='file' device='disk'><source file='/base.raw'/><target dev='vdc'/><readonly/></disk>"
    )
    result = take()
    assert result["left_out"] == [
        "the medium in sdb (/iso/x.iso)", "the read-only disk vdc (/base.raw)", "the folders of the host that it mounts (<filesystem>)"
    ]  # fmt: skip
    assert result["warned"] == ["a backup of web leaves out " + each for each in result["left_out"]]
    assert guest_host.pulled[0]["frozen_ms"] == 0 and "freeze" not in guest_host.said, "it has no agent"


def test_a_store_of_a_container_and_a_taken_name_are_refused(guest_host, take):
    take(name="before-upgrade")
    with pytest.raises(HandoverError, match="there is a backup before-upgrade of web in .*: choose another name"):
        take(name="before-upgrade")
    guest_host.files["backup.json"] = json.dumps({"workload": "web", "container": "1"}).encode()
    with pytest.raises(HandoverError, match="has backups of a container web: choose another repository"):
        take()


def test_commands_before_and_after_run_in_any_case(guest_host, take):
    guest_host.refuses = "no"
    with pytest.raises(HandoverError):
        take(before="checkpoint", after="go on", keep={"last": 1})
    assert guest_host.said.index("checkpoint") < guest_host.said.index("freeze") < guest_host.said.index("go on")
    guest_host.refuses = ""
    assert take(keep={"last": 1})["verdicts"] == [{"workload": "web", "id": "0abc", "taken": "2026-11-26T00:00:00Z", "keep": True, "why": "current"}]


# The thaw


def test_an_agent_that_does_not_answer_is_said_and_not_waited_for(guest_host, take):
    guest_host.agent["guest-ping"] = None
    assert take()["warned"][0].startswith("the agent of web does not answer, so its backup is as after a loss of power")
    assert "freeze" not in guest_host.said


def test_a_freeze_that_fails_is_thawed_and_no_backup_is_taken(guest_host, take):
    guest_host.agent["guest-fsfreeze-freeze"] = None
    with pytest.raises(HandoverError, match="the agent of web could not freeze its file systems within 10 s, in 3 attempts"):
        take()
    assert guest_host.said[:15] == ["guard off", "guard on", "freeze", "thaw", "guard off"] * 3 and not guest_host.pulled


def test_a_freeze_that_had_much_to_write_is_tried_again(guest_host, take):
    guest_host.agent["guest-fsfreeze-freeze"] = [None, 1]
    assert take()["backups"]
    assert guest_host.said[:9] == [
        "guard off", "guard on", "freeze", "thaw", "guard off", "guard off", "guard on", "freeze", "backup-begin --backupxml --checkpointxml"
    ]  # fmt: skip


def test_the_guard_stays_where_the_agent_does_not_thaw(guest_host, take):
    guest_host.agent["guest-fsfreeze-thaw"] = None
    with pytest.raises(HandoverError, match="the agent of web does not thaw its file systems: handover-thaw-.*[.]timer goes on trying"):
        take()
    assert guest_host.said[:5] == ["guard off", "guard on", "freeze", "backup-begin --backupxml --checkpointxml", "thaw"]
    assert "guard off" not in guest_host.said[5:] and guest_host.job == "None" and not guest_host.checkpoints


def test_a_freeze_that_lasted_too_long_is_no_backup(guest_host, take, monkeypatch):
    clock = iter([0.0, 1.0, 11.0])
    monkeypatch.setattr(freeze, "time", types.SimpleNamespace(monotonic=lambda: next(clock)))
    with pytest.raises(HandoverError, match="the file systems of web stood still for 11.0 s and were let go"):
        take()
    assert not guest_host.pulled and not guest_host.checkpoints and guest_host.job == "None"


# The files beside the disks


def test_a_tpm_and_variables_come_back_as_they_were(guest_host, take, tmp_path):
    state = tmp_path / "swtpm/state/tpm2"
    state.mkdir(parents=True)
    (state / "tpm2-00.permall").write_bytes(b"secret")
    (state / ".lock").write_bytes(b"")
    (tmp_path / "web.fd").write_bytes(b"variables")
    guest_host.firmware = "<nvram>{0}/web.fd</nvram>".format(tmp_path)
    guest_host.devices = "<tpm model='tpm-crb'><backend type='emulator' version='2.0'><source type='dir' path='{0}'/></backend></tpm>".format(state.parent)
    take()
    assert [each["kind"] for each in json.loads(guest_host.files["backup.json"])["files"]] == ["nvram", "tpm"]
    guest_files.unpack(guest_host.files["tpm.tar"], str(tmp_path / "tpm-again"))
    guest_files.unpack(guest_host.files["nvram.tar"], str(tmp_path / "fd-again"))
    assert (tmp_path / "tpm-again/tpm2/tpm2-00.permall").read_bytes() == b"secret" and not (tmp_path / "tpm-again/tpm2/.lock").exists()
    assert (tmp_path / "fd-again").read_bytes() == b"variables"


def test_a_file_that_never_rests_is_refused(monkeypatch, tmp_path):
    number = iter(range(100))
    monkeypatch.setattr(guest_files, "PAUSE", 0)
    monkeypatch.setattr(guest_files, "_packed", lambda path: b"%d" % next(number))
    with pytest.raises(HandoverError, match="changed each time that it was read"):
        guest_files.archive(str(tmp_path))


# The door


@pytest.mark.parametrize(
    "containers, names, found",
    [
        ([], "web\n", guest_taker.GuestTaker),
        ([], "db\n", BackupTaker),
        (["web"], "", BackupTaker),
        (["web"], "web\n", None),
        (["web"], None, BackupTaker),
        ([], None, None),
    ],
    ids=["a guest", "not here", "a container", "both", "a container, and libvirt is down", "libvirt is down"],
)
def test_the_name_is_the_door(guest_host, guest_module, monkeypatch, containers, names, found):
    monkeypatch.setattr(Podman, "containers", lambda self: [{"Id": str(number), "Names": [name]} for number, name in enumerate(containers)])
    monkeypatch.setattr(runtime.Runtime, "run", lambda self, argv, **_kwargs: runtime.Completed(tuple(argv), 0, names, "") if names is not None else _down())
    if found is None:
        with pytest.raises(HandoverError, match="web is a container and a KVM guest on this host" if names else "libvirt is down"):
            taker_of.taker(guest_module())
    else:
        assert isinstance(taker_of.taker(guest_module()), found)


def test_a_guest_has_no_memory_taken(guest_host, guest_module, monkeypatch):
    monkeypatch.setattr(taker_of, "has_libvirt", lambda runtime: True)
    monkeypatch.setattr(Podman, "containers", lambda self: [])
    monkeypatch.setattr(runtime.Runtime, "run", lambda self, argv, **_kwargs: runtime.Completed(tuple(argv), 0, "web\n", ""))
    module = guest_module()
    module.params["memory"] = True
    with pytest.raises(HandoverError, match="web is a KVM guest, and backups have the memory of containers alone"):
        taker_of.taker(module)


def _down():
    raise HandoverError("libvirt is down")
