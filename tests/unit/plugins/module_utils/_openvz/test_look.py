# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import subprocess

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._openvz.action_scripts import bind_mounts, unknown_lines
from ansible_collections.livefleet.handover.plugins.module_utils._openvz.look import SCRIPT, parse, state_of


@pytest.fixture(name="host")
def some_host(tmp_path):
    """An OpenVZ host, as far as the program looks at it."""
    for folder in ("conf", "names"):
        (tmp_path / folder).mkdir()
    (tmp_path / "bin").mkdir()
    vzctl = '#!/bin/sh\n[ "$1" = --version ] && echo "vzctl version 4.11.1" || echo "CTID $2 exist mounted running"\n'
    (tmp_path / "bin/vzctl").write_text(vzctl, encoding="utf-8")
    (tmp_path / "bin/vzctl").chmod(0o755)
    (tmp_path / "vz.conf").write_text("VE_ROOT=/vz/root/$VEID\nVE_PRIVATE=/vz/other/$VEID\n", encoding="utf-8")
    (tmp_path / "names/shop").symlink_to("../conf/101.conf")

    def look(word, conf):
        (tmp_path / "conf/101.conf").write_text(conf.replace("TMP", str(tmp_path)), encoding="utf-8")
        script = SCRIPT.replace("/etc/vz/", f"{tmp_path}/").replace("PATH=$PATH", f"PATH={tmp_path}/bin:$PATH")
        return parse(subprocess.run(["sh", "-c", script, "sh", word], capture_output=True, text=True, check=True).stdout)

    look.folder = tmp_path
    return look


def test_a_directory_container_by_its_name(host):
    root = host.folder / "private" / "101"
    for each in ("etc/network", "sbin", "usr/lib/x86_64-linux-gnu/systemd"):
        (root / each).mkdir(parents=True)
    (root / "sbin/init").symlink_to("/lib/systemd/systemd")
    (root / "etc/debian_version").write_text("12.5\n", encoding="utf-8")
    (root / "etc/network/interfaces").write_text("", encoding="utf-8")
    (root / "usr/lib/x86_64-linux-gnu/systemd/libsystemd-shared-252.so").write_text("", encoding="utf-8")
    (host.folder / "conf/101.mount").write_text("#!/bin/sh\n@end\nmount --bind /a $VE_ROOT/b", encoding="utf-8")
    found = host("shop", 'NAME="shop"\nVE_PRIVATE="TMP/private/$VEID"\n')
    assert (found["id"], found["layout"], found["vzctl"], found["mountpoint"]) == ("101", "simfs", "vzctl version 4.11.1", "/vz/root/101")
    assert found["owner"] == str(os.getuid())
    assert found["host"].split()[0] == os.uname().nodename and len(found["host"].split()) == 3
    assert found["private"] == str(root) and found["kib"] > 0 and found["lacks"] in ([], ["rsync"])
    assert found["files"]["conf"].splitlines()[0] == 'NAME="shop"'
    # No line of a file is taken for one of the program's.
    assert found["scripts"]["101.mount"].splitlines()[1:] == ["@end", "mount --bind /a $VE_ROOT/b"]
    assert found["root"] == {
        "path": str(root), "init": "/lib/systemd/systemd", "systemd": 252, "glibc": "", "release": "12.5", "has": ["etc/network/interfaces"],
    }  # fmt: skip


def test_names_and_links_in_the_container_say_nothing_of_their_own(host):
    root = host.folder / "private" / "101"
    for each in ("etc", "sbin", "lib/systemd"):
        (root / each).mkdir(parents=True)
    (root / "sbin/init").symlink_to("systemd\n@private /etc\n@layout ploop")
    (root / "lib/systemd/libsystemd-shared-252\n@private x.so").write_text("", encoding="utf-8")
    (root / "etc/debian_version").symlink_to(host.folder / "vz.conf")
    (root / "etc/redhat-release").symlink_to("centos-release")
    (root / "etc/centos-release").write_text("CentOS 7 \\n@private /srv\n", encoding="utf-8")
    (root / "tmp").symlink_to("/etc")
    found = host("101", 'VE_PRIVATE="TMP/private/$VEID"\n')
    assert (found["private"], found["layout"], found["root"]["init"]) == (str(root), "simfs", "systemd")
    assert (found["root"]["release"], found["root"]["systemd"], found["root"]["has"]) == ("CentOS 7 \\n@private /srv", 252, [])


def test_a_ploop_container_by_its_id(host):
    image = host.folder / "private/101/root.hdd"
    image.mkdir(parents=True)
    (image / "DiskDescriptor.xml").write_text("<x/>\n", encoding="utf-8")
    (host.folder / "root/101/etc").mkdir(parents=True)
    found = host("101", f'VE_PRIVATE=TMP/private/101\nVE_ROOT="{host.folder}/root/$VEID"\n')
    assert (found["layout"], found["root"]["path"], found["files"]["descriptor"].strip()) == ("ploop", f"{host.folder}/root/101", "<x/>")


def test_a_container_of_libvzctl_by_its_name(host):
    """Its configuration and its action scripts are in its private area."""
    private = host.folder / "private" / "c2d5"
    (private / "root.hdd").mkdir(parents=True)
    (private / "root.hdd/DiskDescriptor.xml").write_text("<x/>\n", encoding="utf-8")
    (private / "scripts").mkdir()
    (private / "scripts/mount").write_text("mount --bind /a $VE_ROOT/b\n", encoding="utf-8")
    (private / "ve.conf").write_text(f'UUID="c2d5"\nVE_PRIVATE="{private}"\n', encoding="utf-8")
    (host.folder / "conf/c2d5.conf").symlink_to(private / "ve.conf")
    (host.folder / "names/web").symlink_to(private / "ve.conf")
    found = host("web", "")
    assert (found["id"], found["layout"], found["private"]) == ("c2d5", "ploop", str(private))
    assert found["scripts"] == {"scripts.mount": "mount --bind /a $VE_ROOT/b\n"}


def test_the_scripts_folder_of_a_directory_container_is_its_own(host):
    for each in ("etc", "scripts"):
        (host.folder / "private/101" / each).mkdir(parents=True)
    (host.folder / "private/101/scripts/mount").write_text("mount --bind / $VE_ROOT/b\n", encoding="utf-8")
    assert host("101", "VE_PRIVATE=TMP/private/101\n")["scripts"] == {}


@pytest.mark.parametrize("end", ["\n", "\r\n", " # a remark\n"])
@pytest.mark.parametrize("quote", ["", '"'])
def test_paths_as_people_write_them(host, end, quote):
    assert host("101", f"VE_PRIVATE={quote}/vz/p/${{VEID}}{quote}{end}")["private"] == "/vz/p/101"


def test_of_two_private_areas_each_era_has_its_own(host):
    twice = "VE_PRIVATE=/vz/a\nVE_PRIVATE=/vz/b\n"
    assert host("101", twice)["private"] == "/vz/a"
    assert host("101", twice + 'UUID="x"\n')["private"] == "/vz/b"


def test_a_warning_before_the_status(host):
    (host.folder / "bin/vzctl").write_text('#!/bin/sh\necho "Warning: old" >&2\necho "CTID 101 exist mounted running"\n', encoding="utf-8")
    assert host("101", "")["status"] == "CTID 101 exist mounted running"
    (host.folder / "bin/vzctl").write_text("#!/bin/sh\necho no module\necho more\n", encoding="utf-8")
    assert host("101", "")["status"] == "no module"


def test_a_disk_that_a_directory_container_has_made_is_none(host):
    for each in ("etc", "root.hdd", "scripts"):
        (host.folder / "private/101" / each).mkdir(parents=True)
    for each in ("root.hdd/DiskDescriptor.xml", "scripts/mount"):
        (host.folder / "private/101" / each).write_text("x\n", encoding="utf-8")
    found = host("101", "VE_PRIVATE=TMP/private/101\n")
    assert (found["layout"], found["scripts"], "descriptor" in found["files"]) == ("both", {}, False)


def test_nothing_is_found(host):
    assert host("102", "")["others"] == ["101"]
    assert host("101", "")["layout"] == "" and host("101", "")["private"] == "/vz/other/101"


@pytest.mark.parametrize(
    ("status", "true"),
    [
        ("CTID 101 exist mounted running", {"exists", "mounted", "running"}),
        ("CTID 101 exist unmounted down suspended", {"exists", "suspended"}),
        ("VEID c2d5b2a1-3c66-4c6f-8f0a-6f0a8d9e0b11 exist mounted paused", {"exists", "mounted", "paused"}),
        ("CTID 101 deleted unmounted down", set()),
    ],
)
def test_the_words_of_both_eras(status, true):
    assert {key for key, value in state_of(status).items() if value} == true


@pytest.mark.parametrize(
    ("script", "mounts", "strange"),
    [
        ("mount -n --bind /a ${VE_ROOT}/b", ["/a:/b"], []),
        ('mount -o bind,ro "/a b" "$VE_ROOT/c d"', ["/a b:/c d:ro"], []),
        ("SRC=/data\n/bin/mount -n -o bind $SRC/x $VE_ROOT/x", ["/data/x:/x"], []),
        ("mount --bind /a /b", [], ["mount --bind /a /b"]),
        ("mount -t tmpfs none $VE_ROOT/b", [], ["mount -t tmpfs none $VE_ROOT/b"]),
        ("mount --bind /a $VE_ROOT/b; reboot", [], ["mount --bind /a $VE_ROOT/b; reboot"]),
        ("mount --bind $(date) $VE_ROOT/b", [], ["mount --bind $(date) $VE_ROOT/b"]),
        ("mount --bind '/a", [], ["mount --bind '/a"]),
        ("#!/bin/sh\n\n. /etc/vz/vz.conf\nsource $VE_CONFFILE\nset -e\nexit 0", [], []),
        ("#!/bin/sh\nexec /usr/local/libexec/handover/openvz/premount", [], []),
        ("/usr/local/libexec/handover/openvz/premount || exit 1\nmount --bind /a $VE_ROOT/b", ["/a:/b"], []),
        ("/usr/local/libexec/handover/openvz/premount; reboot", [], ["/usr/local/libexec/handover/openvz/premount; reboot"]),
        ("if true; then", [], ["if true; then"]),
        ("VE_ROOT=/srv/other", [], ["VE_ROOT=/srv/other"]),
    ],
)
def test_mount_scripts(script, mounts, strange):
    assert bind_mounts(script) == (mounts, strange)


def test_unmount_scripts_have_nothing_to_do():
    text = "#!/bin/sh\numount -l $VE_ROOT/b\nrm -rf /\n"
    assert unknown_lines(text, "101.umount") == ["rm -rf /"]
    assert unknown_lines(text, "101.stop") == ["umount -l $VE_ROOT/b", "rm -rf /"]
