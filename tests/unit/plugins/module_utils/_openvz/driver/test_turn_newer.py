# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The commands of a move of a container of libvzctl's, on a host in a folder."""

from __future__ import annotations

UP, DOWN, NONE = "VEID 101 exist mounted running", "VEID 101 exist unmounted down", "VEID 101 deleted unmounted down"


def fault(host, verb):
    (host.state / "FAULT").write_text(verb, encoding="utf-8")


def waits(host, private):
    (host.staged / "101" / "conf").mkdir(parents=True)
    for name, text in (("root", ""), ("name", "shop"), ("private", private)):
        (host.staged / "101" / name).write_text(f"{text}\n", encoding="utf-8")


def test_a_private_area_of_the_other_host_s_is_registered_at_its_start(openvz_host, newer_area):
    waits(openvz_host, newer_area)
    assert openvz_host.status() == NONE
    # Without a move, the real one refuses what another host owns.
    assert openvz_host.call(openvz_host.root / "bin" / "vzctl", "register", newer_area, "101").returncode == 140
    for _again in range(2):
        assert openvz_host.turn("start", "101") == (0, "")
        assert openvz_host.status() == UP and (newer_area / ".owner").read_text(encoding="utf-8") == "node2"
    assert (openvz_host.root / "etc/vz/names/shop").resolve() == newer_area / "ve.conf" == (openvz_host.conf / "101.conf").resolve()
    assert openvz_host.turn("stop", "101", newer_area) == (0, "") and openvz_host.status() == DOWN


def test_one_of_libvzctl_s_that_was_stopped_is_registered_and_taken_back(openvz_host, newer_area):
    waits(openvz_host, newer_area)
    fault(openvz_host, "register")
    status, said = openvz_host.turn("register", "101")
    assert status == 1 and f"vzctl register {newer_area} 101 has ended, and the container is: deleted" in said
    fault(openvz_host, "nothing")
    assert openvz_host.turn("register", "101") == (0, "") and openvz_host.status() == DOWN
    waits(openvz_host, newer_area)
    fault(openvz_host, "unregister")
    status, said = openvz_host.turn("discard", "101")
    assert status == 1 and "vzctl unregister 101 has ended, and the container is: exist unmounted down" in said
    fault(openvz_host, "nothing")
    for _again in range(2):
        assert openvz_host.turn("discard", "101") == (0, "") and openvz_host.status() == NONE
    assert not (newer_area / ".owner").exists() and not (openvz_host.root / "etc/vz/names/shop").exists()
