# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A cluster that answers as Ceph 16.2 does, the host of one OSD, and the helper, for the modules that ask them."""

from __future__ import annotations

import json
import os
import re
import time
import typing as t
from pathlib import Path

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._ceph import (
    asok,
    drop_in as ceph_drop_in,
    osd as _ceph_osd,
    pin as ceph_pin,
    restart as ceph_restart,
)
from ansible_collections.livefleet.handover.plugins.module_utils._core import memory, pcopy, runtime
from ansible_collections.livefleet.handover.plugins.module_utils._podman import sessions
from ansible_collections.livefleet.handover.plugins.modules import ceph_osd, ceph_osd_pin

DEFAULTS = {"bluefs_log_compact_min_ratio": "5.0", "bluefs_log_compact_min_size": "16777216", "osd_fast_shutdown": "true", "bluefs_buffered_io": "true"}
DEFAULTS["bdev_aio_poll_ms"] = "250"
MIB = 1 << 20


class Cluster:
    """A cluster of four OSDs on two hosts, and the host that administers it."""

    def __init__(self) -> None:
        self.epoch = 100
        self.up_from = {0: 11, 1: 12, 2: 13, 3: 14}
        self.up = set(self.up_from)
        self.flags: dict[int, set[str]] = {osd: set() for osd in self.up_from}
        self.health: dict[str, str] = {}
        self.groups = {"active+clean": 97}
        self.ok_to_stop = True
        self.kept: dict[str, str] = {}
        self.options: dict[tuple[str, str], str] = {}
        self.units = Path("/nowhere")
        self.commands: list[str] = []
        self.dead = False
        self.deaf = 0  # so many commands to the configuration are accepted and forgotten
        self.mute: set[int] = set()
        self.reports = 0
        self.arrived = 0
        self.before_each: t.Callable[[str], None] = lambda words: None

    def run(self, argv: t.Sequence[str], accept: t.Container[int] = (0,), stdin: str | None = None, timeout: float | None = None) -> runtime.Completed:
        if "systemctl" in argv[0]:
            self.commands.append(" ".join(["systemctl", *argv[1:]]))
            # Each comes to its end, whatever becomes of the others.
            failed = [exc for name in argv[2:] if argv[1] == "start" for exc in self.lease_ends(name)]
            if failed:
                raise failed[0]
            return runtime.Completed(tuple(argv), 0, "", "")
        words = " ".join(word for word in argv[1:] if not word.startswith("--"))
        self.commands.append(words)
        self.before_each(words)
        if self.dead:
            raise runtime.HandoverError("ceph failed: [errno 110] RADOS timed out (error connecting to the cluster)")
        rc, out, err = self.answer(words)
        if rc not in accept:
            raise runtime.HandoverError(f"ceph {words} failed: {err}")
        return runtime.Completed(tuple(argv), rc, out, err)

    def answer(self, words: str) -> tuple[int, str, str]:
        if words == "osd dump":
            osds = [{"osd": o, "up": int(o in self.up), "up_from": e, "state": ["exists", "up", *self.flags[o]]} for o, e in self.up_from.items()]
            return 0, json.dumps({"epoch": self.epoch, "osds": osds}), ""
        if words == "osd tree":
            hosts = [{"id": -2, "name": "store1", "type": "host", "children": [1, 0]}, {"id": -3, "name": "store2", "type": "host", "children": [3, 2]}]
            osds = [{"id": osd, "name": f"osd.{osd}", "type": "osd"} for osd in self.up_from]
            return 0, json.dumps({"nodes": [{"id": -1, "name": "default", "type": "root", "children": [-3, -2]}, *hosts, *osds], "stray": []}), ""
        if words == "tell osd.* flush_pg_stats":
            self.reports += 1
            return 0, "".join(f"osd.{osd}: {self.reports}\n" for osd in sorted(self.up - self.mute)), ""
        if words == "pg dump osds":
            self.arrived = self.reports
            return 0, json.dumps({"pg_ready": True, "osd_stats": [{"osd": osd, "seq": self.arrived} for osd in self.up]}), ""
        if words == "status":
            # The manager knows only what has arrived.
            assert self.arrived == self.reports, "looked at placement groups before the reports had arrived"
            checks = {name: {"summary": {"message": text}, "muted": False} for name, text in self.health.items()}
            groups = [{"state_name": state, "count": count} for state, count in self.groups.items()]
            return 0, json.dumps({"health": {"checks": checks}, "pgmap": {"pgs_by_state": groups}}), ""
        if words.startswith("osd ok-to-stop"):
            return (0, "{}", "") if self.ok_to_stop else (16, "{}", "Error EBUSY: unsafe to stop osd(s) at this time (20 PGs are or would become offline)\n")
        flag = re.fullmatch(r"osd (set|unset)-group noout (.*)", words)
        if flag:
            for name in flag[2].split():
                osd = self.flags[int(name.removeprefix("osd."))]
                osd.add("noout") if flag[1] == "set" else osd.discard("noout")
            return 0, "", ""
        if words.startswith("config "):
            verb, *rest = words.split()[1:]
            if verb in ("set", "rm") and self.deaf:
                self.deaf -= 1
                return 0, "", ""
            if verb == "set":
                self.options[rest[0], rest[1]] = f"{float(rest[2]):f}" if rest[2][0].isdigit() else rest[2]
            if verb == "rm":
                del self.options[rest[0], rest[1]]
            sections = [(who.partition("/"), name, value) for (who, name), value in self.options.items()]
            return 0, json.dumps([{"section": who[0], "name": name, "value": value, "mask": who[2]} for who, name, value in sections]), ""
        verb, _blank, rest = words.removeprefix("config-key ").partition(" ")
        key, _blank, value = rest.partition(" ")
        if verb == "set":
            self.kept[key] = value
        if verb == "rm":
            self.kept.pop(key)
        return (0, self.kept[key], "") if key in self.kept else (2, "", "Error ENOENT") if verb == "get" else (0, "", "")

    def lease_ends(self, name: str) -> list[runtime.HandoverError]:
        """What systemd does with the service of a lease; why it failed, if it did."""
        (undo,) = re.findall("^ExecStart=(.*)$", (self.units / name).read_text(), re.MULTILINE)
        try:
            self.run(undo.split())
        except runtime.HandoverError as exc:
            return [exc]
        for path in self.units.glob(name.replace(".service", ".*")):
            path.unlink()
        return []

    def restart(self, osd: int) -> None:
        self.epoch += 4
        self.up_from[osd] = self.epoch - 1

    def count(self, beginning: str) -> int:
        return sum(command.startswith(beginning) for command in self.commands)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    fake = Cluster()
    monkeypatch.setattr(runtime.Runtime, "run", lambda self, *args, **kwargs: fake.run(*args, **kwargs))
    monkeypatch.setattr(runtime.Runtime, "find", lambda self, tool: "/usr/bin/" + tool)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    return fake


class OsdHost:
    """The host of one BlueStore OSD."""

    DEFAULTS = DEFAULTS

    def __init__(self) -> None:
        self.pid: int | None = 100
        self.store = "bluestore"
        self.options = dict(DEFAULTS)
        self.log_bytes = 12 * MIB
        self.room = 4096 * MIB
        self.environment, self.nice = "", "0"
        self.niceness: list[tuple[int, int, int]] = []
        self.log_shrinks = False
        self.state = "active"
        self.knows = True
        self.unit = "active"
        self.journal = ""
        self.comes_up = True
        self.restart_rc = 0
        self.pin = "inactive"
        self.wal, self.tables, self.cached = 100 * MIB, 200 * MIB, 250 * MIB
        self.commands: list[str] = []
        self.asked: list[str] = []

    def call(self, prefix: str, **arguments: t.Any) -> t.Any:
        if self.pid is None:
            raise asok.NoAnswer("asok does not answer")
        self.asked.append(" ".join([prefix, *(str(value) for value in arguments.values())]))
        if prefix == "help":
            return {"status": ""} if self.knows else {}
        if prefix == "status":
            return {"state": self.state}
        if prefix == "perf dump":
            return {"bluefs": {"log_bytes": self.log_bytes}, "osd": {"stat_bytes_avail": self.room}}
        if prefix == "config get":
            return {arguments["var"]: self.options[arguments["var"]]}
        if prefix == "config set":
            self.options[arguments["var"]] = arguments["val"][0]
            if self.log_shrinks:
                self.log_bytes = MIB
        if prefix == "config unset":
            self.options[arguments["var"]] = DEFAULTS[arguments["var"]]
        if prefix == "compact":
            # BlueFS compacts its log with it; a FileStore has none.
            assert self.options["bluefs_log_compact_min_size"] == ("0" if self.store == "bluestore" else "16777216")
            self.wal = MIB
        return {}

    def run(self, argv: t.Sequence[str], accept: t.Container[int] = (0,), **_options: t.Any) -> runtime.Completed:
        tool = os.path.basename(argv[0])
        words = " ".join([tool, *argv[1:]])
        self.commands.append(words)
        out, rc = "", 0
        if tool == "systemctl" and argv[1] in ("restart", "start", "stop"):
            rc = self.restart_rc
            if "pin" in argv[-1]:
                self.pin = "inactive"
            elif not rc:
                self.pid = {"stop": None}.get(argv[1], 200) if self.comes_up else None
        elif tool == "systemctl" and argv[1] == "show":
            name = argv[2].removeprefix("--property=")
            if name == "ActiveState":
                out = self.pin if "pin" in argv[-1] else self.unit
            elif name == "Environment":
                out = self.environment
            elif name == "Nice":
                out = self.nice
            elif name == "InactiveEnterTimestampMonotonic":
                out = str(int(time.monotonic() * 1e6))
        elif tool == "systemd-run":
            self.pin, self.cached = "active", self.wal + self.tables
        elif tool == "journalctl":
            out = self.journal
        return runtime.Completed(tuple(argv), rc, out + "\n", "Job failed" if rc else "")

    def pcopy(self, *words: str, **_options: t.Any) -> list[dict[str, t.Any]]:
        if words[0] == "bluefs":
            return [{"devices": {"/dev/dm-1": [[0, self.tables + self.wal]]}, "tables": self.tables, "wal": self.wal, "log": self.log_bytes, "files": 9}]
        return [{"path": "/dev/dm-1", "resident": min(self.cached, self.wal + self.tables)}]


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> OsdHost:
    fake = OsdHost()
    layout = _ceph_osd.LAYOUTS[0]
    osd = _ceph_osd.Osd(2, layout, {"id": "2", "cluster": "ceph"}, str(tmp_path))
    monkeypatch.setattr(_ceph_osd.Osd, "pid", lambda self: fake.pid)
    monkeypatch.setattr(_ceph_osd.Osd, "store", lambda self: fake.store)
    monkeypatch.setattr(_ceph_osd.Osd, "devices", lambda self: {"block": "/dev/dm-1"})
    monkeypatch.setattr(_ceph_osd.Osd, "disks", lambda self: [])
    monkeypatch.setattr(_ceph_osd.Osd, "shared", str(tmp_path))
    for module in (ceph_osd, ceph_osd_pin):
        monkeypatch.setattr(module, "find_osd", lambda runtime, number: osd)
    monkeypatch.setattr(asok.AdminSocket, "call", lambda self, *args, **kwargs: fake.call(*args, **kwargs))
    monkeypatch.setattr(runtime.Runtime, "run", lambda self, *args, **kwargs: fake.run(*args, **kwargs))
    monkeypatch.setattr(runtime.Runtime, "find", lambda self, tool: "/usr/bin/" + tool)
    monkeypatch.setattr(pcopy.Pcopy, "events", lambda self, *args, **kwargs: fake.pcopy(*args, **kwargs))
    monkeypatch.setattr(memory, "memory_available", lambda: 1 << 30)
    monkeypatch.setattr(ceph_pin, "FOLDER", str(tmp_path / "run"))
    monkeypatch.setattr(ceph_drop_in, "UNITS", str(tmp_path / "units"))
    monkeypatch.setattr(ceph_drop_in, "set_niceness", lambda *change: fake.niceness.append(change))
    monkeypatch.setattr(ceph_restart, "_PAUSE", 0.001)
    return fake


@pytest.fixture
def restart(run_module, host):
    def run(check: bool = False, **params: t.Any) -> dict[str, t.Any]:
        return run_module(ceph_osd.main, {"osds": [2], "timeout": 1, **params}, check=check)

    return run


class Helper:
    """A host with the helper on it: each session is its status."""

    def __init__(self, root):
        self.root = root
        self.commands = []
        self.statuses = {}
        self.answers = {}  # word → exception or change of the status

    def status(self, name, **change):
        fresh = {"id": name, "role": "source", "workload": "shop", "mode": "live", "state": "prepare", "ended": False, "running": False, "error": ""}
        return self.statuses.setdefault(name, fresh) | {} if not change else self.statuses.setdefault(name, fresh).update(change)

    def place(self, name, **change):
        (self.root / name).mkdir()
        (self.root / name / "spec.json").write_text("{}")
        self.status(name, **change)

    def call(self, *words, stdin=None, timeout=None):
        verb = words[1] if words[0] == "session" else words[0]
        name = os.path.basename(words[2] if words[0] == "session" else words[1])
        if verb != "show":
            self.commands.append(" ".join([verb, name, *words[3:]]))
        answer = self.answers.get(verb)
        if isinstance(answer, Exception):
            raise answer
        if answer is not None:
            self.status(name, **answer)
        if verb == "identity":
            (self.root / name / "identity").mkdir(exist_ok=True)
            return {"fingerprint": "sha256:6c0c"}
        return self.status(name)

    def run(self, argv, accept=(0,), stdin=None, timeout=None):
        self.commands.append(" ".join(os.path.basename(word) if index == 0 else word for index, word in enumerate(argv)))
        if os.path.basename(argv[0]) == "systemd-run":
            self.status(os.path.basename(argv[-1]), running=True, listen="10.0.0.2:4711")
        return runtime.Completed(tuple(argv), 0, "", "")


@pytest.fixture
def helper(monkeypatch, tmp_path):
    fake = Helper(tmp_path)
    monkeypatch.setattr(pcopy.Pcopy, "call", fake.call)
    monkeypatch.setattr(runtime.Runtime, "run", fake.run)
    monkeypatch.setattr(runtime.Runtime, "find", lambda self, tool: "/usr/bin/" + tool)
    # The folder of this machine is root's own, if there is one.
    monkeypatch.setattr(sessions, "STARTED_NOTES", str(tmp_path / "started"))
    return fake
