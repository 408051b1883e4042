# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The file system of a ploop container is frozen when all else is, and thawed before anything of it goes on or ends."""

from __future__ import annotations

import pathlib

import jinja2
import pytest
import yaml

ROLES = pathlib.Path(__file__).parents[6] / "roles"


def with_a_disk(host):
    """Something is mounted in its root. What freezes it says so in vzctl's own log, and refuses what the kernel refuses."""
    host.root_of_it = host.root / "vz/root/101"
    host.root_of_it.mkdir(parents=True)
    host.program("mountpoint", f"#!/bin/sh\ntest ! -e {host.root}/not-mounted\n")
    host.program(
        "fsfreeze",
        f"""#!/bin/sh
echo "fsfreeze $*$(test ! -e {host.root}/turns/101.answer || echo ' after the answer')" >>{host.state}/log
at={host.root}/is-frozen
if test -e {host.root}/does-not; then echo "fsfreeze: $2: failed" >&2; exit 1; fi
case $1$(test -e $at && echo yes) in
--freeze) touch $at ;;
--freezeyes) echo "fsfreeze: $2: freeze failed: Device or resource busy" >&2; exit 1 ;;
--unfreezeyes) rm $at ;;
--unfreeze) echo "fsfreeze: $2: unfreeze failed: Invalid argument" >&2; exit 1 ;;
esac
""",
    )


@pytest.fixture(name="ploop_host")
def one_with_a_mounted_disk(openvz_host):
    """Container 101 runs, with a disk."""
    host = openvz_host
    host.have()
    with_a_disk(host)
    host.turn("home", "101")
    (host.state / "log").unlink()
    return host


def suspend(host):
    return host.turn("suspend-disk", "101", host.root / "dump/handover.101", "", "", host.root_of_it)


def log(host):
    lines = [line.split() for line in (host.state / "log").read_text(encoding="utf-8").splitlines()]
    return [" ".join(words[:1] + words[2:3] if words[0] == "chkpnt" else words[:2]) for words in lines]


def is_frozen(host):
    return (host.root / "is-frozen").exists()


@pytest.mark.parametrize("word", ["home", "kill"])
def test_it_is_frozen_last_and_thawed_first(ploop_host, word):
    assert suspend(ploop_host) == (0, "")
    assert log(ploop_host) == ["chkpnt --suspend", "chkpnt --dump", "fsfreeze --freeze"] and is_frozen(ploop_host)
    (ploop_host.state / "log").unlink()
    for _again in range(2):
        assert ploop_host.turn(word, "101", ploop_host.root / "dump/handover.101") == (0, "")
    assert log(ploop_host)[:2] == ["fsfreeze --unfreeze", "chkpnt --resume" if word == "home" else "chkpnt --kill"]
    assert log(ploop_host).count("fsfreeze --unfreeze") == 1 and not is_frozen(ploop_host)


def test_a_disk_that_is_not_mounted_or_cannot_be_frozen_is_not_sent(ploop_host):
    (ploop_host.root / "not-mounted").touch()
    status, said = suspend(ploop_host)
    assert status == 1 and f"nothing is mounted on {ploop_host.root_of_it}" in said
    assert ploop_host.turn("home", "101") == (0, "")
    (ploop_host.root / "not-mounted").unlink()
    (ploop_host.root / "is-frozen").touch()
    status, said = suspend(ploop_host)
    assert status == 1 and "could not be frozen (fsfreeze: " in said and "busy" in said


def test_a_disk_whose_root_is_not_named_is_refused_before_anything_stands_still(ploop_host):
    status, said = ploop_host.turn("suspend-disk", "101", ploop_host.root / "dump/handover.101", "", "")
    assert status == 1 and "its root is not named" in said and not is_frozen(ploop_host)
    assert not (ploop_host.state / "log").exists()


@pytest.mark.parametrize(
    ("way", "layout", "expected"),
    [
        ("kernel", "ploop", ["suspend-disk", "/vz/root/101"]),
        ("kernel", "simfs", ["suspend", ""]),
        ("libvzctl", "ploop", ["libvzctl-dump-disk", "/vz/root/101"]),
        ("libvzctl", "directory", ["libvzctl-dump", ""]),
    ],
)
def test_the_role_has_a_word_of_its_own_for_a_disk(way, layout, expected):
    """An openvz-turn from before the freeze takes no root: it must not know the word."""
    written = yaml.safe_load((ROLES / "migrate" / "vars" / "openvz.yml").read_text(encoding="utf-8"))
    argv = written["__migrate_source_modes"]["live"]["hooks"]["freeze"]["argv"]
    ternary = {"ternary": lambda value, yes, no: yes if value else no}
    environment = jinja2.Environment()
    environment.filters.update(ternary)
    words = written["__migrate_openvz_words"][way]["freeze"]
    here = {"workload": {"layout": layout, "root": "/vz/root/101"}, "host": {"openvz": {"way": way}}}
    facts = {"__migrate_here": here, "__migrate_openvz_words": {way: {"freeze": environment.from_string(words).render(__migrate_here=here)}}}
    told = [environment.from_string(argv[place]).render(**facts) for place in (1, -1)]
    assert told == expected


def test_nothing_goes_on_or_ends_on_a_disk_that_stays_frozen(ploop_host):
    suspend(ploop_host)
    (ploop_host.root / "does-not").touch()
    for word in ("home", "kill"):
        status, said = ploop_host.turn(word, "101", ploop_host.root / "dump/handover.101")
        assert status == 1 and "could not be thawed" in said
    assert log(ploop_host)[-1] == "fsfreeze --unfreeze" and not {"chkpnt --resume", "chkpnt --kill"} & set(log(ploop_host))


def test_a_note_without_a_freeze_is_in_nobodys_way(ploop_host):
    """The freeze was killed before it came about, or another program has thawed it."""
    suspend(ploop_host)
    (ploop_host.root / "is-frozen").unlink()
    assert ploop_host.turn("home", "101") == (0, "") and ploop_host.status().endswith("running")
    (ploop_host.root / "turns" / "101.frozen").touch()
    assert ploop_host.turn("home", "101") == (0, "")
    assert not (ploop_host.root / "turns" / "101.frozen").exists()
