# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import shutil
import types
from pathlib import Path

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import backup_log, pcopy, room, runtime
from ansible_collections.livefleet.handover.plugins.module_utils._core.backups import Backups, workloads
from ansible_collections.livefleet.handover.plugins.module_utils._podman.copies import backup_taker, engine

VOLUME = {"name": "pgdata", "image": "/images/pgdata.img", "mountpoint": "/mnt/pgdata", "fstype": "ext4", "options": "rw", "size": 4, "device": "/dev/loop1"}


class Helper:
    """The helper's store, by its words: one folder a point, with the files that were taken along."""

    def __init__(self):
        self.words = []
        self.faults = []
        self.times = ()

    def run(self, argv, accept=(0,), stdin=None, timeout=None):
        tool, *rest = [str(word) for word in argv]
        if os.path.basename(tool) == "podman":
            return runtime.Completed(tuple(argv), 0, json.dumps([{"Id": "1", "Names": ["shop"]}] if self.here else []), "")
        verb, *words = [word for word in rest[1:] if word != "--json"]
        self.words.append((verb, *words))
        if verb == "wave":
            rc, answer = self.wave(json.loads(stdin)["parts"])
            return runtime.Completed(tuple(argv), rc, json.dumps(answer), "files are damaged" if rc else "")
        flags = [word[2:].partition("=")[::2] for word in words if word.startswith("--")]
        store, *names = [Path(word) if n == 0 else word for n, word in enumerate(word for word in words if not word.startswith("--"))]
        rc, answer = getattr(self, verb)(self._place(store) if verb not in ("stores", "copy") else store, names, flags)
        return runtime.Completed(tuple(argv), rc, json.dumps(answer), "files are damaged" if rc else "")

    here = True

    def wave(self, parts):
        self.parts = parts
        return 0, {"snapshots": [self._take(part, self._place(Path(part["store"]))) for part in parts]}

    def _take(self, part, store):
        number = len(list(store.glob("point-*")))
        point = store / "point-{0}".format(number)
        point.mkdir(parents=True)
        (store / "store.json").write_text("{}")
        for each in part["files"]:
            shutil.copy2(each["path"], point / each["name"])
        row = {
            "id": "{0}abc".format(number),
            "name": part["name"],
            "taken": self.times[number] if self.times else "2026-11-26T0{0}:00:00.807Z".format(number),
            "stored": 4,
            "frozen_ms": 1.2,
        }
        (point / "row").write_text(json.dumps(row))
        why = "tracker: the marks are lost: `pcopy track stop x`, start again"
        return {**row, "volumes": [{"name": part["volumes"][0]["name"], "stored": 4, "how": "digests", "why": why}]}

    def list(self, store, names, flags):
        return 0, {"snapshots": [json.loads(path.read_text()) for path in sorted(store.glob("point-*/row"))]}

    def export(self, store, names, flags):
        shutil.copy2(store / "point-{0}".format(names[0][0]) / dict(flags)["file"], names[1])
        return 0, {}

    # Of the host backup1 the folders are below `there`.
    there = None

    def _place(self, store):
        host, colon, folder = str(store).partition(":")
        return Path(str(self.there) + folder) if colon else store

    def stores(self, folder, names, flags):
        place = self._place(folder)
        return 0, {"missing": not place.exists(), "stores": sorted(path.parent.name for path in place.glob("*/store.json"))}

    def copy(self, store, names, flags):
        shutil.copytree(self._place(store), names[1])
        return 0, {}

    def prune(self, store, names, flags):
        return 0, {"snapshots": [{"id": "0abc", "taken": "2026-11-26T00:00:00.5Z", "keep": True, "why": ["current", "last"]}]}

    def verify(self, store, names, flags):
        return (1 if self.faults else 0), {"faults": self.faults}


@pytest.fixture
def helper(monkeypatch):
    fake = Helper()
    monkeypatch.setattr(runtime.Runtime, "run", lambda self, argv, accept=(0,), stdin=None, timeout=None: fake.run(argv, accept, stdin, timeout))
    monkeypatch.setattr(runtime.Runtime, "find", lambda self, tool: "/usr/bin/" + tool)
    monkeypatch.setattr(pcopy.Pcopy, "check_installed", lambda self: None)
    return fake


CONTAINER = {
    "exists": True, "held": False, "running": True, "name": "shop", "id": "1", "labels": {},
    "mounts": [
        {"type": "volume", "name": "pgdata", "destination": "/data", "source": "/v", "read_only": False, "image_volume": VOLUME},
        {"type": "bind", "name": "", "destination": "/again", "source": "/mnt/pgdata/x", "read_only": False, "image_volume": VOLUME},
        {"type": "bind", "name": "", "destination": "/etc/shop", "source": "/etc/shop", "read_only": True, "image_volume": None},
    ],
}  # fmt: skip


@pytest.fixture
def take(helper, monkeypatch, tmp_path):
    monkeypatch.setattr(backup_log, "FOLDER", str(tmp_path / "last"))

    def run(container=None, check=False, **given):
        found = {**CONTAINER, **(container or {})}
        monkeypatch.setattr(engine, "in_turn", lambda module, table, steps: {"last": {"workload_info": {"workload": found}}})
        warned = []
        params = {"workload": "shop", "repository": str(tmp_path / "repository"), "name": None, "keep": {}, "track": True, "before": None, "after": None,
                  "memory": None, "ran": [], "hook_timeout": 60, "timeout": 60, **given}  # fmt: skip
        return {**backup_taker.BackupTaker(types.SimpleNamespace(params=params, check_mode=check, warn=warned.append)).run(), "warned": warned}

    return run


def helper_here():
    return pcopy.Pcopy(runtime.Runtime(types.SimpleNamespace(), 60))


def known(repository):
    return workloads(helper_here(), repository)


def backups(tmp_path):
    return Backups(helper_here(), str(tmp_path / "repository"), "shop")


def test_all_volumes_once_with_all_that_a_restore_needs(helper, take, tmp_path):
    (taken,) = take()["backups"]
    assert (taken["id"], taken["taken"], taken["volumes"][0]["why"]) == ("0abc", "2026-11-26T00:00:00Z", "tracker: the marks are lost")
    assert helper.words[-1] == ("wave", "--hook-limit=60", "--track=true", "-")
    (part,) = helper.parts
    assert (part["store"], part["volumes"]) == (str(tmp_path / "repository/shop"), [{"name": "pgdata", "path": "/images/pgdata.img"}])
    assert backups(tmp_path).configuration("0abc")["mounts"][0]["destination"] == "/data"
    record = backups(tmp_path).document("0abc", "backup.json")
    assert (record["running"], [volume["mountpoint"] for volume in record["volumes"]]) == (True, ["/mnt/pgdata"])


def test_one_that_has_moved_away_counts_as_one_that_ran(take, tmp_path):
    for ran, then in (([], False), (["web"], False), (["shop"], True)):
        (taken,) = take({"running": False}, ran=ran)["backups"]
        assert backups(tmp_path).document(taken["id"], "backup.json")["running"] is then


def test_a_command_of_a_label_runs_in_the_container(helper, take):
    label = {"livefleet.handover.backup.before": "psql -c 'checkpoint'"}
    take({"labels": label})
    assert "--before=podman exec shop sh -c 'psql -c '\"'\"'checkpoint'\"'\"''" in helper.words[-1]
    take({"labels": label}, before="true")
    assert "--before=true" in helper.words[-1]
    take({"labels": label, "running": False})
    assert not [word for word in helper.words[-1] if word.startswith("--before")]


def test_files_that_are_no_part_of_it_are_told(take):
    mounts = [*CONTAINER["mounts"], {"type": "volume", "name": "cache", "destination": "/cache", "source": "/c", "read_only": False, "image_volume": None}]
    result = take({"mounts": mounts})
    assert result["left_out"] == ["/cache (podman's volume cache)"]
    assert result["warned"] == ["/cache (podman's volume cache) is no part of the backup of shop: put it in a volume of its own"]


@pytest.mark.parametrize(
    ("container", "text"),
    [
        ({"exists": False}, "shop is neither a container of podman's nor a guest of libvirt's on this host: name the host that it is on"),
        ({"held": True}, "shop is being moved: wait until that has ended"),
        ({"mounts": CONTAINER["mounts"][2:]}, "shop has no volume to back up"),
    ],
)
def test_refusals(helper, take, container, text):
    with pytest.raises(runtime.HandoverError, match=text):
        take(container)
    assert "wave" not in [verb for verb, *_words in helper.words]


def test_a_name_is_given_once(take):
    take(name="before-upgrade")
    with pytest.raises(runtime.HandoverError, match="there is a backup before-upgrade of shop"):
        take(name="before-upgrade")


def test_a_repository_of_dockers_container_takes_no_other(helper, take):
    with pytest.MonkeyPatch.context() as before:
        before.setattr(engine.PodmanEngine, "mark", {"driver": "docker"})
        take()
    with pytest.raises(runtime.HandoverError, match=r"are of a container of the driver docker: name it \(handover_driver=docker\), or have the others in"):
        take()
    assert len([verb for verb, *_words in helper.words if verb == "wave"]) == 1


def test_a_first_backup_needs_room_for_all(take, monkeypatch):
    monkeypatch.setattr(room.host, "free_space", lambda path: 3)
    with pytest.raises(runtime.HandoverError, match="the copy of shop takes"):
        take()


def test_a_repository_on_another_host(helper, take, tmp_path, monkeypatch):
    """All goes through the helper, which reaches it: nothing of the folder is looked at here."""
    monkeypatch.setattr(room.host, "free_space", lambda path: 3)  # of this host, which needs none
    helper.there = tmp_path / "there"
    there = "backup@backup1:/srv/backups"
    with pytest.raises(runtime.HandoverError, match="there is no folder backup@backup1:/srv/backups: name the repository"):
        known(there)
    assert Backups(helper_here(), there, "shop").all() == []
    take(repository=there)
    assert helper.parts[0]["store"] == there + "/shop"
    assert (known(there), [each["id"] for each in Backups(helper_here(), there, "shop").all()]) == (["shop"], ["0abc"])
    assert Backups(helper_here(), there, "shop").configuration("0abc")["name"] == "shop"
    with pytest.raises(runtime.HandoverError, match="is no full path"):
        take(repository="backup1:backups")


def test_the_policy(helper, take):
    verdicts = take(keep={"daily": 7, "last": None})["verdicts"]
    assert verdicts == [{"workload": "shop", "id": "0abc", "taken": "2026-11-26T00:00:00Z", "keep": True, "why": "current, last"}]
    assert helper.words[-1][:2] == ("prune", "--keep-daily=7")
    result = take(keep={"daily": 7}, check=True)
    assert helper.words[-1][1:3] == ("--keep-daily=7", "--dry-run") and result["backups"] == []
    assert [verb for verb, *_words in helper.words].count("wave") == 1
    take(keep={"daily": None})
    assert helper.words[-1][0] == "wave"


def test_check_mode_of_the_first(helper, take, tmp_path):
    take(keep={"last": 1}, check=True)
    assert not (tmp_path / "repository").exists()


def test_the_latest_or_one_by_its_name(take, tmp_path):
    with pytest.raises(runtime.HandoverError, match="there is no backup of shop in"):
        backups(tmp_path).find("")
    take(name="first")
    take()
    assert [row["id"] for row in backups(tmp_path).all()] == ["0abc", "1abc"]
    assert [backups(tmp_path).find(word)["id"] for word in ("", "first", "0a")] == ["1abc", "0abc", "0abc"]
    with pytest.raises(runtime.HandoverError, match="no backups of shop in .* are called x: name one of first, 1abc"):
        backups(tmp_path).find("x")
    assert known(str(tmp_path / "repository")) == ["shop"]
    with pytest.raises(runtime.HandoverError, match="there is no folder /nowhere on this host"):
        known("/nowhere")


def test_a_repository_that_has_lost_an_index_is_not_empty(helper, take, tmp_path, monkeypatch):
    take()
    (tmp_path / "repository/shop/store.json").rename(tmp_path / "repository/shop/store.copy.json")
    monkeypatch.setattr(helper, "list", lambda store, names, flags: (1, {}))
    assert known(str(tmp_path / "repository")) == ["shop"]
    with pytest.raises(runtime.HandoverError, match="files are damaged"):
        backups(tmp_path).all()


@pytest.mark.parametrize(
    "times",
    [
        ("2026-11-26T02:30:00.5Z", "2026-11-26T01:59:00.1Z"),  # the clock went back
        ("2026-11-26T02:30:00Z", "2026-11-26T02:30:00.5Z"),  # two in one second, as the helper writes them
        ("2026-11-26T02:30:00.12Z", "2026-11-26T02:30:00.123Z"),
    ],
)
def test_the_latest_is_the_one_that_was_taken_last(helper, take, tmp_path, times):
    helper.times = times
    take()
    take()
    assert [row["id"] for row in backups(tmp_path).all()] == ["0abc", "1abc"]
    assert backups(tmp_path).find("")["id"] == "1abc"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"keep": {"daily": -1}}, "keep: daily: -1 is no number of backups: write 1 or more, or leave daily out"),
        ({"repository": "backups"}, "repository: 'backups' is no full path: name the folder from the root on"),
        ({"repository": ""}, "repository: '' is no full path"),
    ],
)
def test_bad_input_is_refused_before_anything_is_touched(helper, take, tmp_path, monkeypatch, given, text):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(runtime.HandoverError, match=text):
        take(**given)
    assert (helper.words, list(tmp_path.iterdir())) == ([], [])


def test_a_repository_that_the_helper_refuses_is_not_begun(helper, take, tmp_path, monkeypatch):
    """One on a volume of the container: a folder would be left in it. The helper makes its folder itself."""
    monkeypatch.setattr(helper, "wave", lambda parts: (1, {}))
    with pytest.raises(runtime.HandoverError, match="files are damaged"):
        take()
    assert list(tmp_path.iterdir()) == []


def test_several_at_one_moment(helper, take, tmp_path):
    """A pod: its infra container is none of it, and a member without a volume only warns."""
    other = {**VOLUME, "name": "webdata", "image": "/images/webdata.img"}
    labels = {"livefleet.handover.backup.before": "checkpoint", "livefleet.handover.backup.after": "go on"}
    web = {**CONTAINER, "name": "web", "mounts": [{**CONTAINER["mounts"][0], "image_volume": other}], "labels": labels}
    mail = {**CONTAINER, "name": "mail", "mounts": [{**CONTAINER["mounts"][0], "image_volume": None}]}
    members = [{**CONTAINER, "name": "infra", "infra": True}, {**CONTAINER, "labels": labels}, web, mail]
    result = take({"name": "office", "members": members}, name="noon", keep={"last": 1})
    taken = [(each["workload"], each["name"], each["volumes"][0]["name"]) for each in result["backups"]]
    assert taken == [("shop", "noon", "pgdata"), ("web", "noon", "webdata")]
    assert [os.path.basename(part["store"]) for part in helper.parts] == ["shop", "web"]
    assert result["warned"] == ["/data (podman's volume pgdata) is no part of the backup of mail: put it in a volume of its own"]
    assert [each["workload"] for each in result["verdicts"]] == ["shop", "web"]
    waves = [words for verb, *words in helper.words if verb == "wave"]
    assert waves[0][:2] == [
        "--before=podman exec shop sh -c checkpoint && podman exec web sh -c checkpoint",
        "--after=failed=0; podman exec shop sh -c 'go on' || failed=1; podman exec web sh -c 'go on' || failed=1; exit $failed",
    ]
    assert backup_log.BackupLog().last("office")["stored"] == 8
    with pytest.raises(runtime.HandoverError, match="there is a backup noon of shop in"):
        take({"name": "office", "members": members}, name="noon")
