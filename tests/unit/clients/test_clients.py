# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The judges of the demo: what they call a loss, and how they read pgbench."""

from __future__ import annotations

import struct
import sys
import typing as t
from pathlib import Path

import pytest

pytest.importorskip("psycopg")
CHECKOUT = Path(__file__).resolve().parent.parent.parent.parent
sys.path[:0] = [str(CHECKOUT / "tests" / "clients"), str(CHECKOUT / "demo")]
import ledger
import pgbench
import psql
import wire

import demo


def test_all_that_was_promised_is_there() -> None:
    assert ledger.compare([1, 2, 3], [3, 1, 2]) == {"acknowledged": 3, "rows": 3, "lost": [], "twice": [], "unanswered": 0}


def test_a_promise_that_was_not_kept_is_named() -> None:
    assert ledger.compare([1, 2, 3, 4], [1, 4])["lost"] == [2, 3]


def test_a_number_that_two_copies_wrote_is_named() -> None:
    assert ledger.compare([1, 2], [1, 2, 2])["twice"] == [2]


def test_a_commit_without_an_answer_is_no_loss() -> None:
    found = ledger.compare([1, 3], [1, 2, 3])
    assert (found["lost"], found["twice"], found["unanswered"]) == ([], [], 1)


def test_numbers_go_on_behind_what_an_earlier_writer_was_promised(tmp_path: Path) -> None:
    acknowledged = tmp_path / "acknowledged"
    acknowledged.write_text("7\n8\n", encoding="ascii")
    assert ledger.Writer("", acknowledged, 0).number == 8


SAID = """pgbench (17.11 (Debian 17.11-0+deb13u1))
progress: 1.0 s, 99.9 tps, lat 2.314 ms stddev 0.652, 0 failed, lag 0.104 ms
progress: 2.0 s, 0.0 tps, lat NaN ms stddev NaN, 3 failed, lag 0.000 ms
pgbench: error: client 2 aborted in command 5 (SQL) of script 0; perhaps the backend died while processing
"""


def test_pgbench_is_read_by_the_second() -> None:
    seconds, rest = pgbench.read_progress(SAID)
    assert seconds == [pgbench.Second(1.0, 99.9, 0), pgbench.Second(2.0, 0.0, 3)]
    assert len(rest) == 2
    assert "client 2 aborted" in rest[1]


def test_a_session_that_is_the_same() -> None:
    assert psql.verdict(3, "4711\n4711|3\n", "") is None


@pytest.mark.parametrize(
    ("output", "said", "sentence"),
    [
        ("4711\n4712|3\n", "", "it was backend 4711 with 3 in its table, and is 4712|3"),
        ("4711\n4711|4\n", "", "it was backend 4711 with 3 in its table, and is 4711|4"),
        ("4711\n", "", "it answered 1 of 2 questions"),
        ("4711\n", "server closed the connection unexpectedly\nmore\n", "server closed the connection unexpectedly"),
    ],
)
def test_a_session_that_is_another(output: str, said: str, sentence: str) -> None:
    assert psql.verdict(3, output, said) == sentence


def segment(flags: int, sender: str = "02:00:0a:d5:00:64", version: int = 4) -> bytes:
    ethernet = bytes.fromhex("020000000001" + sender.replace(":", "")) + (b"\x08\x00" if version == 4 else b"\x86\xdd")
    tcp = bytes.fromhex("1538c001") + bytes(8) + bytes([0x50, flags]) + bytes(6)
    if version == 4:
        # With options, so that the header has another length than the usual one.
        return ethernet + bytes([0x46]) + bytes(8) + bytes([6]) + bytes(2) + bytes([10, 213, 0, 100, 10, 213, 0, 1]) + bytes(4) + tcp
    return ethernet + bytes([0x60]) + bytes(5) + bytes([6, 64]) + bytes(15) + b"\x64" + bytes(15) + b"\x01" + tcp


def run_bpf(program: bytes, frame: bytes) -> int:
    """What the kernel would make of a frame: the few operations that the filter uses."""
    instructions = list(struct.iter_unpack("HBBI", program))
    place, accumulator, index = 0, 0, 0
    while True:
        operation, then, otherwise, value = instructions[place]
        place += 1
        if operation == wire.LOAD_HALF:
            accumulator = int.from_bytes(frame[value : value + 2], "big")
        elif operation == wire.LOAD_BYTE:
            accumulator = frame[value]
        elif operation == wire.LOAD_BYTE_AFTER:
            accumulator = frame[index + value]
        elif operation == wire.TAKE_HEADER_LENGTH:
            index = 4 * (frame[value] & 15)
        elif operation == wire.IF_EQUAL:
            place += then if accumulator == value else otherwise
        elif operation == wire.IF_SET:
            place += then if accumulator & value else otherwise
        else:
            return value


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize(("flags", "taken"), [(0x04, True), (0x14, True), (0x10, False), (0x02, False), (0x11, False)])
def test_only_resets_are_taken_from_the_wire(version: int, flags: int, taken: bool) -> None:
    assert bool(run_bpf(wire.assemble(wire.PROGRAM), segment(flags, version=version))) is taken


@pytest.mark.parametrize(
    ("version", "text"), [(4, "10.213.0.100 port 5432 to 10.213.0.1 port 49153"), (6, "::64 port 5432 to ::1 port 49153")]
)
def test_a_reset_is_told_in_words(version: int, text: str) -> None:
    frame = segment(0x04, version=version)
    assert wire.sender(frame) == "02:00:0a:d5:00:64"
    assert wire.describe(frame) == text


def connection(backend: str) -> dict[str, str]:
    return {"backend": backend, "address": "10.213.0.1", "port": "4" + backend, "since": "2026-11-21 12:00:00"}


def seen() -> dict[str, t.Any]:
    """What the clients of a move saw that went well."""
    return {
        "ledger": {"lost_connections": 0, "errors": []},
        "pgbench": {"errors": [], "ran_until_stopped": True},
        "psql": {"sessions": 2, "wrong": []},
        "wire": {"resets": 0, "first": []},
        "connections": {"before": [connection("71"), connection("72")], "after": [connection("71"), connection("72")]},
    }


def test_no_connection_was_lost() -> None:
    assert demo.lost_connections(seen()) == []


@pytest.mark.parametrize(
    ("who", "what", "sentence"),
    [
        ("connections", {"before": [connection("71")], "after": [connection("72")]}, "1 of 1 connections did not live through it, the first from port 471"),
        ("connections", {"before": [], "after": []}, "0 of 0 connections did not live through it"),
        ("ledger", {"lost_connections": 1, "errors": ["server closed it"]}, "the ledger lost its connection: server closed it"),
        ("pgbench", {"errors": [], "ran_until_stopped": False}, "pgbench lost a connection: it ended"),
        ("psql", {"sessions": 1, "wrong": ["psql at ::1: it is another"]}, "psql at ::1: it is another"),
        ("wire", {"resets": 2, "first": ["12:00:00 a to b"]}, "2 resets were on the wire, the first at 12:00:00 a to b"),
    ],
)
def test_a_lost_connection_is_told(who: str, what: dict[str, t.Any], sentence: str) -> None:
    assert demo.lost_connections({**seen(), who: what}) == [sentence]


def test_the_longest_transaction_counts_from_when_its_client_was_free():
    log = (
        "0 1 900000 0 100 0 0\n"  # before the moment
        "0 2 2000 0 110 500000 10\n"
        "1 7 420000 0 111 0 20000\n"  # it stood for 0.4 s
        "0 3 500000 0 111 100 498000\n"  # it was late because of another one
        "0 4 failed 0 112 0 0\n"
        "1 8 91"  # cut off
    )
    assert pgbench.longest(log, 105.0) == 0.4
    assert pgbench.longest("", 0.0) == 0.0
