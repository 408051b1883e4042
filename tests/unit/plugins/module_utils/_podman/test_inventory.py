# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import copy
import json
import os
import pathlib

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._podman import (
    container_facts as facts,
    essence,
    inventory,
    inventory_state as state,
    processes,
)
from ansible_collections.livefleet.handover.plugins.module_utils._podman.preflight import examine as preflight, processes as obstacles

RECORDED = sorted((pathlib.Path(__file__).parent / "recorded").glob("podman-*-inspect.json"))
PAGE = pathlib.Path(__file__).parents[5] / "docs" / "container-inventory.md"
ROWS = [*inventory.INSPECT.items(), *(item for rows in state.STATE.values() for item in rows.items())]


def containers():
    """All containers of all recorded podmans, and of each version every option that it has."""
    return [pytest.param(each, id="{0}-{1}".format(path.stem[7:10], each["Name"])) for path in RECORDED for each in json.loads(path.read_text())]


def without_row(value, key=""):
    """Every key that no row is about, whatever it holds."""
    if key and inventory.row_of(key):
        return []
    if isinstance(value, dict):
        return [found for name, below in value.items() for found in without_row(below, "{0}.{1}".format(key, name) if key else name)]
    if isinstance(value, list) and all(isinstance(each, dict) for each in value):
        return [found for each in value for found in without_row(each, key + "[]")]
    return [key]


def test_two_podmans_are_recorded():
    assert [path.name for path in RECORDED] == ["podman-4.3-inspect.json", "podman-5.4-inspect.json"]


@pytest.mark.parametrize("container", containers())
def test_every_key_of_podman_has_a_row(container):
    assert without_row(container) == []
    assert inventory.unaccounted(container) == []


@pytest.mark.parametrize(
    ("path", "key"),
    [
        (("NewThing",), "NewThing"),
        (("HostConfig", "NewThing"), "HostConfig.NewThing"),
        (("Mounts", 0, "NewThing"), "Mounts[].NewThing"),
        (("NetworkSettings", "Networks", "lan.example", "NewThing"), "NetworkSettings.Networks.lan_example.NewThing"),
    ],
)
def test_a_key_without_a_row_is_named_once_it_holds_something(path, key):
    container = copy.deepcopy(next(each for each in json.loads(RECORDED[1].read_text()) if each["Name"] == "full"))
    container["NetworkSettings"]["Networks"]["lan.example"] = {"IPAddress": "192.0.2.1"}
    place = container
    for step in path[:-1]:
        place = place[step]
    for nothing in (None, "", 0, [], {}, False):
        place[path[-1]] = nothing
        assert inventory.unaccounted(container) == []
    place[path[-1]] = {"Deeper": 1}
    assert inventory.unaccounted(container) == [key + ".Deeper"]


def test_rows_that_say_compared_are_compared():
    compared = {key.partition("[")[0] for key, row in inventory.INSPECT.items() if row.how == inventory.ESSENCE}
    fields = set(essence.essence({"Config": {}, "HostConfig": {}}))
    # The essence has names of its own for a few keys of podman's.
    # The root has a row of its own, as it is carried besides.
    own = {"Command": {"Path", "Args"}, "Networks": set(), "Rootfs": set(), "HostConfig.PortBindings": {"HostConfig.PortBindings", "NetworkSettings.Ports"}}
    assert compared - {"Mounts"} == {key for field in fields - {"Mounts", "HostConfig.Devices"} for key in own.get(field, {field})} - {
        # These are compared, too, and refused before that.
        key
        for key, row in inventory.INSPECT.items()
        if row.fate == inventory.REFUSED
    }


@pytest.mark.parametrize(("key", "row"), ROWS, ids=[key for key, _row in ROWS])
def test_a_row_names_a_check_that_there_is(key, row):
    assert row.fate in (inventory.CARRIED, inventory.SAME, inventory.ANEW, inventory.TOLD, inventory.REFUSED)
    assert row.how
    if row.fate == inventory.REFUSED:
        assert row.check in preflight.CHECKS
    if row.fate == inventory.TOLD:
        assert row.check in preflight.TOLD
    assert not row.check or row.check in {**preflight.CHECKS, **preflight.TOLD}


def test_every_kind_that_the_processes_are_searched_for_has_a_row():
    named = {row.check for _key, row in ROWS}
    assert set(obstacles.OBSTACLES) - named == set()
    files = state.STATE["Open files"]
    assert {kind.strip("[]") for kind in processes._ANONYMOUS} - set(files) == set()
    assert set(preflight.TOLD) - named == set()


def test_the_page_is_made_from_the_rows():
    if os.environ.get("HANDOVER_WRITE_DOCS"):
        PAGE.write_text(state.page(inventory.INSPECT), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == state.page(inventory.INSPECT), "run `make docs`"


class TestFacts:
    MOUNTINFO = (
        "2632 2489 0:172 / / rw - overlay overlay rw\n"
        "2634 2632 0:177 / /dev rw - tmpfs tmpfs rw\n"
        "2650 2632 0:180 / /scratch\\040one rw - tmpfs tmpfs rw\n"
        "2651 2632 7:3 / /mnt/disk rw - ext4 /dev/loop3 rw\n"
        "2652 2632 7:1 / /data rw - ext4 /dev/loop1 rw\n"
    )

    @pytest.fixture
    def proc(self, tmp_path):
        for pid, parent, name in ((10, 1, "init"), (11, 10, "worker"), (20, 1, "sh"), (21, 20, "sleep")):
            folder = tmp_path / str(pid)
            (folder / "fdinfo").mkdir(parents=True)
            (folder / "status").write_text("Name:\t{0}\nPPid:\t{1}\n".format(name, parent))
            (folder / "comm").write_text(name + "\n")
            (folder / "smaps_rollup").write_text("Private_Hugetlb:  {0} kB\nShared_Hugetlb:  4096 kB\n".format(2048 if pid == 11 else 0))
        (tmp_path / "10" / "mountinfo").write_text(self.MOUNTINFO)
        (tmp_path / "11" / "fdinfo" / "5").write_text(
            "pos:\t0\ninotify wd:2 ino:8 sdev:ac mask:fc6 x\n"
            "inotify wd:3 ino:9 sdev:ac mask:fc6 f_handle:00\ninotify wd:1 ino:3 sdev:700001 mask:fc6 x\n"
        )
        (tmp_path / "21" / "fdinfo" / "5").write_text("pos:\t0\ninotify wd:1 ino:3 sdev:700001 mask:fc6 x\n")
        return str(tmp_path)

    def test_a_mount_that_the_configuration_does_not_know(self, proc):
        mounts = facts.mounts_of(10, proc)
        assert [mount.place for mount in facts.own_mounts(mounts, {"/data"})] == ["/mnt/disk"]
        assert "/scratch one" in [mount.place for mount in mounts]

    def test_a_tmpfs_with_its_device_and_the_mount_in_it(self, proc, tmp_path):
        for place in ("run", "run/lock"):
            (tmp_path / "10" / "root" / place).mkdir(parents=True)
        number = os.stat(tmp_path).st_dev
        own = "{0}:{1}".format(os.major(number), os.minor(number))
        mounts = [facts.Mount(own, "/", "/run", "tmpfs"), facts.Mount("0:9999", "/", "/run/lock", "tmpfs"), facts.Mount("0:3", "/", "/runner", "ext4")]
        found = facts.own_tmpfs(iter(mounts), 10, proc)
        # Over the second one lies another.
        assert [(each["place"], each["device"], each["inside"]) for each in found] == [("/run", own, "/run/lock"), ("/run/lock", "", "")]

    def test_the_configuration_names_places_in_three_ways(self):
        document = {"mounts": [{"destination": "/data"}], "linux": {"maskedPaths": ["/proc/acpi"], "readonlyPaths": ["/proc/sys"]}}
        assert {"/data", "/proc/acpi", "/proc/sys", "/"} <= facts.configured_places(document)

    def test_a_watch_on_the_layer_and_none_on_a_volume(self, proc):
        assert facts.layer_watches([10, 11, 21], facts.mounts_of(10, proc), proc) == [
            {"process": "worker", "pid": 11, "count": 2, "without_handle": 1}
        ]

    @pytest.mark.parametrize(("pid", "gone"), ((0, False), (12, False), (11, True), (99, True)))
    def test_a_conmon_that_has_died(self, proc, tmp_path, pid, gone):
        (tmp_path / "12").mkdir()
        (tmp_path / "12" / "comm").write_text("conmon\n")
        assert facts.conmon_gone({"State": {"ConmonPid": pid}}, proc) is gone

    def test_a_container_without_its_conmon_is_known_by_its_id(self, proc):
        (pathlib.Path(proc) / "12").mkdir(exist_ok=True)
        (pathlib.Path(proc) / "12" / "comm").write_text("conmon\n")
        (pathlib.Path(proc) / "12" / "cmdline").write_text("/usr/bin/conmon\0-c\0abc\0-n\0shop\0")
        assert not facts.unattended("abc", proc)
        assert facts.unattended("abcd", proc)

    def test_processes_that_its_first_one_has_not_started(self, proc):
        assert facts.entered(10, [10, 11, 20, 21, 22], proc) == [{"process": "sh", "pid": 20}, {"process": "sleep", "pid": 21}]

    def test_huge_pages_that_are_shared_count_once(self, proc):
        assert facts.huge_pages([10, 11], proc) == (2048 + 4096) * 1024

    def test_huge_pages_that_are_free(self, tmp_path):
        folder = tmp_path / "kernel/mm/hugepages/hugepages-2048kB"
        folder.mkdir(parents=True)
        (folder / "free_hugepages").write_text("3\n")
        assert facts.free_huge_pages(str(tmp_path)) == 3 * 2048 * 1024
        assert facts.free_huge_pages(str(tmp_path / "nowhere")) == 0

    def test_attributes_of_a_tree(self, tmp_path, monkeypatch):
        (tmp_path / "a").write_text("")
        monkeypatch.setattr(facts.os, "listxattr", lambda path, follow_symlinks: ["user.colour"] if path.endswith("/a") else [])
        assert facts.attributes_below(str(tmp_path)) == "/a"
        monkeypatch.setattr(facts, "MOST_FILES", 0)
        assert facts.attributes_below(str(tmp_path)) == "…"
        monkeypatch.setattr(facts.os, "listxattr", lambda path, follow_symlinks: ["security.selinux"])
        monkeypatch.setattr(facts, "MOST_FILES", 9)
        assert facts.attributes_below(str(tmp_path)) == ""
