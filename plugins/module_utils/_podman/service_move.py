# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps of a move that concern a container's unit, on either host. Each may be done again, and then does what is missing."""

from __future__ import annotations

import json
import os
import re
import signal
import tempfile
import time
import typing as t

from .._core import units
from .._core.runtime import HandoverError, Runtime
from . import book, service as service_of, service_files as files_of, service_guard as guard_of, service_notify
from .podman import Podman
from .workload import find

Document = t.Mapping[str, t.Any]

_GENERATORS = ("/usr/libexec/podman/quadlet", "/usr/lib/systemd/system-generators/podman-system-generator", "/usr/lib/podman/quadlet")
_PATIENCE = 60.0


class Unit:
    """The unit of one container on this host."""

    def __init__(self, runtime: Runtime, service: Document, check: bool = False) -> None:
        self.runtime = runtime
        self.podman = Podman(runtime)
        self.service = service
        self.name: str = service["unit"]
        self.check = check
        self.reasons: list[str] = []

    def shown(self) -> dict[str, str]:
        """What systemd says of it now."""
        return units.show(self.runtime, self.name)

    def systemctl(self, *words: str, accept: t.Container[int] = (0,)) -> None:
        """A command to systemd."""
        self.runtime.run([self.runtime.tool("systemctl", "systemd"), *words], accept=accept)

    def _runs(self, shown: Document | None = None) -> bool:
        return (shown or self.shown()).get("ActiveState") in ("active", "activating", "reloading")

    # On the source

    def keep(self, whether: bool) -> None:
        """Has podman dump a container that it removes by itself, or be as before."""
        if not self.service["auto_remove"] or self.check:
            return
        if find(self.podman.containers(), self.service["id"]) is None:
            return
        why = book.removed_by_itself(self.podman.root(), self.service["id"], whether)
        if why:
            raise HandoverError(
                "{0} removes its container when that ends, and podman dumps none such: {1}: move it with migrate_mode=offline".format(self.name, why)
            )

    def hold(self, session: str, live: bool) -> None:
        """From now on the unit starts nothing without the session's leave, and does not act when the container ends."""
        texts = guard_of.additions(self.name, "source", session, live)
        if self.check or not guard_of.add(texts):
            return
        self.reasons.append("{0} acts when its container ends".format(self.name))
        self.systemctl("daemon-reload")
        shown = self.shown()
        missing = [path for path in texts if path not in (shown.get("DropInPaths") or "").split()]
        if missing:
            raise HandoverError("systemd does not take {0} for a part of {1}: see `systemctl cat {1}`".format(missing[0], self.name))
        if live:
            self.keep(False)

    def free(self, start: bool) -> None:
        """The unit is as it was. It is started, if the container is not there any more that it had."""
        added = guard_of.added(self.name)
        if added:
            self.reasons.append("{0} is held for a move".format(self.name))
        if self.check:
            return
        guard_of.remove(added)
        if added:
            self.systemctl("daemon-reload")
        self.keep(True)
        if start and self.service["active"] and not self._runs():
            self.reasons.append("{0} is not active".format(self.name))
            self.systemctl("reset-failed", self.name, accept=range(256))
            self.systemctl("start", self.name)

    def put_aside(self) -> None:
        """The unit is not there any more; its files have another name."""
        paths = files_of.to_put_aside(self.service["files"])
        added = guard_of.added(self.name)
        if not paths and not added:
            return
        self.reasons += ["{0} is there".format(path) for path in paths]
        if self.check:
            return
        if paths and self._runs():
            raise HandoverError("{0} is active, and its container has moved to another host: see what it runs with `systemctl status {0}`".format(self.name))
        if paths and self.service["kind"] == service_of.UNIT:
            self.systemctl("disable", "--quiet", self.name)
        files_of.put_aside(paths)
        self.systemctl("daemon-reload")
        # What kept it from starting goes after what it consists of.
        guard_of.remove(added)
        self.systemctl("daemon-reload")
        volumes = {service_of_file(path) for path in paths if path.endswith(".volume")}
        if volumes:
            self.systemctl("stop", *sorted(volumes))
        self.systemctl("reset-failed", self.name, accept=range(256))

    # On the destination

    def prepare(self, session: str, live: bool, running: bool, twin: Document, beside: t.Sequence[Document] = ()) -> str:
        """All is here that the unit needs, and nothing that could start it; returns the folder of its cgroup if the container comes into that."""
        shown = self.shown()
        ours = guard_of.added(self.name)
        if shown.get("LoadState") != "not-found" and not ours:
            raise HandoverError(
                "there is a unit {0} on this host already ({1}): remove its file, the move brings it".format(self.name, shown.get("FragmentPath") or "loaded")
            )
        other = files_of.differing(self.service["files"], self.service["id"], twin["id"])
        if other:
            raise HandoverError("{0} is on this host with other contents than on the source: make it the same, or move it away".format(other[0]))
        if self.service["kind"] == service_of.QUADLET:
            self._read_by_generator(twin, beside or self.service["files"])
        if self.check:
            return ""
        if not live and running:
            self._place_for_start(session, twin)
            return ""
        if live and self.service["adoption"] == service_of.INSIDE:
            return self._stand_in(twin)
        return ""

    def _read_by_generator(self, twin: Document, documents: t.Sequence[Document]) -> None:
        generator = next((path for path in _GENERATORS if os.access(path, os.X_OK)), "")
        if not generator:
            raise HandoverError("podman on this host makes no units of quadlets: install podman 4.4 or later, with its generator for systemd")
        with tempfile.TemporaryDirectory(prefix="handover-") as folder:
            for document in documents:
                files_of.write(
                    document,
                    os.path.join(folder, os.path.relpath(files_of.place_until_settled(document["path"], "quadlet"), "/")),
                    self.service["id"],
                    twin["id"],
                )
            read = os.path.join(folder, os.path.relpath(files_of.QUADLETS[0], "/"))
            said = self.runtime.run(["/usr/bin/env", "QUADLET_UNIT_DIRS=" + read, generator, "-dryrun"], accept=range(256))
        if "---{0}---".format(self.name) not in said.stdout:
            raise HandoverError("podman on this host makes no unit {0} of its quadlet: {1}".format(self.name, said.last_words))

    def _place_for_start(self, session: str, twin: Document) -> None:
        """The unit itself, until the next boot; the session is asked before it starts."""
        variables = [document for document in self.service["files"] if document["role"] == "environment"]
        made = [document["path"] for document in variables if not os.path.lexists(document["path"])]
        guard_of.add(guard_of.additions(self.name, "destination", session, live=False, made=made or guard_of.made_for(self.name)))
        for document in self.service["files"]:
            if document in variables:
                files_of.write(document, document["path"], self.service["id"], twin["id"])
            elif not os.path.lexists(document["path"]):
                files_of.write(document, files_of.place_until_settled(document["path"], self.service["kind"]), self.service["id"], twin["id"])
        self.systemctl("daemon-reload")
        shown = self.shown()
        if shown.get("LoadState") != "loaded":
            raise HandoverError("systemd on this host cannot read {0} ({1}): see `systemctl status {0}`".format(self.name, shown.get("LoadState")))
        self.reasons.append("there is no unit {0}".format(self.name))

    def _stand_in(self, twin: Document) -> str:
        text = guard_of.stand_in(self.name, self.service["slice"], self.runtime.tool("sleep", "coreutils"))
        if guard_of.add({os.path.join(guard_of.PASSING, self.name): text}):
            self.reasons.append("there is no unit {0}".format(self.name))
            self.systemctl("daemon-reload")
        self.systemctl("start", "--no-block", self.name)
        if not self.runtime.wait_for(lambda: self._stands_in() != 0, _PATIENCE):
            raise HandoverError("{0} did not come up on this host to await its container: see `systemctl status {0}`".format(self.name))
        group = self.shown().get("ControlGroup") or ""
        if self.service["split"]:
            place_inside(twin["oci_config"], group, twin["id"])
        return service_of.own_folder(group)

    def withdraw(self) -> None:
        """Nothing of it is left here."""
        added = guard_of.added(self.name)
        placed = [
            files_of.place_until_settled(document["path"], self.service["kind"]) for document in self.service["files"] if document["role"] != "environment"
        ]
        if not added:
            return
        placed = [path for path in [*placed, *guard_of.made_for(self.name)] if os.path.lexists(path)]
        self.reasons.append("{0} is prepared".format(self.name))
        if self.check:
            return
        stand_in = self._stands_in()
        guard_of.remove([*placed, *(path for path in added if not path.endswith(guard_of.GUARD))])
        self.systemctl("daemon-reload")
        self._end(stand_in)
        guard_of.remove(added)
        self.systemctl("daemon-reload")
        self.systemctl("reset-failed", self.name, accept=range(256))

    def settle(self, twin: Document | None, start: bool) -> None:
        """The unit is here for good, and has its container."""
        identifier = (twin or {}).get("Id") or ""
        missing = files_of.missing(self.service["files"], self.service["id"], identifier)
        self.reasons += ["{0} is not there".format(path) for path in missing]
        if self.check:
            return
        running = bool(((twin or {}).get("State") or {}).get("Running"))
        stand_in = self._stands_in()
        if running and stand_in:
            # First: a stand-in waits for ever, and the unit itself would end what has not said in time that it is ready.
            self._adopt(twin or {}, stand_in)
        self._install(identifier, bool(missing))
        if self.service["active"]:
            self._activate(running, start)

    def _install(self, identifier: str, missing: bool) -> None:
        """Its files are in their places, and nothing of the move is left."""
        for document in self.service["files"]:
            files_of.write(document, document["path"], self.service["id"], identifier)
        places = [document["path"] for document in self.service["files"]]
        passing = [
            files_of.place_until_settled(document["path"], self.service["kind"]) for document in self.service["files"] if document["role"] != "environment"
        ]
        there = [path for path in passing if os.path.lexists(path) and path not in places]
        added = guard_of.added(self.name)
        if missing or added or there:
            guard_of.remove([*there, *added])
            self.systemctl("daemon-reload")
        if self.service["kind"] == service_of.UNIT and self.service["enabled"].startswith("enabled"):
            self.systemctl("enable", "--quiet", *(["--runtime"] if self.service["enabled"].endswith("runtime") else []), self.name)
        files_of.forget_aside(self.service["files"])

    def _activate(self, running: bool, start: bool) -> None:
        """A unit that was active is so again, unless its container has ended here by itself."""
        if not self._runs():
            if start or running and self.service["adoption"] == service_of.START:
                self.reasons.append("{0} is not active".format(self.name))
                self.systemctl("reset-failed", self.name, accept=range(256))
                self.systemctl("start", self.name)
            elif running:
                raise HandoverError(
                    "{0} has no process any more that could take its container over, which runs on this host: `systemctl restart {0}` starts it anew "
                    "under the unit; then run the move again".format(self.name)
                )
        companions = [name for name in self.service["companions"] if units.show(self.runtime, name).get("ActiveState") == "inactive"]
        if companions and self._runs():
            self.systemctl("start", *companions)

    def _adopt(self, twin: Document, stand_in: int) -> None:
        """conmon becomes the unit's main process; the one that held its place ends."""
        conmon = int((twin.get("State") or {}).get("ConmonPid") or 0)
        self.reasons.append("{0} has not taken its container over".format(self.name))
        if self.service["cidfile"]:
            files_of.write_text(self.service["cidfile"], twin["Id"].encode())
        service_notify.main_process(service_of.own_folder(self.shown()["ControlGroup"]), conmon)
        now = self.shown()
        if now.get("MainPID") != str(conmon):
            raise HandoverError("systemd has not taken process {0} for the main one of {1}: see `systemctl status {1}`".format(conmon, self.name))
        self._end(stand_in)
        if self.shown().get("ActiveState") != "active":
            raise HandoverError("{0} has its container and is not active: see `systemctl status {0}`".format(self.name))

    def _stands_in(self) -> int:
        """The process that holds the place of the container's, if it does."""
        return sleeping(self.name)

    def _end(self, pid: int) -> None:
        if not pid:
            return
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        for _each in range(100):
            if not os.path.exists("/proc/{0}".format(pid)):
                return
            time.sleep(0.05)


def sleeping(unit: str, proc: str = "/proc") -> int:
    """The process of a unit's stand-in, known by its words and by its cgroup; none is 0."""
    for name in os.listdir(proc):
        if not name.isdigit():
            continue
        try:
            with open(os.path.join(proc, name, "cmdline"), "rb") as opened:
                words = opened.read().split(b"\0")
            with open(os.path.join(proc, name, "cgroup"), encoding="ascii", errors="replace") as opened:
                cgroups = opened.read()
        except OSError:
            continue
        if (
            os.path.basename(words[0]) == b"sleep"
            and words[1:2] == [b"infinity"]
            and re.search("/{0}(/runtime)*$".format(re.escape(unit)), cgroups, re.MULTILINE)
        ):
            return int(name)
    return 0


def service_of_file(path: str) -> str:
    """The service of a quadlet that is put aside."""
    return files_of.service_of(os.path.basename(path))


def place_inside(path: str, control_group: str, identifier: str) -> None:
    """The restored processes come into the unit's cgroup, as podman run would have put them there."""
    try:
        with open(path, encoding="utf-8") as opened:
            document = json.load(opened)
        document["linux"]["cgroupsPath"] = "{0}/libpod-payload-{1}".format(control_group, identifier)
        files_of.write_text(path, json.dumps(document).encode(), os.stat(path).st_mode & 0o777)
    except (OSError, ValueError, KeyError) as exc:
        raise HandoverError("the twin's OCI configuration {0} cannot be written: {1}".format(path, exc)) from exc
