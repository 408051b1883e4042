# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""ceph_osd restarts an OSD that is a table of answers."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible_collections.livefleet.handover.plugins.module_utils._ceph import asok, osd as _ceph_osd, restart as ceph_restart

MIB = 1 << 20


def test_a_restart_is_one_job_of_systemds(restart, host) -> None:
    assert restart()["osds"][0]["id"] == 2
    jobs = [command for command in host.commands if command.split()[1] in ("restart", "stop", "start")]
    assert jobs == ["systemctl restart ceph-osd@2.service"]
    assert "systemctl reset-failed ceph-osd@2.service" in host.commands


def test_a_large_log_of_bluefs_is_compacted_by_a_shutdown_in_order(restart, host) -> None:
    assert restart()["osds"][0]["tidy"]
    assert "config set osd_fast_shutdown ['false']" in host.asked


def test_a_release_that_compacts_at_once_may_end_at_once(restart, host) -> None:
    host.log_shrinks = True
    assert not restart()["osds"][0]["tidy"]
    assert not [command for command in host.asked if "fast_shutdown" in command]


def test_a_small_log_is_left_alone(restart, host) -> None:
    host.log_bytes = MIB
    restart()
    assert not [command for command in host.asked if command.startswith("config set")]


@pytest.mark.parametrize(("policy", "tidy"), [("auto", True), ("always", True), ("never", False)])
def test_a_filestore_leaves_nothing_in_its_journal(restart, host, monkeypatch, policy, tidy) -> None:
    monkeypatch.setattr(_ceph_osd.Osd, "store", lambda self: "filestore")
    assert restart(tidy_stop=policy)["osds"][0]["tidy"] is tidy
    assert ("config set osd_fast_shutdown ['false']" in host.asked) is tidy
    assert not [command for command in host.asked if "bluefs" in command]


def test_what_somebody_else_stops_can_be_told_how(restart, host, monkeypatch) -> None:
    assert not restart(state="tidy")["changed"]
    assert host.options == host.DEFAULTS  # a BlueStore would have them until it is stopped, which it may never be
    monkeypatch.setattr(_ceph_osd.Osd, "store", lambda self: "filestore")
    said = restart(state="tidy")
    assert (said["osds"], said["reasons"]) == ([{"id": 2, "tidy": True}], ["osd.2 is to be told to leave little behind when it stops"])
    assert host.options["osd_fast_shutdown"] == "false"
    assert host.commands == []
    host.pid = None
    assert not restart(state="tidy")["changed"]


@pytest.fixture
def object_map(host, tmp_path: Path) -> Path:
    host.store = "filestore"
    folder = tmp_path / "current" / "omap"
    folder.mkdir(parents=True)
    (tmp_path / "type").write_text("filestore\n")
    (folder / "000007.sst").write_bytes(b"k" * 3 * MIB)
    return folder


def test_an_object_map_is_written_anew_while_the_osd_serves(restart, host, object_map) -> None:
    assert restart(state="compacted", check=True)["reasons"] == ["osd.2 is to be told to write its object map anew"]
    assert "compact" not in host.asked
    said = restart(state="compacted")
    assert (said["changed"], said["osds"][0]["id"]) == (True, 2) and said["osds"][0]["compact_seconds"] >= 0
    assert "compact" in host.asked
    assert (host.commands, host.options, host.pid) == ([], host.DEFAULTS, 100)


def test_a_bluestore_is_left_to_ceph_osd_pin(restart, host) -> None:
    assert not restart(state="compacted")["changed"]
    assert host.asked == []


def test_an_osd_that_is_away_has_nobody_to_write_its_object_map(restart, host, object_map) -> None:
    host.pid = None
    assert not restart(state="compacted")["changed"]


@pytest.mark.parametrize(
    ("room", "limit", "why"),
    [
        (6 * MIB - 1, "4G", "osd.2 has 6 MiB left, and may take 6 MiB for a while to write its database of 3 MiB anew"),
        (4096 * MIB, "2M", "the object map of osd.2 has 3 MiB"),
    ],
)
def test_an_object_map_that_does_not_fit_is_left_as_it_is(restart, host, object_map, monkeypatch, room, limit, why) -> None:
    host.room = room
    warned: list[str] = []
    monkeypatch.setattr(AnsibleModule, "warn", lambda _self, text: warned.append(text))
    assert not restart(state="compacted", compact_limit=limit)["changed"]
    assert warned == [f"{why}: it is not compacted, and merges what is new in it when it starts"]
    assert "compact" not in host.asked


def test_a_policy_says_whether_an_object_map_is_written_anew(restart, host, object_map) -> None:
    assert not restart(state="compacted", compact="never")["changed"]
    assert restart(state="compacted", compact="always", compact_limit="2M")["changed"]
    host.room = MIB
    with pytest.raises(Exception, match="to write its database of 3 MiB anew: make room, or leave compact=always"):
        restart(state="compacted", compact="always")


def test_an_osd_that_does_not_answer_has_its_object_map_as_it_is(restart, host, object_map, monkeypatch) -> None:
    def mute(self: t.Any, *_args: t.Any, **_options: t.Any) -> None:
        raise asok.NoAnswer("asok does not answer")

    warned: list[str] = []
    monkeypatch.setattr(asok.AdminSocket, "call", mute)
    monkeypatch.setattr(AnsibleModule, "warn", lambda _self, text: warned.append(text))
    assert not restart(state="compacted")["changed"]
    assert warned == ["asok does not answer; it is not compacted"]


def test_a_limit_that_is_no_size_is_said_before_anything_is_touched(restart, host, object_map) -> None:
    with pytest.raises(Exception, match="compact_limit: '4 gigs' is not a size"):
        restart(state="compacted", compact_limit="4 gigs")
    assert host.asked == []


def test_an_osd_that_does_not_answer_is_restarted_all_the_same(restart, host) -> None:
    host.pid = None
    assert restart()["changed"]


def test_if_systemd_refuses_the_options_are_as_before(restart, host) -> None:
    host.restart_rc = 1
    with pytest.raises(Exception, match="`systemctl restart ceph-osd@2.service` failed: Job failed; look at `journalctl -u ceph-osd@2.service`"):
        restart()
    assert host.options == host.DEFAULTS


def test_a_process_that_runs_is_not_an_osd_that_is_up(restart, host) -> None:
    host.state = "booting"
    host.journal = "2026-11-21T14:47:44 7f -1 osd.2 0 unable to obtain rotating service keys; retrying\n2026 7f -1 asok(0x5) AdminSocket: request not defined\n"
    with pytest.raises(Exception, match="osd.2 did not come up within 1 s: osd.2 0 unable to obtain rotating service keys; retrying; look at `journalctl"):
        restart()


def test_while_it_starts_next_to_nothing_else_runs(restart, host) -> None:
    host.state = "booting"
    with pytest.raises(Exception, match="did not come up within 1 s"):
        restart()
    assert host.asked.count("status") > 10
    # At the beginning, after a second, and for the sentence.
    assert sum("ActiveState" in words for words in host.commands) <= 3


def test_reads_are_counted_until_it_is_up(restart, host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceph_restart.Restart, "_reads", lambda self: (len(host.commands), 0))
    (found,) = restart()["osds"]
    # What is asked afterwards is behind that.
    assert found["reads"] == next(at for at, words in enumerate(host.commands) if "InactiveEnterTimestampMonotonic" in words)


def test_one_that_has_failed_is_not_waited_for(restart, host) -> None:
    host.comes_up, host.unit = False, "failed"
    with pytest.raises(Exception, match="osd.2 has failed to start; look at `journalctl -u ceph-osd@2.service`, and run the play again"):
        restart(timeout=600)


def test_it_is_not_asked_what_it_does_not_know_yet(restart, host) -> None:
    host.knows = False
    with pytest.raises(Exception, match="did not come up"):
        restart()
    assert "status" not in host.asked


def test_started_is_idempotent(restart, host) -> None:
    assert not restart(state="started")["changed"]
    assert not host.commands
    host.pid = None
    assert restart(state="started")["changed"]


def test_restart_in_check_mode(restart, host) -> None:
    assert restart(check=True)["changed"]
    assert not host.commands


def test_what_somebody_else_had_set_is_set_again(host) -> None:
    host.options["osd_fast_shutdown"] = "false"
    overrides = ceph_restart.Overrides(asok.AdminSocket("asok"))
    overrides.set("osd_fast_shutdown", "true")
    overrides.restore()
    assert host.options["osd_fast_shutdown"] == "false"
