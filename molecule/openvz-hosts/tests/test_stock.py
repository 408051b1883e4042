# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A container moves live between two hosts where CRIU dumps and restores it: 106 of vzctl 4 on a stock kernel, and two of libvzctl's, one of them with a
ploop disk.

CRIU's action script holds its dump here and its restore there. It counts. Its ledger has each number once, of all its time on either host, whatever becomes
of a move. LAB_FLEET is as in molecule/openvz/tests/test_openvz.py.
"""

from __future__ import annotations

import libvzctl
import libvzctl_disk
import pytest
import stock

LEFT = (
    "ls -A /vz/lock /vz/dump /var/lib/handover/openvz 2>/dev/null | grep -v : | grep . ; systemctl list-units --plain --no-legend 'handover-openvz-*'; "
    "ls -d /run/handover/openvz-turns/*.* 2>/dev/null; pgrep --list-name --exact criu; pgrep --list-name criu-gate"
)
MOUNTED = f"findmnt --noheadings --output TARGET {libvzctl_disk.ROOT}"
# A session's name has so much of its workload's.
SESSIONS = "/var/lib/handover/sessions/{0:.32}"
CONTINUE = "/usr/local/libexec/handover/pcopy session continue " + SESSIONS + "*"
FAILS = '#!/bin/sh\\ncase $1 in restore) exit 1 ;; esac\\nexec %s.kept "$@"\\n'


@pytest.fixture(scope="module", name="counting", params=[stock, libvzctl, libvzctl_disk], ids=["stock", "libvzctl", "libvzctl, with a disk"])
def one_that_counts(request, hosts):
    hosts.way = request.param
    for host in hosts.both:
        host.check_output(hosts.way.KERNEL)
    hosts.both[0].check_output(hosts.way.MAKE + "sleep 1")
    yield hosts
    for host in hosts.both:
        host.run(hosts.way.REMOVE)


def status(hosts):
    return [host.check_output(f"vzctl status {hosts.way.CTID}").strip() for host in hosts.both]


def beats(hosts, number):
    return [int(line) for line in hosts.both[number].check_output(f"cat {hosts.way.BEAT}").split()]


def move(hosts, *words, **variables):
    return hosts.move(*words, handover_workload=hosts.way.CTID, handover_mode="live", **variables)


def begin(hosts, **variables):
    return hosts.begin(handover_workload=hosts.way.CTID, handover_mode="live", **variables)


def goes_on(hosts, number, since):
    """It runs, was never started anew, and has lost and doubled nothing."""
    hosts.both[number].check_output("sleep 0.5")
    found = beats(hosts, number)
    assert found == list(range(1, len(found) + 1)) and len(found) > since
    return len(found)


def nothing_left(hosts, home):
    """What a move locks, keeps and mounts is gone from both hosts."""
    return [host.run(LEFT).stdout for host in hosts.both] == ["", ""] and hosts.both[1 - home].run(MOUNTED).stdout == ""


def at_home(hosts, since):
    assert status(hosts) == [hosts.way.UP, hosts.way.NONE] and nothing_left(hosts, 0)
    return goes_on(hosts, 0, since)


def until_journal(hosts, number, state):
    prepared = f"grep -q '\"{state}\"' {SESSIONS.format(hosts.way.CTID)}*/journal* 2>/dev/null && exit 0"
    hosts.both[number].check_output(f"for n in $(seq 1000); do {prepared}; sleep 0.2; done; exit 1")


def test_a_check_says_what_would_not_hold_it(counting):
    destination = counting.both[1]
    script = "/usr/local/libexec/handover/openvz/criu-gate"
    destination.check_output("mv /etc/criu/default.conf /etc/criu/default.kept")
    try:
        rc, said = move(counting, "--check")
    finally:
        destination.check_output("mv /etc/criu/default.kept /etc/criu/default.conf")
    assert rc != 0 and f"nothing would hold CRIU on {counting.names[1]} before the release (/etc/criu/default.conf does not name {script}" in said, said
    rc, said = move(counting, "--check")
    assert rc == 0 and f"CRIU dumps {counting.way.CTID} on {counting.names[0]} and restores it on {counting.names[1]}" in said, said
    goes_on(counting, 0, 0)


def test_it_moves_with_its_memory_there_and_back(counting):
    count, up, none = len(beats(counting, 0)), counting.way.UP, counting.way.NONE
    for to in (1, 0):
        rc, said = move(counting, to=to)
        assert rc == 0 and "(live)" in said, said
        assert status(counting) == ([up, none] if to == 0 else [none, up]) and nothing_left(counting, to)
        count = goes_on(counting, to, count)
    assert len(counting.both[0].check_output(f"cat {stock.STATE}/{counting.way.CTID}.witness").split()) > 10


def test_a_restore_that_ends_with_0_and_failed_is_taken_back(counting):
    """The trap of vzctl 4.11 on a stock kernel: CRIU has failed, and its exit status is 0."""
    destination = counting.both[1]
    before, there = len(beats(counting, 0)), counting.left(1)
    destination.check_output(f"echo 'restore fails' >{stock.STATE}/FAULT")
    criu = destination.check_output("command -v criu").strip()
    destination.check_output(f"mv {criu} {criu}.kept; printf '{FAILS % criu}' >{criu}; chmod 755 {criu}")
    try:
        rc, said = move(counting)
    finally:
        destination.check_output(f"mv {criu}.kept {criu}; rm {stock.STATE}/FAULT")
    assert rc != 0 and f"vzctl restore {counting.way.CTID} has ended, or holds nothing" in said and "The restore log was saved in" in said, said
    assert counting.left(1) == there
    at_home(counting, before)


def test_a_dump_that_nothing_held_is_restored_at_home(counting):
    """vzctl has dumped and ended it: its memory is in the dump alone."""
    source = counting.both[0]
    before = len(beats(counting, 0))
    begun = begin(counting, migrate_pause_at={"source": "presync"})
    try:
        until_journal(counting, 0, "presync")
        source.check_output("mv /etc/criu/default.conf /etc/criu/default.kept")
        source.check_output(CONTINUE.format(counting.way.CTID))
    finally:
        rc, said = counting.end(begun)
        source.run("mv /etc/criu/default.kept /etc/criu/default.conf")
    assert rc != 0 and "and CRIU was not held: is its action script named in /etc/criu/default.conf?" in said, said
    at_home(counting, before)


# The process that is to run it waits in the container's freezer where that is frozen, and may run it later.
ENTER = "timeout 1 vzctl {0} {1} touch /run/entered </dev/null >/dev/null 2>&1; test ! -e /run/entered"


def refused(hosts):
    """An operator's verbs on both sides. Those with a lock say so, and the others run nothing."""
    said = [host.run(f"vzctl {verb} {hosts.way.CTID}").rc for host in hosts.both for verb in ("restore", "start", "stop", "restart")]
    entered = [host.run(ENTER.format(verb, hosts.way.CTID)).rc for host in hosts.both for verb in ("exec", "exec2", "enter")]
    return said == [9] * 8 and entered == [0] * 6


@pytest.mark.parametrize("struck", ["receiver", "sender", "dumping CRIU", "restoring CRIU"])
def test_it_stands_still_while_it_is_held_and_goes_on_at_home(counting, struck):
    """The one that is struck dies before the release, with the container held on both sides."""
    side, number = ("source", 0) if struck in ("sender", "dumping CRIU") else ("destination", 1)
    at, way = counting.both[number], counting.way
    for host in counting.both:
        host.check_output("rm -f /run/entered")
    begun = begin(counting, migrate_pause_at={side: "prepared"})
    try:
        until_journal(counting, number, "prepared")
        before = beats(counting, 0)
        assert beats(counting, 1) == before
        if way is libvzctl_disk:
            # A second freeze is refused: one is there.
            assert "busy" in counting.both[0].run(f"fsfreeze --freeze {way.ROOT}").stderr, "the file system is not frozen"
        assert refused(counting)
        assert beats(counting, 0) == beats(counting, 1) == before, "it runs while it is held"
        if struck.endswith("CRIU"):
            at.check_output("pkill --signal KILL --exact criu; sleep 0.5")
            assert at.run(ENTER.format("exec", way.CTID)).rc == 0
            # A disk is unmounted where libvzctl has ended what was restored.
            seen = [host for host in (0, 1) if way is not libvzctl_disk or host == 0 or number == 0]
            assert [beats(counting, host) for host in seen] == [before] * len(seen), "it ran on when its CRIU was killed"
        else:
            word = "receive" if struck == "receiver" else "send"
            at.check_output(f"pkill -KILL -f 'pcopy [{word[0]}]{word[1:]} --session {SESSIONS.format(way.CTID)}'")
        if struck.endswith("CRIU"):
            at.check_output(CONTINUE.format(way.CTID))
    finally:
        rc, said = counting.end(begun)
    if struck.endswith("CRIU"):
        # Here it stays frozen by the kernel until it is ended. There it has not run, and is restored once more from its dump.
        assert rc == 0 and status(counting) == [way.NONE, way.UP], said
        goes_on(counting, 1, len(before))
        rc, said = move(counting, to=0)
        assert rc == 0, said
    else:
        assert rc != 0 and f"{way.CTID} was not moved and runs on" in said, said
    at_home(counting, len(before))
