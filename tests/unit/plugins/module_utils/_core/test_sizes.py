# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.sizes import format_size, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096),
        ("4096B", 4096),
        ("4K", 4096),
        ("512M", 512 * 2**20),
        ("10G", 10 * 2**30),
        (" 10 g ", 10 * 2**30),
        ("10GiB", 10 * 2**30),
        ("2T", 2 * 2**40),
        ("1P", 2**50),
    ],
)
def test_sizes_are_powers_of_1024(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "G", "ten", "-1G", "1.5G", "1,5G", "10 GG", "10X", "0x10", "10iB", "1e9"])
def test_what_is_no_size_says_how_to_write_one(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size: write a whole number with K, M, G, T or P, as in 512M or 10G"):
        parse_size(text)


def test_gb_is_refused_as_ambiguous() -> None:
    with pytest.raises(ValueError, match="'10GB' is ambiguous: write 10G for powers of 1024"):
        parse_size("10GB")


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (4096, "4 KiB"),
        (1536 * 2**20, "1.5 GiB"),
        (10 * 2**30, "10 GiB"),
        (10 * 2**30 + 1, "10 GiB"),
        (3 * 2**40, "3 TiB"),
    ],
)
def test_sizes_are_read_with_at_most_one_digit_after_the_point(size: int, text: str) -> None:
    assert format_size(size) == text
