# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import types
import typing as t
from pathlib import Path

import pytest
from ansible_collections.livefleet.handover.plugins.modules import ceph_peering_impact


class Librados:
    """A cluster whose OSDs answer, look by look, with what a test has written down; an OSD without an answer is down."""

    def __init__(self, looks: dict[int, list[tuple[int, float, int] | None]], at_look: t.Callable[[int], None] = lambda _look: None) -> None:
        self.looks = looks
        self.at_look = at_look
        self.asked = dict.fromkeys(looks, 0)

    def connect(self, timeout: int) -> None:
        pass

    def shutdown(self) -> None:
        pass

    def open_ioctx(self, pool: str) -> types.SimpleNamespace:
        if pool != "probe":
            raise KeyError(pool)
        # Nothing can be written to it.
        return types.SimpleNamespace(close=lambda: None)

    def mon_command(self, _command: str, _input: bytes, timeout: int) -> tuple[int, bytes, str]:
        return 0, json.dumps(list(self.looks)).encode(), ""

    def osd_command(self, osd: int, _command: str, _input: bytes, timeout: int) -> tuple[int, bytes, str]:
        self.asked[osd] += 1
        if osd == min(self.looks):
            self.at_look(self.asked[osd])
        answers = self.looks[osd]
        found = answers[min(self.asked[osd], len(answers)) - 1]
        if found is None:
            return -110, b"", "down"
        peered, seconds, clean = found
        counters = {"peering_latency": {"avgcount": peered, "sum": seconds}, "recovered_latency": {"avgcount": clean, "sum": 0.0}}
        return 0, json.dumps({"recoverystate_perf": counters}).encode(), ""


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> t.Callable[..., dict[str, t.Any]]:
    def run(cluster: Librados, seconds: float = 30.0, check_mode: bool = False, **more: t.Any) -> dict[str, t.Any]:
        library = types.SimpleNamespace(Rados=lambda conffile: cluster, Error=OSError, ObjectNotFound=KeyError)
        monkeypatch.setattr(ceph_peering_impact, "rados", library, raising=False)
        params = {"config": "/nowhere", "seconds": seconds, "interval": 0.01, "probe_pool": None, "while_file": str(tmp_path / "watched")}
        return ceph_peering_impact.Watch({**params, **more}, check_mode).run()

    return run


def test_it_has_begun_when_the_file_is_there_and_ends_when_it_is_gone(watch: t.Callable[..., dict[str, t.Any]], tmp_path: Path) -> None:
    there = []

    def at_look(look: int) -> None:
        there.append((tmp_path / "watched").exists())
        if look == 4:
            (tmp_path / "watched").unlink()

    watch(Librados({0: [(5, 1.0, 5)]}, at_look))
    # The first look is what the growth counts from, so it comes before; the last one takes what grew until the end.
    assert there == [False, True, True, True, False]


def test_it_takes_its_file_along_when_its_time_is_over(watch: t.Callable[..., dict[str, t.Any]], tmp_path: Path) -> None:
    watch(Librados({0: [(5, 1.0, 5)]}), seconds=0.05)
    assert not (tmp_path / "watched").exists()


def test_the_file_of_the_watch_that_comes_next_stays(watch: t.Callable[..., dict[str, t.Any]], tmp_path: Path) -> None:
    def at_look(look: int) -> None:
        if look == 3:
            (tmp_path / "watched").unlink()
        if look == 4:  # the last one
            (tmp_path / "watched").touch()

    watch(Librados({0: [(5, 1.0, 5)]}, at_look))
    assert (tmp_path / "watched").exists()


def test_it_says_who_went_and_came_and_when_the_last_group_was_clean(watch: t.Callable[..., dict[str, t.Any]], tmp_path: Path) -> None:
    def at_look(look: int) -> None:
        if look == 8:
            (tmp_path / "watched").unlink()

    looks = {0: [(5, 1.0, 5), (7, 3.0, 5), (7, 3.0, 6), (7, 3.0, 7)], 1: [(5, 1.0, 5), None, None, (2, 0.5, 1), (2, 0.5, 2)]}
    seen = watch(Librados(looks, at_look))
    assert [(each["osd"], each["up"]) for each in seen["osds"]] == [(1, False), (1, True)]
    assert seen["score"] == 2.5 and seen["by_osd"] == {"0": 2.0, "1": 0.5}
    assert seen["osds"][-1]["at"] <= seen["clean_at"] <= seen["seconds"]


def test_nothing_that_became_clean_has_no_time(watch: t.Callable[..., dict[str, t.Any]]) -> None:
    assert watch(Librados({0: [(5, 1.0, 5)]}), seconds=0)["clean_at"] is None


def test_in_check_mode_it_looks_and_writes_nothing(watch: t.Callable[..., dict[str, t.Any]], tmp_path: Path) -> None:
    cluster = Librados({0: [(5, 1.0, 5)]})
    more = {"probe_pool": "probe", "probe_rate": 20, "probe_bytes": 16}
    assert watch(cluster, check_mode=True, **more)["probe"] == {"operations": 0}
    assert cluster.asked == {0: 2} and not list(tmp_path.iterdir())
    with pytest.raises(ceph_peering_impact.HandoverError, match="the cluster has no pool prob: name one"):
        watch(cluster, check_mode=True, **{**more, "probe_pool": "prob"})
