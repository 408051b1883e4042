# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._podman.volume_units import (
    escape_path,
    installed,
    is_enabled,
    loop_unit_name,
    mount_unit_name,
    volume_units,
)


# What systemd-escape --path answers.
@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/", "-"),
        ("/srv", "srv"),
        ("/var/lib/handover/mnt/shop", "var-lib-handover-mnt-shop"),
        ("/var/lib/handover/mnt/my-shop", r"var-lib-handover-mnt-my\x2dshop"),
        ("//srv//a_b.c:d/", "srv-a_b.c:d"),
        ("/.hidden/.too", r"\x2ehidden-.too"),
        ("/srv/a@b+c", r"srv-a\x40b\x2bc"),
        ("/srv/tür", r"srv-t\xc3\xbcr"),
    ],
)
def test_paths_are_escaped_as_systemd_does(path: str, name: str) -> None:
    assert escape_path(path) == name
    assert mount_unit_name(path) == name + ".mount"


def units(sector_size: int = 512) -> dict[str, str]:
    return volume_units(
        volume="shop",
        image="/srv/shop.img",
        mountpoint="/mnt/shop",
        fstype="xfs",
        options=["noatime", "discard"],
        losetup="/usr/sbin/losetup",
        sector_size=sector_size,
    )


def test_the_mount_requires_the_loop_device_and_finds_it_by_the_image() -> None:
    lines = units()["mnt-shop.mount"].splitlines()
    for line in (
        "Requires=handover-loop-shop.service",
        "After=handover-loop-shop.service",
        "What=/srv/shop.img",
        "Where=/mnt/shop",
        "Type=xfs",
        "Options=loop,noatime,discard",
        "WantedBy=multi-user.target",
    ):
        assert line in lines


def test_the_loop_device_has_direct_io_and_goes_with_its_mount() -> None:
    lines = units()[loop_unit_name("shop")].splitlines()
    assert "ExecStart=-/usr/sbin/losetup --find --nooverlap --direct-io=on --sector-size=512 /srv/shop.img" in lines
    assert "StopWhenUnneeded=yes" in lines


def test_large_sectors_are_asked_for_where_they_are_wanted() -> None:
    assert "--direct-io=on --sector-size=4096 /srv/shop.img" in units(4096)[loop_unit_name("shop")]


def test_what_is_installed_is_read_and_what_is_missing_is_none(tmp_path: Path) -> None:
    (tmp_path / "mnt-shop.mount").write_text("[Unit]\n")
    assert installed(units(), str(tmp_path)) == {"handover-loop-shop.service": None, "mnt-shop.mount": "[Unit]\n"}


def test_a_unit_is_enabled_by_its_link(tmp_path: Path) -> None:
    wants = tmp_path / "multi-user.target.wants"
    wants.mkdir()
    assert not is_enabled("mnt-shop.mount", str(tmp_path))
    (wants / "mnt-shop.mount").symlink_to("/etc/systemd/system/mnt-shop.mount")
    assert is_enabled("mnt-shop.mount", str(tmp_path))
