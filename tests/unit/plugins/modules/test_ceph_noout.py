# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""ceph_noout sets the flag of single OSDs for a while, and takes back its own only."""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

import pytest
from ansible_collections.livefleet.handover.plugins.modules import ceph_noout


@pytest.fixture
def noout(run_module, cluster, tmp_path):
    def run(state: str, osds: t.Sequence[int] = (2,), check: bool = False, **params: t.Any) -> dict[str, t.Any]:
        return run_module(ceph_noout.main, {"osds": list(osds), "state": state, "units": str(tmp_path), "command": ["ceph"], **params}, check=check)

    return run


def test_the_flag_is_set_and_restored(noout, cluster, tmp_path: Path) -> None:
    assert noout("set", [2, 3])["set"] == [2, 3]
    assert [osd for osd, flags in cluster.flags.items() if flags] == [2, 3]
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"handover-noout-osd.{osd}.{kind}" for osd in (2, 3) for kind in ("service", "timer")]
    assert noout("restored", [2, 3])["changed"]
    assert not any(cluster.flags.values()) and not list(tmp_path.iterdir())
    assert not noout("restored", [2, 3])["changed"]


def test_a_flag_that_was_found_stays(noout, cluster, tmp_path: Path) -> None:
    cluster.flags[2].add("noout")
    assert noout("set", [2, 3]) | {"diff": 0} == {**noout("set", [2, 3]), "changed": True, "reasons": ["osd.3 has no noout"], "diff": 0}
    result = noout("restored", [2, 3])
    assert (result["found"], result["reasons"]) == ([2], ["noout of osd.3 was set by this module"])
    assert cluster.flags[2] == {"noout"} and not cluster.flags[3]


def test_the_lease_is_there_before_the_flag(noout, cluster, tmp_path: Path) -> None:
    def look(words: str) -> None:
        if "set-group" in words:
            assert (tmp_path / "handover-noout-osd.2.timer").exists()
            assert cluster.count("systemctl restart handover-noout-osd.2.timer") == 1

    cluster.before_each = look
    noout("set")
    assert cluster.count("osd set-group noout osd.2") == 1


def test_a_lease_says_what_it_will_do_and_when(noout, tmp_path: Path) -> None:
    noout("set", seconds=600)
    service = (tmp_path / "handover-noout-osd.2.service").read_text()
    assert "ExecStart=ceph --connect-timeout=15 osd unset-group noout osd.2\n" in service and "Restart=on-failure\n" in service
    timer = (tmp_path / "handover-noout-osd.2.timer").read_text()
    assert re.search(r"^OnCalendar=20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC$", timer, re.MULTILINE) and "Persistent=true\n" in timer


def test_a_lease_that_cannot_be_written_leaves_the_flag_alone(noout, cluster, tmp_path: Path, monkeypatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(Exception, match="the lease of noout of osd.2 cannot be written to .*: No space left on device; nothing was set"):
        noout("set", [2, 3])
    assert not any(cluster.flags.values()) and not list(tmp_path.iterdir())


@pytest.mark.parametrize("first", ["osd dump", "unset-group"])
def test_if_no_monitor_answers_the_lease_ends_now(noout, cluster, tmp_path: Path, first: str) -> None:
    noout("set", seconds=3600)
    restarts = cluster.count("systemctl restart")

    def lose(words: str) -> None:
        cluster.dead = first in words

    cluster.before_each = lose
    with pytest.raises(Exception, match="RADOS timed out .*; this host takes noout of osd.2 back by itself as soon as the cluster answers"):
        noout("restored")
    assert cluster.count("systemctl restart") == restarts + 1
    assert (tmp_path / "handover-noout-osd.2.timer").exists()


def test_a_second_run_prolongs_the_lease_and_still_restores(noout, cluster) -> None:
    noout("set")
    again = noout("set")
    assert not again["changed"] and again["set"] == [2]
    noout("restored", [])
    assert not cluster.flags[2]


def test_check_mode_touches_nothing(noout, cluster, tmp_path: Path) -> None:
    would = noout("set", check=True)
    assert would["changed"] and would["diff"] == {"before": {"noout": []}, "after": {"noout": [2]}}
    assert not cluster.flags[2] and not list(tmp_path.iterdir())
