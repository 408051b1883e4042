# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A container of OpenVZ's and its host, as a move has to know them."""

from __future__ import annotations

import glob
import json
import os
import typing as t

from ..._core import host, loop
from ..._core.databases import open_in
from ..._core.runtime import HandoverError, Runtime
from ..look import SCRIPT, parse, state_of
from . import facts as facts_of, gate
from .inventory import unaccounted

Document = t.Mapping[str, t.Any]
FOLDER = "/etc/vz/conf"
DEFAULTS = "/etc/vz/vz.conf"
# The account that OpenVZ's kernel keeps of a container (its user beancounters), in pages: name, held, highest, barrier, limit, failures.
ACCOUNT = "/proc/bc/{0}/resources"
_HELD = "physpages"
# The same of other kernels: bytes, in the container's own cgroup, which each era names otherwise.
USAGES = ("/sys/fs/cgroup/memory/vz-{0}/memory.usage_in_bytes", "/sys/fs/cgroup/memory/machine.slice/{0}/memory.usage_in_bytes")
# The kernel's list of the addresses of running containers.
ADDRESSES = "/proc/vz/veip"


def configured() -> list[str]:
    """The ids of the containers that have a configuration on this host. The samples that come with vzctl are called ve-…, and 0 is the host."""
    names = (os.path.basename(path)[: -len(".conf")] for path in sorted(glob.glob(os.path.join(FOLDER, "*.conf"))))
    return [name for name in names if not name.startswith("ve-") and not name.endswith("-sample") and name != "0"]


def memory_of(ctid: str) -> int:
    """Bytes that its processes hold; 0 where no kernel keeps such an account."""
    for line in host.read_text(ACCOUNT.format(ctid)).splitlines():
        words = line.split()
        if words[:1] == [_HELD] and len(words) > 1 and words[1].isdigit():
            return int(words[1]) * os.sysconf("SC_PAGE_SIZE")
    used = (host.read_text(usage.format(ctid)).strip() for usage in USAGES)
    return next((int(bytes_held) for bytes_held in used if bytes_held.isdigit()), 0)


def has_freezer(mounts: str) -> bool:
    """Whether a freezer of cgroup v1 is mounted, by the text of /proc/self/mounts."""
    rows = (line.split() for line in mounts.splitlines())
    return any(len(row) > 3 and row[2] == "cgroup" and "freezer" in row[3].split(",") for row in rows)


class Look:
    """The answers of vzctl and of its files on this host."""

    def __init__(self, runtime: Runtime, word: str) -> None:
        self.runtime = runtime
        self.word = word
        self.problems: list[str] = []

    def ask(self, question: t.Callable[[], t.Any], otherwise: t.Any) -> t.Any:
        """The answer, or the default; the reason is kept."""
        try:
            return question()
        except HandoverError as exc:
            self.problems.append(str(exc))
            return otherwise

    def brief(self) -> dict[str, t.Any]:
        """Whether it is there and runs."""
        vzctl = self.runtime.find("vzctl")
        if vzctl is None or not os.path.exists(os.path.join(FOLDER, self.word + ".conf")):
            return self._none()
        said = self.ask(lambda: self.runtime.run([vzctl, "status", self.word], accept=range(256)).stdout, "")
        status = next((line for line in said.splitlines() if line.startswith(("CTID ", "VEID "))), "")
        if not state_of(status)["exists"]:
            return self._none()
        state = self._state(facts_of.state_word(status))
        return {"exists": True, "running": state == "running", "held": False, "name": self.word, "id": self.word, "state": state}

    def _state(self, state: str) -> str:
        """vzctl's word for it, unless it says that it runs, and a move holds it."""
        if state != "running" or not os.access(gate.TURN, os.X_OK):
            return state
        holds = self.ask(lambda: self.runtime.run([gate.TURN, "still", self.word], accept=range(256)).rc == 0, False)
        return facts_of.HELD if holds else state

    def whole(self) -> tuple[dict[str, t.Any], dict[str, t.Any]]:
        """The container, and this host's offer to one."""
        seen = parse(self.ask(lambda: self.runtime.run(["sh", "-c", SCRIPT, "sh", self.word]).stdout, ""))
        if not seen["id"] or not state_of(seen["status"])["exists"]:
            if seen["id"]:
                self.problems.append("vzctl does not say how {0} is: {1}".format(seen["id"], seen["status"] or "it said nothing"))
            return self._none(), self._offer(self.word)
        workload = facts_of.facts_of(seen)
        state = self._state(workload["state"])
        workload.update(state=state, running=state == "running", memory=memory_of(workload["id"]))
        workload.update(databases=open_in(workload["root"]) if workload["running"] else [])
        workload.update(unaccounted=unaccounted(workload), **self._files(workload))
        return workload, self._offer(workload["id"])

    def _none(self) -> dict[str, t.Any]:
        return {"exists": False, "running": False, "held": False, "name": self.word, "state": "", "members": [], "machine": self._machine()}

    def _machine(self) -> bool:
        """Whether it is a virtual machine of Virtuozzo's, of which vzctl knows nothing. prlctl ends with an error for a name that it does not know."""
        prlctl = self.runtime.find("prlctl")
        asked = self.ask(lambda: self.runtime.run([prlctl, "list", "-i", "-f", "-j", self.word], accept=range(256)), None) if prlctl else None
        try:
            found = json.loads(asked.stdout) if asked is not None and asked.rc == 0 else []
        except ValueError:
            found = []
        return any(isinstance(each, dict) and each.get("Type") == "VM" for each in found if isinstance(found, list))

    def _files(self, workload: Document) -> dict[str, t.Any]:
        """Its private area as a directory of the move, and the dump of one that is suspended."""
        dumps = facts_of.place(facts_of.effective(workload["conf"], host.read_text(DEFAULTS)), "DUMPDIR", workload["id"])
        # Carried as texts. The files of a private area are carried as they are.
        written = {} if workload["newer"] else {workload["id"] + ".conf": workload["conf"], **workload["scripts"]}
        directory = {"name": facts_of.PRIVATE, "path": workload["private"], "size": workload["size"], "anonymous": False, "shared_with": []}
        if workload["layout"] == "ploop":
            directory["ploop"] = facts_of.IMAGE
        return {
            "dump": next(iter(glob.glob(os.path.join(glob.escape(dumps), facts_of.DUMP.format(workload["id"])))), ""),
            "linked": os.path.islink(workload["private"]),
            "inside": os.path.realpath(os.path.join(FOLDER, workload["id"] + ".conf")) == os.path.join(os.path.realpath(workload["private"]), facts_of.INSIDE),
            "fstype": _fstype(workload["private"]),
            "unreadable": sorted(name for name, text in written.items() if not _is(os.path.join(FOLDER, name), text)),
            "mounts": [
                {
                    "type": "private",
                    "name": facts_of.PRIVATE,
                    "source": workload["private"],
                    "destination": "/",
                    "read_only": False,
                    "directory_volume": directory,
                }
            ],
        }

    def _offer(self, ctid: str) -> dict[str, t.Any]:
        """What a container of this id would find here."""
        vzctl, ploop = self.runtime.find("vzctl"), self.runtime.find("ploop")
        defaults = facts_of.effective("", host.read_text(DEFAULTS))
        private, root = (facts_of.place(defaults, name, ctid) for name in facts_of.PLACES)
        dump = os.path.join(facts_of.place(defaults, "DUMPDIR", ctid), facts_of.DUMPED.format(ctid))
        lock = os.path.join(facts_of.place(defaults, "LOCKDIR", ctid), ctid + ".lck")
        version = self._version(vzctl) if vzctl else []
        kernel, checkpoint, capabilities = os.path.isdir("/proc/vz"), self._number("vzcptcheck", "version"), self._number("vzcptcheck", "caps")
        return {
            "installed": vzctl is not None and os.path.isdir(FOLDER),
            "version": version,
            "kernel": kernel,
            "way": facts_of.way(version, kernel or bool(checkpoint or capabilities)),
            "criu": self._criu(),
            "criu_gate": gate.obstacle_to_criu(),
            "freezer": has_freezer(host.read_text("/proc/self/mounts")),
            "restore_options": defaults.get("RESTORE_EXTRA_OPT", ""),
            "ploop": self._has_ploop(ploop) if ploop else False,
            "gate": gate.obstacle(),
            "private": private,
            "root": root,
            "private_exists": os.path.lexists(private),
            "store": host.place(private),
            "dump": dump,
            "dump_store": host.place(dump),
            "checkpoint": checkpoint,
            "capabilities": capabilities,
            "lock": self._holder(lock),
            "containers": self._containers(ctid),
            "taken": self._taken(ctid),
            "quota": all(self.runtime.find(program) for program in ("vzdqdump", "vzdqload", "vzquota")),
            "ipv6": os.path.isdir("/sys/module/ipv6") or os.path.exists("/proc/net/if_inet6"),
        }

    def _version(self, vzctl: str) -> list[int]:
        said = self.ask(lambda: self.runtime.run([vzctl, "--version"], accept=range(256)).stdout, "")
        return host.parse_version(said)

    def _criu(self) -> list[int]:
        """CRIU's version; empty where there is none."""
        found = self.runtime.find("criu")
        asked = self.ask(lambda: self.runtime.run([found, "--version"], accept=range(256)), None) if found else None
        return host.parse_version(asked.stdout) if asked is not None and asked.rc == 0 else []

    def _number(self, program: str, word: str) -> int:
        """What the kernel's module for it says; 0 where there is none."""
        found = self.runtime.find(program)
        asked = self.ask(lambda: self.runtime.run([found, word], accept=range(256)), None) if found else None
        said = asked.stdout.strip() if asked is not None and asked.rc == 0 else ""
        return int(said) if said.isdigit() else 0

    def _has_ploop(self, ploop: str) -> bool:
        """Whether the kernel gives it a device. It is only asked which would be the next."""
        asked = self.ask(lambda: self.runtime.run([ploop, "getdev"], accept=range(256)), None)
        return asked is not None and asked.rc == 0

    def _holder(self, lock: str) -> str:
        """The process that works on the container, if one does: the file is left behind by one that was killed."""
        pid = host.read_text(lock).split()[:1]
        return pid[0] if pid and pid[0].isdigit() and os.path.isdir("/proc/" + pid[0]) else ""

    def _others(self, ctid: str) -> t.Iterator[tuple[str, dict[str, str]]]:
        for other in configured():
            if other != ctid:
                yield other, facts_of.effective(host.read_text(os.path.join(FOLDER, other + ".conf")))

    def _containers(self, ctid: str) -> list[dict[str, str]]:
        return [{"id": other, "name": parameters.get("NAME", "")} for other, parameters in self._others(ctid)]

    def _taken(self, ctid: str) -> list[dict[str, str]]:
        """Addresses of other containers, running or not."""
        found = [{"address": address, "container": other} for other, parameters in self._others(ctid) for address in facts_of.addresses_of(parameters)]
        for line in host.read_text(ADDRESSES).splitlines():
            words = line.split()
            if len(words) > 1 and words[1] != ctid and words[0][:1].isalnum() and words[0] != "Version:":
                found.append({"address": words[0], "container": words[1]})
        return found


def _fstype(path: str) -> str:
    """The kind of the file system that a folder is on."""
    above = [mount for mount in loop.read_mounts() if os.path.realpath(path).startswith(mount.mountpoint.rstrip("/") + "/")]
    return max(above, key=lambda mount: len(mount.mountpoint)).fstype if above else ""


def _is(path: str, text: str) -> bool:
    """Whether a file has these very bytes: what is carried as a text has to be the file."""
    try:
        with open(path, "rb") as file:
            return file.read() == text.encode("utf-8")
    except (OSError, UnicodeEncodeError):
        return False
