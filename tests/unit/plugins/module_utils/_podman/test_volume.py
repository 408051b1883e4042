# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan as tables: what is asked for, what is there, and the steps or the sentence that follow."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.loop import Holder, LoopDevice, Mount
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import HandoverError
from ansible_collections.livefleet.handover.plugins.module_utils._podman.volume import (
    TAIL,
    ImageFile,
    Observed,
    Plan,
    Step,
    Wanted,
    check_name,
    check_path,
    check_size,
    decide,
    outline,
    predict,
)

GIB = 2**30
IMAGE = "/var/lib/handover/volumes/shop.img"
HELD = IMAGE + ".handover-held"
PLACE = "/var/lib/handover/mnt/shop"

LOOP = LoopDevice("/dev/loop1", ("254:0", 17))
MOUNT = Mount("7:1", PLACE, "ext4", "/dev/loop1")
BIND = Mount("7:1", "/var/lib/containers/storage/volumes/shop/_data", "ext4", "/dev/loop1")
PODMAN = {"type": "none", "o": "bind", "device": PLACE}

# A host that could hold the volume and has nothing of it yet, and the stages that one is taken through.
NOTHING = Observed(free=100 * GIB)
MADE = Observed(
    free=100 * GIB,
    image=ImageFile(10 * GIB, 2**20),
    filesystem="ext4",
    filesystem_size=10 * GIB,
    podman_volume=PODMAN,
)
ATTACHED = dataclasses.replace(MADE, loops=(LOOP,), loop_size=10 * GIB)
MOUNTED = dataclasses.replace(ATTACHED, mounts=(MOUNT,), occupant=MOUNT, mountpoint="full", units="current")


def wanted(state: str = "mounted", **changes: t.Any) -> Wanted:
    values: dict[str, t.Any] = {"name": "shop", "state": state, "image": IMAGE, "mountpoint": PLACE, "size": 10 * GIB, "podman_volume": "shop"}
    return Wanted(**{**values, **changes})


def seen(base: Observed, **changes: t.Any) -> Observed:
    return dataclasses.replace(base, **changes)


GROWN = {"size": 20 * GIB}
XFS = {"fstype": "xfs"}
IS_XFS = {"filesystem": "xfs"}
# Grown as a file, and then interrupted.
LAGGING = {"image": ImageFile(20 * GIB, 2**20)}


@pytest.mark.parametrize(
    ("asked", "there", "steps"),
    [
        # from nothing
        (wanted("present"), NOTHING, "create define_volume"),
        (wanted("mounted"), NOTHING, "create attach mount define_volume write_units"),
        (wanted("mounted", boot=False), NOTHING, "create attach mount define_volume"),
        (wanted("mounted", podman_volume=None, boot=False), seen(NOTHING, podman=False, systemd=False), "create attach mount"),
        (wanted("unmounted"), NOTHING, ""),
        (wanted("absent"), NOTHING, ""),
        # what is as asked for stays
        (wanted("present"), MADE, ""),
        (wanted("present"), MOUNTED, ""),
        (wanted("mounted"), MOUNTED, ""),
        (wanted("mounted", size=None), MOUNTED, ""),
        (wanted("unmounted"), MADE, ""),
        (wanted("mounted"), seen(MOUNTED, mounts=(MOUNT, BIND)), ""),
        # mounting and unmounting
        (wanted("mounted"), MADE, "attach mount write_units"),
        (wanted("mounted"), ATTACHED, "mount write_units"),
        (wanted("mounted"), seen(MADE, mountpoint="empty"), "attach mount write_units"),
        (wanted("unmounted"), MOUNTED, "remove_units unmount detach"),
        (wanted("unmounted"), ATTACHED, "detach"),
        (wanted("unmounted"), seen(ATTACHED, loops=(LOOP, LOOP)), "detach"),
        # boot units
        (wanted("mounted"), seen(MOUNTED, units="missing"), "write_units"),
        (wanted("mounted"), seen(MOUNTED, units="stale"), "write_units"),
        (wanted("mounted", boot=False), MOUNTED, "remove_units"),
        (wanted("present"), seen(MOUNTED, units="stale"), ""),
        # growing
        (wanted("present", **GROWN), MADE, "grow_image grow_filesystem"),
        (wanted("mounted", **GROWN), MADE, "grow_image grow_filesystem attach mount write_units"),
        (wanted("mounted", **GROWN), ATTACHED, "grow_image refresh_loop grow_filesystem mount write_units"),
        (wanted("mounted", **GROWN), MOUNTED, "grow_image refresh_loop grow_filesystem"),
        (wanted("present", **GROWN), MOUNTED, "grow_image refresh_loop grow_filesystem"),
        (wanted("present", **GROWN, **XFS), seen(MADE, **IS_XFS), "grow_image"),
        (wanted("mounted", **GROWN, **XFS), seen(MADE, **IS_XFS), "grow_image attach mount grow_filesystem write_units"),
        (wanted("mounted", **GROWN, **XFS), seen(MOUNTED, **IS_XFS, resize_capability=False), "grow_image refresh_loop grow_filesystem"),
        # growing that was interrupted goes on where it stopped
        (wanted("mounted", **GROWN), seen(MOUNTED, **LAGGING), "refresh_loop grow_filesystem"),
        (wanted("mounted", **GROWN), seen(MOUNTED, **LAGGING, loop_size=20 * GIB), "grow_filesystem"),
        (wanted("present", **GROWN), seen(MADE, **LAGGING), "grow_filesystem"),
        (wanted("present", **GROWN, **XFS), seen(MADE, **LAGGING, **IS_XFS), ""),
        (wanted("mounted"), seen(MOUNTED, filesystem_size=10 * GIB - TAIL + 4096), ""),
        (wanted("mounted"), seen(MOUNTED, filesystem_size=None), ""),
        # reserving
        (wanted("present", reserve="full"), MADE, "reserve"),
        (wanted("present", reserve="full"), seen(MADE, image=ImageFile(10 * GIB, 10 * GIB), free=0), ""),
        (wanted("present", reserve="full", **GROWN), MADE, "grow_image grow_filesystem"),
        # removing
        (wanted("absent", force=True), MADE, "undefine_volume delete"),
        (wanted("absent", force=True), seen(MADE, mountpoint="empty"), "undefine_volume delete remove_mountpoint"),
        (wanted("absent", force=True), MOUNTED, "remove_units unmount detach undefine_volume delete remove_mountpoint"),
        (wanted("absent", force=True, mountpoint="/srv"), seen(MADE, mountpoint="empty", podman_volume=None), "delete"),
        (wanted("absent"), seen(NOTHING, podman_volume=PODMAN, units="stale"), "remove_units undefine_volume"),
        (wanted("absent", force=True), seen(NOTHING, away=(HELD,)), "delete"),
    ],
)
def test_steps(asked: Wanted, there: Observed, steps: str) -> None:
    plan = decide(asked, there)
    assert [step.action for step in plan.steps] == steps.split()
    assert all(step.reason for step in plan.steps)


PCOPY = (Holder(42, "pcopy"),)


@pytest.mark.parametrize(
    ("asked", "there", "sentence"),
    [
        (wanted(size=None), NOTHING, "volume shop does not exist yet: say how large it is to be, as in size=10G"),
        (
            wanted(size=5 * GIB),
            MADE,
            "volume shop has 10 GiB and cannot shrink to 5 GiB: image volumes only grow; make a smaller one and copy the files over",
        ),
        (
            wanted(),
            seen(MADE, filesystem=None, rolled_back=True),
            f"a rollback of {IMAGE} was begun and has not ended, so that nothing may mount it: run it again, or go back to another snapshot",
        ),
        (
            wanted(),
            seen(NOTHING, away=(HELD,)),
            f"a rollback of {IMAGE} was begun and has not ended, which has it as {HELD}: run it again, or go back to another snapshot",
        ),
        (
            wanted("absent"),
            seen(NOTHING, away=(HELD,)),
            f"absent would delete {HELD} for good, and a rollback of {IMAGE} has not ended: run it again, or pass force=true",
        ),
        (wanted("absent", force=True), seen(NOTHING, away=(HELD,), openers=PCOPY), f"{IMAGE} is in use by pcopy (pid 42): end it first"),
        (
            wanted(),
            seen(MADE, filesystem=None),
            f"{IMAGE} exists and holds no file system that is known here; it is never formatted over: move it away, or name another image",
        ),
        (
            wanted(),
            seen(MADE, filesystem="btrfs"),
            f"{IMAGE} holds btrfs, and ext4 is asked for; it is never formatted over: ask for fstype=btrfs, move it away, or name another image",
        ),
        (wanted(), seen(MADE, image=ImageFile(4096, 0, "directory")), f"{IMAGE} is a directory, not a regular file: name another image"),
        (wanted("absent", force=True), seen(MADE, image=ImageFile(0, 0, "block device")), f"{IMAGE} is a block device, not a regular file: name another image"),
        # space
        (
            wanted(),
            seen(NOTHING, free=2**20),
            "volume shop needs 80 MiB in /var/lib/handover/volumes, where 1 MiB are free: free some, or take an image on a larger file system",
        ),
        (
            wanted(reserve="full"),
            seen(NOTHING, free=9 * GIB),
            "volume shop needs 10 GiB in /var/lib/handover/volumes, where 9 GiB are free: free some, or take a smaller size or reserve=none",
        ),
        (
            wanted(reserve="full", **GROWN),
            seen(MADE, image=ImageFile(10 * GIB, 10 * GIB), free=9 * GIB),
            "volume shop needs 10 GiB in /var/lib/handover/volumes, where 9 GiB are free: free some, or take a smaller size or reserve=none",
        ),
        # in use
        (
            wanted(),
            seen(ATTACHED, loops=(LOOP, LoopDevice("/dev/loop3", LOOP.backing))),
            f"{IMAGE} is attached to /dev/loop1 and /dev/loop3 at once, which destroys it when both are written: detach all but one with losetup --detach",
        ),
        (
            wanted(),
            seen(ATTACHED, loops=(dataclasses.replace(LOOP, read_only=True),)),
            f"{IMAGE} is attached to /dev/loop1 read-only, by somebody else: detach it with losetup --detach /dev/loop1",
        ),
        (
            wanted(),
            seen(ATTACHED, loops=(dataclasses.replace(LOOP, offset=4096),)),
            f"{IMAGE} is attached to /dev/loop1 in part, by somebody else: detach it with losetup --detach /dev/loop1",
        ),
        (
            wanted(mountpoint="/srv/shop", podman_volume=None),
            seen(MOUNTED, occupant=None, mountpoint="missing"),
            f"volume shop is mounted on {PLACE} already, and /srv/shop is asked for: unmount it there, or ask for mountpoint={PLACE}",
        ),
        (
            wanted(),
            seen(MADE, occupant=Mount("8:1", PLACE, "xfs", "/dev/sda1"), mountpoint="full"),
            f"{PLACE} has /dev/sda1 (xfs) mounted on it already: unmount that, or name another mountpoint",
        ),
        (wanted(), seen(MADE, openers=PCOPY), f"{IMAGE} is in use by pcopy (pid 42): wait until it has finished, or end it"),
        (wanted("present", **GROWN), seen(MOUNTED, openers=PCOPY), f"{IMAGE} is in use by pcopy (pid 42): wait until it has finished, or end it"),
        (wanted("absent", force=True), seen(MADE, openers=PCOPY), f"{IMAGE} is in use by pcopy (pid 42): end it first"),
        (wanted("unmounted"), seen(MOUNTED, containers=("web",)), "volume shop is in use by the running container web: stop it first"),
        (wanted("absent", force=True), seen(MOUNTED, containers=("web", "db")), "volume shop is in use by the running containers web, db: stop them first"),
        (wanted("unmounted"), seen(MOUNTED, mounts=(MOUNT, BIND)), f"volume shop is also mounted on {BIND.mountpoint}: unmount it there first"),
        (
            wanted("unmounted"),
            seen(NOTHING, occupant=MOUNT),
            f"{PLACE} has /dev/loop1 mounted, and the image {IMAGE} does not exist: unmount it by hand if it is not needed",
        ),
        # mount point
        (wanted(), seen(MADE, mountpoint="not a directory"), f"{PLACE} is not a directory: name another mountpoint"),
        (wanted(), seen(MADE, mountpoint="full"), f"{PLACE} is not empty, and what it holds would be hidden: empty it, or name another mountpoint"),
        # what the host lacks
        (wanted(), seen(NOTHING, podman=False), "podman is missing on this host: install the package podman, or pass an empty podman_volume"),
        (
            wanted(),
            seen(NOTHING, systemd=False),
            "this host does not run systemd, which mounts the volume after a reboot: pass boot=false, and see to that yourself",
        ),
        (
            wanted(**GROWN),
            seen(MOUNTED, resize_capability=False),
            "volume shop cannot grow while it is mounted, because root lacks CAP_SYS_RESOURCE on this host: "
            "stop what uses it, apply state=unmounted, then this task again",
        ),
        # podman's names
        (
            wanted(),
            seen(NOTHING, podman_volume={"type": "none", "o": "bind", "device": "/srv"}),
            "podman has a volume named shop already, which is bound to /srv: remove it, or name another podman_volume",
        ),
        (
            wanted("absent"),
            seen(NOTHING, podman_volume={}),
            "podman has a volume named shop already, which podman keeps itself: remove it, or name another podman_volume",
        ),
        (
            wanted("absent", force=True),
            seen(MADE, referrers=("web",)),
            "the podman volume shop belongs to the container web: remove it first",
        ),
        # deleting
        (
            wanted("absent"),
            MADE,
            f"absent would delete {IMAGE} (10 GiB, of which 1 MiB are on the disk) for good: pass force=true if that is meant",
        ),
    ],
)
def test_refusals(asked: Wanted, there: Observed, sentence: str) -> None:
    with pytest.raises(HandoverError) as caught:
        decide(asked, there)
    assert str(caught.value) == sentence


def test_growing_a_mounted_volume_takes_no_capability_where_nothing_grows() -> None:
    assert decide(wanted(), seen(MOUNTED, resize_capability=False)).steps == ()


def test_an_image_that_is_open_elsewhere_may_stay_as_it_is() -> None:
    assert decide(wanted(), seen(MOUNTED, openers=PCOPY)).steps == ()


def test_reasons_say_what_was_found() -> None:
    assert decide(wanted("present", **GROWN), MADE).steps[0] == Step("grow_image", "the image has 10 GiB, and 20 GiB are asked for")


def test_missing_tools_are_part_of_the_plan() -> None:
    assert decide(wanted(), seen(NOTHING, missing_tools=("mkfs.ext4",))).missing_tools == ("mkfs.ext4",)


@pytest.mark.parametrize("name", ["shop", "Shop-2.db_1", "0", "a" * 64])
def test_names(name: str) -> None:
    check_name("name", name)


@pytest.mark.parametrize("name", ["", ".hidden", "-x", "a/b", "a b", "a\n", "ä", "a%b", "a" * 65])
def test_bad_names(name: str) -> None:
    with pytest.raises(HandoverError, match="name: '.*' is not a volume name: use up to 64 letters"):
        check_name("name", name)


@pytest.mark.parametrize(("path", "plain"), [("/srv/a.img", "/srv/a.img"), ("//srv//a/../b/", "/srv/b"), ("/a@b+c:d-e", "/a@b+c:d-e")])
def test_paths_get_their_plain_form(path: str, plain: str) -> None:
    assert check_path("image", path) == plain


@pytest.mark.parametrize("path", ["", "srv", "./srv", "/srv/a b", "/srv/%i", "/srv/$x", "/srv/a\n", '/srv/"', "/srv/ä", "/srv/a,b"])
def test_paths_that_unit_files_would_misread_are_refused(path: str) -> None:
    with pytest.raises(HandoverError, match="image: .* is not usable: give an absolute path of letters"):
        check_path("image", path)


def test_the_root_is_no_mountpoint() -> None:
    with pytest.raises(HandoverError, match="mountpoint: the root directory cannot be it"):
        check_path("mountpoint", "/srv/..")


@pytest.mark.parametrize(
    ("size", "fstype", "sentence"),
    [
        (10 * GIB + 512, "ext4", "size: 10737418752 bytes are not a multiple of 4096: the nearest are 10737418240 and 10737422336"),
        (2**20, "ext4", "size: 1 MiB is too small for ext4, which needs at least 16 MiB"),
        (200 * 2**20, "xfs", "size: 200 MiB is too small for xfs, which needs at least 300 MiB"),
    ],
)
def test_sizes_that_no_volume_can_have(size: int, fstype: str, sentence: str) -> None:
    with pytest.raises(HandoverError) as caught:
        check_size(size, fstype)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("asked", "there", "change"),
    [
        (wanted(), NOTHING, {"image_size": 10 * GIB, "fstype": "ext4", "mountpoint": PLACE, "boot": True, "podman_volume": "shop"}),
        (wanted("present"), MOUNTED, {}),
        (wanted(**GROWN), MOUNTED, {"image_size": 20 * GIB}),
        (wanted("unmounted"), MOUNTED, {"mountpoint": None, "boot": False}),
        (wanted("absent", force=True), MOUNTED, {"image_size": None, "fstype": None, "mountpoint": None, "boot": False, "podman_volume": None}),
    ],
)
def test_the_prediction_is_what_the_steps_change(asked: Wanted, there: Observed, change: dict[str, t.Any]) -> None:
    assert predict(asked, there, decide(asked, there)) == {**outline(asked, there), **change}


def test_an_empty_plan_predicts_what_is() -> None:
    assert predict(wanted(), MOUNTED, Plan()) == outline(wanted(), MOUNTED)
