# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The file system on a ploop disk of libvzctl's is frozen behind the dump, and thawed before CRIU gets its answer. CRIU is that of test_turn_criu.py."""

from __future__ import annotations

import os
import pathlib
import signal

import pytest
from ansible_collections.livefleet.handover.tests.unit.plugins.module_utils._openvz.driver.test_turn_criu import criu_of, nothing_left, stands_still, until
from ansible_collections.livefleet.handover.tests.unit.plugins.module_utils._openvz.driver.test_turn_libvzctl import (
    DOWN,
    PAUSED,
    UP,
    end_tasks,
    first_of,
    host_of_libvzctl,
    live,
    log,
)
from ansible_collections.livefleet.handover.tests.unit.plugins.module_utils._openvz.driver.test_turn_ploop import is_frozen, with_a_disk

__all__ = ["host_of_libvzctl"]


@pytest.fixture(name="disk_host")
def one_with_a_mounted_disk(libvzctl):
    with_a_disk(libvzctl)
    libvzctl.dump = live(libvzctl)
    return libvzctl


def dump(host, root=None):
    return host.turn("libvzctl-dump-disk", "101", host.dump, "", "", host.root_of_it if root is None else root)


def freezes(host):
    """What froze and thawed it, and the checkpoints."""
    return [line.replace(str(host.root_of_it), "ROOT") for line in log(host).splitlines() if line.startswith(("fsfreeze", "chkpnt"))]


@pytest.mark.parametrize("word", ["home", "kill"])
def test_it_is_frozen_behind_the_dump_and_thawed_before_the_answer(disk_host, word):
    host = disk_host
    assert dump(host) == (0, "") and is_frozen(host) and stands_still(host) and host.status() == PAUSED
    assert (host.dump / "inventory.img").exists()
    assert freezes(host) == [f"chkpnt 101 --dumpfile {host.dump.parent}/handover.101.vzctl", "fsfreeze --freeze ROOT"]
    for _again in range(2):
        assert host.turn(word, "101", host.dump) == (0, "")
    assert freezes(host)[2:] == ["fsfreeze --unfreeze ROOT"] and not is_frozen(host)
    assert nothing_left(host) and host.status() == (UP if word == "home" else DOWN)


def test_one_without_a_disk_freezes_nothing(disk_host):
    assert disk_host.turn("libvzctl-dump", "101", disk_host.dump, "", "", disk_host.root_of_it) == (0, "")
    assert not is_frozen(disk_host) and disk_host.turn("home", "101", disk_host.dump) == (0, "")
    assert "fsfreeze" not in log(disk_host)


def test_a_disk_whose_root_is_not_named_is_refused_before_anything_stands_still(disk_host):
    status, said = dump(disk_host, root="")
    assert status == 1 and "its root is not named" in said and freezes(disk_host) == [] and not stands_still(disk_host)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [("not-mounted", "nothing is mounted on"), ("does-not", "could not be frozen (fsfreeze: "), ("is-frozen", "could not be frozen (fsfreeze: ")],
)
def test_a_disk_that_cannot_be_frozen_is_not_sent(disk_host, spoil, says):
    host = disk_host
    (host.root / spoil).touch()
    status, said = dump(host)
    assert status == 1 and says in said
    (host.root / spoil).unlink()
    assert host.turn("home", "101", host.dump) == (0, "") and not stands_still(host) and nothing_left(host) and host.status() == UP


def test_nothing_goes_on_or_ends_on_a_disk_that_stays_frozen(disk_host):
    host = disk_host
    assert dump(host) == (0, "")
    (host.root / "does-not").touch()
    for word in ("home", "kill"):
        status, said = host.turn(word, "101", host.dump)
        assert status == 1 and "could not be thawed" in said and stands_still(host) and host.status() == PAUSED
    (host.root / "does-not").unlink()
    assert host.turn("home", "101", host.dump) == (0, "") and not stands_still(host)


@pytest.mark.parametrize("word", ["kill", "home"])
def test_a_criu_that_is_killed_leaves_it_frozen_with_its_disk(disk_host, word):
    host = disk_host
    assert dump(host) == (0, "")
    os.kill(criu_of(host), signal.SIGKILL)
    until(lambda: not pathlib.Path("/proc", str(criu_of(host))).exists())
    assert is_frozen(host) and host.turn("still", "101")[0] == 0
    if word == "home":
        os.kill(first_of(host), signal.SIGCONT)
    assert host.turn(word, "101", host.dump) == (0, "")
    assert not is_frozen(host) and nothing_left(host) and host.status() == (UP if word == "home" else DOWN)


def test_one_that_ended_while_it_was_held_is_restored_on_a_disk_that_is_thawed(disk_host):
    host = disk_host
    assert dump(host) == (0, "")
    end_tasks(host)
    assert host.turn("home", "101", host.dump) == (0, "")
    lines = log(host).splitlines()
    assert lines.index(f"fsfreeze --unfreeze {host.root_of_it}") < next(at for at, line in enumerate(lines) if line.startswith("restore 101"))
    assert not stands_still(host) and nothing_left(host)
