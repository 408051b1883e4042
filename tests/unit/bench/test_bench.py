# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The benchmark's own tools: a figure that is worked out wrong, or an image that is not what it says, would be believed."""

from __future__ import annotations

import json
import random
import sys
import typing as t
from pathlib import Path
from xml.etree import ElementTree

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent.parent.parent
sys.path[:0] = [str(CHECKOUT / "tests" / "bench")]
import disk
import hashcopy
import results
import rows

MIB = 1 << 20


@pytest.mark.parametrize(
    "figure, limit, at_least, met",
    [(0.9, 0.9, False, True), (0.91, 0.9, False, False), (20, 20, True, True), (19.9, 20, True, False)],
)
def test_a_bar_is_met_or_not(figure: float, limit: float, at_least: bool, met: bool) -> None:
    found = results.Bar("work", figure, limit, 3, {}, "who", at_least)
    assert found.entry()["met"] is met
    assert ("missed" in found.sentence()) is not met


def test_the_list_of_bars_has_what_was_asked_for(tmp_path: Path) -> None:
    results.save([results.Bar("work", 1.23456, 2, 3, {"a": results.spread([3, 1, 2])}, "who")], tmp_path / "x" / "bars.json")
    (entry,) = json.loads((tmp_path / "x" / "bars.json").read_text())
    assert list(entry) == ["bar", "figure", "limit", "met", "runs", "spread", "contender", "date"]
    assert entry["figure"] == 1.2346 and entry["spread"] == {"a": {"min": 1, "median": 2, "max": 3}}


def test_a_chart_is_as_wide_as_what_it_shows() -> None:
    root = ElementTree.fromstring(results.chart("a < b", "s", {"ours": [1, 2, 3], "theirs": [4, 4, 4]}, 3))
    widths = [float(e.get("width", 0)) for e in root.iter("{http://www.w3.org/2000/svg}rect")][1:]
    assert widths[0] * 2 == pytest.approx(widths[1])


def test_what_is_ours_stands_out_wherever_it_is() -> None:
    drawn = results.chart("t", "s", {"theirs": [4, 4, 4], "ours, one way": [1, 2, 3]}, ours="ours")
    filled = [e.get("fill") for e in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}rect")][1:]
    assert filled == [results.OTHERS, results.OURS]


def test_figures_are_short() -> None:
    assert [results.short(n) for n in (0.0123456, 9.876, 1234, 145890, 268460106)] == ["0.0123", "9.88", "1,230", "146,000", "268,000,000"]


def seconds(**medians: float) -> rows.Samples:
    return {
        who.replace("_", " "): [{"seconds": s, "iops": s, "sent": s, "peak": s, "peak_there": s} for s in (m * 0.5, m, m * 9)] for who, m in medians.items()
    }


def test_figures() -> None:
    plain = rows.PLAIN
    encrypted, bare, auto = rows.full_bars({**seconds(pcopy=4, nbdcopy=3.2, scp=9), "nbdcopy, TLS": seconds(it=5)["it"], plain: [{"seconds": 3.9}]})
    assert (encrypted.figure, encrypted.contender, encrypted.met) == (0.8, "nbdcopy, TLS", True)
    assert (bare.figure, bare.contender, bare.met) == (1.25, "nbdcopy", False)
    assert auto.figure == pytest.approx(4 / 3.9) and auto.met
    (times,) = rows.second_bars(seconds(pcopy=0.2, rsync=9, nbdcopy=4))
    assert times.figure == pytest.approx(20) and times.contender == "nbdcopy"
    least = 2 * rows.GIB / rows.GIGABIT
    line = rows.line_bars({"pcopy": [{"seconds": least}], plain: [{"seconds": 1.06 * least}]})
    assert [b.met for b in line] == [True, True, False]
    packed = {f"{who}: {what}": [{"seconds": s}] for who, s in (("pcopy", 5), (plain, 10), (rows.ZSTD, 6)) for what in ("text", "idle")}
    packed["pcopy: idle"] = [{"seconds": 7}]
    assert [(b.figure, b.limit, b.met) for b in rows.compress_bars(packed)] == [(0.5, 0.4, True), (pytest.approx(0.3), 0.4, False)]
    wide = rows.sparse_bars({"pcopy: 1 TiB": [{"seconds": 6, "peak": 60 * MIB, "peak_there": 65 * MIB}], "1 GiB": [{"seconds": 5, "peak": 0}]})
    assert [(b.figure, b.met) for b in wide] == [(1.2, True), (65, False)]
    # By pairs: a machine that becomes slower from round to round is no fault of the tracker's.
    iops = {"not tracked, {}": [100, 50, 10], "tracked, {}": [98, 49, 10]}
    fio = rows.fio_bars({who.format(n): [{"iops": i} for i in some] for n in (1, rows.FIO_DEVICES) for who, some in iops.items()})
    assert [b.figure for b in fio] == [0.98, 0.98]


def parts(path: Path) -> dict[str, int]:
    """How many stretches of an image are of which kind."""
    found = {kind: 0 for kind in ("zero", "text", "random")}
    with path.open("rb") as image:
        while data := image.read(disk.STRETCH):
            kind = "zero" if not any(data) else "text" if data.isascii() else "random"
            found[kind] += 1
    return found


def test_an_image_is_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "TEXT", MIB)
    one, two = tmp_path / "one", tmp_path / "two"
    for path in (one, two):
        disk.make(str(path), 8 * MIB, {"random": 1, "text": 1, "zero": 1, "hole": 1})
    assert one.read_bytes() == two.read_bytes()
    assert parts(one) == {"zero": 4, "text": 2, "random": 2}
    assert 6 * MIB <= one.stat().st_blocks * 512 < 7 * MIB


def test_what_is_rewritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "image"
    before = random.Random(1).randbytes(4 * MIB)
    path.write_bytes(before)
    cluster = 64 << 10
    disk.rewrite(str(path), cluster, 4, 8, 3)
    after = path.read_bytes()
    changed = [n for n in range(0, len(after), cluster) if after[n : n + cluster] != before[n : n + cluster]]
    assert len(changed) == 16 and capsys.readouterr().out == "16\n"
    assert sum(a != b for a, b in zip(after, before)) <= 16 * 8


def test_holes_and_zeroes_have_the_same_digest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def digest(*pieces: bytes | int, length: int = 6 * MIB) -> str:
        path = tmp_path / "image"
        with path.open("wb") as image:
            for piece in pieces:
                if isinstance(piece, int):
                    image.seek(piece, 1)
                else:
                    image.write(piece)
            image.truncate(length)
        disk.digest(str(path))
        return t.cast(str, capsys.readouterr().out)

    assert digest(MIB, b"x", MIB) == digest(bytes(MIB) + b"x" + bytes(MIB))
    others = {digest(MIB, b"x"), digest(2 * MIB, b"x"), digest(MIB, b"y"), digest(MIB, b"x", length=7 * MIB), digest()}
    assert len(others) == 5


def test_strewn_data_is_all_there(tmp_path: Path) -> None:
    disk.make(str(tmp_path / "image"), 4 * MIB, {"random": 1})
    disk.strew(str(tmp_path / "image"), str(tmp_path / "wide"), 64 * MIB)
    assert (tmp_path / "wide").stat().st_size == 64 * MIB
    assert parts(tmp_path / "wide") == {"zero": 60, "text": 0, "random": 4}
    assert (tmp_path / "wide").read_bytes().replace(bytes(MIB), b"") == (tmp_path / "image").read_bytes()


def test_the_hash_copier_digests_each_cluster(tmp_path: Path) -> None:
    path = tmp_path / "image"
    path.write_bytes(random.Random(1).randbytes(hashcopy.BATCH * hashcopy.CLUSTER + 100))
    with path.open("rb") as image:
        found = list(hashcopy.digests(image.fileno()))
    assert [len(some) for some in found] == [hashcopy.BATCH * hashcopy.LENGTH, hashcopy.LENGTH]
