# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""QEMU's own servers of a guest's images, while it is off: one for each disk, on a socket that root alone reaches.

Each is a unit of systemd's, which ends with the one connection that it takes: so the image is closed as QEMU closes it, whatever becomes of this process.
While a server has an image, QEMU's lock keeps a guest from starting on it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import typing as t
from urllib.parse import quote

from ..._core.runtime import Runtime
from ..._core.transient_unit import TransientUnit

# Sockets have short names, and go with a start of the host.
FOLDER = "/run"


def address(socket: str, disk: str, bitmap: str = "") -> str:
    """An export as QEMU's tools write it, and the helper takes it; with a bitmap of the image if that is served, too."""
    return f"nbd+unix:///{quote(disk, safe='')}?socket={quote(socket)}" + (f"&bitmap={quote(bitmap, safe='')}" if bitmap else "")


class ImageServers:
    """Of one guest."""

    def __init__(self, runtime: Runtime, uuid: str) -> None:
        self.runtime, self.uuid = runtime, uuid
        self.folder = ""
        self.units: list[TransientUnit] = []

    def begin(self, disks: t.Mapping[str, tuple[str, str]], write: bool, bitmaps: t.Mapping[str, str] | None = None) -> dict[str, str]:
        """By disk its image and the format, and a bitmap that is served with it. Returns the socket of each."""
        server = self.runtime.tool("qemu-nbd", "qemu-utils")
        self.folder = tempfile.mkdtemp(prefix="handover-", dir=FOLDER)
        self.units = [TransientUnit(self.runtime, f"handover-image-{self.uuid}-{name}") for name in disks]
        sockets = {name: os.path.join(self.folder, name) for name in disks}
        for unit, (name, (path, kind)) in zip(self.units, disks.items()):
            unit.stop()  # of a run that was killed
            way = "--discard=unmap" if write else "--read-only"
            marked = [f"--bitmap={bitmaps[name]}"] if bitmaps and bitmaps.get(name) else []
            argv = [server, "--fork", way, f"--format={kind}", f"--export-name={name}", f"--socket={sockets[name]}", *marked, path]
            unit.start(argv, f"Serve {path} for a snapshot", "forking", max(1, int(self.runtime.remaining())))
        return sockets

    def end(self) -> None:
        """When it returns, the images are closed."""
        for unit in self.units:
            unit.stop()
        self.units = []
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)
