# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""ceph_osd_pin keeps the database of an OSD in memory; the OSD is a table of answers."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible_collections.livefleet.handover.plugins.module_utils._ceph import asok, osd as _ceph_osd
from ansible_collections.livefleet.handover.plugins.module_utils._core import memory, pcopy as _pcopy
from ansible_collections.livefleet.handover.plugins.modules import ceph_osd_pin

MIB = 1 << 20


@pytest.fixture
def pin(run_module, host):
    def run(state: str = "pinned", check: bool = False, **params: t.Any) -> dict[str, t.Any]:
        return run_module(ceph_osd_pin.main, {"osd": 2, "state": state, **params}, check=check)

    return run


def test_pin_and_release(pin, host, tmp_path: Path) -> None:
    pinned = pin(compact="never")
    assert pinned["changed"] and pinned["reasons"] == ["nobody keeps the devices open of osd.2", "50 MiB of 300 MiB are not in memory"]
    assert (pinned["size"], pinned["resident_before"], pinned["resident"], pinned["compacted"]) == (300 * MIB, 250 * MIB, 300 * MIB, False)
    drop_in = (tmp_path / "units/ceph-osd@2.service.d/handover-pin.conf").read_text()
    assert f"ExecStartPre=-{_pcopy.HELPER} pages --read --seconds=60 --ranges {tmp_path}/run/osd.2.json /dev/dm-1\n" in drop_in
    assert not pin(compact="never")["changed"] and not pin("held", compact="never")["changed"]
    assert pin("released")["changed"]
    assert not list((tmp_path / "units").iterdir()) and not list((tmp_path / "run").iterdir())
    assert not pin("released")["changed"]


def test_what_was_written_meanwhile_is_read_too(pin, host, tmp_path: Path) -> None:
    pin(compact="never")
    host.wal, host.cached = 140 * MIB, 260 * MIB
    host.commands.clear()
    again = pin(compact="always")
    assert again["reasons"] == ["80 MiB of 340 MiB are not in memory"] and "compact" not in host.asked
    assert again["resident"] == 340 * MIB and host.pin == "active"
    assert json.loads((tmp_path / "run/osd.2.json").read_text()) == {"/dev/dm-1": [[0, 340 * MIB]]}
    # Never two at once by one name, and the new one has its own time.
    ended, started = (next(i for i, command in enumerate(host.commands) if command.startswith(word)) for word in ("systemctl stop", "systemd-run"))
    assert ended < started
    assert "Environment=CEPH_ARGS=--bdev_aio_poll_ms=1" in (tmp_path / "units/ceph-osd@2.service.d/handover-pin.conf").read_text()


def test_what_is_locked_already_needs_no_memory(pin, host, monkeypatch) -> None:
    pin(compact="never")
    monkeypatch.setattr(memory, "memory_available", lambda: 600 * MIB)
    host.wal = 110 * MIB
    assert pin(compact="never", reserve="512M")["changed"]


def test_one_that_is_down_is_not_touched(pin, host) -> None:
    """It is all that keeps the pages."""
    pin(compact="never")
    host.pid, host.cached = None, 0
    host.commands.clear()
    assert not pin(compact="never")["changed"]
    assert not [command for command in host.commands if "stop" in command or "systemd-run" in command]


def test_one_that_was_started_under_its_pin_and_is_held_again(pin, host, tmp_path: Path) -> None:
    """What the poll was is not forgotten for what pinning has made of it."""
    pin(compact="never")
    host.options["bdev_aio_poll_ms"], host.cached = "1", 0
    assert pin(compact="never")["changed"]
    pin("released")
    assert host.options == host.DEFAULTS


def test_the_keeper_ends_by_itself_and_goes_first(pin, host) -> None:
    pin(compact="never", seconds=77)
    (started,) = [command for command in host.commands if command.startswith("systemd-run")]
    properties = ("--property=RuntimeMaxSec=77", "--property=OOMScoreAdjust=1000", "--property=Type=notify")
    for word in (*properties, "cache pin --seconds=77 --read --lock", "--collect"):
        assert word in started


@pytest.mark.parametrize(
    ("policy", "wal", "tables", "compacts"),
    [("auto", 100, 200, True), ("auto", 10, 200, False), ("auto", 100, 400, False), ("always", 1, 400, True), ("never", 100, 200, False)],
)
def test_when_the_database_is_compacted(pin, host, policy, wal, tables, compacts) -> None:
    host.wal, host.tables = wal * MIB, tables * MIB
    assert pin(compact=policy, compact_log="64M", compact_limit="400M")["compacted"] is compacts
    assert ("compact" in host.asked) is compacts
    assert host.options == host.DEFAULTS


def test_a_full_osd_is_not_compacted(pin, host, monkeypatch) -> None:
    host.room = 599 * MIB
    warned: list[str] = []
    monkeypatch.setattr(AnsibleModule, "warn", lambda _self, text: warned.append(text))
    full = "osd.2 has 599 MiB left, and may take 600 MiB for a while to write its database of 300 MiB anew"
    with pytest.raises(Exception, match=f"{full}: make room, or leave compact=always"):
        pin(compact="always")
    assert host.pin == "inactive"
    assert pin()["compacted"] is False and host.pin == "active"
    assert warned == [f"{full}: it is not compacted, and replays its log when it starts"]
    assert "compact" not in host.asked


def test_the_start_closes_its_devices_quickly_and_runs_as_before(pin, host, tmp_path: Path) -> None:
    pin(compact="never")
    drop_in = (tmp_path / "units/ceph-osd@2.service.d/handover-pin.conf").read_text()
    assert "\nEnvironment=CEPH_ARGS=--bdev_aio_poll_ms=1\n" in drop_in and "\nX-bdev_aio_poll_ms=250\n" in drop_in
    host.options["bdev_aio_poll_ms"] = "1"  # it was started so
    pin("released")
    assert host.options == host.DEFAULTS


def test_an_osd_that_refuses_what_it_was_has_nothing_of_it_left(pin, host, tmp_path: Path, monkeypatch) -> None:
    pin(compact="never")
    host.options["bdev_aio_poll_ms"] = "1"

    def call(_self: t.Any, prefix: str, **arguments: t.Any) -> t.Any:
        if prefix == "config set":
            raise asok.Refused("asok: 'config set' was answered with: no")
        return host.call(prefix, **arguments)

    monkeypatch.setattr(asok.AdminSocket, "call", call)
    with pytest.raises(Exception, match="was answered with: no"):
        pin("released")
    assert host.pin == "inactive" and not list((tmp_path / "units").iterdir()) and not list((tmp_path / "run").iterdir())


def test_the_start_comes_first_on_the_processors_until_it_is_up(pin, restart, host, tmp_path: Path) -> None:
    pin(compact="never")
    drop_in = tmp_path / "units/ceph-osd@2.service.d/handover-pin.conf"
    assert "\nNice=-10\n" in drop_in.read_text() and "\nX-Nice=0\n" in drop_in.read_text()
    host.nice, host.cached = "-10", 0  # as systemd says it now
    pin(compact="never")
    assert "\nX-Nice=0\n" in drop_in.read_text()
    restart()
    assert host.niceness == [(200, -10, 0)]
    host.pid = 300  # it was started again by somebody else
    pin("released")
    assert host.niceness[1:] == [(300, -10, 0)]
    restart()
    assert len(host.niceness) == 2


def test_a_niceness_that_somebody_has_set_is_left_alone(pin, restart, host, tmp_path: Path) -> None:
    host.nice = "5"
    pin(compact="never")
    assert "Nice" not in (tmp_path / "units/ceph-osd@2.service.d/handover-pin.conf").read_text()
    restart()
    pin("released")
    assert not host.niceness


@pytest.mark.parametrize("what", ["environment", "option", "silent"])
def test_a_start_that_somebody_has_set_is_left_alone(pin, host, tmp_path: Path, what) -> None:
    if what == "environment":
        host.environment = "CLUSTER=ceph CEPH_ARGS=--debug_osd=1"
    elif what == "option":
        host.options["bdev_aio_poll_ms"] = "1"
    else:
        host.pid = None
    pin(compact="never")
    assert "CEPH_ARGS" not in (tmp_path / "units/ceph-osd@2.service.d/handover-pin.conf").read_text()
    pin("released")
    assert host.options["bdev_aio_poll_ms"] == ("1" if what == "option" else "250")


def test_an_osd_that_reads_past_the_cache_has_nothing_to_pin(pin, host, monkeypatch) -> None:
    host.options["bluefs_buffered_io"] = "false"
    # Not read from the result: once another test has imported a plugin of the controller, warnings go the controller's way.
    warned: list[str] = []
    monkeypatch.setattr(AnsibleModule, "warn", lambda _self, text: warned.append(text))
    result = pin()
    assert (result["usable"], result["changed"]) == (False, False)
    assert warned == ["osd.2 has bluefs_buffered_io=false and reads its database past the page cache: there is nothing to pin"]


def test_too_little_memory_is_refused_before_anything_is_touched(pin, host, monkeypatch) -> None:
    monkeypatch.setattr(memory, "memory_available", lambda: 512 * MIB)
    with pytest.raises(Exception, match="the database of osd.2 is 300 MiB, and this host has 512 MiB of memory available, of which 512 MiB are to stay free"):
        pin()
    with pytest.raises(Exception, match="the database of osd.2 is 300 MiB, more than the limit of 100 MiB"):
        pin(limit="100M")
    assert not [command for command in host.asked if not command.startswith("config get")] and host.pin == "inactive"


def test_pin_in_check_mode(pin, host, tmp_path: Path) -> None:
    assert pin(check=True)["changed"]
    assert host.pin == "inactive" and not (tmp_path / "units").exists() and "compact" not in host.asked


def test_a_filestore_is_sent_to_vmtouch(pin, monkeypatch) -> None:
    monkeypatch.setattr(_ceph_osd.Osd, "store", lambda self: "filestore")
    with pytest.raises(Exception, match="osd.2 is no BlueStore: what a FileStore reads are files, which livefleet.handover.vmtouch keeps in memory"):
        pin()
