# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The commands of a move and the gate, as the helper and vzctl run them, on a host in a folder."""

from __future__ import annotations

import pytest


def fault(host, verb):
    (host.state / "FAULT").write_text(verb, encoding="utf-8")


def staged(host, *scripts):
    """A twin that waits for its start, as the module lays it ready."""
    host.have(*scripts)
    (host.staged / "101" / "conf").mkdir(parents=True)
    for name in ("101.conf", *scripts):
        (host.conf / name).rename(host.staged / "101" / "conf" / name)
    (host.staged / "101" / "root").write_text(f"{host.root}/vz/root/101\n", encoding="utf-8")
    (host.staged / "101" / "name").write_text("shop\n", encoding="utf-8")


def test_it_is_stopped_and_comes_home(openvz_host):
    private = openvz_host.have()
    for _again in range(2):
        assert openvz_host.turn("home", "101") == (0, "")
        assert openvz_host.status() == "CTID 101 exist mounted running"
    for _again in range(2):
        assert openvz_host.turn("stop", "101", private) == (0, "")
        assert openvz_host.status() == "CTID 101 exist unmounted down"


@pytest.mark.parametrize("verb", ["stop", "start"])
def test_a_status_of_0_is_not_believed(openvz_host, verb):
    private = openvz_host.have()
    openvz_host.turn("home", "101")
    if verb == "start":
        openvz_host.turn("stop", "101", private)
    fault(openvz_host, verb)
    status, said = openvz_host.turn(*{"stop": ("stop", "101", private), "start": ("home", "101")}[verb])
    assert status == 1 and f"vzctl {verb} 101 has ended, and the container is: exist" in said


def test_one_that_stays_mounted_is_unmounted_or_not_let_go(openvz_host):
    private = openvz_host.have()
    openvz_host.turn("home", "101")
    (openvz_host.state / "101.mounted").write_text("yes", encoding="utf-8")
    assert openvz_host.turn("stop", "101", private)[0] == 0 and openvz_host.status().endswith("unmounted down")
    (openvz_host.state / "101.mounted").write_text("yes", encoding="utf-8")
    fault(openvz_host, "umount")
    status, said = openvz_host.turn("stop", "101", private)
    assert status == 1 and "exist mounted down" in said


def test_the_kernel_s_writes_to_a_ploop_disk_are_made_known(openvz_host):
    private = openvz_host.have()
    disk = private / "root.hdd" / "root.hds"
    disk.parent.mkdir()
    disk.write_bytes(b"disk")
    openvz_host.turn("home", "101")
    before = disk.stat().st_ctime_ns
    openvz_host.turn("stop", "101", private)
    assert disk.stat().st_ctime_ns > before


def test_vzctl_does_not_know_a_twin_before_its_start(openvz_host):
    staged(openvz_host, "101.mount")
    assert openvz_host.status() == "CTID 101 deleted unmounted down"
    assert openvz_host.turn("start", "101") == (0, "")
    assert openvz_host.status() == "CTID 101 exist mounted running"
    assert (openvz_host.conf / "101.mount").exists()
    assert (openvz_host.root / "etc/vz/names/shop").resolve() == openvz_host.conf / "101.conf"
    assert not (openvz_host.staged / "101").exists()
    # The helper may say it again.
    assert openvz_host.turn("start", "101") == (0, "")


def test_one_that_was_stopped_is_registered_and_stays_so(openvz_host):
    staged(openvz_host)
    assert openvz_host.turn("register", "101") == (0, "")
    assert openvz_host.status() == "CTID 101 exist unmounted down" and openvz_host.turn("stopped", "101") == (0, "")
    openvz_host.turn("home", "101")
    assert "was started, mounted or removed meanwhile: it is exist mounted running" in openvz_host.turn("stopped", "101")[1]


def test_a_start_that_failed_is_taken_back(openvz_host):
    staged(openvz_host, "101.mount")
    fault(openvz_host, "start")
    assert openvz_host.turn("start", "101")[0] == 1
    assert openvz_host.turn("discard", "101") == (0, "")
    assert openvz_host.status() == "CTID 101 deleted unmounted down"
    assert sorted(path.name for path in openvz_host.conf.iterdir()) == ["vps.premount"]
    assert not list((openvz_host.root / "etc/vz/names").iterdir())
    # The note of what was made stays for the module, which removes the private area.
    assert (openvz_host.staged / "101").is_dir()


def test_one_that_runs_is_not_discarded(openvz_host):
    staged(openvz_host)
    fault(openvz_host, "nothing")
    openvz_host.turn("start", "101")
    (openvz_host.staged / "101" / "conf").mkdir(parents=True)
    assert openvz_host.turn("discard", "101") == (1, "101 runs here, and is not removed\n")


def test_nothing_starts_where_the_helper_says_no(openvz_host):
    openvz_host.have()
    openvz_host.helper(False)
    status, said = openvz_host.turn("home", "101")
    assert status == 1 and "Error executing premount script" in said
    assert openvz_host.status() == "CTID 101 exist unmounted down"
    assert openvz_host.asked() == '{"bundle": "/run/handover/openvz/101"}\n internal oci-hook\n'


def test_nothing_starts_without_the_helper_or_without_an_id(openvz_host):
    openvz_host.have()
    (openvz_host.root / "bin" / "pcopy").unlink()
    assert openvz_host.turn("home", "101")[0] == 1 and openvz_host.status() == "CTID 101 exist unmounted down"
    assert openvz_host.call("sh", openvz_host.root / "bin" / "premount").returncode == 1
    assert openvz_host.call("env", 'VEID=1"2', "sh", openvz_host.root / "bin" / "premount").returncode == 1
