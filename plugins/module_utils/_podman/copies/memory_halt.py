# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The halt of a container for its backup or snapshot: two scripts that the helper runs around the freeze, and the archive that comes of them.

The scripts are the helper's, and not this process's: it halts the container after its last pass over the running one, and has it go on although this
process is gone. They and the copies lie beside podman's own files of the container, on the file system of the dump, which is linked and not copied.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import time
import typing as t

from ..._core.backups import MEMORY
from ..._core.runtime import HandoverError, Runtime
from .. import memory_files
from ..halted import GO_ON_SECONDS, go_on, go_on_words, halt_words, look_for_move
from ..podman import Held, Podman

FOLDER = "handover-backup"
# CRIU writes it at the end of a dump, and podman restores where it is.
INVENTORY = "inventory.img"

# A timer's unit is of low priority. A pause is not, and what is restored would inherit it.
_PRIORITY = "renice -n 0 -p $$ >&2 || true; ionice --class 0 -p $$ || true"

# podman restores any dump that it finds: one of an earlier halt may not stay, and nothing that runs needs it. To ask whether it runs waits for others that
# have the container in hand, such as a move: the dump that stands there then is not this one's.
_HALT = """\
set -eu
{priority}
echo $$ >{folder}/begun
{runs} || {{ echo {ended} >&2; exit 1; }}
rm -rf {dump}
touch {folder}/halting
{halt} >&2
touch {folder}/halted
mkdir {folder}/memory
{copies}
touch {folder}/whole
"""

_RUNS = """[ "$({podman} container inspect --format '{{{{.State.Running}}}}' {name})" = true ]"""

# From its end on the container is nobody's here: one that is down later has ended, or was moved away, and its dump is not this one's.
_GO_ON = """\
set -eu
{priority}
if {runs}; then
    rm -f {folder}/halting
    [ -e {folder}/halted ] || exit 0
    rm -f {folder}/whole
    echo {started} >&2
    exit 1
fi
[ -e {folder}/halting ] && [ -e {inventory} ] || {{ echo {ended} >&2; exit 1; }}
{go_on} >&2
rm {folder}/halting
"""

_PACK = """\
set -eu
[ -e {folder}/whole ] || exit 0
tar --create --file={folder}/{archive}.new --directory={folder}/memory --numeric-owner --acls --xattrs --xattrs-include='*' --sparse .
mv {folder}/{archive}.new {folder}/{archive}
"""


class MemoryHalt:
    """Of one container, for one copy of it."""

    def __init__(self, runtime: Runtime, podman: Podman, facts: t.Mapping[str, t.Any]) -> None:
        self.runtime = runtime
        self.podman = podman
        self.facts = facts
        self.name: str = facts["name"]
        self.folder = os.path.join(facts["static_dir"], FOLDER)
        self._lock = -1

    @property
    def archive(self) -> str:
        """The memory, when the container has gone on."""
        return os.path.join(self.folder, MEMORY)

    @property
    def memory(self) -> str:
        """The folder of the dump, the layer and all beside them, as files."""
        return os.path.join(self.folder, "memory")

    def options(self, limit: int) -> list[str]:
        """The helper's words."""
        return ["--halt=" + self._script("halt"), "--go-on=" + self._script("go-on"), "--halt-limit={0}".format(limit)]

    @property
    def pack(self) -> str:
        """The command that makes the archive. The container runs meanwhile."""
        return self._script("pack")

    def _script(self, name: str) -> str:
        return "sh " + shlex.quote(os.path.join(self.folder, name))

    def __enter__(self) -> MemoryHalt:
        self._lock = os.open(self.facts["static_dir"], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._look_for_others()
        except BaseException as exc:
            os.close(self._lock)
            if isinstance(exc, BlockingIOError):
                raise HandoverError("another copy of the memory of {0} is being taken: wait until that has ended".format(self.name)) from exc
            raise
        shutil.rmtree(self.folder, ignore_errors=True)  # of a run that was killed
        os.mkdir(self.folder, mode=0o700)
        for name, text in self._texts().items():
            with open(os.path.join(self.folder, name), "w", encoding="utf-8") as target:
                target.write(text)
        return self

    def __exit__(self, kind: t.Any, error: BaseException | None, trace: t.Any) -> None:
        """If the helper was killed in the pause, the container goes on from here."""
        try:
            self._wait()
            self._go_on_if_down()
        except HandoverError as second:
            raise HandoverError("{0}; and {1} does not run on: {2}".format(error or "it was halted", self.name, second)) from error
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)
            os.close(self._lock)

    def recover(self) -> bool:
        """Whether a halt of a run that was killed with all of its processes had left the container down: it goes on from there."""
        if self._halting() is not None or not self._go_on_if_down():
            return False
        shutil.rmtree(self.folder, ignore_errors=True)
        return True

    def _look_for_others(self) -> None:
        """A move has a dump of its own in the same place, and a halt would take the tasks away that it follows."""
        if self._halting() is not None:
            raise HandoverError("a run that was killed is still at the memory of {0}: wait until that has ended".format(self.name))
        look_for_move(self.runtime, self.name)

    def _halting(self) -> int | None:
        """The process that halts it, as long as it lives."""
        try:
            with open(os.path.join(self.folder, "begun"), encoding="ascii") as source:
                pid = int(source.read() or 0)
            with open("/proc/{0}/cmdline".format(pid), "rb") as source:
                return pid if os.fsencode(self.folder) in source.read() else None
        except (OSError, ValueError):
            return None

    def _wait(self) -> None:
        """The helper may be gone, and its halt still be at work."""
        end = time.monotonic() + GO_ON_SECONDS
        while self._halting() is not None and time.monotonic() < end:
            time.sleep(0.2)

    def _go_on_if_down(self) -> bool:
        """Whether a halt had ended the container, and it goes on now."""
        halting = os.path.exists(os.path.join(self.folder, "halting"))
        if not halting or self._runs() or not os.path.exists(os.path.join(self.facts["checkpoint_dir"], INVENTORY)):
            return False
        look_for_move(self.runtime, self.name)
        go_on(self.runtime, self.name, self.facts)
        return True

    def _runs(self) -> bool:
        """The time for the copy may be up, and podman may have the container in hand for a while."""
        podman, end = Podman(Runtime(self.runtime.module, GO_ON_SECONDS)), time.monotonic() + GO_ON_SECONDS
        while True:
            try:
                return bool(podman.inspect(self.facts["id"])["State"]["Running"])
            except Held:
                if time.monotonic() > end:
                    raise
                time.sleep(1)

    def _texts(self) -> dict[str, str]:
        dump = self.facts["checkpoint_dir"]
        words = {
            "folder": shlex.quote(self.folder), "priority": _PRIORITY, "dump": shlex.quote(dump), "inventory": shlex.quote(os.path.join(dump, INVENTORY)),
            "runs": _RUNS.format(podman=shlex.quote(self.podman.path), name=shlex.quote(self.name)),
            "ended": shlex.quote("{0} has ended by itself, and has no memory".format(self.name)),
        }  # fmt: skip
        started = "{0} was started by another hand while its memory was taken: keep others from it, and take the backup again".format(self.name)
        return {
            "halt": _HALT.format(halt=shlex.join(halt_words(self.runtime, self.podman, self.name, self.facts)), copies=self._copies(), **words),
            "go-on": _GO_ON.format(go_on=shlex.join(go_on_words(self.runtime, self.podman, self.name, self.facts)), started=shlex.quote(started), **words),
            "pack": _PACK.format(archive=MEMORY, **words),
        }

    def _copies(self) -> str:
        """The dump is read from now on and not written: a link is enough. podman removes its own when the container has gone on."""
        how = {memory_files.DUMP: ["--link"], memory_files.LAYER: ["--sparse=always", "--reflink=auto"]}
        lines = []
        for name, path in memory_files.places(self.facts).items():
            copy = shlex.join(["cp", "--archive", "--no-target-directory", *how.get(name, []), path, os.path.join(self.memory, name)])
            lines.append(copy if name in how else "[ ! -e {0} ] || {1}".format(shlex.quote(path), copy))
        return "\n".join(lines)
