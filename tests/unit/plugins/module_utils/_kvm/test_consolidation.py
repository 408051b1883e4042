# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.livefleet.handover.plugins.module_utils._kvm import consolidation

STAT = "cpu  {user} 0 {system} {idle} {wait} 0 0 0 0 0\ncpu0 1 2 3\n"
MEMINFO = "MemTotal: 1000 kB\nMemFree: {free} kB\nBuffers: 0 kB\nCached: 100 kB\n"
DISKS = "   8       0 sda 9 9 9 9 9 9 9 9 9 9 9\n 254       1 vda1 {reads} 0 {read} {read_ms} {writes} 0 {written} {write_ms} 0 {busy} 0 0 0 0 0 0 0\n"


def a_look(tmp_path, device="254:1", **counters):
    noughts = ("user", "system", "idle", "wait", "reads", "read", "read_ms", "writes", "written", "write_ms", "busy")
    given = {**dict.fromkeys(noughts, 0), "free": 500, **counters}
    for name, text in {"stat": STAT, "meminfo": MEMINFO, "diskstats": DISKS}.items():
        (tmp_path / name).write_text(text.format(**given))
    return consolidation.look(device, str(tmp_path), str(tmp_path / "no-ksm"))


def test_what_the_host_did_between_two_looks(tmp_path):
    first = a_look(tmp_path)
    last = a_look(
        tmp_path, user=50, system=20, idle=20, wait=10, free=300, reads=10, read=2048, read_ms=20, writes=30, written=4096, write_ms=100, busy=1500
    )  # fmt: skip
    found = consolidation.between([first, last], 2.0)
    assert (found["user"], found["system"], found["wait"]) == (0.5, 0.2, 0.1)
    assert (found["read_rate"], found["write_rate"]) == (524288, 1048576)
    assert (found["utilisation"], found["await_ms"]) == (0.75, 3.0)
    # The mean of both.
    assert (found["memory"], found["memory_with_cache"]) == (500 << 10, 600 << 10)


def test_a_disk_that_the_kernel_does_not_count_for_has_no_figures(tmp_path):
    looks = [a_look(tmp_path, device="0:55"), a_look(tmp_path, device="0:55", user=1)]
    assert consolidation.between(looks, 1.0)["utilisation"] is None


def row(tiles, cache, seconds, copy=10.0, web=10.0, memory=100, cached=200, user=0.3):
    return {
        "tiles": tiles, "cache": cache, "seconds": seconds, "loads": {"copy": copy, "web": web}, "memory": memory, "memory_with_cache": cached,
        "user": user, "system": 0.2,
    }  # fmt: skip


def test_what_it_says():
    rows = [
        row(1, "none", 60.0, copy=60.0),
        row(1, "writeback", 40.0, copy=20.0),
        row(2, "none", 120.0, web=120.0),
        row(2, "writeback", 58.0, web=58.0, memory=103, cached=400),
    ]
    assert consolidation.verdict(rows) == [
        "With 1 tile writeback is 1.50 times as fast; copy gains most, 3.00 times.",
        "With 2 tiles writeback is 2.07 times as fast; web gains most, 2.07 times.",
        "2 tiles with writeback take no longer than 1 tile with none: that is room for one more.",
        "Memory in use without cache is the same with writeback, with cache 100% more: the kernel gives mere cache back when memory is needed.",
    ]


def test_what_it_does_not_say():
    assert consolidation.verdict([row(1, "none", 60.0), row(1, "writeback", 61.0)])[0] == "With 1 tile none and writeback take the same time, within 5%."
    assert consolidation.verdict([row(1, "none", 30.0, copy=30.0), row(1, "writeback", 60.0, copy=60.0)])[0] == (
        "With 1 tile none is 2.00 times as fast; copy gains most, 2.00 times."
    )
    assert consolidation.verdict([row(1, "none", 60.0)]) == []


def test_full_processors_are_named():
    rows = [row(tiles, cache, 60.0, user=0.4 * tiles) for tiles in (1, 2) for cache in ("none", "writeback")]
    assert [sentence for sentence in consolidation.verdict(rows) if "were full with 2 tiles" in sentence]
    assert not [sentence for sentence in consolidation.verdict(rows[:2]) if "were full" in sentence]
