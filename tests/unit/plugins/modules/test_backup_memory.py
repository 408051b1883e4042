# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The memory in a backup. podman is a script with one container, which notes when it runs; the scripts around the freeze are the real ones."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import tarfile
import threading
import types

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import backup_log, pcopy, runtime, snapshot_records
from ansible_collections.livefleet.handover.plugins.module_utils._podman import halted
from ansible_collections.livefleet.handover.plugins.module_utils._podman.copies import (
    backup_adopter,
    backup_memory,
    backup_taker,
    engine,
    memory_fit,
    memory_halt,
    memory_return,
)
from ansible_collections.livefleet.handover.plugins.module_utils._podman.podman import Podman
from unit.plugins.modules import test_backup

PODMAN = """\
#!/bin/sh
cd {folder}
case "$*" in
"ps --all"*) echo '[{{"Id": "1", "Names": ["shop"], "State": "running"}}]' ;;
"info"*) echo '{{"host": {{"networkBackend": "cni"}}}}' ;;
*checkpoint*) echo dump >>said; [ -e fails ] && exit 125
    mkdir static/checkpoint; echo memory >static/checkpoint/pages.img; touch static/checkpoint/inventory.img
    echo shm >static/devshm-checkpoint.tar; echo exited >state ;;
*inspect*--format*) grep -q running state && echo true || echo false ;;
*inspect*) grep -q running state && r=true || r=false
    echo '[{{"Id": "1", "Name": "shop", "Image": "abc", "State": {{"Running": '$r'}}}}]' ;;
*restore*) echo restore >>said; grep -q exited state || exit 125; rm -rf static/checkpoint static/devshm-checkpoint.tar; echo running >state ;;
esac
"""
HOST = {
    "name": "node1", "arch": "x86_64", "kernel": "6.12.1", "cpu_features": ["avx2", "vmx"], "clock": 1, "podman": {"runtime": "runc"},
    "criu": {"version": [4, 1], "check": True, "said": ""},
}  # fmt: skip


class Helper(test_backup.Helper):
    """The helper's wave with a halt: what it runs in which order, and podman beside it."""

    in_freeze = ""  # a command of the test's
    killed = False

    def run(self, argv, accept=(0,), stdin=None, timeout=None):
        if os.path.basename(str(argv[0])) == "pcopy":
            return super().run(argv, accept, stdin, timeout)
        done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, check=False)
        if done.returncode not in accept:
            raise runtime.HandoverError("{0} failed".format(argv[0]))
        return runtime.Completed(tuple(argv), done.returncode, done.stdout, done.stderr)

    def wave(self, parts):
        options = dict(word[2:].partition("=")[::2] for word in self.words[-1][1:-1])

        def shell(script):
            return subprocess.run(["/bin/sh", "-c", script], check=False).returncode

        if options.get("before") and shell(options["before"]) or "halt" not in options:
            return super().wave(parts)
        failed = shell(options["halt"])
        shell("echo frozen >>{0}/said; {1}".format(self.folder, self.in_freeze))
        if self.killed:
            raise runtime.HandoverError("the helper was killed")
        failed = shell(options["go-on"]) or failed
        failed = shell(options["after"]) or failed
        if failed:
            raise runtime.HandoverError("the helper says why")
        return super().wave(parts)


@pytest.fixture
def helper(monkeypatch, tmp_path):
    fake = Helper()
    fake.folder, fake.limits = tmp_path, {}
    for name in ("static", "layer", "bin"):
        (tmp_path / name).mkdir()
    (tmp_path / "layer/file").write_text("layer")
    (tmp_path / "state").write_text("running")
    for name, text in (("podman", PODMAN.format(folder=tmp_path)), ("systemd-run", '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n')):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)

    def found(_self, tool):
        return str(tmp_path / "bin" / tool) if (tmp_path / "bin" / tool).exists() else tool

    def run(self, argv, accept=(0,), stdin=None, timeout=None):
        fake.limits[" ".join(str(word) for word in argv)] = self.timeout
        return fake.run(argv, accept, stdin, timeout)

    monkeypatch.setattr(runtime.Runtime, "run", run)
    monkeypatch.setattr(runtime.Runtime, "find", found)
    monkeypatch.setattr(pcopy.Pcopy, "check_installed", lambda self: None)
    monkeypatch.setattr(backup_log, "FOLDER", str(tmp_path / "last"))
    return fake


@pytest.fixture
def container(tmp_path):
    return {
        **test_backup.CONTAINER, "static_dir": str(tmp_path / "static"), "checkpoint_dir": str(tmp_path / "static/checkpoint"),
        "upper_dir": str(tmp_path / "layer"), "network_namespace": "", "runtime": "runc", "memory": 10, "layer": 10, "image": {"id": "abc"}, "essence": {},
    }  # fmt: skip


@pytest.fixture
def take(helper, monkeypatch, tmp_path, container):
    def run(check=False, **given):
        answer = {"last": {"workload_info": {"workload": {**container, **given.pop("container", {})}, "host": HOST}}}
        monkeypatch.setattr(engine, "in_turn", lambda module, table, steps: answer)
        params = {"workload": "shop", "repository": str(tmp_path / "repository"), "name": None, "keep": {}, "track": True, "before": None, "after": None,
                  "memory": True, "ran": [], "hook_timeout": 60, "timeout": 600, **given}  # fmt: skip
        return backup_taker.BackupTaker(types.SimpleNamespace(params=params, check_mode=check, warn=lambda text: None)).run()

    return run


def said(tmp_path):
    return (tmp_path / "said").read_text().split() if (tmp_path / "said").exists() else []


def test_the_memory_is_of_the_moment_of_the_disks(helper, take, tmp_path):
    note = "echo {0} >>" + str(tmp_path / "said")
    take(before=note.format("before"), after=note.format("after"))
    assert said(tmp_path) == ["before", "dump", "frozen", "restore", "after"]
    assert (tmp_path / "state").read_text() == "running\n"
    (point,) = (tmp_path / "repository/shop").glob("point-*")
    with tarfile.open(point / "memory.tar") as archive:
        content = {each.name[2:]: archive.extractfile(each).read().decode() for each in archive.getmembers() if each.isfile()}
    assert content == {"checkpoint/pages.img": "memory\n", "checkpoint/inventory.img": "", "layer/file": "layer", "devshm-checkpoint.tar": "shm\n"}
    record = json.loads((point / "backup.json").read_text())
    assert record["memory"] == {"runtime": "runc", "host": {fact: HOST[fact] for fact in memory_fit.HOST_FACTS}}
    assert os.listdir(tmp_path / "static") == []
    words = helper.words[-1]
    assert "--halt-limit=600" in words and "--hook-limit=600" in words
    assert [word for word in words if word.startswith("--before=timeout 60 sh -c ")]


def test_a_backup_without_memory_halts_nothing(helper, take, tmp_path):
    take(memory=None)
    assert said(tmp_path) == [] and not [word for word in helper.words[-1] if word.startswith("--halt")]


def test_a_plain_volume_of_one_that_is_halted(helper, take):
    """Its cgroup is gone in the freeze, and nothing writes."""
    plain = {"name": "logs", "path": "/plain/logs", "shared_with": []}
    mount = {"type": "volume", "name": "logs", "destination": "/logs", "source": "/plain/logs", "image_volume": None, "directory_volume": plain}
    more = {"mounts": [*test_backup.CONTAINER["mounts"], mount], "cgroup": "/sys/fs/cgroup/shop"}
    for memory, cgroup in ((True, ""), (False, "/sys/fs/cgroup/shop")):
        take(container=more, memory=memory)
        assert [(part["folders"][0]["name"], part["cgroup"]) for part in helper.parts] == [("logs", cgroup)]


@pytest.mark.parametrize(
    ("fault", "done"),
    [
        pytest.param("fails", ["dump", "frozen"], id="a dump that fails leaves it running"),
        pytest.param("layer", ["dump", "frozen", "restore"], id="a copy that fails"),
        pytest.param("started", ["dump", "frozen"], id="another hand has started it"),
        pytest.param("killed", ["dump", "frozen", "restore"], id="the helper is killed in the pause"),
    ],
)
def test_it_runs_on_and_no_half_is_kept(helper, take, tmp_path, fault, done):
    if fault == "fails":
        (tmp_path / "fails").touch()
    if fault == "layer":
        (tmp_path / "layer/file").unlink()
        (tmp_path / "layer").rmdir()
    helper.killed = fault == "killed"
    helper.in_freeze = "echo running >{0}/state".format(tmp_path) if fault == "started" else ""
    with pytest.raises(runtime.HandoverError, match="the helper"):
        take()
    assert said(tmp_path) == done
    assert (tmp_path / "state").read_text().strip() == "running"
    assert not list((tmp_path / "repository").glob("shop/point-*"))
    assert not (tmp_path / "static/handover-backup").exists()


def old_dump(tmp_path):
    """Of a halt that was never gone back to: podman would restore it."""
    (tmp_path / "static/checkpoint").mkdir()
    (tmp_path / "static/checkpoint/inventory.img").touch()


def test_one_that_ends_by_itself_is_not_restored_from_an_earlier_dump(helper, take, tmp_path):
    old_dump(tmp_path)
    before = "echo exited >{0}/state".format(tmp_path)
    with pytest.raises(runtime.HandoverError, match="the helper says why"):
        take(before=before)
    assert said(tmp_path) == ["frozen"], "neither dumped nor restored"
    assert (tmp_path / "state").read_text().strip() == "exited"


def test_an_earlier_dump_goes_before_the_next(helper, take, tmp_path):
    old_dump(tmp_path)
    (tmp_path / "static/checkpoint/of-then").touch()
    take()
    (point,) = (tmp_path / "repository/shop").glob("point-*")
    with tarfile.open(point / "memory.tar") as archive:
        assert "./checkpoint/of-then" not in archive.getnames()


def left_halted(tmp_path):
    """As a run leaves it that was killed with all of its processes."""
    (tmp_path / "state").write_text("exited\n")
    old_dump(tmp_path)
    (tmp_path / "static/handover-backup").mkdir()
    (tmp_path / "static/handover-backup/halting").touch()


def test_the_next_run_has_one_go_on_that_was_left_halted(helper, take, tmp_path):
    left_halted(tmp_path)
    take(container={"running": False}, memory=None)
    assert said(tmp_path) == ["restore"] and (tmp_path / "state").read_text() == "running\n"


def test_two_at_once_are_refused(helper, take, tmp_path):
    held = os.open(tmp_path / "static", os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(runtime.HandoverError, match="^another copy of the memory of shop is being taken"):
            take()
    finally:
        os.close(held)
    assert said(tmp_path) == []


@pytest.mark.parametrize("of", [{"workload": "shop", "plan": None}, {"workload": "front", "plan": {"members": ["db", "shop"]}}])
def test_one_that_is_being_moved_is_not_halted(helper, take, tmp_path, monkeypatch, of):
    status = {"id": "s1", "ended": False, "state": "presync", "role": "source", **of}
    monkeypatch.setattr(halted.Sessions, "statuses", lambda self: [status])
    with pytest.raises(runtime.HandoverError, match=r"^shop is being moved \(session s1\)"):
        take()
    status.update(ended=True, state="thawed")
    take()
    assert said(tmp_path)[0] == "dump"


def test_what_is_moved_away_after_its_halt_is_not_restored(helper, take, tmp_path):
    """A move has ended it here, and its dump is in the same place: it runs over there."""
    dump = "mkdir {0}/static/checkpoint; touch {0}/static/checkpoint/inventory.img; echo exited >{0}/state".format(tmp_path)
    take(after=dump)
    assert said(tmp_path) == ["dump", "frozen", "restore"] and (tmp_path / "state").read_text() == "exited\n"


@pytest.mark.parametrize("ended, state", [(False, "released"), (True, "done")])
def test_one_that_was_left_halted_and_is_moved_since_is_not_restored(helper, take, tmp_path, monkeypatch, ended, state):
    left_halted(tmp_path)
    status = {"id": "s1", "workload": "shop", "ended": ended, "state": state, "role": "source"}
    monkeypatch.setattr(halted.Sessions, "statuses", lambda self: [status])
    with pytest.raises(runtime.HandoverError, match=r"^shop is being moved \(session s1\)"):
        take(container={"running": False}, memory=None)
    assert said(tmp_path) == []


def test_a_halt_that_outlives_the_helper_is_waited_for(helper, tmp_path, container):
    """The helper is killed while podman dumps."""
    here = runtime.Runtime(types.SimpleNamespace(), 60)
    with memory_halt.MemoryHalt(here, Podman(here), container) as halt:
        dump = "sleep 1; cd {0}; mkdir static/checkpoint; touch static/checkpoint/inventory.img; echo exited >state; : {1}".format(tmp_path, halt.folder)
        late = subprocess.Popen(["sh", "-c", dump])
        for name in ("begun", "halting"):
            (tmp_path / "static/handover-backup" / name).write_text(str(late.pid))
        threading.Thread(target=late.wait, daemon=True).start()
    assert said(tmp_path) == ["restore"] and (tmp_path / "state").read_text() == "running\n"


def test_the_way_on_has_time_of_its_own(helper, take):
    helper.killed = True
    with pytest.raises(runtime.HandoverError):
        take(timeout=1)
    assert [limit for words, limit in helper.limits.items() if "restore" in words] == [600]


def test_what_a_killed_run_has_left_is_no_part_of_the_next(helper, take, tmp_path):
    left = tmp_path / "static/handover-backup"
    (left / "memory").mkdir(parents=True)
    for name in ("halted", "whole", "memory.tar", "memory/old"):
        (left / name).touch()
    take()
    with tarfile.open(tmp_path / "repository/shop/point-0/memory.tar") as archive:
        assert "./old" not in archive.getnames() and "./checkpoint/pages.img" in archive.getnames()


def test_of_a_failed_halt_there_is_no_archive(helper, take, tmp_path, monkeypatch):
    """The helper takes the archive along when it is there."""
    seen = []
    real = helper.wave
    monkeypatch.setattr(helper, "in_freeze", "echo running >{0}/state".format(tmp_path))

    def wave(parts):
        try:
            return real(parts)
        finally:
            seen.append(os.path.exists(next(each["path"] for each in parts[0]["files"] if each["name"] == "memory.tar")))

    monkeypatch.setattr(helper, "wave", wave)
    with pytest.raises(runtime.HandoverError):
        take()
    assert seen == [False]


def why_halted(member):
    return "it runs under crun" if member.get("runtime") == "crun" else ""


UNIT = {"service": {"unit": "shop.service", "adoption": "inside"}, "auto_remove": True}
FOREIGN = {"service": {"unit": "shop.service", "adoption": ""}}


@pytest.mark.parametrize(
    ("asked", "label", "more", "wanted"),
    [
        (None, "", {}, False),
        (None, "true", {}, True),
        (False, "true", {}, False),
        (True, "false", {}, True),
        (None, "yes", {}, "the label livefleet.handover.backup.memory of shop is 'yes': write true or false"),
        (True, "", {"running": False}, "shop does not run, and has no memory: start it first, or back it up without its memory"),
        (True, "", UNIT, True),
        (
            True,
            "",
            {**UNIT, "runtime": "crun"},
            "shop is run by shop.service, which would take its halt for its end .* under crun: mend that, or back it up without",
        ),
        (True, "", FOREIGN, "shop is run by shop.service, which could not take it over again .* back it up without"),
        (None, "true", {"auto_remove": True}, "shop is removed when it ends"),
        (True, "", {"obstacles": [{"check": "databases", "detail": "/d/a.db"}]}, "shop has the SQLite database /d/a.db open, known .*: back it up without"),
        (True, "", {"obstacles": [{"check": "files", "detail": "/d/a.db"}]}, True),
        (None, "", UNIT, False),
    ],
)
def test_whether_the_memory_is_taken(asked, label, more, wanted):
    member = {"name": "shop", "running": True, "labels": {backup_memory.LABEL: label} if label else {}, **more}
    if isinstance(wanted, bool):
        assert backup_memory.wants_memory([member], asked, why_halted) is wanted
        return
    with pytest.raises(runtime.HandoverError, match=wanted):
        backup_memory.wants_memory([member], asked, why_halted)


def test_several_have_no_memory_taken(take):
    members = [{"name": name, "running": True, "labels": {}} for name in ("db", "web")]
    with pytest.raises(runtime.HandoverError, match="db and web are 2 containers, and memory is taken of one at a time"):
        backup_memory.wants_memory(members, True, why_halted)


def test_the_room_is_looked_for_first(take, monkeypatch, tmp_path):
    monkeypatch.setattr(backup_memory, "look_for_room", lambda workload, need, folder: asked.append((workload, need, folder)))
    asked = []
    take(check=True)
    assert asked == [("the memory of shop", 40, str(tmp_path / "static")), ("the memory of shop", 20, str(tmp_path / "repository"))]
    assert said(tmp_path) == []


# The way back

NOW = {**HOST, "name": "node2"}


@pytest.fixture
def adopt(helper, monkeypatch, tmp_path):
    def run(now=None, state="present", check=False, **given):
        monkeypatch.setattr(engine, "in_turn", lambda module, table, steps: {"last": {"workload_info": {"host": {**NOW, **(now or {})}}}})
        params = {"repository": str(tmp_path / "repository"), "workload": "shop", "backup": "", "state": state, "root": str(tmp_path / "root"), "timeout": 60,
                  "memory": True, **given}  # fmt: skip
        return backup_adopter.adopt(types.SimpleNamespace(params=params, check_mode=check))

    return run


def with_files(helper):
    """The helper lists what was taken along."""
    real = helper.list

    def listed(store, names, flags):
        rc, answer = real(store, names, flags)
        for point, row in zip(sorted(store.glob("point-*")), answer["snapshots"]):
            row["files"] = [{"name": path.name, "bytes": path.stat().st_size} for path in point.iterdir() if path.name != "row"]
        return rc, answer

    helper.list = listed


def test_a_backup_with_memory_is_a_snapshot_with_memory(helper, take, adopt, tmp_path):
    with_files(helper)
    take()
    assert adopt(check=True)["changed"] and not (tmp_path / "root").exists()
    assert adopt()["changed"]
    place = tmp_path / "root/shop/backup-0abc"
    assert (place / "checkpoint/pages.img").read_text() == "memory\n" and (place / "layer/file").read_text() == "layer"
    assert not (place / "memory.tar").exists()
    record = snapshot_records.Snapshots(str(tmp_path / "root"), "shop").read("backup-0abc")
    assert (record["memory"], record["disks"], record["point"]) == (True, True, "0abc")
    assert not adopt()["changed"]
    assert adopt(memory=False)["changed"], "the disks alone are another snapshot"
    assert not (place / "checkpoint").exists()


def test_the_memory_alone_needs_room_here_and_only_once(helper, take, adopt, monkeypatch, tmp_path):
    with_files(helper)
    take()
    asked = []
    monkeypatch.setattr(memory_return, "look_for_room", lambda of, need, folder: asked.append((of, need, folder)))
    archive = (tmp_path / "repository/shop/point-0/memory.tar").stat().st_size
    assert adopt()["changed"] and not adopt()["changed"]
    assert asked == [("the backup 0abc of shop", 2 * archive, str(tmp_path / "root"))]


def test_the_list_says_which_have_it(helper, take, tmp_path):
    with_files(helper)
    take()
    take(memory=False)
    with_memory, without = test_backup.backups(tmp_path).all()
    assert (with_memory["memory"], without["memory"], without["stored"]) == (True, False, 4)
    assert with_memory["stored"] > 10000
    assert (with_memory["memory_bytes"], without["memory_bytes"]) == (with_memory["stored"] - 4, 0)


@pytest.mark.parametrize(
    ("now", "refusal"),
    [
        ({"cpu_features": []}, "the processor of node2 lacks avx2, which programs on node1 at the backup may be using: restore the disks alone"),
        ({"arch": "aarch64"}, "node1 at the backup is a x86_64 host and node2 is aarch64: restore"),
        ({"kernel": "6.1.0"}, "the kernel is 6.12.1 on node1 at the backup and 6.1.0 on node2, which is older"),
        ({"criu": {**HOST["criu"], "version": [3, 19]}}, "CRIU is 4.1 on node1 at the backup and 3.19 on node2, which may not read"),
        ({"criu": {**HOST["criu"], "version": []}}, "CRIU is missing on node2: restore"),
        ({"criu": {**HOST["criu"], "check": False}}, "CRIU does not work on node2: restore"),
        ({"podman": {"runtime": "crun"}}, "shop ran under runc, and node2 has crun for it: restore"),
        ({"podman": {"runtime": ""}}, "shop ran under runc, and node2 has an unknown runtime for it: restore"),
    ],
)
def test_a_host_that_does_not_fit_is_refused_before_anything_is_touched(helper, take, adopt, tmp_path, now, refusal):
    with_files(helper)
    take()
    with pytest.raises(runtime.HandoverError, match="the memory in the backup 0abc of shop cannot be restored here: .*" + refusal) as told:
        adopt(now)
    assert "\n" not in str(told.value) and "migrate_mode" not in str(told.value)
    assert not (tmp_path / "root").exists()
    assert adopt(now, memory=False)["changed"]


def test_a_backup_that_has_none(helper, take, adopt, tmp_path):
    with_files(helper)
    take(memory=False)
    with pytest.raises(runtime.HandoverError, match="the backup 0abc of shop has no memory: restore the disks alone"):
        adopt()
    record = tmp_path / "repository/shop/point-0/backup.json"
    record.write_text('{"kind": "KVM guest"}')
    with pytest.raises(runtime.HandoverError, match="shop is a KVM guest, and its backup has no memory"):
        adopt()
    assert not (tmp_path / "root").exists()


def test_a_unit_that_is_not_here_has_to_be_brought_first(helper, take, adopt, monkeypatch):
    with_files(helper)
    monkeypatch.setattr(engine.memory_in_place, "why_halted", lambda podman, container: "")
    monkeypatch.setattr(engine.memory_in_place, "halt_of", memory_halt.MemoryHalt)
    take(container={"service": {"unit": "shop.service", "adoption": "inside"}})
    assert adopt()["changed"] and adopt(state="absent")["changed"]
    monkeypatch.setattr(backup_adopter.workload, "find", lambda listed, name: None)
    with pytest.raises(runtime.HandoverError, match="shop was run by shop.service at the backup, and neither is here: bring that unit"):
        adopt()


def test_another_container_of_the_name(helper, take, adopt, monkeypatch):
    with_files(helper)
    take(container={"id": "9", "essence": {"Config.User": "root", "Config.Labels": {}}})
    monkeypatch.setattr(memory_fit, "essence", lambda inspect: {"Config.User": user, "Config.Labels": {memory_fit.CLONE: "shop@backup-0abc"}})
    user = "shop"
    with pytest.raises(runtime.HandoverError, match="is of an earlier container of its name, made in another way"):
        adopt()
    user = "root"
    assert adopt()["changed"], "its like has come back from a backup"


def test_a_name_that_podman_gave_is_no_difference(monkeypatch):
    """A unit makes its container anew at each start, and podman calls its host by the container's ID."""
    first, second = "1" * 64, "2" * 64

    def made(name, user=None):
        return {"Config.Hostname": name, "Config.Env": ["HOSTNAME=" + name, "A=b"], "Config.Labels": {}, "Config.User": user}

    then = {"id": first, "image": {"id": "abc"}, "essence": made(first[:12])}
    names = {second[:12]: True, first[:12]: True, "shop": False, "3" * 12: False}  # the second is that of one that has moved
    for now, same in (*((made(name), same) for name, same in names.items()), (made(second[:12], "root"), False)):
        monkeypatch.setattr(memory_fit, "essence", lambda inspect, now=now: now)
        assert memory_fit.alike(then, {"Id": second, "Image": "abc"}) is same
