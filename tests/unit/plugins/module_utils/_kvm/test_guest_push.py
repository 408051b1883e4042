# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import types
from pathlib import Path

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import host
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import HandoverError
from ansible_collections.livefleet.handover.plugins.module_utils._drivers.copies import taker as taker_of
from ansible_collections.livefleet.handover.plugins.module_utils._kvm.copies import copy_mode, guest_checks, guest_taker, push_moment
from ansible_collections.livefleet.handover.plugins.module_utils._kvm.copies.guest_checks import BACKUP


@pytest.fixture
def take(guest_host, guest_module, tmp_path):
    def run(**given):
        module = guest_module(**{"repository": str(tmp_path / "backups"), "mode": "push", **given})
        return {**guest_taker.GuestTaker(module).run(), "warned": module.warned}

    return run


def test_qemu_writes_into_the_store_and_the_next_begins_at_its_checkpoint(guest_host, take, tmp_path):
    (first,) = take()["backups"]
    begin = "backup-begin --reuse-external --backupxml --checkpointxml"
    assert guest_host.said == ["mount push", "guard off", "guard on", "freeze", begin, "thaw", "guard off", "push"]
    name = tmp_path / "pushed" / "5d8f8a3c-7e0b-4b52-9a30-5f4a5c1c0a01"
    assert f'<target file="{name}/vda.qcow2" />' in guest_host.begun and "socket" not in guest_host.begun and "scratch" not in guest_host.begun
    (one,) = guest_host.checkpoints
    vda, vdb = guest_host.pulled[0]["disks"]
    assert (vda["size"], vda["since"], vda["checkpoint"]) == (33554432, "", one) and (vdb["since"], vdb["checkpoint"]) == ("", "")
    assert not name.exists() and not (tmp_path / "backups/web/push").exists() and first["workload"] == "web"

    guest_host.push_lasts = 3
    take()
    vda, vdb = guest_host.pulled[1]["disks"]
    assert (vda["since"], vdb["why"]) == (one, "an image of the format raw keeps no list of what was written")
    assert f'backupmode="incremental" incremental="{one}"' in guest_host.begun and one not in guest_host.checkpoints


def test_the_store_says_that_a_checkpoint_is_not_enough(guest_host, take):
    take()
    guest_host.unfit_targets = {"vda": "the disk has 8 bytes, and had 4"}
    take()
    vda = guest_host.pulled[1]["disks"][0]
    assert (vda["since"], vda["why"]) == ("", "the disk has 8 bytes, and had 4") and "incremental=" not in guest_host.begun


@pytest.mark.parametrize(
    "ends, sentence",
    [
        ("Job type:         Failed\nError message:    No space left on device\n", "QEMU did not write the disks of web: No space left on device"),
        ("Job type:         Cancelled\n", "QEMU did not write the disks of web: libvirt has the job as cancelled"),
        ("", "libvirt does not say that QEMU has written all disks of web"),
    ],
)
def test_only_libvirts_word_makes_it_a_backup(guest_host, take, tmp_path, ends, sentence):
    take()
    (one,) = guest_host.checkpoints
    guest_host.push_ends = ends
    with pytest.raises(HandoverError, match=sentence):
        take()
    assert len(guest_host.pulled) == 1 and list(guest_host.checkpoints) == [one], "the bitmap of the one before goes on"
    assert not list((tmp_path / "pushed").iterdir()) and not (tmp_path / "backups/web/push").exists()


def test_the_end_of_an_earlier_job_is_not_taken_for_this_ones(guest_host, take):
    guest_host.told, guest_host.push_ends = guest_host.push_ends, ""
    with pytest.raises(HandoverError, match="libvirt does not say"):
        take()


@pytest.mark.parametrize("operation", ["Operation:        Dump\n", ""])
def test_the_end_of_another_kind_of_job_is_not_taken_for_this_ones(guest_host, take, operation):
    guest_host.push_ends = "Job type:         Completed\n" + operation
    with pytest.raises(HandoverError, match="libvirt does not say that QEMU has written all disks of web"):
        take()
    assert not guest_host.pulled


FULL = "Job type:         Failed\nError message:    No space left on device\n"


@pytest.mark.parametrize(
    "reason, stays, resumed, sentence",
    [
        ("I/O error", False, True, r"No space left on device .*\. And a write of web failed meanwhile, which paused it; it was resumed$"),
        ("I/O error", True, True, r"No space left on device .*\. And a write of web failed, and it stays paused: .* `virsh resume web`$"),
        ("user", False, False, r"No space left on device \([^()]*\)$"),
        ("", False, False, r"No space left on device \([^()]*\)$"),
    ],
)
def test_a_guest_that_a_full_store_has_stopped_goes_on(guest_host, take, reason, stays, resumed, sentence):
    guest_host.push_ends, guest_host.reason, guest_host.stays_paused = FULL, reason, stays
    with pytest.raises(HandoverError, match=sentence):
        take()
    assert ("resume" in guest_host.said) is resumed


def test_a_guest_that_was_stopped_while_frozen_is_thawed_when_it_goes_on(guest_host, take):
    """It does not answer the thaw, and that is not the reason that is told."""
    guest_host.push_ends, guest_host.reason = FULL, "I/O error"
    guest_host.agent["guest-fsfreeze-thaw"] = [None, 1]
    with pytest.raises(HandoverError, match=r"^QEMU did not write the disks of web: No space left .*\. And a write of web failed meanwhile, .* resumed$"):
        take()
    said = guest_host.said[guest_host.said.index("resume") :]
    assert said[:3] == ["resume", "thaw", "guard off"]


def test_one_that_was_not_stopped_and_does_not_thaw_is_told(guest_host, take):
    guest_host.agent["guest-fsfreeze-thaw"] = None
    with pytest.raises(HandoverError, match="the agent of web does not thaw its file systems"):
        take()
    assert "resume" not in guest_host.said and guest_host.said[-1] != "guard off"


def test_a_guest_is_not_resumed_before_the_job_has_gone(guest_host, take, monkeypatch):
    def too_late(_moment):
        raise HandoverError("too late")

    guest_host.push_lasts, guest_host.reason = 10**6, "I/O error"
    monkeypatch.setattr(guest_host, "_virsh_domjobabort", lambda rest: None)
    monkeypatch.setattr(push_moment.PushMoment, "complete", too_late)
    with pytest.raises(HandoverError, match="libvirt does not end the backup of web"):
        take()
    assert "domjobabort" in guest_host.said and "resume" not in guest_host.said


def test_a_guest_that_was_stopped_goes_on_after_a_backup_too(guest_host, take):
    guest_host.reason = "I/O error"
    assert take()["warned"] == ["a write of web failed meanwhile, which paused it; it was resumed"] and guest_host.said[-1] == "resume"


def test_a_pull_resumes_nothing(guest_host, take):
    guest_host.reason = "I/O error"
    take(mode="pull")
    assert "resume" not in guest_host.said


def test_a_guest_that_ends_is_not_waited_for(guest_host, take, monkeypatch):
    monkeypatch.setattr(push_moment, "PATIENCE", 1e9)
    guest_host.push_ends = ""
    monkeypatch.setattr(guest_host, "_virsh_domstate", lambda rest: ("shut off" if guest_host.push_lasts == 0 else "running") + "\n")
    with pytest.raises(HandoverError, match="libvirt does not say"):
        take()


def test_a_push_that_a_killed_run_has_left_is_ended(guest_host, take, tmp_path):
    take()
    left = tmp_path / "backups/web/push"
    left.mkdir()
    guest_host.job, guest_host.dumped = "Unbounded", f"<domainbackup mode='push'><target file='{tmp_path}/pushed/x/vda.qcow2'/></domainbackup>"
    take(mode="pull")
    assert "domjobabort" in guest_host.said and not left.exists()


def test_auto_pushes_where_there_is_no_room_to_pull(guest_host, take, monkeypatch, tmp_path):
    def free(path):
        return 1 << 20 if path == str(guest_host.folder) else 1 << 40

    monkeypatch.setattr(host, "free_space", free)
    said = take(mode="auto")
    assert guest_host.said[-1] == "push"
    assert said["warned"][0].startswith("QEMU pushes the disks of web, and its writes wait for the store meanwhile: 1 MiB is free in ")
    with pytest.raises(HandoverError, match="1 MiB is free in .*, and what web overwrites during a backup is kept there"):
        take(mode="pull")
    monkeypatch.setattr(host, "free_space", lambda path: 1 << 40)
    assert take(mode="auto")["warned"] == [] and "pull" in guest_host.said


def test_room_for_disks_that_are_pushed_whole(guest_host, take, monkeypatch):
    take()
    monkeypatch.setattr(host, "free_space", lambda path: 1 << 20)
    with pytest.raises(HandoverError, match=r"a backup of web has vdb whole, which takes .*, and 1 MiB is free in "):
        take()


def test_room_for_what_was_written_since(guest_host, take, monkeypatch):
    monkeypatch.setattr(guest_checks, "kept", lambda facts: [disk for disk in facts.disks if disk.target == "vda"])
    take()
    monkeypatch.setattr(host, "free_space", lambda path: 1 << 20)
    with pytest.raises(HandoverError, match=r"QEMU pushes what web has written into .*, where 1 MiB is free: free 63 MiB there"):
        take()
    monkeypatch.setattr(host, "free_space", lambda path: 64 << 20)
    take()


def test_push_is_for_folders_of_this_host_and_guests(guest_host, guest_module, monkeypatch):
    running = types.SimpleNamespace(name="web", state="running")
    with pytest.raises(HandoverError, match="backup1:/srv/backups is on another host, and QEMU pushes into folders of this one"):
        copy_mode.choose(None, running, "backup1:/srv/backups", "push", BACKUP, None)
    off = types.SimpleNamespace(name="web", state="shut off")
    assert copy_mode.choose(None, off, "/srv/backups", "push", BACKUP, None) == "pull"
    monkeypatch.setattr(taker_of, "has_libvirt", lambda runtime: False)
    with pytest.raises(HandoverError, match="web is no KVM guest, and only QEMU pushes disks"):
        taker_of.taker(guest_module(mode="push"))
    assert guest_host.said == []


def test_a_mount_that_was_left_goes(monkeypatch, tmp_path):
    said = []
    runtime = types.SimpleNamespace(tool=lambda tool, package: tool, run=said.append)
    monkeypatch.setattr(push_moment.guest_moment, "PUSHED", str(tmp_path))
    (tmp_path / "u").mkdir()
    monkeypatch.setattr(push_moment.os.path, "ismount", lambda path: path == str(tmp_path / "u"))
    push_moment.clear(runtime, "u", str(tmp_path / "store"))
    assert said == [["umount", "--lazy", str(tmp_path / "u")]] and not Path(tmp_path / "u").exists()
