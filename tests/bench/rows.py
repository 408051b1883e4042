# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rows of the table of bars. Each prepares its images once, runs its contenders in turn in each round, and knows what its bars are."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import statistics
import sys
import typing as t

from contenders import CLUSTER, DESTINATION, FOLDER, SOURCE, Contender, Pair, Session, again, first, packed
from results import Bar, spread

GIB, MIB = 1 << 30, 1 << 20
GIGABIT = 125e6  # bytes a second
IMAGE, TARGET, OTHER = f"{FOLDER}/image", f"{FOLDER}/target", f"{FOLDER}/other"

Sample = dict[str, t.Any]
Samples = dict[str, list[Sample]]
Rounds = t.Callable[[int], t.Iterator[tuple[str, Sample]]]

PLAIN = "pcopy, compression none"
AUTO: Sample = {}
NONE = {"compression": "none"}
ZSTD = "zstd -3 over ssh"


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    title: str
    what: str
    ready: t.Callable[[Pair], t.ContextManager[Rounds]]
    bars: t.Callable[[Samples], list[Bar]]
    key: str = "seconds"
    unit: str = "s"
    ours: str = "pcopy"  # what the names of ours begin with


def median(runs: list[Sample], key: str = "seconds") -> float:
    return statistics.median(run[key] for run in runs)


def bar_of(text: str, figure: float, limit: float, samples: Samples, key: str, contender: str, at_least: bool = False) -> Bar:
    return Bar(text, figure, limit, 0, {who: spread([run[key] for run in runs]) for who, runs in samples.items()}, contender, at_least)


def same(pair: Pair, source: str, target: str, here: str = "") -> None:
    """A contender that brings something else over than was there is none; here is the source's digest, if it is known."""
    if (here or pair.disk(SOURCE, "digest", source)) != pair.disk(DESTINATION, "digest", target):
        sys.exit(f"bench: {target} on {DESTINATION} is not what {source} on {SOURCE} is")


@contextlib.contextmanager
def image(pair: Pair, size: int, *parts: object, path: str = IMAGE) -> t.Iterator[str]:
    pair.disk(SOURCE, "make", path, size, *parts)
    try:
        yield path
    finally:
        pair.run(SOURCE, "rm", "-f", path)
        pair.clear(TARGET, OTHER)


MIXED = ("--random", 1, "--text", 1, "--zero", 1, "--hole", 1)


@contextlib.contextmanager
def full(pair: Pair) -> t.Iterator[Rounds]:
    with image(pair, 4 * GIB, *MIXED) as path:
        digest = pair.disk(SOURCE, "digest", path)

        def rounds(number: int) -> t.Iterator[tuple[str, Sample]]:
            who: dict[str, Contender | Session] = {contender.name: contender for contender in first(pair)}
            who |= {name: Session(pair, policy) for name, policy in (("pcopy", AUTO), (PLAIN, NONE))}
            # The disk still has work from the one before: each round has another order.
            for name in list(who) if number % 2 == 0 else reversed(who):
                yield name, who[name].copy(path, TARGET)
                if not number:
                    same(pair, path, TARGET, digest)

        yield rounds


# Who sends everything in the clear.
BARE = ("nbdcopy", "qemu-img convert")


def full_bars(samples: Samples) -> list[Bar]:
    others = {who: median(runs) for who, runs in samples.items() if not who.startswith("pcopy")}
    encrypted, bare = (min((who for who in others if (who in BARE) == clear), key=lambda who: others[who]) for clear in (False, True))
    ours, plain = median(samples["pcopy"]), median(samples[PLAIN])
    text = "4 GiB, no rate limit: time, as a part of the best of those who "
    return [
        bar_of(text + "encrypt, too", ours / others[encrypted], 0.9, samples, "seconds", encrypted),
        bar_of(text + "send in the clear", ours / others[bare], 1.1, samples, "seconds", bare),
        bar_of("4 GiB, no rate limit: time by `auto`, as a part of the time with no compression", ours / plain, 1.03, samples, "seconds", PLAIN),
    ]


# What a segment of 1448 bytes, with its time stamps, is on the link: TCP, IP and Ethernet count in a token bucket.
FRAMED = 1514 / 1448


@contextlib.contextmanager
def line(pair: Pair) -> t.Iterator[Rounds]:
    with image(pair, 4 * GIB, *MIXED) as path, pair.line("1gbit"):

        def rounds(_number: int) -> t.Iterator[tuple[str, Sample]]:
            for name, policy in (("pcopy", AUTO), (PLAIN, NONE)):
                result = Session(pair, policy).copy(path, TARGET)
                yield name, {**result, "of the limit": result["seconds"] / (2 * GIB / GIGABIT)}

        yield rounds


def line_bars(samples: Samples) -> list[Bar]:
    least = 2 * GIB / GIGABIT
    auto, none = (median(samples[name]) / least for name in ("pcopy", PLAIN))
    limit = f"2 GiB that are not zero ÷ 1 Gbit/s ({least:.2f} s)"
    return [
        bar_of("4 GiB at 1 Gbit/s: time ÷ (bytes that must travel ÷ line rate), as pcopy is without options", auto, 1.05, samples, "seconds", limit),
        bar_of(
            "the same with no compression, the headers of TCP, IP and Ethernet counted among what must travel",
            none / FRAMED,
            1.05,
            samples,
            "seconds",
            f"{limit} × 1514 ÷ 1448",
        ),
        bar_of("the same with no compression, headers not counted", none, 1.05, samples, "seconds", limit),
    ]


@contextlib.contextmanager
def second(pair: Pair) -> t.Iterator[Rounds]:
    with image(pair, 4 * GIB, *MIXED) as path, pair.loop(path) as device:
        for contender in first(pair)[:1]:  # something for the others to begin with
            contender.copy(path, TARGET)

        def rounds(number: int) -> t.Iterator[tuple[str, Sample]]:
            def rewrite(who: int) -> None:
                pair.disk(SOURCE, "rewrite", device, CLUSTER, 100, CLUSTER, 10 * number + who)

            for n, contender in enumerate(again(pair)):
                rewrite(n)
                yield contender.name, contender.copy(path, TARGET, fresh=False)
                if not number:
                    same(pair, path, TARGET)
            with Session(pair, AUTO, tracker="ebpf").converged(device, OTHER) as sender:
                sender.stop()
                rewrite(9)
                result = sender.finish()
            yield "pcopy", result
            if not number:
                same(pair, path, OTHER)

        yield rounds


def second_bars(samples: Samples) -> list[Bar]:
    others = {who: median(runs) for who, runs in samples.items() if who != "pcopy"}
    best = min(others, key=lambda who: others[who])
    figure = others[best] / median(samples["pcopy"])
    return [bar_of("second pass, 1 % rewritten: how many times faster than the best of the others", figure, 20, samples, "seconds", best, True)]


@contextlib.contextmanager
def delta(pair: Pair) -> t.Iterator[Rounds]:
    with image(pair, 256 * MIB, "--random", 1) as path, pair.loop(path) as device:

        def rounds(number: int) -> t.Iterator[tuple[str, Sample]]:
            for n, (name, policy) in enumerate((("pcopy", {**NONE, "delta": True}), ("pcopy, no delta", {**NONE, "delta": False}))):
                with Session(pair, policy, tracker="ebpf").converged(device, OTHER) as sender:
                    sender.stop()
                    before = sender.status()["sent_bytes"]
                    pair.disk(SOURCE, "rewrite", device, CLUSTER, 1, 8, 10 * number + n)
                    result = sender.finish()
                yield name, {**result, "sent": sender.status()["sent_bytes"] - before}
                if not number:
                    same(pair, path, OTHER)

        yield rounds


def delta_bars(samples: Samples) -> list[Bar]:
    figure = median(samples["pcopy"], "sent") / median(samples["pcopy, no delta"], "sent")
    return [bar_of("8 bytes changed in each cluster of 256 MiB: bytes, as a part of those without delta", figure, 0.05, samples, "sent", "pcopy, no delta")]


@contextlib.contextmanager
def compress(pair: Pair) -> t.Iterator[Rounds]:
    idle = f"{FOLDER}/idle"
    pair.run(SOURCE, "sh", "-ec", f"truncate -s 4G {idle}; mkfs.ext4 -q -d /usr {idle}")
    with image(pair, GIB, "--text", 1) as path, contextlib.ExitStack() as stack:
        stack.callback(pair.run, SOURCE, "rm", "-f", idle)
        stack.enter_context(pair.line("1gbit"))

        def rounds(_number: int) -> t.Iterator[tuple[str, Sample]]:
            for what, source in (("text", path), ("idle", idle)):
                for name, policy in (("pcopy", AUTO), (PLAIN, NONE)):
                    yield f"{name}: {what}", Session(pair, policy).copy(source, TARGET)
                zstd = packed(pair)
                yield f"{zstd.name}: {what}", zstd.copy(source, TARGET)

        yield rounds


def compress_bars(samples: Samples) -> list[Bar]:
    def less(name: str, what: str) -> float:
        return 1 - median(samples[f"{name}: {what}"], "seconds") / median(samples[f"{PLAIN}: {what}"], "seconds")

    sentence = "{} at 1 Gbit/s: part of the time that is saved, beside the part that zstd -3 saves"
    return [
        bar_of(sentence.format(title), less("pcopy", what), round(less(ZSTD, what), 3), samples, "seconds", f"{ZSTD}: {what}", True)
        for what, title in (("text", "compressible image"), ("idle", "idle image"))
    ]


@contextlib.contextmanager
def sparse(pair: Pair) -> t.Iterator[Rounds]:
    wide = f"{FOLDER}/wide"
    with image(pair, GIB, "--random", 1, "--text", 1) as path, contextlib.ExitStack() as stack:
        # The same stretches, strewn over 1 TiB.
        stack.callback(pair.run, SOURCE, "rm", "-f", wide)
        pair.disk(SOURCE, "strew", path, wide, 1 << 40)
        devices = {"pcopy: 1 TiB": stack.enter_context(pair.loop(wide)), "1 GiB": stack.enter_context(pair.loop(path))}

        def rounds(_number: int) -> t.Iterator[tuple[str, Sample]]:
            for name, device in devices.items():
                yield name, Session(pair, NONE, tracker="ebpf").copy(device, TARGET)

        yield rounds


def sparse_bars(samples: Samples) -> list[Bar]:
    wide = samples["pcopy: 1 TiB"]
    memory = max(max(run["peak"], run["peak_there"]) for run in wide) / MIB
    return [
        bar_of(
            "1 TiB, sparse, with 1 GiB of data: time, as a part of that for 1 GiB",
            median(wide) / median(samples["1 GiB"]), 1.2, samples, "seconds", "1 GiB",
        ),  # fmt: skip
        bar_of("1 TiB, sparse: the most memory of either side, MiB", memory, 64, samples, "peak", "none"),
    ]


FIO_SECONDS = 8
FIO_DEVICES = 16


@contextlib.contextmanager
def fio(pair: Pair) -> t.Iterator[Rounds]:
    """The devices lie in memory: nothing there is slow enough to hide what tracking costs."""
    with contextlib.ExitStack() as stack:
        stack.callback(pair.run, SOURCE, "sh", "-c", "rm -f /dev/shm/bench.*")
        devices = []
        for n in range(FIO_DEVICES):
            pair.run(SOURCE, "sh", "-ec", 'fallocate -l 128M "$1"', "sh", f"/dev/shm/bench.{n}")
            devices.append(stack.enter_context(pair.loop(f"/dev/shm/bench.{n}")))

        def iops(some: list[str]) -> float:
            jobs = [word for device in some for word in (f"--name={device}", f"--filename={device}")]
            said = pair.run(
                SOURCE, "fio", "--output-format=json", "--rw=randwrite", "--bs=4k", "--direct=1", "--ioengine=libaio", "--iodepth=16", "--time_based",
                f"--runtime={FIO_SECONDS}", "--ramp_time=1", "--norandommap", "--group_reporting", *jobs,
            )  # fmt: skip
            return float(sum(job["write"]["iops"] for job in json.loads(said)["jobs"]))

        @contextlib.contextmanager
        def tracked(some: list[str]) -> t.Iterator[None]:
            names = [f"bench-{n}" for n in range(len(some))]
            try:
                for device, name in zip(some, names):
                    pair.run(SOURCE, "pcopy", "track", "start", device, "--name", name)
                yield
            finally:
                for name in names:
                    pair.run(SOURCE, "sh", "-c", 'pcopy track stop "$1" || :', "sh", name)

        def rounds(number: int) -> t.Iterator[tuple[str, Sample]]:
            for count, some in ((1, devices[:1]), (FIO_DEVICES, devices)):
                # Who is first is changed from round to round.
                for yes in (True, False) if number % 2 else (False, True):
                    with tracked(some) if yes else contextlib.nullcontext():
                        yield f"{'tracked' if yes else 'not tracked'}, {count}", {"iops": iops(some)}

        yield rounds


def fio_bars(samples: Samples) -> list[Bar]:
    def part(count: int) -> float:
        pairs = zip(samples[f"tracked, {count}"], samples[f"not tracked, {count}"])
        return statistics.median(with_["iops"] / without["iops"] for with_, without in pairs)

    return [
        bar_of("fio, 4 KiB random writes on a tracked device: part of the IOPS", part(1), 0.97, samples, "iops", "not tracked", True),
        bar_of(f"the same with {FIO_DEVICES} devices tracked and written to", part(FIO_DEVICES), 0.97, samples, "iops", "not tracked", True),
    ]


ROWS = {
    row.name: row
    for row in (
        Row(
            "full", "4 GiB, no rate limit",
            "A file of 4 GiB in stretches of 1 MiB, a quarter each random, text, zeroes that were written, and holes. Nothing of it is in memory "
            "at the beginning; the end is when everything is on the destination's disk. nbdcopy, qemu-img, rsync and dd are told to leave zeroes "
            "out; NBD is encrypted where TLS is said, pcopy and ssh are.",
            full, full_bars,
        ),
        Row(
            "line", "4 GiB behind a token bucket of 1 Gbit/s",
            "The same file; both hosts' uplinks hold a token bucket of 1 Gbit/s both ways.",
            line, line_bars,
        ),
        Row(
            "second", "Second pass, 1 % of the clusters rewritten",
            "The same file as a loop device, tracked by eBPF, copied once. One cluster of 64 KiB in a hundred is rewritten while the sender is "
            "stopped by a signal. The clock runs from its next step until the session has ended, with everything on the destination's disk. "
            "The others bring their own copy up to date.",
            second, second_bars,
        ),
        Row(
            "delta", "8 bytes changed in each cluster of 256 MiB",
            "Random data; what crossed the wire after the first pass, headers included.",
            delta, delta_bars, "sent", "bytes",
        ),
        Row(
            "compress", "Compression at 1 Gbit/s",
            "1 GiB of text; and an idle image: ext4 of 4 GiB with the /usr of a lab host in it, which has no writer. "
            "The time without compression is the measure of each saving.",
            compress, compress_bars,
        ),
        Row(
            "sparse", "1 TiB, sparse, with 1 GiB of data",
            "Loop devices, tracked by eBPF: one of 1 GiB, and one of 1 TiB over which the same stretches of 1 MiB are strewn.",
            sparse, sparse_bars,
        ),
        Row(
            "fio", "What tracking costs the writers",
            f"fio, 4 KiB random writes with 16 under way on each device, {FIO_SECONDS} s each; loop devices on files in memory.",
            fio, fio_bars, "iops", "IOPS", "tracked",
        ),
    )
}  # fmt: skip
