# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import bind_checks as binds, bind_places, bind_rules, loop
from ansible_collections.livefleet.handover.plugins.module_utils._podman import bind_facts
from ansible_collections.livefleet.handover.plugins.module_utils._podman.preflight import examine as preflight
from unit.plugins.module_utils._podman.test_preflight import GIB, Facts, bound


def sentences(*arguments, **given):
    facts = Facts()
    bound(*arguments, **given)(facts)
    return facts.sentences()


class TestWhatBecomesOfThem:
    @pytest.mark.parametrize(
        "path, read_only, fate",
        [
            ("/srv/files", False, "carry"), ("/srv/files", True, "carry"), ("/home/shop", False, "carry"), ("/opt/shop/data", False, "carry"),
            ("/etc", False, "refuse"), ("/etc/shop/conf", False, "refuse"), ("/etc/localtime", True, "same"), ("/proc", False, "refuse"),
            ("/sys/fs/cgroup", False, "refuse"), ("/sys/fs/cgroup", True, "same"), ("/dev/shm", False, "refuse"), ("/run/shop", False, "refuse"),
            ("/", False, "refuse"), ("/", True, "same"), ("/srv", False, "refuse"), ("/tmp", False, "refuse"), ("/tmp/shop", False, "carry"),
            ("/usr/share/zoneinfo", True, "same"), ("/var/lib/containers/storage/volumes/x", False, "refuse"), ("/etcetera", False, "carry"),
        ],
    )  # fmt: skip
    def test_by_the_path(self, path, read_only, fate):
        assert bind_rules.fate("carry", {"source": path, "read_only": read_only}) == fate
        assert bind_rules.fate("same", {"source": path, "read_only": read_only}) == "same"
        assert bind_rules.fate("refuse", {"source": path, "read_only": read_only}) == "refuse"

    def test_that_are_carried_move(self):
        assert sentences("carry") == []
        assert sentences("carry", kind="file") == []
        assert sentences("carry", there={"kind": "directory", "empty": True, "missing": []}) == []

    def test_that_are_the_same_move(self):
        assert sentences("same", read_only=True) == []
        assert sentences("carry", path="/etc/localtime", kind="file", read_only=True, there={"kind": "file", "digest": "d"}) == []

    def test_of_other_kinds_are_refused_by_their_kind(self):
        for kind in ("socket", "device", "pipe"):
            for asked in bind_rules.CHOICES:
                ((check, sentence),) = sentences(asked, kind=kind)
                assert check == "directories"
                assert "shop mounts the {0} /srv/files on /files, which is neither".format(kind) in sentence

    def test_a_file_is_called_a_file(self):
        for asked, given in (
            ("refuse", {}),
            ("same", {}),
            ("carry", {"here": {"users": ["x"]}}),
            ("carry", {"here": {"fstype": "nfs4"}}),
            ("carry", {"there": {"kind": "file"}}),
        ):
            ((_check, sentence),) = sentences(asked, kind="file", **given)
            assert "file /srv/files" in sentence or "the file of shop" in sentence
            assert "directory" not in sentence and "folder" not in sentence


@pytest.mark.parametrize(
    "given, text",
    [
        ({"here": {"fstype": "nfs4"}}, "which is on nfs4, where the kernel does not tell what is written to"),
        ({"here": {"fstype": "overlay"}}, "which is on overlay"),
        ({"here": {"mounted": True}}, "which is a mount point there and could not be put aside"),
        ({"here": {"mounts_below": ["/srv/files/x"]}}, "another file system is mounted in it, on /srv/files/x"),
        ({"here": {"kept": True}}, "/srv/files.migrated on node1 is left from an earlier move"),
        ({"here": {"real": "/data/files"}}, "which is a link to /data/files"),
        ({"kind": "file", "replaced": True}, "another has that name now: restart shop, so that it mounts that one"),
        ({"kind": "file", "names": 2}, "has further names there"),
        ({"there": {"kind": "file", "empty": True}}, "/srv/files exists on node2 already"),
        ({"there": {"real": "/data"}}, "/srv/files leads to /data on node2"),
        ({"there": {"inside": "file"}}, "something above it is no folder"),
        ({"there": {"kind": "directory", "empty": True, "mounted": True}}, "something is mounted on /srv/files of node2 already"),
        ({"there": {"free": GIB}}, "for the directory /srv/files, and 1 GiB are free there"),
        ({"path": "/etc/shop"}, "writes to the directory /etc/shop of node1, which is the system's own"),
    ],
)
def test_what_keeps_one_from_being_carried(given, text):
    ((_check, sentence),) = sentences("carry", **given)
    assert text in sentence


@pytest.mark.parametrize(
    "given, text",
    [
        ({}, "shop writes to the directory /srv/files of node1, and what it writes on one host the other does not have"),
        ({"read_only": True, "there": {"kind": ""}}, "which node2 does not have"),
        ({"read_only": True, "here": {"digest": ""}, "there": {"digest": ""}}, "is not the same on node1 and node2"),
    ],
)
def test_what_keeps_one_from_being_the_same(given, text):
    ((_check, sentence),) = sentences("same", **given)
    assert text in sentence


def test_what_the_session_is_told_and_what_is_made():
    facts = Facts()
    bound("carry", kind="file")(facts)
    plan = facts.plan()
    assert preflight.directories(plan) == [{"name": "/srv/files", "path": "/srv/files", "size": GIB, "file": True, "bind": True}]
    assert binds.folders(plan) == ["/srv/files", "/srv"]
    bound("same", read_only=True)(facts)
    assert preflight.directories(facts.plan()) == []


class TestTheDigest:
    @pytest.fixture
    def folder(self, tmp_path):
        (tmp_path / "a" / "b").mkdir(parents=True)
        (tmp_path / "a" / "b" / "file").write_text("content")
        (tmp_path / "a" / "link").symlink_to("b")
        return tmp_path / "a"

    @pytest.mark.parametrize(
        "change",
        [
            lambda folder: (folder / "b" / "file").write_text("CONTENT"),
            lambda folder: (folder / "b" / "file").chmod(0o600),
            lambda folder: os.chown(folder / "b", 7, 8),
            lambda folder: (folder / "new").mkdir(),
            lambda folder: (folder / "b" / "file").rename(folder / "file"),
            lambda folder: os.setxattr(folder / "b" / "file", "user.note", b"x"),
            lambda folder: ((folder / "link").unlink(), (folder / "link").symlink_to("c")),
        ],
    )
    def test_sees_all_but_times(self, folder, change):
        before = bind_facts.digest_of(str(folder))
        os.utime(folder / "b" / "file", (1, 1))
        assert bind_facts.digest_of(str(folder)) == before
        try:
            change(folder)
        except OSError:
            pytest.skip("not possible here")
        assert bind_facts.digest_of(str(folder)) != before

    def test_is_that_of_the_same_elsewhere(self, folder, tmp_path):
        (tmp_path / "other").symlink_to(folder)
        assert bind_facts.digest_of(str(tmp_path / "other")) == bind_facts.digest_of(str(folder))


def test_what_is_at_a_path(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    mounts = [loop.Mount("1:1", "/", "ext4", "a"), loop.Mount("1:2", str(tmp_path), "xfs", "b"), loop.Mount("1:3", str(folder / "x"), "tmpfs", "c")]
    found = bind_facts.facts_of(str(folder), mounts, False)
    assert (found["kind"], found["empty"], found["fstype"], found["mounted"]) == ("directory", True, "xfs", False)
    assert found["mounts_below"] == [str(folder / "x")]
    assert (found["missing"], found["inside"], found["kept"], found["digest"]) == ([], "directory", False, "")
    (folder / "file").write_text("x")
    (tmp_path / "folder.migrated").mkdir()
    found = bind_facts.facts_of(str(folder), mounts, True)
    assert (found["empty"], found["kept"], len(found["digest"])) == (False, True, 64)
    below = bind_facts.facts_of(str(folder / "a" / "b"), mounts, True)
    assert (below["kind"], below["missing"], below["inside"]) == ("", [str(folder / "a" / "b"), str(folder / "a")], "directory")
    assert bind_facts.facts_of(str(folder / "file" / "b"), mounts, True)["inside"] == "file"


def test_who_else_mounts_it():
    containers = [{"Name": name, "Mounts": [{"Type": "bind", "Source": source}]} for name, source in
                  (("in", "/srv/a/b"), ("above", "/srv"), ("it", "/srv/a"), ("beside", "/srv/ab"), ("all", "/"))]  # fmt: skip
    assert bind_facts.users_of("/srv/a", containers) == ["above", "all", "in", "it"]


class TestPlaces:
    def test_are_made_and_go_again(self, tmp_path):
        made = [str(tmp_path / "a" / "conf"), str(tmp_path / "a" / "data"), str(tmp_path / "a")]
        mounts = [{"source": made[0], "kind": "file"}, {"source": made[1], "kind": "directory"}]
        bind_places.make(made, mounts)
        assert os.path.isfile(made[0]) and os.path.isdir(made[1])
        bind_places.remove(made)
        assert os.listdir(tmp_path) == []

    def test_with_something_in_them_stay(self, tmp_path):
        made = [str(tmp_path / "a" / "data"), str(tmp_path / "a")]
        bind_places.make(made, [])
        (tmp_path / "a" / "data" / "precious").write_text("x")
        bind_places.remove(made)
        assert (tmp_path / "a" / "data" / "precious").exists()

    def test_nothing_is_made_over_anything(self, tmp_path):
        with pytest.raises(Exception, match="cannot be made on this host"):
            bind_places.make([str(tmp_path)], [])

    def test_what_moved_away_is_put_aside_and_never_over_anything(self, tmp_path):
        path = tmp_path / "data"
        path.mkdir()
        assert bind_places.to_put_aside([str(path)]) == [str(path)]
        bind_places.put_aside([str(path)])
        assert (tmp_path / "data.migrated").is_dir() and not path.exists()
        bind_places.put_aside([str(path)])  # once more, by a run that was cut off
        path.mkdir()
        with pytest.raises(Exception, match="cannot be renamed"):
            bind_places.put_aside([str(path)])
