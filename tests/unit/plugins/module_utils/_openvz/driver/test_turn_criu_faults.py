# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Words of a live move by CRIU that were cut, and containers and CRIUs that ended while they were held, on a host in a folder."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess

import pytest
from ansible_collections.livefleet.handover.tests.unit.plugins.module_utils._openvz.driver.test_turn_criu import (
    arrives,
    criu_of,
    dumped,
    nothing_left,
    restored,
    stands_still,
    stock_host,
    until,
)

__all__ = ["stock_host"]


def first_of(host):
    return int((host.state / "101.pid").read_text(encoding="utf-8"))


def end_tasks(host):
    """As a kill in its midst leaves it: the tasks have ended, and nothing has answered."""
    os.kill(first_of(host), signal.SIGKILL)
    until(lambda: host.status().startswith("CTID 101 exist unmounted down"))


def starts(host):
    return (host.state / "log").read_text(encoding="utf-8").count("start 101")


def script_of(host):
    return pathlib.Path("/proc", (host.root / "turns" / "101.held").read_text(encoding="utf-8").split()[1])


def test_one_that_ended_while_it_was_held_is_started_under_the_move_s_lock(openvz_host):
    openvz_host.have()
    dump = openvz_host.root / "dump" / "handover.101"
    assert openvz_host.turn("home", "101") == (0, "")
    assert openvz_host.turn("suspend", "101", dump, "63") == (0, "")
    end_tasks(openvz_host)
    assert openvz_host.turn("home", "101", dump) == (0, "")
    assert not stands_still(openvz_host) and not (openvz_host.root / "lock" / "101.lck").exists()


def test_one_that_ended_while_it_was_held_goes_on_from_its_dump(stock):
    dump, before = dumped(stock), starts(stock)
    end_tasks(stock)
    for _again in range(2):
        assert stock.turn("home", "101", dump) == (0, "")
        assert not stands_still(stock) and nothing_left(stock)
    assert starts(stock) == before and "restore 101" in (stock.state / "log").read_text(encoding="utf-8")


def test_one_that_ended_after_it_was_let_go_is_not_restored(stock):
    """Its dump is older than its files."""
    dump, before = dumped(stock), starts(stock)
    # The word is cut behind its answer.
    stock.program("of-criu", (stock.root / "bin/of-criu").read_text(encoding="utf-8").replace("    answer no\n    ended\n", "    answer no\n    exit 9\n", 1))
    assert stock.turn("home", "101", dump)[0] == 9
    until(lambda: not stands_still(stock))
    end_tasks(stock)
    stock.program("of-criu", (stock.root / "bin/of-criu").read_text(encoding="utf-8").replace("    exit 9\n", "    ended\n"))
    assert stock.turn("home", "101", dump) == (0, "")
    assert not stands_still(stock) and nothing_left(stock) and starts(stock) == before + 1


def test_a_kill_that_was_cut_before_its_answer_gives_it(stock):
    dump, script = dumped(stock), script_of(stock)
    end_tasks(stock)
    for _again in range(2):
        assert stock.turn("kill", "101", dump) == (0, "")
        assert stock.status() == "CTID 101 exist unmounted down" and nothing_left(stock) and not script.exists()


def test_no_gate_is_cleared_before_its_script_has_ended(stock):
    dump, script = dumped(stock), script_of(stock)
    assert stock.turn("stays", "101", dump) == (0, "")
    assert not script.exists() and nothing_left_but_the_lock(stock)


def nothing_left_but_the_lock(host):
    return sorted(path.name for path in (host.root / "turns").iterdir()) == ["101"]


def cut_after_the_move(at, left):
    at.rename(left)


def cut_between_the_links(at, left):
    at.rename(left)
    at.mkdir()
    (at / "handover-inventory").hardlink_to(left / "handover-inventory")


def cut_while_it_is_removed(at, left):
    left.mkdir()
    (left / "memory").hardlink_to(at / "memory")


def cut_before_it_is_held_again(at, _left):
    (at / "handover-inventory").rename(at / "inventory.img")


@pytest.mark.parametrize("cut", [cut_after_the_move, cut_between_the_links, cut_while_it_is_removed, cut_before_it_is_held_again])
def test_a_restore_again_that_was_cut_is_gone_on_with(stock, cut):
    dump = restored(stock)
    os.kill(criu_of(stock), signal.SIGKILL)
    until(lambda: stock.status() == "CTID 101 exist mounted down suspended")
    at = dump.parent / "Dump.101"
    cut(at, dump.parent / "Dump.101.left")
    status, said = stock.turn("resume", "101")
    assert (status, said) == (0, "") and not stands_still(stock) and nothing_left(stock)


def freezer_of(host):
    return (host.root / "freezer/vz-101/freezer.state").read_text(encoding="utf-8").strip()


def test_what_is_restored_is_frozen_with_who_enters_it_but_for_criu_and_those_that_wait_for_it(stock):
    restored(stock)
    criu = criu_of(stock)
    assert freezer_of(stock) == "FROZEN" and script_of(stock).exists()
    outside = (stock.root / "freezer/cgroup.procs").read_text(encoding="utf-8").split()
    assert outside == [str(criu), script_of(stock).name]
    assert str(criu) in (stock.root / "turns/101.spared").read_text(encoding="utf-8").split()
    assert stock.turn("resume", "101") == (0, "") and freezer_of(stock) == "THAWED"
    assert not stands_still(stock) and nothing_left(stock)


def test_who_has_entered_what_is_taken_back_ends_with_it_before_it_is_thawed(stock):
    restored(stock)
    vzctl, mark = stock.root / "bin/vzctl", stock.root / "entered"
    within, spared = (set((stock.root / name).read_text(encoding="utf-8").split()) for name in ("freezer/vz-101/cgroup.procs", "turns/101.spared"))
    words = (stock.root / "bin/of-criu").read_text(encoding="utf-8")
    with subprocess.Popen([vzctl, "exec", "101", "sh", "-c", f"touch {mark}; exec sleep 60"]) as entered:
        until(mark.exists)
        # The word is cut before CRIU has its answer.
        stock.program("of-criu", words.replace("    end_shut\n    answer no\n", "    end_shut\n    exit 9\n", 1))
        assert stock.turn("discard", "101")[0] == 9
        assert entered.wait(10) == 256 - signal.SIGKILL and freezer_of(stock) == "THAWED"
    # The script that waits for CRIU comes to its own end.
    (waits,) = within & spared
    assert " Z " not in pathlib.Path("/proc", waits, "stat").read_text(encoding="utf-8")
    stock.program("of-criu", words)
    assert stock.turn("discard", "101") == (0, "") and nothing_left(stock)


def test_what_is_restored_in_no_freezer_of_its_own_is_taken_back(stock):
    dump = dumped(stock)
    arrives(stock, dump)
    (stock.root / "cgroup").write_text("6:freezer:/\n", encoding="utf-8")
    status, said = stock.turn("criu-restore", "101")
    assert status == 1 and "and a command could run among them before the release" in said and "running" not in stock.status()
    assert stock.turn("discard", "101") == (0, "") and nothing_left(stock)


RULES = """#!/bin/sh
at={0}/rules-${{0##*/}}
case "$*" in *delete* | *-X*) [ ! -e {0}/stays ] || exit 1 ;; esac
echo "${{0##*/}} $*" >>{0}/asked-of-rules
case "$*" in
"list tables") echo "table inet mine"; [ ! -e "$at" ] || echo "table inet CRIU-7" ;;
"delete table inet CRIU-7" | "-w -X CRIU") rm "$at" ;;
*) [ -e "$at" ] ;;
esac
"""


def with_rules(stock):
    words = stock.root / "bin/of-criu"
    stock.program("of-criu", words.read_text(encoding="utf-8").replace("/proc/self/ns/net", "/not/there"))
    stock.program("nsenter", '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n')
    stock.program("logger", f'#!/bin/sh\necho "$*" >>{stock.root}/logged\n')
    for name in ("nft", "iptables", "ip6tables"):
        stock.program(name, RULES.format(stock.root))


@pytest.mark.parametrize(("tool", "says"), [("nft", "take away the table inet/CRIU-7 of nft in"), ("ip6tables", "take away the chain CRIU of ip6tables in")])
def test_a_network_lock_that_cannot_be_removed_is_told(stock, tool, says):
    with_rules(stock)
    dump, lock = dumped(stock), stock.root / f"rules-{tool}"
    lock.touch()
    (stock.root / "stays").touch()
    os.kill(criu_of(stock), signal.SIGKILL)
    until(lambda: not pathlib.Path("/proc", str(criu_of(stock))).exists())
    os.kill(first_of(stock), signal.SIGCONT)
    first = first_of(stock)
    status, said = stock.turn("home", "101", dump)
    # It goes on all the same: nothing else of it runs.
    assert status == 0 and f"{says} its network (process {first})" in said and "was removed" not in said and lock.exists()
    assert "cannot be removed" in (stock.root / "logged").read_text(encoding="utf-8") and not stands_still(stock) and nothing_left(stock)


@pytest.mark.parametrize("killed", [True, False])
@pytest.mark.parametrize("tool", ["nft", "iptables"])
def test_the_network_lock_of_a_criu_that_was_killed_is_removed(stock, tool, killed):
    with_rules(stock)
    dump, lock = dumped(stock), stock.root / f"rules-{tool}"
    lock.touch()
    if killed:
        os.kill(criu_of(stock), signal.SIGKILL)
        until(lambda: not pathlib.Path("/proc", str(criu_of(stock))).exists())
        # The kernel ends the hold of a debugger with it; the signal that stands for it here it does not.
        os.kill(first_of(stock), signal.SIGCONT)
    status, said = stock.turn("home", "101", dump)
    # Of one that lives CRIU itself removes it.
    assert (status, "open connections may be lost" in said, lock.exists()) == (0, killed, not killed)
    assert (stock.root / "logged").exists() == killed
    assert not stands_still(stock) and nothing_left(stock)
