# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads an OSD's metadata into memory when its host boots.

Three files belong together: a unit that reads, once for each boot; a drop-in of the OSD's unit that starts it and waits for it; and a mark
below /run, so that nothing is read before the next boot, while the OSD is restarted in any other way. For a FileStore a fourth says which
pieces of its object map's tables are read. A file that is not named in there was written later, and is read whole.
"""

from __future__ import annotations

import json
import os
import shlex
import typing as t

from .._core.pcopy import HELPER, Pcopy
from .._core.runtime import HandoverError, Runtime
from .compact import object_map_size
from .object_map import read_first
from .osd import Osd
from .pin import FOLDER

UNITS = "/etc/systemd/system"
# The devices are held open for so long: by then the OSD has opened them, or does not come up.
PIN_SECONDS = 600
# The time that the unit may take beyond the reading: BlueStore's tool has to find out where the database lies.
LOOK_SECONDS = 60
# Bytes of an object map that are searched for the part that a start reads: 4 s of a processor for each GiB. A larger one is read whole, within the time.
LOOK_LIMIT = 4 << 30


class Boot:
    """The files that are read for one OSD when its host boots."""

    def __init__(self, runtime: Runtime, osd: Osd) -> None:
        self.runtime = runtime
        self.osd = osd
        self.name = f"handover-boot-osd.{osd.id}.service"
        self.unit = os.path.join(UNITS, self.name)
        self.drop_in = os.path.join(UNITS, f"{osd.unit}.d", "handover-boot.conf")
        self.pieces = os.path.join(UNITS, f"handover-boot-osd.{osd.id}.json")
        self.mark = os.path.join(FOLDER, f"osd.{osd.id}.has-booted")

    def files(self, seconds: int, paths: t.Sequence[str]) -> dict[str, str]:
        """Path → its required content. Of a FileStore the files at these paths below its folder are read, for so many seconds at most."""
        return {self.mark: "", self.unit: self._service(seconds, paths), self.drop_in: drop_in(self.name, self.runtime.tool("systemctl", "systemd"), seconds)}

    def _service(self, seconds: int, paths: t.Sequence[str]) -> str:
        store = self.osd.store()
        if self.osd.layout.containers:
            raise HandoverError(
                f"osd.{self.osd.id} runs in a container ({self.osd.layout.deployment}): Ceph's tools are in there, and cannot be asked before it starts"
            )
        # Systemd would find that out at boot, unread.
        Pcopy(self.runtime).check_installed()
        if store == "bluestore":
            tool = self.runtime.tool("ceph-bluestore-tool", "ceph-osd")
            return service(self.osd, self.mark, "notify", bluestore_command(self.osd.folder, seconds, tool), seconds)
        if store == "filestore":
            find = self.runtime.tool("find", "findutils")
            return service(self.osd, self.mark, "oneshot", filestore_command(find, self.osd.folder, self.pieces, seconds, paths), seconds)
        raise HandoverError(f"osd.{self.osd.id} has a store of the kind {store or 'unknown: its disk is not there'}, of which nothing is read ahead")

    def look(self) -> None:
        """Notes which pieces of an object map are read, as it is now. Tables do not change, so each is right for as long as there is its table."""
        if self.osd.store() != "filestore":
            return
        try:
            found = read_first(self.osd.folder) if object_map_size(self.osd) <= LOOK_LIMIT else {}
        except OSError as exc:
            raise HandoverError(f"the object map of osd.{self.osd.id} cannot be read: {exc.strerror}; look at its disk before this host is rebooted") from exc
        self._put({self.pieces: json.dumps(found)})

    def write(self, files: t.Mapping[str, str]) -> None:
        self._put(files)
        self._reload()

    def _put(self, files: t.Mapping[str, str]) -> None:
        try:
            for path, text in files.items():
                os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
                with open(path, "w", encoding="utf-8") as target:
                    target.write(text)
        except OSError as exc:
            self.remove()
            raise HandoverError(f"{exc.filename} cannot be written: {exc.strerror}; nothing is read ahead for osd.{self.osd.id} at boot without it") from exc

    def remove(self) -> list[str]:
        """Removes the unit and its files, and names them. Pages that were read at this boot need not be held any more."""
        if os.path.exists(self.unit):
            self.runtime.run([self.runtime.tool("systemctl", "systemd"), "stop", self.name], accept=(0, 5))
        gone = []
        for path in (self.drop_in, self.unit, self.pieces, self.mark):
            if os.path.exists(path):
                os.unlink(path)
                gone.append(path)
        folder = os.path.dirname(self.drop_in)
        if os.path.isdir(folder) and not os.listdir(folder):
            os.rmdir(folder)
        if gone:
            self._reload()
            # A unit that could not read at this boot would be a failed one of the host until the next.
            self.runtime.run([self.runtime.tool("systemctl", "systemd"), "reset-failed", self.name], accept=(0, 1))
        return gone

    def _reload(self) -> None:
        self.runtime.run([self.runtime.tool("systemctl", "systemd"), "daemon-reload"])


def bluestore_command(home: str, seconds: int, tool: str) -> list[str]:
    """The page cache of a block device lives as long as a process has it open, so it is held until the OSD has opened it."""
    return [HELPER, "cache", "pin", f"--seconds={PIN_SECONDS}", f"--ready-within-seconds={seconds}", "--read", "--osd", home, tool]


def filestore_command(find: str, home: str, pieces: str, seconds: int, paths: t.Sequence[str]) -> list[str]:
    """Files are looked for when the host boots: a database makes new ones all the time."""
    where = [os.path.join(home, path) for path in paths]
    return [find, *where, "-type", "f", "-exec", HELPER, "pages", "--read", f"--seconds={seconds}", f"--ranges={pieces}", "{}", "+"]


def service(osd: Osd, mark: str, kind: str, argv: t.Sequence[str], seconds: int) -> str:
    return f"""\
# Written by livefleet.handover.ceph_osd_boot, which removes it.
[Unit]
Description=What osd.{osd.id} reads when it starts, brought into memory
RequiresMountsFor={osd.folder}
# Only at a boot, not while the OSD is restarted by hand after this was written.
ConditionPathExists=!{mark}

[Service]
Type={kind}
# Once for each boot.
RemainAfterExit=yes
ExecStart={shlex.join(argv)}
TimeoutStartSec={seconds + LOOK_SECONDS}
OOMScoreAdjust=1000
"""


def drop_in(name: str, systemctl: str, seconds: int) -> str:
    """Not as a dependency: the units that the OSD itself waits for, as for its devices, have to be there before."""
    return f"""\
# Written by livefleet.handover.ceph_osd_boot, which removes it.
[Service]
# Fails nothing: the OSD itself reads the rest.
ExecStartPre=-+{systemctl} start {name}
# The 90 seconds that a start may take by default, and these.
TimeoutStartSec={90 + seconds + LOOK_SECONDS}
"""
