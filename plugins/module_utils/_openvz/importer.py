# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps of an import on the destination. A record says how far it is, so that each can be repeated, and the way back is known.

The container never runs twice: it is stopped and locked on the source before it is made here, and stopped and gone here before it is unlocked there.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import typing as t

from .._core.host import listening_ports
from .._core.inits import look_at
from .._core.pcopy import Pcopy
from .._core.runtime import HandoverError, Runtime
from . import disk, mends, second_look, unit
from .plan import fault_of
from .root_files import mend
from .source import IMAGES, LAST_IMAGES, TREE, Source

ROOT = "/var/lib/handover/import"
# The states of an import, in their order.
BEGUN, STOPPED, IMPORTED = "begun", "stopped", "imported"


def folder_of(name: str) -> str:
    return os.path.join(ROOT, name)


def read_record(name: str) -> dict[str, t.Any]:
    """What is known of an import; empty where there is none."""
    try:
        with open(os.path.join(folder_of(name), "record.json"), encoding="utf-8") as file:
            return json.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return {}


def records() -> dict[str, dict[str, t.Any]]:
    """The imports to this host, by the name that the container has here."""
    found = {name: read_record(name) for name in (sorted(os.listdir(ROOT)) if os.path.isdir(ROOT) else [])}
    return {name: record for name, record in found.items() if record.get("id")}


def find_record(ctid: str, host: str) -> tuple[str, dict[str, t.Any]]:
    """The name that a container of the source has here, and its record; empty where it was never imported. Other sources have the same ids."""
    for name, record in records().items():
        if (record["id"], record.get("host")) == (ctid, host):
            return name, record
    return "", {}


class Importer:
    """One import."""

    def __init__(self, runtime: Runtime, plan: t.Mapping[str, t.Any]) -> None:
        self.runtime = runtime
        self.plan = plan
        self.name = plan["name"]
        self.folder = folder_of(self.name)
        self.source = Source(runtime, self.folder, plan["id"])
        self.record = read_record(self.name)
        whose = {key: plan[key] for key in ("id", "host")}
        if self.record.get("id") and any(self.record.get(key) != said for key, said in whose.items()):
            raise HandoverError(f"{self.name} here is container {self.record['id']} of another host: give another name in import_openvz_name")

    def write(self, **values: t.Any) -> None:
        """On the disk before the next step."""
        self.record.update(values)
        path = os.path.join(self.folder, "record.json")
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump(self.record, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(path + ".new", path)

    # The copy

    @property
    def _ploop(self) -> bool:
        return self.plan["layout"] == "ploop"

    @property
    def _staging(self) -> str:
        return os.path.join(self.folder, "root.hdd")

    def _copy(self, last: bool) -> float:
        begun = time.monotonic()
        if self._ploop:
            self.source.copy(f"{self.plan['private']}/root.hdd", self._staging, LAST_IMAGES if last else IMAGES, last)
        else:
            clock = 0.0 if last else second_look.clock(self.source.run("date", "+%s").stdout)
            self.source.copy(self.plan["private"], self.plan["mountpoint"], TREE, last)
            if not last:
                second_look.mark(self.plan["mountpoint"], clock)
        return time.monotonic() - begun

    def clear(self) -> dict[str, t.Any]:
        """Takes the image of an earlier attempt out of the way. One that a container has written to is kept, under another name."""
        image = self.plan["image"]
        if not os.path.exists(image) or not (self.record.get("ran") or self._ploop):
            return {}
        if not self.record.get("ran"):
            os.unlink(image)
            return {}
        kept = image + time.strftime(".%Y%m%dt%H%M%Sz", time.gmtime())
        os.rename(image, kept)
        self.write(ran=False)
        return {"kept": kept}

    def begin(self) -> dict[str, t.Any]:
        """The first pass, beside the container if it runs."""
        self.source.state()
        # After the way back it may be another than it was.
        if self.record.get("state", BEGUN) == BEGUN:
            known = {key: self.plan[key] for key in ("id", "host", "running", "onboot", "disabled")}
            self.write(state=BEGUN, **known)
        return {"first_pass_s": round(self._copy(last=False), 3)}

    @property
    def came_up(self) -> bool:
        """Whether the container has been started here since it was stopped there: then nothing may be copied over it any more."""
        return self.record.get("state") == STOPPED and bool(self.record.get("ran"))

    def stop(self) -> dict[str, t.Any]:
        """The container is stopped and locked on the source, and the rest is copied."""
        begun = time.time()
        state = self.source.state()
        if state["suspended"] or state["paused"]:
            raise HandoverError(f"{self.plan['id']} was suspended meanwhile, and its memory cannot come along: resume it, or stop it")
        # Somebody may have started it during the first copy.
        running = self.record["running"] or state["running"]
        self.write(state=STOPPED, running=running)
        self.source.lock()
        self.write(stopped_at=self.record.get("stopped_at") or time.time())
        self.source.stop(running)
        stopped = time.time()
        copied = self._copy(last=True)
        times = {"stop_s": round(stopped - begun, 3), "second_pass_s": round(copied, 3)}
        if self._ploop:
            times.update(self._unpack())
        return times

    def _unpack(self) -> dict[str, t.Any]:
        """The chain of images becomes one file system."""
        begun = time.monotonic()
        image = self.plan["image"]
        whole = image + ".importing"
        os.makedirs(os.path.dirname(image), exist_ok=True)
        if os.path.lexists(whole):
            os.unlink(whole)
        Pcopy(self.runtime).call("image", "convert", "--format", "raw", self._staging, whole)
        kind = disk.carve(self.runtime, whole, image)
        return {"unpack_s": round(time.monotonic() - begun, 3), "fstype": kind}

    # The container

    def look(self) -> dict[str, t.Any]:
        return look_at(self.runtime, self.plan["mountpoint"])

    def start(self, offer: t.Mapping[str, t.Any], ignore: t.Sequence[str], port: int, wait: float) -> dict[str, t.Any]:
        """The mends are made, the container, its unit; and it runs if it ran."""
        root = self.look()
        fault = fault_of(root, offer)
        if fault and fault[0] not in ignore:
            raise HandoverError(f"{fault[0]}: {fault[1]}")
        done = mend(self.plan["mountpoint"], root, self.plan["interfaces"])
        podman = self.runtime.tool("podman", "podman")
        if not self._exists(podman):
            self.runtime.run([podman, *create(self.plan, root)])
        own = self._write_unit(podman)
        result: dict[str, t.Any] = {"mends": done, "root": root}
        if self.record["running"]:
            self.write(ran=True)
            self.runtime.run([self.runtime.tool("systemctl", "systemd"), "start", own])
            self._await(podman, port, wait)
            result["downtime_s"] = round(time.time() - self.record["stopped_at"], 3)
        self.runtime.run([self.runtime.tool("systemctl", "systemd"), "enable" if self.record["onboot"] else "disable", own])
        shutil.rmtree(self._staging, ignore_errors=True)
        # From here on others may start it, at any time: its volume is not written over again.
        self.write(state=IMPORTED, ran=True, **{key: result[key] for key in ("downtime_s",) if key in result})
        return result

    def _exists(self, podman: str) -> bool:
        return self.runtime.run([podman, "container", "exists", self.name], accept=(0, 1)).rc == 0

    def _inspect(self, podman: str, what: str) -> str:
        return self.runtime.run([podman, "container", "inspect", "--format", "{{" + what + "}}", self.name]).stdout.strip()

    def _write_unit(self, podman: str) -> str:
        """Its name. Whether it starts at boot is not said yet."""
        own = unit.name_of(self.name)
        others = {name: order for name, order in unit.orders().items() if name != own}
        stop, pid_file = self._inspect(podman, ".Config.StopTimeout}} {{.ConmonPidFile").split(maxsplit=1)
        said = unit.text(
            self.name, self.plan["id"], self.plan["boot_order"], others, mountpoint=self.plan["mountpoint"], podman=podman,
            pid_file=pid_file, stop=int(stop) + 30,
        )  # fmt: skip
        with open(os.path.join(unit.FOLDER, own), "w", encoding="utf-8") as file:
            file.write(said)
        self.runtime.run([self.runtime.tool("systemctl", "systemd"), "daemon-reload"])
        return own

    def _await(self, podman: str, port: int, wait: float) -> None:
        """It runs, and listens if it is to."""

        def answers() -> bool:
            pid = self._inspect(podman, ".State.Pid")
            return pid != "0" and (not port or any(each["port"] == port and each["protocol"] == "tcp" for each in listening_ports(f"/proc/{pid}")))

        if not self.runtime.wait_for(answers, wait):
            state = self._inspect(podman, ".State.Status")
            wanted = f"does not listen on port {port}" if port and state == "running" else f"is {state}"
            raise HandoverError(f"{self.name} was started and {wanted} after {wait:g} s: see podman logs {self.name}")

    # The way back

    def undo(self) -> dict[str, t.Any]:
        """Stopped and gone here; then as it was on the source. The volume stays."""
        podman, systemctl = self.runtime.tool("podman", "podman"), self.runtime.tool("systemctl", "systemd")
        own = unit.name_of(self.name)
        self._look_for_it(podman)
        if os.path.exists(os.path.join(unit.FOLDER, own)):
            self.runtime.run([systemctl, "disable", "--now", own])
            os.unlink(os.path.join(unit.FOLDER, own))
            self.runtime.run([systemctl, "daemon-reload"])
        if self._exists(podman):
            self.runtime.run([podman, "rm", "--force", self.name])
        if self._exists(podman):
            raise HandoverError(f"podman rm has ended, and {self.name} is still there: it stays stopped on the source until it is gone here")
        if self.record.get("state") in (STOPPED, IMPORTED):
            self.source.unlock(self.record["onboot"], self.record["running"], self.record.get("disabled", False))
        # Also where the first copy was not begun: the volume that is there is this container's.
        self.write(id=self.plan["id"], host=self.plan["host"], state=BEGUN, stopped_at=None, undoing=False)
        return {}

    def _look_for_it(self, podman: str) -> None:
        """One that has come up here and is gone may have moved to another host, where it runs: then it is not started on the source."""
        if self.record.get("state") not in (STOPPED, IMPORTED) or not self.record.get("ran") or self.record.get("undoing"):
            return
        if not self._exists(podman):
            raise HandoverError(
                f"{self.name} is not on this host any more, and may run on another that it was moved to: move it back here first. If it was removed, "
                f"unlock it on the source by hand: vzctl set {self.plan['id']} --disabled no --save"
            )
        # From here on it is gone because of this.
        self.write(undoing=True)


def create(plan: t.Mapping[str, t.Any], root: t.Mapping[str, t.Any]) -> list[str]:
    """podman's arguments. A mount of /tmp is the container's own folder of that name."""
    label = [f"--label=handover.openvz={plan['id']}"]
    options = [*plan["options"], *mends.options(root, plan["mountpoint"])]
    return ["create", f"--name={plan['name']}", *label, *options, "--rootfs", plan["mountpoint"], "/sbin/init"]
