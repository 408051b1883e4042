# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The halt of a container for its backup or snapshot: two scripts that the helper runs around the freeze, and the archive that comes of them.

The scripts are the helper's, and not this process's: it halts the container after its last pass over the running one, and has it go on although this
process is gone. They and the copies lie beside podman's own files of the container, on the file system of the dump, which is linked and not copied.
"""

from __future__ import annotations

import os
import shlex
import shutil
import typing as t

from ..._core.backups import MEMORY
from ..._core.runtime import HandoverError, Runtime
from .. import memory_files
from ..halted import GO_ON_SECONDS, go_on, go_on_words, halt_words
from ..podman import Podman

FOLDER = "handover-backup"

# A timer's unit is of low priority. A pause is not, and what is restored would inherit it.
_PRIORITY = "renice -n 0 -p $$ >&2 || true; ionice --class 0 -p $$ || true"

_HALT = """\
set -eu
{priority}
{halt} >&2
touch {folder}/halted
mkdir {folder}/memory
{copies}
touch {folder}/whole
"""

_GO_ON = """\
set -u
{priority}
if [ "$({podman} container inspect --format '{{{{.State.Running}}}}' {name})" = true ]; then
    [ -e {folder}/halted ] || exit 0
    rm -f {folder}/whole
    echo {started} >&2
    exit 1
fi
exec {go_on} >&2
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
        shutil.rmtree(self.folder, ignore_errors=True)  # of a run that was killed
        os.mkdir(self.folder, mode=0o700)
        for name, text in self._texts().items():
            with open(os.path.join(self.folder, name), "w", encoding="utf-8") as target:
                target.write(text)
        return self

    def __exit__(self, kind: t.Any, error: BaseException | None, trace: t.Any) -> None:
        """If the helper was killed in the pause, the container goes on from here."""
        try:
            if os.path.exists(os.path.join(self.folder, "halted")) and not self._runs():
                go_on(self.runtime, self.name, self.facts)
        except HandoverError as second:
            raise HandoverError("{0}; and {1} does not run on: {2}".format(error or "it was halted", self.name, second)) from error
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _runs(self) -> bool:
        """The time for the backup may be up."""
        return bool(Podman(Runtime(self.runtime.module, GO_ON_SECONDS)).inspect(self.facts["id"])["State"]["Running"])

    def _texts(self) -> dict[str, str]:
        words = {"folder": shlex.quote(self.folder), "name": shlex.quote(self.name), "podman": shlex.quote(self.podman.path), "priority": _PRIORITY}
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
