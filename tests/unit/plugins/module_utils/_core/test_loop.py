# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.loop import (
    Holder,
    LoopDevice,
    Mount,
    backing_of,
    namespaces_that_see,
    openers,
    parse_losetup,
    parse_mountinfo,
    read_mounts,
    unmounted,
    users_of_mount,
)

LOSETUP = """
{
   "loopdevices": [
      {
         "name": "/dev/loop0",
         "back-ino": 952539,
         "back-maj:min": "     254:0  ",
         "dio": false,
         "autoclear": true,
         "ro": false,
         "sizelimit": 0,
         "offset": 0,
         "log-sec": 512
      },{
         "name": "/dev/loop1",
         "back-ino": 17,
         "back-maj:min": "8:1",
         "dio": true,
         "autoclear": false,
         "ro": true,
         "sizelimit": 1048576,
         "offset": 4096,
         "log-sec": 4096
      },{
         "name": "/dev/loop16",
         "back-ino": null,
         "back-maj:min": null,
         "dio": true,
         "autoclear": false,
         "ro": false,
         "sizelimit": 0,
         "offset": 0,
         "log-sec": 512
      }
   ]
}
"""

MOUNTINFO = r"""22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
36 22 7:1 / /var/lib/handover/mnt/shop rw,noatime shared:3 master:2 - ext4 /dev/loop1 rw,discard
37 22 0:45 / /srv/my\040files rw - tmpfs tmp\134fs rw
broken
"""


def test_losetup_is_read_and_devices_without_a_node_are_left_out() -> None:
    assert parse_losetup(LOSETUP) == [
        LoopDevice("/dev/loop0", ("254:0", 952539), direct_io=False),
        LoopDevice("/dev/loop1", ("8:1", 17), read_only=True, offset=4096, size_limit=1048576, sector_size=4096),
    ]


def test_without_loop_devices_losetup_prints_nothing() -> None:
    assert parse_losetup("") == []


@pytest.mark.parametrize(("printed", "meant"), [("true", True), ('"1"', True), ("1", True), ("false", False), ('"0"', False), ("0", False)])
def test_flags_are_understood_as_each_version_prints_them(printed: str, meant: bool) -> None:
    assert parse_losetup(LOSETUP.replace('"dio": false', f'"dio": {printed}'))[0].direct_io is meant


def test_mountinfo_is_read_and_its_escapes_undone() -> None:
    assert parse_mountinfo(MOUNTINFO) == [
        Mount("254:0", "/", "ext4", "/dev/vda"),
        Mount("7:1", "/var/lib/handover/mnt/shop", "ext4", "/dev/loop1"),
        Mount("0:45", "/srv/my files", "tmpfs", "tmp\\fs"),
    ]


def test_a_backing_file_is_known_by_numbers(tmp_path: Path) -> None:
    status = tmp_path.stat()
    assert backing_of(str(tmp_path)) == (f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}", status.st_ino)


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc with this process, one that has an image open, and one that sits in a volume inside a container."""
    image = tmp_path / "shop.img"
    image.touch()
    other = tmp_path / "elsewhere" / "shop.img"
    other.parent.mkdir()
    other.touch()
    root = tmp_path / "proc"
    for pid, command, namespace, cwd, files in (
        (str(os.getpid()), "python", "mnt:[1]", "/", [image]),
        ("100", "pcopy", "mnt:[1]", "/", [Path("/dev/null"), image]),
        ("101", "tail", "mnt:[1]", "/", [other]),
        ("102", "postgres", "mnt:[2]", "/mnt/shop/data", []),
        ("103", "sh", "mnt:[2]", "/mnt/shopping", []),
    ):
        directory = root / pid
        (directory / "fd").mkdir(parents=True)
        (directory / "ns").mkdir()
        (directory / "comm").write_text(command + "\n")
        (directory / "cwd").symlink_to(cwd)
        (directory / "ns" / "mnt").symlink_to(namespace)
        (directory / "mountinfo").write_text(MOUNTINFO if namespace == "mnt:[2]" else "")
        for number, file in enumerate(files):
            (directory / "fd" / str(number)).symlink_to(file)
    (root / "self").symlink_to(str(os.getpid()))
    (root / "uptime").touch()
    return root


def test_openers_are_known_by_the_file_not_by_its_name(proc: Path) -> None:
    assert openers([str(proc.parent / "shop.img")], str(proc)) == [Holder(100, "pcopy")]


def test_users_of_a_mount_are_below_it(proc: Path) -> None:
    assert users_of_mount("/mnt/shop", str(proc)) == [Holder(102, "postgres")]


def test_another_namespace_that_has_the_device_is_named_once(proc: Path) -> None:
    assert namespaces_that_see("7:1", str(proc)) == [Holder(102, "postgres")]
    assert namespaces_that_see("7:2", str(proc)) == []


def test_a_process_that_has_gone_has_no_mounts(proc: Path) -> None:
    assert read_mounts(str(proc), "999") == []


def test_a_holder_is_named_with_its_number() -> None:
    assert str(Holder(42, "postgres")) == "postgres (pid 42)"


FSTAB = """# <file system> <mount point> <type> <options> <dump> <pass>
UUID=1 / ext4 errors=remount-ro 0 1
nas:/backups /srv/backups/ nfs4 defaults 0 0
nas:/more /srv/back\\040ups nfs4 defaults 0 0
/swapfile none swap sw 0 0
"""


@pytest.mark.parametrize(
    ("path", "mounted", "missing"),
    [
        ("/srv/backups", [], "/srv/backups"),
        ("/srv/backups/handover", [], "/srv/backups"),
        ("/srv/back ups/handover", [], "/srv/back ups"),
        ("/srv/backups/handover", ["/srv/backups"], ""),
        ("/srv/backups2", [], ""),
        ("/var/backups", [], ""),
    ],
)
def test_a_folder_below_what_is_not_mounted_is_another(path, mounted, missing):
    mounts = [Mount(device="0:1", mountpoint=place, fstype="nfs4", source="nas:/x") for place in mounted]
    assert unmounted(path, FSTAB, mounts) == missing
