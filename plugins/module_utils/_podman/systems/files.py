# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files that a container with a whole system needs: in its own layer, and the unit that starts it.

In the layer no link of the container's is followed. It may run.
"""

from __future__ import annotations

import contextlib
import os
import typing as t

from ..._core import below, container_unit, inits
from ..._core.host import read_text
from ..._core.runtime import HandoverError, Runtime
from .. import service_files
from ..podman import Podman

KEYS, MANAGERS, INITTAB = "root/.ssh/authorized_keys", "etc/systemd/system/user@.service", "etc/inittab"
NOTHING = "/dev/null"


class Wanted(t.NamedTuple):
    """A file of the layer: whether it is as it should be, and what makes it so."""

    reason: str
    right: t.Callable[[str], bool]
    bring: t.Callable[[str], t.Any]


def _keys(keys: t.Sequence[str]) -> Wanted:
    content = "".join(key + "\n" for key in keys).encode()

    def bring(folder: str) -> None:
        below.make_folders(folder, KEYS, 0o700)
        below.put(folder, KEYS, content, 0o600)

    return Wanted("root's authorized keys are others", lambda folder: below.read(folder, KEYS) == content, bring)


def _managers() -> Wanted:
    """CRIU does not restore the manager of a user; logins do without."""

    def bring(folder: str) -> None:
        below.make_folders(folder, MANAGERS, 0o755)
        below.link(folder, MANAGERS, NOTHING)

    return Wanted("user@.service is not masked", lambda folder: below.link_of(folder, MANAGERS) == NOTHING, bring)


def _mended(text: str) -> str:
    return inits.without_getty(inits.power(text))


def _inittab() -> Wanted:
    def right(folder: str) -> bool:
        text = (below.read(folder, INITTAB) or b"").decode("utf-8", "surrogateescape")
        return _mended(text) == text

    return Wanted("its inittab has terminals, or no line for a stop", right, lambda folder: below.change_file(folder, INITTAB, _mended))


def wanted(init: str, keys: t.Sequence[str]) -> list[Wanted]:
    """The files of the layer. Without keys those that are there stay."""
    of_init = {inits.SYSTEMD: [_managers()], inits.SYSVINIT: [_inittab()]}
    return [*of_init.get(init, []), *([_keys(keys)] if keys else [])]


class Files:
    """The files of one container on this host."""

    def __init__(self, runtime: Runtime, params: t.Mapping[str, t.Any], check: bool) -> None:
        self.runtime, self.params, self.check = runtime, params, check
        self.podman = Podman(runtime)
        self.name = params["name"]

    def run(self) -> dict[str, t.Any]:
        """Looks, and brings what is missing; a container that a run would have made is not asked for."""
        if self.runtime.run([self.podman.path, "container", "exists", self.name], accept=(0, 1)).rc:
            if self.check:
                return {"changed": True, "reasons": ["it would be made"]}
            raise HandoverError(f"there is no container {self.name} on this host: make it first")
        reasons = [*self._layer(), *self._unit()]
        return {"changed": bool(reasons), "reasons": reasons}

    def _layer(self) -> t.Iterator[str]:
        asked = wanted(self.params["init"], self.params["authorized_keys"])
        with self._mounted() if asked else contextlib.nullcontext("") as folder:
            for each in asked:
                if not each.right(folder):
                    if not self.check:
                        each.bring(folder)
                    yield each.reason

    @contextlib.contextmanager
    def _mounted(self) -> t.Iterator[str]:
        """podman counts who has it mounted: it may run."""
        folder = self.podman.run("mount", self.name).stdout.strip()
        try:
            yield folder
        finally:
            self.podman.run("umount", self.name)

    def _unit(self) -> t.Iterator[str]:
        own = container_unit.name_of(self.name)
        path = os.path.join(container_unit.FOLDER, own)
        said = self.podman.run("container", "inspect", "--format", "{{.ConmonPidFile}} {{.Config.StopTimeout}}", self.name).stdout.split()
        content = container_unit.text(
            self.name, "system_container", f"Container {self.name}, which has a whole system", self.params["mountpoints"],
            podman=self.podman.path, pid_file=said[0], stop=int(said[1]) + 30,
        )  # fmt: skip
        before = read_text(path)
        if before == content:
            return
        if not self.check:
            service_files.write_text(path, content.encode())
            self.runtime.run([self.runtime.tool("systemctl", "systemd"), "daemon-reload"])
        yield f"the unit {own} is {'another' if before else 'not there'}"
