# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The memory of a container of Docker's in a copy: dumped where it is, and gone back to.

runc itself dumps it, as for a move, and it runs on. On the way back Docker restores it by a checkpoint that is empty: the gate before runc names the
images that the copy has laid down. It does so for as long as this process waits for it, so a dump that a killed run has left is given to nobody.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import typing as t

from ..._core.move import LIVE, Move
from ..._core.runtime import HandoverError, Runtime
from ..._docker import checks, gate, kept_addresses
from ..._docker.api import Docker
from ..._docker.kept_policy import KeptPolicy
from ..._docker.live import BASICS
from ..._podman.copies import memory_in_place
from ..._podman.halted import GO_ON_SECONDS
from ..._podman.podman import Podman
from .. import docker_live

Document = t.Mapping[str, t.Any]

RUNTIME = "runc"
TURN = "/usr/local/libexec/handover/docker/turn"
# The helper reads them at the gate: recovery/memory.go.
NOTES = "/run/handover/memory"
WITHOUT = "leave its memory out (handover_memory=false)"

# The checks of a move with memory that are about another host, its network, the time that a move takes, or the session that carries a tmpfs. An open
# database is told of any engine's containers.
OF_A_MOVE = (
    "connections", "memory_options", "silence", "memory", "cpu", "auto_converge", "mtu", "criu_versions", "kernel", "huge_pages", "tmpfs_attributes",
    "databases",
)  # fmt: skip

# As the checks of a move name the ways that are left.
_OFFLINE = re.compile(r"(?:use|move (?:it|\S+) with) migrate_mode=offline")
_IGNORED = re.compile(r",? or list the check '\w+' in handover_ignore_checks[^;]*")


def _tmpfs_attributes(move: Move) -> t.Iterator[str]:
    for tmpfs in move.container["tmpfs"]:
        if tmpfs["attributes"]:
            yield "the tmpfs {0} of {1} has extended attributes, which its dump does not have: move its files to a volume, or {2}".format(
                tmpfs["place"], move.workload, WITHOUT
            )


CHECKS: t.Mapping[str, t.Callable[[Move], t.Iterator[str]]] = {
    "runtime": checks.CHECKS["runtime"],
    **{name: check for name, check in docker_live.CHECKS.items() if name not in OF_A_MOVE},
    "fixed_address": kept_addresses.drawn_again,
    "tmpfs_attributes": _tmpfs_attributes,
}


def with_places(facts: dict[str, t.Any]) -> dict[str, t.Any]:
    """With its folders under the names of podman's, by which copies know them. Its /dev/shm is its own, and in the dump."""
    return {**facts, "static_dir": facts["own_dir"], "docker_checkpoint": facts["checkpoint_dir"], "checkpoint_dir": facts["images_dir"], "shm_dir": ""}


def look_for_dump(name: str, looked: Document) -> None:
    """An error where CRIU would refuse it, or Docker would not restore it: `looked` is workload_info's answer."""
    where = looked["host"]["name"]
    # Of one host, so a sentence may come for each of both sides.
    move = Move(name, where, where, LIVE, looked, looked)
    found = next(filter(None, ([sentence for check in table.values() for sentence in check(move)] for table in (BASICS, CHECKS))), [])
    if found:
        raise HandoverError("the memory of {0} is not taken: {1}".format(name, "; ".join(dict.fromkeys(map(_in_a_copy, found)))))


def _in_a_copy(sentence: str) -> str:
    """A sentence of a move with the way that is left to a copy."""
    return _OFFLINE.sub(WITHOUT, _IGNORED.sub("", sentence))


def look_for_restore(docker: Docker, name: str) -> None:
    """An error where Docker of this host restores nothing, or would restore it without the gate."""
    if not (docker.get("info") or {}).get("ExperimentalBuild"):
        raise HandoverError(
            '{0} cannot run on from its memory, since Docker restores no container here: set "experimental": true in /etc/docker/daemon.json and restart it, '
            "or {1}".format(name, WITHOUT)
        )
    obstacle = gate.obstacle()
    if obstacle:
        raise HandoverError("{0} cannot run on from its memory, since {1}: {2}, or {3}".format(name, obstacle, gate.CURE, WITHOUT))


class DockerMemory(memory_in_place.MemoryInPlace):
    """Of one container, for one copy of it. podman is not asked."""

    def __init__(self, runtime: Runtime, docker: Docker, facts: Document) -> None:
        placed = facts if "docker_checkpoint" in facts else with_places(dict(facts))
        # A network namespace without a network has no door.
        namespace = placed["network_namespace"] if placed["networks"] else ""
        super().__init__(runtime, Podman(runtime), {**placed, "network_namespace": namespace}, memory_in_place.cgroup_of(placed))
        self.docker = docker

    def _words(self) -> list[str]:
        return [TURN, "dump", self.name, self.facts["id"], self.facts["runtime_root"], self.facts["checkpoint_dir"], self.cgroup]

    def _runs(self) -> bool:
        inspect = self.docker.inspect(self.facts["id"])
        return bool(inspect and inspect["State"]["Running"])


def run_on(runtime: Runtime, docker: Docker, name: str, facts: Document) -> None:
    """It runs on from the images in its folder, and has its policy again. Where it does not come back, nothing of them is left."""
    policy = KeptPolicy(docker, facts["id"])
    late = Runtime(runtime.module, GO_ON_SECONDS)
    try:
        with noted(facts):
            # While the note counts nothing else starts it.
            if (docker.inspect(facts["id"]) or {}).get("State", {}).get("Running"):
                raise HandoverError("{0} was started by another hand: keep others from it, and go back once more".format(name))
            late.run([TURN, "restore", name, facts["docker_checkpoint"]])
    except BaseException as exc:
        with contextlib.suppress(HandoverError):
            policy.put_back()
        if not isinstance(exc, HandoverError):
            raise
        raise HandoverError(
            "{0} is there with the disks of its copy, and does not run on from its memory: {1}: start it anew (docker start {0})".format(name, exc)
        ) from exc
    finally:
        shutil.rmtree(facts["checkpoint_dir"], ignore_errors=True)
    policy.put_back()


@contextlib.contextmanager
def noted(facts: Document) -> t.Iterator[None]:
    """Inside, the gate before runc has the container restored from its images, and lets nothing start it."""
    os.makedirs(NOTES, mode=0o700, exist_ok=True)
    path = os.path.join(NOTES, facts["id"] + ".json")
    with open(path, "a", encoding="utf-8") as note:
        try:
            fcntl.flock(note, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            raise HandoverError("{0} is on its way back in another run: wait until that has ended".format(facts["name"])) from exc
        try:
            note.truncate(0)
            json.dump({"images": facts["checkpoint_dir"], "work": facts["own_dir"]}, note)
            note.flush()
            yield
        finally:
            os.unlink(path)
