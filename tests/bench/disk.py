#!/usr/bin/env python
# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Makes, rewrites and compares the images that are copied in a benchmark. It runs on the hosts and needs nothing but Python.

An image is made of stretches of 1 MiB, each of one kind. The same words make the same image on any machine.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import os
import random
import sys
import typing as t

STRETCH = 1 << 20
# How long text is before it comes again: far more than any of the contenders looks back.
TEXT = 16 << 20
SEED = 20151118
KINDS = ("random", "text", "zero", "hole")


def text(length: int, chance: random.Random) -> bytes:
    """Words as often as in a language (the n-th one a n-th as often), in lines with a number as a log has them."""
    letters = "etaoinshrdlcumwfgypbvk"
    words = ["".join(chance.choices(letters, range(len(letters), 0, -1), k=chance.randint(2, 11))) for _word in range(20000)]
    weights = list(itertools.accumulate(1 / n for n in range(1, len(words) + 1)))
    lines: list[str] = []
    size = 0
    while size < length:
        line = f"{1447800000 + 7 * len(lines)} " + " ".join(chance.choices(words, cum_weights=weights, k=12)) + "\n"
        lines.append(line)
        size += len(line)
    return "".join(lines).encode()[:length]


def make(path: str, size: int, parts: dict[str, int]) -> None:
    """Stretches in the given parts, in an order that a die has chosen."""
    chance = random.Random(SEED)
    count = size // STRETCH
    weight = sum(parts.values())
    kinds = [kind for kind in KINDS for _piece in range(count * parts.get(kind, 0) // weight)]
    kinds += ["hole"] * (count - len(kinds))
    chance.shuffle(kinds)
    written = text(min(TEXT, size), chance) if "text" in kinds else b""
    zeroes = bytes(STRETCH)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.ftruncate(fd, size)
    begin = 0
    for n, kind in enumerate(kinds):
        data = zeroes
        if kind == "hole":
            continue
        if kind == "random":
            data = chance.randbytes(STRETCH)
        elif kind == "text":
            data = written[begin : begin + STRETCH]
            begin = (begin + STRETCH) % len(written)
        os.pwrite(fd, data, n * STRETCH)
    os.fsync(fd)
    os.close(fd)


def strew(path: str, wide: str, size: int) -> None:
    """Lays the stretches of one image out over a larger one that is else empty."""
    chance = random.Random(SEED)
    source = os.open(path, os.O_RDONLY)
    count = os.lseek(source, 0, os.SEEK_END) // STRETCH
    fd = os.open(wide, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.ftruncate(fd, size)
    for n, place in enumerate(sorted(chance.sample(range(size // STRETCH), count))):
        os.pwrite(fd, os.pread(source, STRETCH, n * STRETCH), place * STRETCH)
    os.fsync(fd)


def rewrite(path: str, cluster: int, every: int, length: int, seed: int) -> None:
    """Writes length new bytes into every n-th cluster, past the page cache: when it returns, the disk has them."""
    chance = random.Random(seed)
    fd = os.open(path, os.O_RDWR | os.O_DSYNC)
    size = os.lseek(fd, 0, os.SEEK_END)
    spread = list(range(size // cluster))
    chosen = sorted(chance.sample(spread, len(spread) // every))
    for c in chosen:
        room = cluster - length
        os.pwrite(fd, chance.randbytes(length), c * cluster + (chance.randrange(room) if room else 0))
    os.close(fd)
    print(len(chosen))


def forget(path: str) -> None:
    """Takes a file or a block device, and the file below that, out of the page cache."""
    below = f"/sys/block/{os.path.basename(path)}/loop/backing_file"
    if path.startswith("/dev/") and os.path.exists(below):
        with open(below, encoding="utf-8") as name:
            forget(name.read().strip())
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def digest(path: str) -> None:
    """Of the contents, holes and zeroes alike."""
    total = hashlib.blake2b()
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)
    zeroes = bytes(STRETCH)
    size, at, blank = os.lseek(fd, 0, os.SEEK_END), 0, 0
    while at < size:
        data = os.pread(fd, min(STRETCH, size - at), at)
        at += len(data)
        if data == zeroes[: len(data)]:
            blank += len(data)
            continue
        total.update(b"%d," % blank)
        total.update(data)
        blank = 0
    total.update(b"%d,%d" % (blank, size))
    print(total.hexdigest()[:32])


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(description=t.cast(str, __doc__).splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    maker = verbs.add_parser("make")
    maker.add_argument("path")
    maker.add_argument("size", type=int)
    for kind in KINDS:
        maker.add_argument(f"--{kind}", type=int, default=0)
    strewer = verbs.add_parser("strew")
    for name in ("path", "wide"):
        strewer.add_argument(name)
    strewer.add_argument("size", type=int)
    rewriter = verbs.add_parser("rewrite")
    rewriter.add_argument("path")
    for number in ("cluster", "every", "length", "seed"):
        rewriter.add_argument(number, type=int)
    for verb in ("forget", "digest"):
        verbs.add_parser(verb).add_argument("path")
    given = parser.parse_args(words)
    if given.verb == "make":
        make(given.path, given.size, {kind: getattr(given, kind) for kind in KINDS})
    elif given.verb == "strew":
        strew(given.path, given.wide, given.size)
    elif given.verb == "rewrite":
        rewrite(given.path, given.cluster, given.every, given.length, given.seed)
    elif given.verb == "forget":
        forget(given.path)
    else:
        digest(given.path)


if __name__ == "__main__":
    main(sys.argv[1:])
