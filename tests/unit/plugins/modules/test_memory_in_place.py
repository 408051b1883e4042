# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The memory of a container that runs on where it stood. The helper is the test's; the files beside the container are real."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
import types

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import pcopy, runtime
from ansible_collections.livefleet.handover.plugins.module_utils._podman import halted, memory_files
from ansible_collections.livefleet.handover.plugins.module_utils._podman.copies import engine, memory_halt, memory_in_place, snapshot_taker

CGROUP = "/sys/fs/cgroup/shop"


class Podman:
    path = "/usr/bin/podman"
    annotations: dict[str, str] = {}
    asked = 0

    def inspect(self, _identifier):
        self.asked += 1
        return {"Config": {"Annotations": self.annotations}, "State": {"Running": True}}


@pytest.fixture
def facts(monkeypatch, tmp_path):
    for name in ("static/shm", "layer"):
        (tmp_path / name).mkdir(parents=True)
    script, settings = tmp_path / "criu-hook", tmp_path / "runc.conf"
    script.write_text("")
    script.chmod(0o755)
    settings.write_text("action-script={0}\n".format(script))
    monkeypatch.setattr(memory_in_place, "ACTION_SCRIPT", str(script))
    monkeypatch.setattr(memory_in_place, "CRIU_CONFIGURATION", str(settings))
    monkeypatch.setattr(memory_in_place.host, "freezable_cgroup", lambda pid, identifier, options: CGROUP if pid == 7 else "")
    monkeypatch.setattr(halted.Sessions, "statuses", lambda self: [])
    monkeypatch.setattr(memory_halt, "Podman", lambda _runtime: Podman())
    static = str(tmp_path / "static")
    return {
        "id": "1", "name": "shop", "pid": 7, "runtime": "runc", "static_dir": static, "checkpoint_dir": static + "/checkpoint", "shm_dir": static + "/shm",
        "upper_dir": str(tmp_path / "layer"), "network_namespace": "/run/netns/shop",
    }  # fmt: skip


@pytest.fixture
def called(monkeypatch):
    calls = []
    monkeypatch.setattr(pcopy.Pcopy, "call", lambda self, *words, **_more: calls.append(words) or {"frozen_ms": 12.5})
    return calls


def here():
    return runtime.Runtime(types.SimpleNamespace(), 60)


def test_the_helper_is_told_all_that_it_takes(facts, tmp_path, called):
    with memory_in_place.halt_of(here(), Podman(), facts) as halt:
        (word,) = halt.options(60)
        assert word == "--memory={0}/static/handover-backup/memory.json".format(tmp_path)
        spec = json.loads((tmp_path / "static/handover-backup/memory.json").read_text())
        assert halt.alone() == 12.5
        assert called == [("internal", "dump-in-place", halt.folder + "/memory.json")]
    dump = spec["dump"]
    assert " ".join(dump["argv"]) == "/usr/bin/podman container checkpoint --keep --leave-running --tcp-established --file-locks shop"
    assert (dump["gate"], dump["cgroup"], spec["namespace"]) == (facts["checkpoint_dir"], CGROUP, "/run/netns/shop")
    assert (spec["into"], spec["as"], spec["layers"]) == (halt.memory, memory_files.DUMP, [{"name": memory_files.LAYER, "path": facts["upper_dir"]}])
    assert spec["archives"] == [{"name": "devshm-checkpoint.tar", "path": facts["shm_dir"]}]
    assert [each["name"] for each in spec["beside"]] == list(memory_files.BESIDE)
    assert os.listdir(facts["static_dir"]) == ["shm"]


def test_podman_dumps_one_that_it_would_remove(facts, monkeypatch):
    """A container of a quadlet. Where podman's book is of another form nothing is begun."""
    marks, why = [], ""
    monkeypatch.setattr(memory_in_place.book, "removed_by_itself", lambda root, identifier, whether: marks.append((root, identifier, whether)) or why)
    podman = Podman()
    monkeypatch.setattr(memory_in_place, "Podman", lambda runtime: types.SimpleNamespace(root=lambda: "/root", asked=runtime.timeout))
    with memory_in_place.halt_of(here(), podman, {**facts, "auto_remove": True}):
        assert marks == [("/root", "1", False)]
    assert marks[1:] == [("/root", "1", True)]
    with pytest.raises(ZeroDivisionError), memory_in_place.halt_of(here(), podman, {**facts, "auto_remove": True}):
        raise ZeroDivisionError
    assert marks[3:] == [("/root", "1", True)]
    why = "it has another layout"
    with pytest.raises(runtime.HandoverError, match="shop is removed when it ends .*: it has another layout"):
        memory_in_place.halt_of(here(), podman, {**facts, "auto_remove": True}).__enter__()
    assert os.listdir(facts["static_dir"]) == ["shm"]
    with memory_in_place.halt_of(here(), Podman(), facts):
        pass
    assert len(marks) == 5


def test_only_a_whole_dump_is_packed(facts):
    with memory_in_place.halt_of(here(), Podman(), facts) as halt:
        subprocess.run(["sh", "-c", halt.pack], check=True)
        assert not os.path.exists(halt.archive)
        os.makedirs(halt.memory + "/checkpoint")
        subprocess.run(["sh", "-c", halt.pack], check=True)
        with tarfile.open(halt.archive) as archive:
            assert "./checkpoint" in archive.getnames()


def test_podman_finds_no_dump_that_a_killed_helper_has_left(facts, monkeypatch, called):
    """podman would restore it. A move that has begun since has its own dump in that place."""
    for status, left in (([], False), ([{"id": "s1", "workload": "shop", "ended": False, "state": "presync", "role": "source"}], True)):
        monkeypatch.setattr(halted.Sessions, "statuses", lambda self: [])
        with memory_in_place.halt_of(here(), Podman(), facts) as halt:
            os.mkdir(halt.memory + ".new")
            os.makedirs(facts["checkpoint_dir"], exist_ok=True)
            monkeypatch.setattr(halted.Sessions, "statuses", lambda self, status=status: status)
        assert os.path.exists(facts["checkpoint_dir"]) is left
        assert not os.path.exists(halt.folder)


@pytest.mark.parametrize("left", ["memory.frozen", "memory.json"])
def test_what_a_killed_run_has_left_is_let_run_by_the_next(facts, called, left):
    folder = facts["static_dir"] + "/handover-backup"
    os.mkdir(folder)
    open(folder + "/" + left, "w", encoding="ascii").close()
    with memory_in_place.halt_of(here(), Podman(), facts):
        pass
    assert called == [("internal", "let-run", folder + "/memory.json")]


def test_nothing_is_removed_under_a_helper_that_outlives_its_run(facts, monkeypatch):
    def refuse(_self, *_words, **_more):
        raise runtime.HandoverError("CRIU is still at work")

    monkeypatch.setattr(pcopy.Pcopy, "call", refuse)
    folder = facts["static_dir"] + "/handover-backup"
    os.mkdir(folder)
    open(folder + "/memory.json", "w", encoding="ascii").close()
    with pytest.raises(runtime.HandoverError, match="still at work"):
        memory_in_place.halt_of(here(), Podman(), facts).__enter__()
    assert os.listdir(folder) == ["memory.json"]


@pytest.mark.parametrize("seconds", [600, 0])
def test_the_mark_of_the_freeze_stays_until_criu_has_ended(facts, monkeypatch, seconds):
    """By it the process left behind, and the next run, know that they may let the container run."""
    monkeypatch.setattr(memory_in_place, "GO_ON_SECONDS", seconds)
    monkeypatch.setattr(memory_in_place, "time", types.SimpleNamespace(monotonic=iter(range(99)).__next__, sleep=lambda _s: None))
    asked = []

    def call(self, *words, **_more):
        assert self.runtime.timeout == seconds
        asked.append(words)
        assert os.path.exists(mark)
        if len(asked) < 3 or not seconds:
            raise runtime.HandoverError("CRIU is still at work")
        os.remove(mark)

    monkeypatch.setattr(pcopy.Pcopy, "call", call)
    halt = memory_in_place.halt_of(here(), Podman(), facts).__enter__()
    mark = halt.memory + ".frozen"
    open(mark, "w", encoding="ascii").close()
    os.mkdir(facts["checkpoint_dir"])
    os.mkdir(halt.memory + ".new")
    if seconds:
        halt.__exit__(None, None, None)
    else:
        with pytest.raises(runtime.HandoverError, match="it failed; and shop may stand still: CRIU is still at work"):
            halt.__exit__(None, runtime.HandoverError("it failed"), None)
    assert os.path.exists(mark) is os.path.exists(facts["checkpoint_dir"]) is (not seconds)
    assert os.path.exists(halt.folder) is (not seconds)


@pytest.mark.parametrize(
    ("change", "settings", "annotations", "why"),
    [
        ({"runtime": "crun"}, None, {}, "it runs under crun, and only runc passes CRIU's hooks on"),
        ({}, "", {}, "CRIU's settings do not name the helper's action script"),
        ({}, None, {"org.criu.config": "/etc/own.conf"}, r"an annotation of it names other settings of CRIU's \(/etc/own.conf\)"),
        ({"pid": 8}, None, {}, "it has no cgroup of version 2 of its own"),
    ],
)
def test_where_it_has_to_be_halted(facts, monkeypatch, tmp_path, change, settings, annotations, why):
    if settings is not None:
        (tmp_path / "runc.conf").write_text(settings)
    podman = Podman()
    podman.annotations = annotations
    found = {**facts, **change}
    assert not isinstance(memory_in_place.halt_of(here(), podman, found), memory_in_place.MemoryInPlace)
    with pytest.raises(AssertionError, match="^shop is ended and restored for its memory, which takes longer: " + why):
        raise AssertionError(memory_in_place.HALTED.format("shop", memory_in_place.why_halted(podman, found)))


def test_a_container_without_volumes(facts, monkeypatch, tmp_path, called):
    """Its memory is taken by the helper, too."""
    made = {"checkpoint/inventory.img": "", "layer/file": "layer"}

    def call(_self, *words, **_more):
        called.append(words)
        for name, text in made.items():
            path = os.path.join(facts["static_dir"], "handover-backup/memory", name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as target:
                target.write(text)
        return {"frozen_ms": 12.5}

    monkeypatch.setattr(pcopy.Pcopy, "call", call)
    monkeypatch.setattr(runtime.Runtime, "tool", lambda self, tool, _package: tool)
    folder = tmp_path / "kept"
    folder.mkdir()
    real = runtime.Runtime(types.SimpleNamespace(), 60)
    monkeypatch.setattr(runtime.Runtime, "run", lambda self, argv, **_more: subprocess.run([str(word) for word in argv], check=True))
    monkeypatch.setattr(engine, "Podman", lambda _runtime: Podman())
    taker = snapshot_taker.SnapshotTaker(real, Podman(), str(tmp_path), False)
    kind = taker._with_memory("before", snapshot_taker.Subject("shop", {}, []), facts, str(folder))
    assert (kind["disks"], kind["paused_ms"]) == (False, 12)
    assert sorted(os.listdir(folder)) == ["checkpoint", "layer"]


def test_what_a_service_has_left_is_let_run(facts, called, monkeypatch):
    podman = types.SimpleNamespace(containers=lambda: [{"Id": "1", "Names": ["shop"]}], inspect=lambda _identifier: {"StaticDir": facts["static_dir"]})
    monkeypatch.setattr(engine, "Podman", lambda _runtime: podman)
    of_podman = engine.PodmanEngine(here())
    assert not of_podman.let_left_run("web") and not of_podman.let_left_run("shop")
    folder = facts["static_dir"] + "/handover-backup"
    os.mkdir(folder)
    open(folder + "/memory.json", "w", encoding="ascii").close()
    assert called == [] and of_podman.let_left_run("shop")
    assert called == [("internal", "let-run", folder + "/memory.json")]
