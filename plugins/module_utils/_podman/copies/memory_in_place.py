# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The memory of a container that runs on where it stood: the helper dumps it around the last pass over its disks, and nothing of it ends.

Where the helper cannot hold CRIU, the container is halted and restored (memory_halt.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import time
import typing as t

from ..._core import host
from ..._core.backups import MEMORY
from ..._core.pcopy import HELPER, Pcopy
from ..._core.runtime import HandoverError, Runtime
from .. import book, memory_files
from ..halted import ESTABLISHED, GO_ON_SECONDS, look_for_move
from ..host_offer import CONFIGURATION_ANNOTATION, CRIU_CONFIGURATION
from ..podman import Podman
from .memory_halt import FOLDER, MemoryHalt

Facts = t.Mapping[str, t.Any]

# The role pcopy lays it down, and names it in CRIU's configuration.
ACTION_SCRIPT = os.path.join(os.path.dirname(HELPER), "criu-hook")
SPEC = "memory.json"
BOOK_SECONDS = 60
# systemd ends the commands behind a service after 90 seconds.
LEFT_SECONDS = 60
HALTED = "{0} is ended and restored for its memory, which takes longer: {1}"

_PACK = """\
set -eu
[ -e {memory}/{dump} ] || exit 0
tar --create --file={folder}/{archive}.new --directory={memory} --numeric-owner --acls --xattrs --xattrs-include='*' --sparse .
mv {folder}/{archive}.new {folder}/{archive}
"""

# Why it has to be halted, with the container and CRIU's options: the helper holds CRIU by its action script, and the tasks by their cgroup.
REASONS: tuple[tuple[t.Callable[[Facts, t.Mapping[str, str]], t.Any], str], ...] = (
    (lambda facts, options: facts["runtime"] != "runc", "it runs under {runtime}, and only runc passes CRIU's hooks on"),
    (lambda facts, options: facts["criu_file"] != CRIU_CONFIGURATION, "an annotation of it names other settings of CRIU's ({criu_file})"),
    (
        lambda facts, options: options.get("action-script") != ACTION_SCRIPT or not os.access(ACTION_SCRIPT, os.X_OK),
        "CRIU's settings do not name the helper's action script: apply the role livefleet.handover.pcopy to this host",
    ),
    (lambda facts, options: not facts["cgroup"], "it has no cgroup of version 2 of its own, by which it could stand still"),
)


class MemoryInPlace(MemoryHalt):
    """Of one container, for one copy of it."""

    def __init__(self, runtime: Runtime, podman: Podman, facts: Facts, cgroup: str) -> None:
        super().__init__(runtime, podman, facts)
        self.cgroup = cgroup
        self._root = ""

    def options(self, limit: int) -> list[str]:
        """The helper's words."""
        del limit  # each step has podman's
        return ["--memory=" + os.path.join(self.folder, SPEC)]

    def alone(self) -> float:
        """Takes the memory of a container without volumes: milliseconds for which it stood still."""
        return float(Pcopy(self.runtime).call("internal", "dump-in-place", os.path.join(self.folder, SPEC))["frozen_ms"])

    def __enter__(self) -> MemoryInPlace:
        super().__enter__()
        try:
            self._keep(True)
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            os.close(self._lock)
            raise
        return self

    def _keep(self, whether: bool) -> None:
        """podman dumps no container that it removes by itself, as it does one that a unit makes anew at each start.

        A killed run leaves the mark off, until the next one or the next start: the unit removes it all the same.
        """
        if not self.facts.get("auto_remove"):
            return
        self._root = self._root or Podman(Runtime(self.runtime.module, BOOK_SECONDS)).root()
        why = book.removed_by_itself(self._root, self.facts["id"], not whether)
        if why and whether:
            raise HandoverError("{0} is removed when it ends (--rm), and podman dumps none such: {1}".format(self.name, why))

    def __exit__(self, kind: t.Any, error: BaseException | None, trace: t.Any) -> None:
        """Nothing of it has ended. A helper that was killed leaves a dump behind, which podman would restore."""
        try:
            if self._stands() or os.path.exists(self.memory + ".new"):
                self._let_run()
            if os.path.exists(self.memory + ".new"):
                self._runs()  # podman answers when it has ended
                self._forget()
        except HandoverError as second:
            raise HandoverError("{0}; and {1} may stand still: {2}".format(error or "its memory was taken", self.name, second)) from error
        finally:
            if not self._stands():  # by its mark the process left behind and the next run know that they may let it run
                shutil.rmtree(self.folder, ignore_errors=True)
            os.close(self._lock)
            with contextlib.suppress(HandoverError):  # the time for the copy may be up
                self._keep(False)

    def _stands(self) -> bool:
        return os.path.exists(self.memory + ".frozen")

    def _let_run(self) -> None:
        let_run(self.runtime, self.folder, GO_ON_SECONDS)

    def _look_for_others(self) -> None:
        super()._look_for_others()
        # A run that was killed with all of its processes has left it standing still. The helper refuses if it, or CRIU, outlives that run.
        if self._stands() or os.path.exists(os.path.join(self.folder, SPEC)):
            Pcopy(self.runtime).call("internal", "let-run", os.path.join(self.folder, SPEC))

    def _forget(self) -> None:
        with contextlib.suppress(HandoverError):
            look_for_move(self.runtime, self.name)  # a move has its own dump in that place
            shutil.rmtree(self.facts["checkpoint_dir"], ignore_errors=True)

    def _words(self) -> list[str]:
        """The command that dumps it."""
        return [self.podman.path, "container", "checkpoint", "--keep", "--leave-running", *ESTABLISHED, self.name]

    def _texts(self) -> dict[str, str]:
        places = memory_files.places(self.facts)
        beside = [{"name": name, "path": places[name]} for name in memory_files.BESIDE]
        archives = [{"name": memory_files.SHARED, "path": self.facts["shm_dir"]}] if os.path.isdir(self.facts["shm_dir"]) else []
        spec = {
            "dump": {
                "argv": self._words(),
                "timeout": int(self.runtime.timeout), "gate": self.facts["checkpoint_dir"], "cgroup": self.cgroup,
                "log": os.path.join(self.facts["static_dir"], "dump.log"),
            },
            "namespace": self.facts["network_namespace"], "into": self.memory, "as": memory_files.DUMP,
            "layers": [{"name": memory_files.LAYER, "path": places[memory_files.LAYER]}], "archives": archives, "beside": beside,
            "databases": ["/"],
        }  # fmt: skip
        words = {"folder": shlex.quote(self.folder), "memory": shlex.quote(self.memory), "dump": memory_files.DUMP, "archive": MEMORY}
        return {"pack": _PACK.format(**words), SPEC: json.dumps(spec)}


def let_run(runtime: Runtime, folder: str, seconds: float) -> None:
    """The helper refuses as long as CRIU is at work, and the time for the copy may be up."""
    end = time.monotonic() + seconds
    while True:
        try:
            Pcopy(Runtime(runtime.module, seconds)).call("internal", "let-run", os.path.join(folder, SPEC))
        except HandoverError:
            if time.monotonic() > end:
                raise
            time.sleep(1)
        else:
            return


def let_left_run(runtime: Runtime, static_dir: str) -> bool:
    """Whether a run that was killed with all of its processes had left a note of a dump: the container runs on."""
    folder = os.path.join(static_dir, FOLDER)
    if not os.path.exists(os.path.join(folder, SPEC)):
        return False
    let_run(runtime, folder, LEFT_SECONDS)
    return True


def halt_of(runtime: Runtime, podman: Podman, facts: Facts) -> MemoryHalt:
    """The way in which the memory of a container is taken."""
    if why_halted(podman, facts):
        return MemoryHalt(runtime, podman, facts)
    return MemoryInPlace(runtime, podman, facts, cgroup_of(facts))


def why_halted(podman: Podman, facts: Facts) -> str:
    """Why a container has to be halted and restored for its memory; empty: it runs on where it stood."""
    options = host.parse_criu_configuration(host.read_text(CRIU_CONFIGURATION))
    annotations = (podman.inspect(facts["id"]).get("Config") or {}).get("Annotations") or {}
    known = {"runtime": facts["runtime"], "criu_file": annotations.get(CONFIGURATION_ANNOTATION, CRIU_CONFIGURATION), "cgroup": cgroup_of(facts)}
    return next((sentence.format(**known) for applies, sentence in REASONS if applies(known, options)), "")


def cgroup_of(facts: Facts) -> str:
    """The cgroup by which it can stand still, if it has one of its own."""
    options = host.parse_criu_configuration(host.read_text(CRIU_CONFIGURATION))
    return host.freezable_cgroup(facts["pid"], facts["id"], options) if facts.get("pid") else ""
