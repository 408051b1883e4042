# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._openvz.config import Line, amount, limit, read, switches, yes_or_no


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('ONBOOT="yes"\n', [Line(1, "ONBOOT", "yes")]),
        ("ONBOOT=yes\r\n", [Line(1, "ONBOOT", "yes")]),
        ('  NAME="a b"  \n', [Line(1, "NAME", "a b")]),
        ("# a remark\n\n   \nNAME=web\n", [Line(4, "NAME", "web")]),
        ('DESCRIPTION="it says "hello""\n', [Line(1, "DESCRIPTION", 'it says "hello"')]),
        ('DESCRIPTION="a \\$ and \\\\"\n', [Line(1, "DESCRIPTION", "a $ and \\")]),
        ('NAME="open\n', [Line(1, "NAME", "open", "its quotation mark is not closed")]),
        ("no parameter\n", [Line(1, "", "no parameter", "it has no equals sign")]),
        ('NAME=""', [Line(1, "NAME", "")]),
    ],
)
def test_lines_as_vzctl_reads_them(text, lines):
    assert read(text) == lines


@pytest.mark.parametrize(
    ("line", "older", "newer"),
    [
        ("ONBOOT='yes'", "'yes'", "yes"),
        ('ONBOOT="yes" # at boot', "yes", "yes"),
        ("NAMESERVER=inherit # of the host", "inherit # of the host", "inherit"),
        ('DESCRIPTION="it\'s #1 # really"', "it's #1 # really", "it's #1 # really"),
        ("HOSTNAME=a#b", "a#b", "a#b"),
        ('ONBOOT="yes', "yes", "yes"),
    ],
)
def test_quotes_and_remarks_of_each_era(line, older, newer):
    assert [each.value for each in read(line)] == [older]
    assert [each.value for each in read(f'UUID="x"\n{line}\n')] == ["x", newer]


def test_only_a_newline_ends_a_line():
    assert [line.value for line in read('DESCRIPTION="a\x85b\u2028c\x0cd"\nNAME=x\n')] == ["a\x85b\u2028c\x0cd", "x"]


@pytest.mark.parametrize(
    ("text", "unit", "number"),
    [
        ("262144", 4096, 1 << 30),
        ("512M", 4096, 512 << 20),
        ("2g", 4096, 2 << 30),
        ("10p", 1, 40960),
        ("unlimited", 4096, None),
        ("9223372036854775807", 4096, None),
        ("2147483647", 4096, None),
        ("2147483648", 1024, 2147483648 * 1024),
        ("2.2G", 1024, int(2.2 * (1 << 30))),
        ("1.5", 1024, 1024),
        ("18446744073709551615", 1, None),
        ("9007199254740991", 4096, None),
        ("9999999T", 1, None),
        ("0", 1, 0),
    ],
)
def test_amounts(text, unit, number):
    assert amount(text, unit) == number


@pytest.mark.parametrize("text", ["", "many", "1.5.2G", ".5G", "12KB", "-1", "1 G", "\u0663"])
def test_amounts_that_are_none(text):
    with pytest.raises(ValueError, match="is no number"):
        amount(text, 1)


def test_barrier_and_limit():
    assert limit("10:20", 1) == 20
    assert limit("20", 1) == 20
    assert limit("0:unlimited", 1) is None
    with pytest.raises(ValueError, match="is no barrier and limit"):
        limit("1:2:3", 1)


def test_switches():
    assert switches("nfs:on,ppp:off sit:on") == [("nfs", True), ("ppp", False), ("sit", True)]
    with pytest.raises(ValueError, match="'nfs' is neither on nor off"):
        switches("nfs")
    assert [yes_or_no("yes"), yes_or_no("no")] == [True, False]
    with pytest.raises(ValueError, match="'1' is neither yes nor no"):
        yes_or_no("1")
