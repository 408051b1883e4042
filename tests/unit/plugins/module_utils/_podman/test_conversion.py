# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import typing as t

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import HandoverError
from ansible_collections.livefleet.handover.plugins.module_utils._podman import conversion
from ansible_collections.livefleet.handover.plugins.module_utils._podman.conversion import Plain, User
from ansible_collections.livefleet.handover.plugins.module_utils._podman.volume import Wanted

MIB = 2**20
FOLDER = "/var/lib/containers/storage/volumes/shop/_data"
SHOP = User("shop")
PLAIN = Plain("shop", FOLDER, used=100 * MIB, files=1000, users=(SHOP,))
WANTED = Wanted("shop", "mounted", "/images/shop.img", "/mnt/shop", size=1024 * MIB, podman_volume="shop")


def plain(**changes: t.Any) -> Plain:
    return dataclasses.replace(PLAIN, **changes)


def used_by(**changes: t.Any) -> Plain:
    return plain(users=(dataclasses.replace(SHOP, **changes),))


@pytest.mark.parametrize(
    ("volume", "says"),
    [
        (plain(driver="nfs"), "is one of the driver nfs"),
        (plain(anonymous=True), "is anonymous, and podman removes it with its container"),
        (plain(users=(SHOP, User("web", state="exited"))), "is shared by shop, web, and only one"),
        (plain(bound=("backup",)), "is shared by backup, shop, and only one"),
        (plain(users=(), bound=("backup",)), "backup mounts " + FOLDER + " by its path, which leads nowhere afterwards"),
        (plain(mounts=(FOLDER + "/more",)), "something is mounted on " + FOLDER + "/more"),
        (plain(missing=True, kept=True), "_data of podman's volume shop is missing, and .*/shop has its files, it seems: rename it to that name"),
        (plain(missing=True), "is missing, and its files are lost, or elsewhere"),
        (plain(kept=True), "/.handover-plain/shop is there already"),
        (plain(unbindable="another database"), "cannot be bound to another folder: another database"),
        (used_by(session="shop-1"), "shop is being moved by session shop-1"),
        (used_by(state="paused"), "shop is paused: let it run"),
        (used_by(state="stopping"), "shop is stopping: let it run"),
        (used_by(units=("a.service", "b.service"), active=True), "more than one unit .a.service, b.service."),
        (used_by(units=("a.service",)), "its unit a.service is not active"),
        (used_by(auto_remove=True), "created with --rm, and is gone once it stops"),
    ],
)
def test_what_is_in_the_way_is_said_with_the_cure(volume, says):
    with pytest.raises(HandoverError, match=says):
        conversion.check(volume, begun=False)


@pytest.mark.parametrize(
    "volume",
    [
        PLAIN, plain(users=()), used_by(state="exited"), used_by(units=("a.service",), active=True),
        used_by(units=("a.service",), active=True, auto_remove=True), used_by(state="created", auto_remove=True),
    ],
)  # fmt: skip
def test_others_may_be_converted(volume):
    conversion.check(volume, begun=False)


def test_what_an_earlier_run_has_left_is_no_obstacle():
    conversion.check(used_by(state="stopping"), begun=True)
    conversion.check(dataclasses.replace(used_by(state="exited"), missing=True), begun=True)
    conversion.check(used_by(state="initialized", units=("a.service",)), begun=True)
    assert used_by(state="stopping").user.running and not used_by(state="exited").user.running


def test_the_request_has_to_make_sense():
    conversion.check_request(WANTED)
    for changes, says in (({"state": "absent"}, "is for state=mounted, and state=absent"), ({"podman_volume": None}, "podman_volume is empty")):
        with pytest.raises(HandoverError, match=says):
            conversion.check_request(dataclasses.replace(WANTED, **changes))
    conversion.check_image(WANTED, exists=True, begun=True)
    conversion.check_image(WANTED, exists=False, begun=False)
    with pytest.raises(HandoverError, match="/images/shop.img exists, and podman's volume shop is a plain one"):
        conversion.check_image(WANTED, exists=True, begun=False)


def test_everything_fits_twice_into_the_size_that_is_chosen():
    assert conversion.size_for(plain(used=0, files=0), "ext4") == 256 * MIB
    assert conversion.size_for(plain(used=0, files=0), "xfs") == 512 * MIB
    for used, files in ((100 * MIB, 1000), (10 * 1024 * MIB, 5), (MIB, 10**6)):
        volume = plain(used=used, files=files)
        size = conversion.size_for(volume, "ext4")
        assert size >= 2 * conversion.need(volume) > 2 * used and size & (size - 1) == 0
        conversion.check_room(volume, dataclasses.replace(WANTED, size=size), free=size)


def test_room_is_looked_for_in_the_image_and_on_the_disk():
    with pytest.raises(HandoverError, match="size=128 MiB is asked for: ask for 512 MiB, or leave size out"):
        conversion.check_room(PLAIN, dataclasses.replace(WANTED, size=128 * MIB), free=10**12)
    with pytest.raises(HandoverError, match="and 150 MiB are free in /images: free "):
        conversion.check_room(PLAIN, WANTED, free=150 * MIB)


def test_many_files_get_their_inodes():
    assert conversion.inodes(PLAIN, WANTED) == []
    assert conversion.inodes(plain(files=100000), WANTED) == ["-N", "200000"]
    assert conversion.inodes(plain(files=100000), dataclasses.replace(WANTED, fstype="xfs")) == []


def test_the_folder_is_kept_where_no_volume_of_podmans_can_be():
    assert PLAIN.aside == "/var/lib/containers/storage/volumes/.handover-plain/shop"


def test_it_is_said_what_will_be_done_and_what_was_done():
    assert "copying takes some 1 s at 100 MiB/s while shop runs; then it stands still for some" in conversion.forecast(PLAIN)
    assert "and keeps its memory and connections; the plain folder is kept" in conversion.forecast(PLAIN)
    assert "it stands still for some 1.5 s" in conversion.forecast(PLAIN)
    assert "it stands still for some 5.5 s" in conversion.forecast(used_by(memory=2600 * MIB))
    stopped = conversion.forecast(used_by(units=("a.service",), unkept="CRIU is missing"))
    assert "then it (its unit a.service) stops and starts" in stopped and "as its memory cannot be kept: CRIU is missing;" in stopped
    assert "and no container has to stop" in conversion.forecast(plain(users=()))
    facts = {"bytes": MIB, "stop_ms": 1, "last_ms": 2, "start_ms": 3, "paused_ms": 10, "container": "shop", "kept": "/kept", "memory": None, "anew": ""}
    assert conversion.told(PLAIN, facts) == (
        "1 MiB were copied, and shop was down for 10 ms (1 ms to stop, 2 ms for the last files, 3 ms to start); the plain folder is kept as /kept"
    )
    assert conversion.told(PLAIN, {**facts, "memory": True}) == (
        "1 MiB were copied, and shop stood still, with its memory and connections, for 10 ms (1 ms to dump it, 2 ms for the last files, 3 ms to restore it); "
        "the plain folder is kept as /kept"
    )
    assert "; shop began anew, without its memory: it is so; the plain" in conversion.told(PLAIN, {**facts, "anew": "it is so"})
    assert conversion.told(PLAIN, {**facts, "paused_ms": None, "memory": True}) == (
        "1 MiB were copied, and shop runs on with its memory and connections; the plain folder is kept as /kept"
    )
    assert conversion.told(PLAIN, {**facts, "paused_ms": None, "kept": None}) == "1 MiB were copied; the plain folder is removed"


def test_nothing_loses_its_memory_without_leave():
    conversion.check_memory(PLAIN, restart=False)
    conversion.check_memory(plain(users=()), restart=False)
    conversion.check_memory(used_by(unkept="CRIU is missing"), restart=True)
    with pytest.raises(HandoverError, match="shop would lose its memory and connections: CRIU is missing: mend that, or let it stop and start .restart=true."):
        conversion.check_memory(used_by(unkept="CRIU is missing"), restart=False)
