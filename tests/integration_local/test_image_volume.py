# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import subprocess
import time
import typing as t
from pathlib import Path

import pytest

GIB = 2**30
both = pytest.mark.parametrize("fstype", ["ext4", "xfs"])

Run = t.Callable[..., dict[str, t.Any]]


def command(*argv: t.Any) -> str:
    return subprocess.run([str(word) for word in argv], check=True, capture_output=True, text=True).stdout


def tree(directory: Path) -> set[tuple[str, int, int]]:
    """Everything below a directory, with what a write would change."""
    return {(str(path), path.lstat().st_size, path.lstat().st_mtime_ns) for path in directory.rglob("*")}


def eventually(condition: t.Callable[[], bool], nudge: t.Callable[[], object], seconds: float = 20) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        nudge()
        time.sleep(0.1)
    return True


@contextlib.contextmanager
def filesystem(kind: str, options: str, point: Path) -> t.Iterator[Path]:
    point.mkdir(parents=True)
    command("mount", "-t", kind, "-o", options, "none", point)
    try:
        yield point
    finally:
        command("umount", point)


@pytest.fixture
def image(host: Path) -> Path:
    return host / "volumes" / "shop.img"


@pytest.fixture
def place(host: Path) -> Path:
    return host / "mnt" / "shop"


@both
def test_the_life_of_a_volume(fstype: str, run_volume: Run, image: Path, place: Path) -> None:
    volume = {"fstype": fstype, "size": "1G"}

    made = run_volume(state="present", **volume)
    assert made["reasons"] == [f"the image {image} does not exist"]
    assert (made["size"], made["fstype"], made["device"], made["mounted"]) == (GIB, fstype, None, False)
    assert made["allocated"] < 80 * 2**20
    assert image.stat().st_mode & 0o777 == 0o600
    assert os.listdir(image.parent) == ["shop.img"]
    assert not run_volume(state="present", **volume)["changed"]

    up = run_volume(state="mounted", **volume)
    assert up["reasons"] == ["the image is not attached to a loop device", "the volume is not mounted"]
    assert up["mounted"] and up["direct_io"] and up["mountpoint"] == str(place)
    assert up["used"] < 100 * 2**20
    assert os.listdir(place) == []
    (place / "ledger").write_text("paid")
    assert not run_volume(state="mounted", **volume)["changed"]
    assert not run_volume(state="present", **volume)["changed"]

    down = run_volume(state="unmounted", **volume)
    assert down["reasons"] == [f"the volume is mounted on {place}", f"the image is attached to {up['device']}"]
    assert (down["device"], down["mounted"]) == (None, False)
    assert os.listdir(place) == []
    assert not run_volume(state="unmounted", **volume)["changed"]

    run_volume(state="mounted", **volume)
    assert (place / "ledger").read_text() == "paid"

    with pytest.raises(Exception, match="absent would delete .* for good: pass force=true if that is meant"):
        run_volume(state="absent", **volume)
    assert (place / "ledger").read_text() == "paid"

    run_volume(state="absent", force=True, **volume)
    assert not image.exists()
    assert not run_volume(state="absent", **volume)["changed"]


@both
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([], {"state": "present", "size": "1G"}),
        ([], {"state": "mounted", "size": "1G"}),
        ([{"state": "present", "size": "1G"}], {"state": "mounted", "size": "2G"}),
        ([{"state": "present", "size": "1G"}], {"state": "present", "size": "2G"}),
        ([{"state": "mounted", "size": "1G"}], {"state": "unmounted"}),
        ([{"state": "mounted", "size": "1G"}], {"state": "absent", "force": True}),
    ],
)
def test_check_mode_touches_nothing_and_foretells_the_run(fstype: str, before: list[dict], after: dict, host: Path, run_volume: Run) -> None:
    for stage in before:
        run_volume(fstype=fstype, **stage)
    found = tree(host)
    foretold = run_volume(check=True, diff=True, fstype=fstype, **after)
    assert tree(host) == found
    done = run_volume(diff=True, fstype=fstype, **after)
    assert foretold["changed"] and foretold["reasons"] == done["reasons"] and foretold["diff"] == done["diff"]
    assert run_volume(diff=True, fstype=fstype, **after)["diff"]["before"] == done["diff"]["after"]


def test_a_new_ext4_is_clean_and_leaves_the_kernel_nothing_to_write(run_volume: Run, image: Path) -> None:
    made = run_volume(state="present", size="1G")
    command("e2fsck", "-f", "-n", image)
    groups = re.findall(r"^Group \d+:.*$", command("dumpe2fs", image), re.MULTILINE)
    assert len(groups) == 8 and all("ITABLE_ZEROED" in group for group in groups)
    assert made["allocated"] < 4 * 2**20


def test_the_root_directory_gets_its_owner_and_permissions(run_volume: Run, place: Path) -> None:
    root = {"state": "mounted", "size": "64M", "owner": "65534", "group": "65534", "mode": "0750"}
    assert len(run_volume(check=True, **root)["reasons"]) == 6
    run_volume(**root)
    assert (place.stat().st_uid, place.stat().st_gid, place.stat().st_mode & 0o777) == (65534, 65534, 0o750)
    assert not run_volume(**root)["changed"]
    changed = run_volume(**{**root, "mode": "0700"})
    assert changed["reasons"] == ["the volume's root directory has another mode than 0700"]
    assert place.stat().st_mode & 0o777 == 0o700


# Growing


def has_resize_capability() -> bool:
    mask = re.search(r"^CapEff:\s+([0-9a-f]+)$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert mask
    return bool(int(mask.group(1), 16) >> 24 & 1)


@both
def test_a_volume_grows_while_it_is_in_use(fstype: str, run_volume: Run, place: Path) -> None:
    run_volume(state="mounted", fstype=fstype, size="1G")
    with open(place / "ledger", "w") as ledger:
        ledger.write("begun, ")
        if fstype == "ext4" and not has_resize_capability():
            with pytest.raises(Exception, match="cannot grow while it is mounted, because root lacks CAP_SYS_RESOURCE"):
                run_volume(state="mounted", fstype=fstype, size="2G")
            assert run_volume(state="mounted", fstype=fstype)["size"] == GIB
            return
        grown = run_volume(state="mounted", fstype=fstype, size="2G")
        ledger.write("paid")
    assert grown["size"] == 2 * GIB and len(grown["reasons"]) == 3
    assert os.statvfs(place).f_blocks * os.statvfs(place).f_frsize > 1.8 * GIB
    assert (place / "ledger").read_text() == "begun, paid"
    assert not run_volume(state="mounted", fstype=fstype, size="2G")["changed"]


@both
def test_an_unmounted_volume_grows_at_the_latest_when_it_is_mounted(fstype: str, run_volume: Run, place: Path) -> None:
    run_volume(state="present", fstype=fstype, size="1G")
    run_volume(state="present", fstype=fstype, size="2G")
    assert not run_volume(state="present", fstype=fstype, size="2G")["changed"]
    run_volume(state="mounted", fstype=fstype, size="2G")
    assert os.statvfs(place).f_blocks * os.statvfs(place).f_frsize > 1.8 * GIB
    assert not run_volume(state="mounted", fstype=fstype, size="2G")["changed"]


def test_a_grow_that_was_interrupted_is_finished(run_volume: Run, image: Path, place: Path) -> None:
    run_volume(state="mounted", fstype="xfs", size="1G")
    os.truncate(image, 2 * GIB)
    finished = run_volume(state="mounted", fstype="xfs", size="2G")
    assert finished["reasons"] == [f"{finished['device']} does not know the image's size yet", "the xfs file system is smaller than the image"]
    assert os.statvfs(place).f_blocks * os.statvfs(place).f_frsize > 1.8 * GIB


def test_a_volume_does_not_shrink(run_volume: Run) -> None:
    run_volume(state="present", size="1G")
    with pytest.raises(Exception, match="volume shop has 1 GiB and cannot shrink to 512 MiB: image volumes only grow"):
        run_volume(state="present", size="512M")


# Space


def test_a_full_reservation_is_on_the_disk_and_stays(run_volume: Run, place: Path) -> None:
    full = {"state": "mounted", "size": "64M", "reserve": "full"}
    assert run_volume(**full)["allocated"] >= 64 * 2**20
    (place / "file").write_bytes(bytes(2**20))
    command("sync", "-f", place)
    (place / "file").unlink()
    command("sync", "-f", place)
    again = run_volume(**full)
    assert not again["changed"] and again["allocated"] >= 64 * 2**20


def test_a_sparse_volume_is_reserved_when_that_is_asked_for(run_volume: Run) -> None:
    run_volume(state="present", size="64M")
    assert run_volume(state="present", size="64M", reserve="full")["allocated"] >= 64 * 2**20


def test_deleted_files_give_their_space_back(run_volume: Run, place: Path) -> None:
    volume = {"state": "mounted", "size": "256M"}
    run_volume(**volume)
    (place / "file").write_bytes(os.urandom(64 * 2**20))
    command("sync", "-f", place)
    assert run_volume(**volume)["allocated"] > 64 * 2**20
    (place / "file").unlink()
    # ext4 commits, and then discards in the background.
    assert eventually(lambda: run_volume(**volume)["allocated"] < 32 * 2**20, lambda: command("sync", "-f", place))


def test_discard_and_a_full_reservation_contradict_each_other(run_volume: Run) -> None:
    with pytest.raises(Exception, match="discard=true would give back what reserve=full reserves"):
        run_volume(state="present", size="64M", reserve="full", discard=True)


def test_a_full_disk_is_found_before_anything_is_made(host: Path, run_volume: Run) -> None:
    with filesystem("tmpfs", "size=16m", host / "tiny") as tiny:
        for reserve, way_out in (("none", "an image on a larger file system"), ("full", "a smaller size or reserve=none")):
            with pytest.raises(Exception, match=f"volume shop needs .* in {tiny}, where 16 MiB are free: free some, or take {way_out}"):
                run_volume(state="present", size="1G", reserve=reserve, image=str(tiny / "shop.img"))
        assert os.listdir(tiny) == []


def test_a_disk_that_fills_up_while_a_volume_is_made_leaves_nothing_behind(host: Path, run_volume: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from ansible_collections.livefleet.handover.plugins.module_utils._podman import volume as image_volume

    monkeypatch.setattr(image_volume, "FORMAT_NEEDS", 0)
    with filesystem("tmpfs", "size=16m", host / "tiny") as tiny:
        with pytest.raises(Exception, match="mkfs.xfs .* failed: .*No space left on device"):
            run_volume(state="present", size="1G", fstype="xfs", image=str(tiny / "shop.img"))
        assert os.listdir(tiny) == []


# What is there already


def test_a_file_without_a_file_system_is_not_formatted_over(run_volume: Run, image: Path) -> None:
    image.parent.mkdir(parents=True)
    image.write_bytes(b"somebody's letters" * 4096)
    with pytest.raises(Exception, match="holds no file system that is known here; it is never formatted over"):
        run_volume(state="mounted", size="1G")
    assert image.read_bytes() == b"somebody's letters" * 4096


def test_another_file_system_is_not_formatted_over(run_volume: Run, image: Path) -> None:
    run_volume(state="present", fstype="xfs", size="1G")
    found = image.stat().st_mtime_ns
    with pytest.raises(Exception, match="holds xfs, and ext4 is asked for; it is never formatted over"):
        run_volume(state="mounted", size="1G")
    assert image.stat().st_mtime_ns == found


@pytest.mark.parametrize("kind", ["directory", "symbolic link"])
def test_only_a_regular_file_is_an_image(kind: str, run_volume: Run, image: Path) -> None:
    image.parent.mkdir(parents=True)
    if kind == "directory":
        image.mkdir()
    else:
        image.symlink_to("/nowhere")
    for state in ("mounted", "absent"):
        with pytest.raises(Exception, match=f"is a {kind}, not a regular file: name another image"):
            run_volume(state=state, size="1G", force=True)


def test_a_draft_that_a_killed_run_left_is_replaced(run_volume: Run, image: Path) -> None:
    image.parent.mkdir(parents=True)
    Path(f"{image}.new").write_bytes(b"half")
    run_volume(state="present", size="64M")
    assert os.listdir(image.parent) == ["shop.img"]


def test_a_draft_that_another_run_is_working_on_is_left_alone(run_volume: Run, image: Path) -> None:
    image.parent.mkdir(parents=True)
    with open(f"{image}.new", "wb") as draft:
        fcntl.flock(draft, fcntl.LOCK_EX)
        with pytest.raises(Exception, match=r"shop.img.new is being made by another run at this moment: wait for it"):
            run_volume(state="present", size="64M")
    assert Path(f"{image}.new").exists()


def test_a_mountpoint_that_holds_files_is_not_mounted_over(run_volume: Run, host: Path, place: Path) -> None:
    place.mkdir(parents=True)
    (place / "letters").touch()
    with pytest.raises(Exception, match=f"{place} is not empty, and what it holds would be hidden"):
        run_volume(state="mounted", size="64M")
    assert not (host / "volumes").exists()


def test_a_mountpoint_that_is_taken_is_not_mounted_over(run_volume: Run, place: Path) -> None:
    sentence = rf"{place} has none \(tmpfs\) mounted on it already: unmount that, or name another mountpoint"
    with filesystem("tmpfs", "size=1m", place), pytest.raises(Exception, match=sentence):
        run_volume(state="mounted", size="64M")


def test_a_volume_is_not_mounted_twice(run_volume: Run, host: Path, place: Path) -> None:
    run_volume(state="mounted", size="64M")
    with pytest.raises(Exception, match=f"volume shop is mounted on {place} already, and {host}/other is asked for"):
        run_volume(state="mounted", size="64M", mountpoint=str(host / "other"))


def test_an_image_on_two_loop_devices_is_refused(run_volume: Run, image: Path) -> None:
    run_volume(state="present", size="64M")
    for _device in range(2):
        command("losetup", "--find", image)
    with pytest.raises(Exception, match="is attached to /dev/loop.* and /dev/loop.* at once, which destroys it"):
        run_volume(state="mounted", size="64M")
    assert len(run_volume(state="unmounted", check=True)["reasons"][0].split(", ")) == 2


def test_an_image_that_is_attached_read_only_is_refused(run_volume: Run, image: Path) -> None:
    run_volume(state="present", size="64M")
    command("losetup", "--find", "--read-only", image)
    with pytest.raises(Exception, match="is attached to /dev/loop.* read-only, by somebody else: detach it with losetup --detach"):
        run_volume(state="mounted", size="64M")


def test_a_loop_device_that_is_there_is_used(run_volume: Run, image: Path) -> None:
    run_volume(state="present", size="64M")
    device = command("losetup", "--find", "--show", "--direct-io=on", image).strip()
    up = run_volume(state="mounted", size="64M")
    assert up["device"] == device and up["reasons"] == ["the volume is not mounted"]


def test_an_image_that_a_process_has_open_is_left_alone(run_volume: Run, image: Path) -> None:
    run_volume(state="present", size="64M")
    with open(image, "rb") as held, subprocess.Popen(["sleep", "60"], stdin=held) as holder:
        try:
            for state, sentence in (("mounted", "wait until it has finished, or end it"), ("absent", "end it first")):
                with pytest.raises(Exception, match=rf"{image} is in use by sleep \(pid {holder.pid}\): {sentence}"):
                    run_volume(state=state, size="64M", force=True)
        finally:
            holder.kill()
    assert run_volume(state="mounted", size="64M")["mounted"]


# Taking down


def test_a_process_that_keeps_the_volume_busy_is_named(run_volume: Run, place: Path) -> None:
    run_volume(state="mounted", size="64M")
    with subprocess.Popen(["sleep", "60"], cwd=place) as holder:
        try:
            with pytest.raises(Exception, match=rf"{place} could not be unmounted: it is in use by sleep \(pid {holder.pid}\): end that first"):
                run_volume(state="unmounted")
        finally:
            holder.kill()
    assert run_volume(state="unmounted")["changed"]


def test_a_mount_namespace_that_keeps_the_volume_is_named(run_volume: Run, image: Path) -> None:
    run_volume(state="mounted", size="64M")
    with subprocess.Popen(["unshare", "--mount", "--propagation", "private", "sh", "-c", "echo ready; exec sleep 60"], stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout and holder.stdout.readline() == b"ready\n"
            with pytest.raises(Exception, match=rf"{image} is still attached to /dev/loop\d+ after the unmount, because it is in use by sleep \(pid"):
                run_volume(state="unmounted", timeout=2)
        finally:
            holder.kill()
    assert run_volume(state="unmounted")["device"] is None


def test_a_file_system_that_an_operator_froze_is_told_with_the_way_to_thaw_it(run_volume: Run, image: Path, place: Path) -> None:
    device = run_volume(state="mounted", size="64M")["device"]
    command("fsfreeze", "--freeze", place)
    try:
        with pytest.raises(Exception, match=rf"{image} is still attached to {device} .*nobody has it open.* mount {device} again, .* `fsfreeze -u`"):
            run_volume(state="unmounted", timeout=2)
    finally:
        # As the sentence says.
        command("mount", device, place)
        command("fsfreeze", "--unfreeze", place)
        command("umount", place)
    run_volume(state="unmounted")
    assert run_volume(state="unmounted")["device"] is None


def test_the_loop_device_goes_with_an_unmount_by_hand(run_volume: Run, place: Path) -> None:
    run_volume(state="mounted", size="64M")
    command("umount", place)
    assert run_volume(state="present", size="64M")["device"] is None


# Faults


def replace_tool(name: str, script: str, host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = host / "tools"
    tools.mkdir()
    (tools / name).write_text(f"#!/bin/sh\n{script}\n")
    (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")


def test_a_mount_that_fails_leaves_no_loop_device(run_volume: Run, host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_tool("mount", "echo 'mount: wrong medium type' >&2; exit 32", host, monkeypatch)
    with pytest.raises(Exception, match="failed: mount: wrong medium type$"):
        run_volume(state="mounted", size="64M")
    assert run_volume(state="present", size="64M")["device"] is None


def test_a_tool_that_says_it_worked_is_not_believed(run_volume: Run, host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_tool("mount", "exit 0", host, monkeypatch)
    with pytest.raises(
        Exception, match="volume shop is not as asked for after the run, .*: the image is not attached to a loop device; the volume is not mount"
    ):
        run_volume(state="mounted", size="64M")


def test_refused_direct_io_is_a_warning(run_volume: Run, host: Path) -> None:
    outer = host / "mnt" / "outer"
    run_volume(name="outer", image=str(host / "outer.img"), mountpoint=str(outer), state="mounted", size="512M", sector_size=4096)
    inner = {"image": str(outer / "shop.img"), "state": "mounted", "size": "64M"}
    buffered = run_volume(**inner)
    assert buffered["direct_io"] is False
    assert buffered["warnings"] == [
        f"{outer}/shop.img does without direct I/O, which the file system or the disk under it refuses: its data is cached twice; sector_size=4096 may help"
    ]
    run_volume(**{**inner, "state": "unmounted"})
    direct = run_volume(**inner, sector_size=4096)
    assert direct["direct_io"] is True and direct["warnings"] == []


def test_missing_tools_stop_a_run_and_warn_a_check(run_volume: Run, host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ansible.module_utils.basic import AnsibleModule

    find = AnsibleModule.get_bin_path
    monkeypatch.setattr(AnsibleModule, "get_bin_path", lambda self, tool, **rest: None if "xfs" in tool else find(self, tool, **rest))
    sentence = "mkfs.xfs, xfs_info, xfs_growfs are missing on this host: install the package xfsprogs"
    assert run_volume(check=True, state="present", size="1G", fstype="xfs")["warnings"] == [sentence]
    with pytest.raises(Exception, match=sentence):
        run_volume(state="present", size="1G", fstype="xfs")
    assert tree(host) == set()


@both
def test_sectors_of_4096_bytes(fstype: str, run_volume: Run) -> None:
    up = run_volume(state="mounted", fstype=fstype, size="512M", sector_size=4096)
    assert command("blockdev", "--getss", up["device"]).strip() == "4096"
    assert up["direct_io"]


# podman and systemd


def test_podman_gets_a_volume_that_is_bound_to_the_mountpoint(run_volume: Run, equipped: Path, place: Path, image: Path) -> None:
    volume = {"podman_volume": "shop-data", "size": "64M"}
    made = run_volume(state="present", **volume)
    assert made["reasons"] == [f"the image {image} does not exist", "podman has no volume named shop-data"]
    assert made["podman_volume"] == "shop-data"
    assert (equipped / "podman" / "shop-data").read_text() == str(place)
    assert not run_volume(state="present", **volume)["changed"]
    run_volume(state="absent", force=True, **volume)
    assert not (equipped / "podman" / "shop-data").exists()


def test_the_podman_volume_has_the_volumes_name_unless_told_otherwise(run_volume: Run, equipped: Path) -> None:
    run_volume(state="present", podman_volume=None, size="64M")
    assert (equipped / "podman" / "shop").exists()


def test_a_podman_volume_of_somebody_else_is_left_alone(run_volume: Run, equipped: Path, image: Path) -> None:
    (equipped / "podman" / "letters").write_text("/home/letters")
    for state in ("present", "absent"):
        with pytest.raises(Exception, match="podman has a volume named letters already, which is bound to /home/letters: remove it, or name another"):
            run_volume(state=state, podman_volume="letters", size="64M")
    assert not image.exists()


def test_a_running_container_that_has_the_volume_is_named(run_volume: Run, equipped: Path, place: Path) -> None:
    volume = {"podman_volume": "shop", "size": "64M"}
    run_volume(state="mounted", **volume)
    with subprocess.Popen(["unshare", "--mount", "sh", "-c", "echo ready; exec sleep 60"], stdout=subprocess.PIPE) as container:
        try:
            assert container.stdout and container.stdout.readline() == b"ready\n"
            (equipped / "ps").write_text(f'[{{"Names": ["web"], "Pid": {container.pid}}}, {{"Names": ["other"], "Pid": 999999999}}]')
            for state in ("unmounted", "absent"):
                with pytest.raises(Exception, match="volume shop is in use by the running container web: stop it first"):
                    run_volume(state=state, force=True, **volume)
        finally:
            container.kill()
    assert os.path.ismount(place)


def test_a_stopped_container_that_names_the_volume_keeps_it(run_volume: Run, equipped: Path, image: Path) -> None:
    run_volume(state="present", podman_volume="shop", size="64M")
    (equipped / "ps-volume").write_text("web\n")
    with pytest.raises(Exception, match="the podman volume shop belongs to the container web: remove it first"):
        run_volume(state="absent", podman_volume="shop", force=True)
    assert image.exists()


def test_a_volume_is_mounted_at_boot_until_it_is_unmounted(run_volume: Run, equipped: Path, place: Path) -> None:
    unit = command("systemd-escape", "--path", "--suffix=mount", place).strip() if Path("/usr/bin/systemd-escape").exists() else None
    up = run_volume(state="mounted", boot=True, size="64M")
    assert up["reasons"][-1] == "nothing mounts the volume at boot"
    links = os.listdir(equipped / "units" / "multi-user.target.wants")
    assert len(links) == 1 and links[0].endswith("mnt-shop.mount") and unit in (None, links[0])
    assert (equipped / "systemctl.log").read_text().splitlines() == [f"enable --quiet --no-reload {links[0]}", "daemon-reload"]
    assert not run_volume(state="mounted", boot=True, size="64M")["changed"]

    altered = run_volume(state="mounted", boot=True, size="64M", discard=False)
    assert altered["reasons"] == ["the units that mount the volume at boot are not as asked for"]
    assert "Options=loop,noatime\n" in (equipped / "units" / links[0]).read_text()

    down = run_volume(state="unmounted")
    assert down["reasons"][0] == "the volume is mounted at boot"
    assert os.listdir(equipped / "units") == ["multi-user.target.wants"]
    assert os.listdir(equipped / "units" / "multi-user.target.wants") == []


def test_a_volume_can_do_without_boot(run_volume: Run, equipped: Path) -> None:
    run_volume(state="mounted", boot=True, size="64M")
    assert run_volume(state="mounted", boot=False, size="64M")["reasons"] == ["the volume is mounted at boot"]
    assert os.listdir(equipped / "units") == ["multi-user.target.wants"]
