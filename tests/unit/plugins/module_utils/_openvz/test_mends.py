# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.inits import init_of, power, root_of
from ansible_collections.livefleet.handover.plugins.module_utils._openvz import mends
from ansible_collections.livefleet.handover.plugins.module_utils._openvz.root_files import mend

SYSVINIT = root_of("@root path /x\n@root init sbin/init\n@root has etc/inittab\n@root has run\n@root has etc/network/interfaces\n@root has etc/fstab\n")
UPSTART = root_of("@root path /x\n@root init sbin/init\n@root has sbin/initctl\n@root has etc/init/rc.conf\n@root has etc/rc.d/rc.sysinit\n")
SYSTEMD = root_of("@root path /x\n@root init /lib/systemd/systemd\n@root has tmp\n@root systemd 252\n")

INTERFACES = """\
# This configuration file is auto-generated.
auto lo
iface lo inet loopback

auto venet0
iface venet0 inet manual
        up ifconfig venet0 up
        up route add default dev venet0
        down route del default dev venet0

iface venet0 inet6 manual
auto venet0:0 eth1
iface venet0:0 inet static
        address 10.0.0.101
        netmask 255.255.255.255
iface eth1 inet static
        address 10.2.0.1
"""
MENDED = """\
# This configuration file is auto-generated.
auto lo
iface lo inet loopback

# auto venet0
# iface venet0 inet manual
#         up ifconfig venet0 up
#         up route add default dev venet0
#         down route del default dev venet0

# iface venet0 inet6 manual
auto eth1
# iface venet0:0 inet static
#         address 10.0.0.101
#         netmask 255.255.255.255
iface eth1 inet static
        address 10.2.0.1
"""
INITTAB = "id:2:initdefault:\n1:2345:respawn:/sbin/getty 38400 tty1\n#2:23:respawn:/sbin/getty 38400 tty2\npf::powerwait:/etc/init.d/powerfail start\n"


def test_which_init_it_is():
    other = root_of("@root path /x\n@root init bin/busybox\n")
    assert [init_of(each) for each in (SYSVINIT, UPSTART, SYSTEMD, other)] == ["sysvinit", "upstart", "systemd", ""]


def test_the_mends_of_each_init():
    assert mends.options(SYSTEMD, "/mnt/a") == ["--systemd=always", "--volume=/mnt/a/tmp:/tmp"]
    # A link would have podman mount a folder of the host.
    assert mends.options({**SYSTEMD, "has": []}, "/mnt/a") == ["--systemd=always"]
    assert mends.options(UPSTART, "/mnt/a") == ["--systemd=false"]
    assert mends.options(SYSVINIT, "/mnt/a")[::3] == ["--systemd=false", "--stop-signal=SIGPWR"]
    assert {each.name for each in mends.needed(UPSTART)} == {"no systemd", "getty", "udev", "loginuid"}


def test_interfaces_that_are_set_up_already_are_left_alone():
    assert mends.stanzas(INTERFACES, ["venet0"]) == MENDED
    assert mends.stanzas(INTERFACES, []) == INTERFACES
    assert mends.stanzas(MENDED, ["venet0"]) == MENDED


@pytest.mark.parametrize(
    ("change", "before", "after"),
    [
        (lambda text, _interfaces: power(text), INITTAB, INITTAB.replace("pf::", "# pf::") + "vz:12345:powerfail:/sbin/init 0\n"),
        (mends.loginuid, "session    required     pam_loginuid.so\n", "session    optional     pam_loginuid.so\n"),
        (mends.not_at_boot, 'DEVICE="venet0:0"\nONBOOT=yes\n', 'DEVICE="venet0:0"\nONBOOT=no\n'),
        (mends.not_at_boot, "DEVICE=eth5\nONBOOT=yes\n", "DEVICE=eth5\nONBOOT=yes\n"),
        (mends.not_at_boot, "DEVICE=venet0", "DEVICE=venet0\nONBOOT=no\n"),
    ],
)
def test_changes_of_files(change, before, after):
    assert change(before, ["venet0"]) == after
    assert change(after, ["venet0"]) == after


def test_files_are_changed_with_their_former_selves_beside_them(tmp_path):
    (tmp_path / "etc/network").mkdir(parents=True)
    (tmp_path / "etc/inittab").write_text(INITTAB, encoding="utf-8")
    (tmp_path / "etc/inittab").chmod(0o640)
    (tmp_path / "etc/network/interfaces").write_text(INTERFACES, encoding="utf-8")
    (tmp_path / "etc/fstab").write_bytes(b"/dev/simfs / simfs rw 0 0\nserver:/caf\xe9 /srv nfs ro 0 0\n")
    done = mend(str(tmp_path), SYSVINIT, ["venet0"])
    assert {each["mend"]: each["files"] for each in done} == {
        "no systemd": [], "run": [], "power": ["etc/inittab"], "getty": ["etc/inittab"], "network": ["etc/network/interfaces"], "fstab": ["etc/fstab"],
    }  # fmt: skip
    assert (tmp_path / "etc/inittab").read_text(encoding="utf-8").splitlines()[1] == "# 1:2345:respawn:/sbin/getty 38400 tty1"
    assert (tmp_path / "etc/inittab").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "etc/inittab.orig").read_text(encoding="utf-8") == INITTAB
    assert (tmp_path / "etc/fstab").read_bytes() == b"# /dev/simfs / simfs rw 0 0\nserver:/caf\xe9 /srv nfs ro 0 0\n"
    assert [each for each in mend(str(tmp_path), SYSVINIT, ["venet0"]) if each["files"]] == []


def test_a_link_in_the_root_leads_nowhere(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "fstab").write_text("/dev/simfs / simfs rw 0 0\n", encoding="utf-8")
    for name, link in (("a", "etc"), ("b", "etc/fstab")):
        root = tmp_path / name
        (root / link).parent.mkdir(parents=True)
        (root / link).symlink_to(outside if link == "etc" else outside / "fstab")
        assert [each for each in mend(str(root), SYSVINIT, []) if each["files"]] == []
    os.mkfifo(tmp_path / "b/etc/inittab")
    assert [each for each in mend(str(tmp_path / "b"), SYSVINIT, []) if each["files"]] == []
    assert (outside / "fstab").read_text(encoding="utf-8").startswith("/dev/simfs")
    assert not (outside / "fstab.orig").exists()


def test_the_manager_of_a_user_is_masked_unless_one_is_wanted(tmp_path):
    unit = tmp_path / "a/etc/systemd/system/user@.service"
    (tmp_path / "a").mkdir()
    done = {each["mend"]: each["files"] for each in mend(str(tmp_path / "a"), SYSTEMD, [])}
    assert done["users"] == ["etc/systemd/system/user@.service"] and os.readlink(unit) == "/dev/null"
    assert "users" not in {each["mend"] for each in mend(str(tmp_path / "a"), SYSTEMD, [])}
    # One of the container's own stays, and one that runs without a login is not taken away.
    unit.unlink()
    unit.write_text("[Service]\n", encoding="utf-8")
    mend(str(tmp_path / "a"), SYSTEMD, [])
    assert not unit.is_symlink()
    unit.unlink()
    mend(str(tmp_path / "a"), {**SYSTEMD, "has": [*SYSTEMD["has"], "linger"]}, [])
    assert not unit.is_symlink()
    (tmp_path / "b").mkdir()
    (tmp_path / "b/etc").symlink_to(tmp_path / "a/etc")
    mend(str(tmp_path / "b"), SYSTEMD, [])
    assert not unit.is_symlink()


def test_each_mend_has_its_reason():
    assert all(len(each.reason.split()) > 5 for each in mends.MENDS)
