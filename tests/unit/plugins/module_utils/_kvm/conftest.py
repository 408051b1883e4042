# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host with one guest, as virsh, systemd and the helper speak of it."""

from __future__ import annotations

import json
import os
import types
from pathlib import Path

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import backup_log, pcopy, runtime
from ansible_collections.livefleet.handover.plugins.module_utils._kvm import guests, lock
from ansible_collections.livefleet.handover.plugins.module_utils._kvm.copies import guest_moment, push_moment

UUID = "5d8f8a3c-7e0b-4b52-9a30-5f4a5c1c0a01"
DOMAIN = """<domain type='kvm' id='7'>
  <name>web</name><uuid>{uuid}</uuid>
  <os><type arch='x86_64' machine='q35'>hvm</type>{firmware}</os>
  <devices>
    <disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='{folder}/web.qcow2'/><target dev='vda' bus='virtio'/></disk>
    <disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='{folder}/data.raw'/><target dev='vdb' bus='virtio'/></disk>
    <disk type='file' device='cdrom'><target dev='sda' bus='sata'/><readonly/></disk>
    {devices}
  </devices>
</domain>"""
AGENT = "<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>"


class GuestHost:
    """Answers each command by its verb, and keeps the order in which they came."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state, self.persistent, self.job, self.dumped = "running", "yes", "None", ""
        self.devices, self.firmware = AGENT, ""
        self.checkpoints: dict[str, list[str]] = {}
        self.refuses_checkpoint = ""  # libvirt's words to a backup that is compared with one
        self.refuses = ""
        self.agent = {"guest-ping": {}, "guest-fsfreeze-freeze": 1, "guest-fsfreeze-thaw": 1}
        self.said: list[str] = []
        self.pulled: list[dict] = []
        self.pull_fails = ""
        self.points: list[dict] = []
        self.files: dict[str, bytes] = {}
        self.written: dict[str, bytes] = {}  # what a restore writes in the place of the backup's disk
        # Snapshots: by name the disks and the files that were taken along, the current one, and the one that a rollback has begun to write.
        self.disks_of: dict[str, dict[str, bytes]] = {}
        self.files_of: dict[str, dict[str, bytes]] = {}
        self.current, self.restoring = "", ""
        self.rollback_fails = ""
        self.served: dict[str, Path] = {}  # socket → image
        # Of a job that pushes: how often libvirt tells of it before it has ended, and how it ends.
        self.push_lasts, self.push_ends = 1, "Job type:         Completed\nOperation:        Backup\n"
        self.told = ""  # of the last job, once
        self.targets: list[dict] = []
        self.unfit_targets: dict[str, str] = {}
        (folder / "qemu/domain-7-web").mkdir(parents=True)
        for name in ("web.qcow2", "data.raw"):
            (folder / name).write_bytes(b"disk")

    def domain(self) -> str:
        return DOMAIN.format(uuid=UUID, folder=self.folder, devices=self.devices, firmware=self.firmware)

    def run(self, argv, accept=(0,), stdin=None, timeout=None):
        words = [str(word) for word in argv]
        tool = os.path.basename(words[0])
        try:
            answer = getattr(self, "_" + tool.replace("-", "_"))(words[1:], stdin)
        except Refused as exc:
            if 1 not in accept:
                raise runtime.HandoverError("{0} failed: {1}".format(words[-1], exc)) from exc
            return runtime.Completed(tuple(words), 1, "", "error: {0}".format(exc))
        return runtime.Completed(tuple(words), 0, answer or "", "")

    # Guests of this host: name → definition. Without a mention, web alone.
    defined: dict[str, str] | None = None

    # virsh --connect URI --quiet VERB …
    def _virsh(self, words, stdin):
        verb, *rest = words[3:]
        name = verb.replace("-", "_")
        if verb == "qemu-agent-command":
            return self._asked(json.loads(rest[-1])["execute"])
        if verb == "define":
            self.said.append("define")
            if self.refuses_definition:
                raise Refused(self.refuses_definition)
            return self._defined(stdin)
        if verb == "domxml-to-native":
            self.asked = stdin
            if self.unfit:
                raise Refused(self.unfit)
            return "qemu"
        if verb in ("undefine", "start", "autostart", "destroy"):
            self.said.append(" ".join([verb, *rest[1:]]))
        if verb in ("domjobabort", "checkpoint-delete", "backup-begin"):
            self.said.append(" ".join([verb, *(word for word in rest[2:] if not word.startswith("/tmp"))]))
        return getattr(self, "_virsh_" + name)(rest)

    def _asked(self, command):
        answer = self.agent.get(command)
        if isinstance(answer, list):
            answer = answer.pop(0)
        if command != "guest-ping":
            self.said.append(command.rpartition("-")[2])
        if answer is None:
            raise Refused("Guest agent is not responding")
        return json.dumps({"return": answer})

    def _virsh_dominfo(self, rest):
        return "Persistent:     {0}\nAutostart:      disable\n".format(self.persistent)

    refuses_definition = unfit = ""
    snapshots = ""

    def _defined(self, text):
        self.defined = {**(self.defined or {}), text.partition("<name>")[2].partition("</name>")[0]: text}

    def _virsh_list(self, rest):
        return "\n".join(self.defined if self.defined is not None else ["web"]) + "\n"

    def _virsh_domname(self, rest):
        found = [name for name, text in (self.defined if self.defined is not None else {"web": self.domain()}).items() if rest[-1] in text]
        if not found:
            raise Refused("failed to get domain")
        return found[0] + "\n"

    def _virsh_snapshot_list(self, rest):
        return self.snapshots

    def _virsh_undefine(self, rest):
        del self.defined[rest[1]]

    def _virsh_start(self, rest):
        assert self.defined is None or rest[1] in self.defined
        self.state = "running"

    def _virsh_destroy(self, rest):
        self.state = "shut off"

    def _virsh_autostart(self, rest):
        pass

    def _virsh_net_list(self, rest):
        return "default\n"

    def _virsh_secret_list(self, rest):
        return ""

    virtual_size = 4
    # Of bitmaps in images, and further words about these.
    flags, image = ["auto"], {}

    def _qemu_img(self, words, stdin):
        if words[0] == "info":
            form = next((word.partition("=")[2] for word in words if word.startswith("--format=")), "")
            data = {"bitmaps": [{"name": name, "flags": self.flags} for name in self.checkpoints]} if form == "qcow2" else {}
            return json.dumps({"virtual-size": self.virtual_size, "of": Path(words[-1]).stat().st_size, "format": form, "format-specific": {"data": data},
                               **self.image})  # fmt: skip
        if Path(words[-2]).read_bytes() != Path(words[-1]).read_bytes():
            raise Refused("Content mismatch at offset 0!")
        return "Images are identical."

    def _virsh_dumpxml(self, rest):
        return (self.defined or {}).get(rest[-1]) or self.domain()

    # Why QEMU has stopped the guest, and whether it does so again.
    reason, stays_paused = "", False

    def _virsh_domstate(self, rest):
        return (f"paused ({self.reason})" if self.reason and "--reason" in rest else self.state) + "\n"

    def _virsh_resume(self, rest):
        self.said.append("resume")
        self.reason = self.reason if self.stays_paused else ""

    def _virsh_domid(self, rest):
        return "7\n"

    def _virsh_domblkinfo(self, rest):
        return "Capacity:       33554432\nAllocation:     4\nPhysical:       4\n"

    def _virsh_domjobinfo(self, rest):
        if "--completed" in rest:
            told, self.told = self.told, ""
            return told or "Job type:         None\n"
        if self.state == "shut off":
            raise Refused("Requested operation is not valid: domain is not running")
        return "Job type:         {0}\n".format(self.job)

    def _virsh_domjobabort(self, rest):
        self.job, self.dumped = "None", ""

    def _virsh_backup_dumpxml(self, rest):
        if not self.dumped:
            raise Refused("Domain backup job id not found: no domain backup job present")
        if 'mode="push"' in self.dumped:
            if self.push_lasts == 0:
                self.job, self.dumped, self.told = "None", "", self.push_ends or self.told
                raise Refused("Domain backup job id not found: no domain backup job present")
            self.push_lasts -= 1
        return self.dumped

    def _mount(self, words, stdin):
        self.said.append("mount " + Path(words[1]).name)

    def _umount(self, words, stdin):
        self.said.append("umount")

    def _virsh_checkpoint_list(self, rest):
        return "\n".join(self.checkpoints) + "\n"

    def _virsh_checkpoint_dumpxml(self, rest):
        disks = "".join("<disk name='{0}' checkpoint='bitmap'/>".format(disk) for disk in self.checkpoints[rest[-1]])
        return "<domaincheckpoint><disks>{0}<disk name='sda' checkpoint='no'/></disks></domaincheckpoint>".format(disks)

    def _virsh_checkpoint_delete(self, rest):
        if rest[2] not in self.checkpoints:
            raise Refused("Domain checkpoint not found")
        del self.checkpoints[rest[2]]

    def _virsh_backup_begin(self, rest):
        backup = Path(rest[rest.index("--backupxml") + 1]).read_text(encoding="utf-8")
        self.begun = backup
        if self.refuses:
            raise Refused(self.refuses)
        if self.refuses_checkpoint and "incremental" in backup:
            raise Refused(self.refuses_checkpoint)
        if "--checkpointxml" in rest:
            text = Path(rest[rest.index("--checkpointxml") + 1]).read_text(encoding="utf-8")
            self.checkpoints[text.partition("<name>")[2].partition("</name>")[0]] = ["vda"]
        self.job, self.dumped = "Unbounded", backup

    def _systemd_run(self, words, stdin):
        if "--fork" not in words:
            self.said.append("guard on")
            return
        socket = next(word for word in words if word.startswith("--socket=")).partition("=")[2]
        self.said.append("serve {0}{1}".format(Path(words[-1]).name, " to read" if "--read-only" in words else ""))
        self.marked = [*self.marked, *(word for word in words if word.startswith("--bitmap="))]
        self.served[socket] = Path(words[-1])

    marked: list[str] = []

    def _systemctl(self, words, stdin):
        if "handover-image-" in words[-1]:
            for socket in [each for each in self.served if each.endswith("/" + words[-1].partition(".")[0].rpartition("-")[2])]:
                del self.served[socket]
        else:
            self.said.append("guard off")

    def _sh(self, words, stdin):
        self.said.append(words[-1])

    def _pcopy(self, words, stdin):
        verb, store = words[1], Path(words[3] if words[2] == "--json" and len(words) > 3 else words[-1])
        if verb == "list":
            return json.dumps({"snapshots": [
                {**point, **({"current": point["name"] == self.current} if self.current else {}),
                 **({"restoring": True} if self.restoring and point["name"] == self.restoring else {})} for point in self.points
            ]})  # fmt: skip
        if verb == "show":
            found = next(point for point in self.points if words[-1] in (point["id"], point["name"]))
            layers = {volume["name"]: str(self.folder / (volume["name"] + ".layer")) for volume in found["volumes"]}
            return json.dumps({**found, "images": layers, "data": {name: 4 for name in layers}})
        if verb == "copy":
            self.said.append("copy " + " ".join(words[2:4]))
            os.makedirs(words[4])
            return "{}"
        if verb == "delete":
            self.said.append("delete " + words[-1])
            self.points = [point for point in self.points if point["name"] != words[-1]]
            return "{}"
        if "--current" in words:
            return self._roll_back(words[-1], [word.partition("=")[2] for word in words if word.startswith("--volume=")])
        volume = next((word.partition("=")[2] for word in words if word.startswith("--volume=")), "")
        if volume:
            name, _equals, path = volume.partition("=")
            Path(path or words[-1]).write_bytes(self.written.get(name, Path(self.folder / (name + ".layer")).read_bytes()))
            return "{}"
        if verb == "export":
            Path(words[-1]).write_bytes(self.files_of.get(words[-2], self.files)[words[2].partition("=")[2]])
            return "{}"
        if verb == "prune":
            return json.dumps({"snapshots": [{"id": "0abc", "taken": "2026-11-26T00:00:00.5Z", "keep": True, "why": ["current"]}]})
        assert verb in ("pull", "push"), (verb, store)
        request = json.loads(stdin)
        if "--targets" in words:
            self.targets.append(request)
            (Path(request["store"]) / "push").mkdir(parents=True)
            return json.dumps({"targets": [{"name": disk["name"], "path": "x", "why": self.unfit_targets.get(disk["name"], "")} for disk in request["disks"]]})
        self.pulled.append(request)
        self.said.append(verb)
        self.files = {each["name"]: Path(each["path"]).read_bytes() for each in request["files"]}
        if self.pull_fails:
            raise Refused(self.pull_fails)
        os.makedirs(request["store"], exist_ok=True)
        (Path(request["store"]) / "store.json").write_text("{}", encoding="utf-8")
        volumes = [
            {"name": disk["name"], "size": 4, "stored": 4, "read": 4, "how": "marks" if disk.get("bitmap", disk["since"]) else "digests", "why": disk["why"],
             **({"mark": {"tracker": disk["checkpoint"]}} if disk["checkpoint"] else {})}
            for disk in request["disks"]
        ]  # fmt: skip
        point = {"id": "{0}abc".format(len(self.points)), "name": request["name"], "description": request["description"], "taken": request["taken"],
                 "stored": 4, "frozen_ms": request["frozen_ms"], "volumes": volumes}  # fmt: skip
        self.points.append(point)
        if request["name"]:
            places = {"vda": self.folder / "web.qcow2", "vdb": self.folder / "data.raw"}
            self.files_of[request["name"]], self.current = self.files, request["name"]
            self.disks_of[request["name"]] = {disk["name"]: self.served.get(disk.get("socket"), places[disk["name"]]).read_bytes() for disk in request["disks"]}
        return json.dumps(point)

    def _roll_back(self, name, volumes):
        self.said.append("roll back " + name)
        if self.rollback_fails.startswith("before"):
            raise Refused(self.rollback_fails)
        self.restoring, done = name, []
        for disk, _equals, address in (volume.partition("=") for volume in volumes):
            bitmap = address.partition("&bitmap=")[2]
            address = address.partition("&")[0]
            self.marked = [*self.marked, bitmap] if bitmap else self.marked
            done.append({"volume": disk, "how": "marks" if bitmap else "digests", "size": 4, "read": 4, "written": 4, "zeroed": 0})
            if self.rollback_fails and disk == "vdb":
                raise Refused(self.rollback_fails)
            self.served[address.partition("socket=")[2]].write_bytes(self.disks_of[name][disk])
        self.restoring, self.current = "", name
        return json.dumps({"volumes": done})


class Refused(Exception):
    """A tool ends with status 1."""


def module_of(check=False, **given):
    """As a module's, with the options of a backup."""
    params = {"workload": "web", "repository": "/srv/backups", "name": None, "keep": {}, "track": True, "before": None, "after": None, "hook_timeout": 60,
              "timeout": 600, **given}  # fmt: skip
    warned: list[str] = []
    return types.SimpleNamespace(params=params, check_mode=check, warn=warned.append, warned=warned)


@pytest.fixture
def guest_host(monkeypatch, tmp_path):
    """A host with the guest web."""
    fake = GuestHost(tmp_path)
    monkeypatch.setattr(runtime.Runtime, "run", lambda self, argv, accept=(0,), stdin=None, timeout=None: fake.run(argv, accept, stdin, timeout))
    monkeypatch.setattr(runtime.Runtime, "find", lambda self, tool: "/usr/bin/" + tool)
    monkeypatch.setattr(pcopy.Pcopy, "check_installed", lambda self: None)
    monkeypatch.setattr(guest_moment, "FOLDERS", str(tmp_path / "qemu/domain-"))
    monkeypatch.setattr(guest_moment, "PUSHED", str(tmp_path / "pushed"))
    monkeypatch.setattr(push_moment, "LEAST_PAUSE", 0.01)
    monkeypatch.setattr(push_moment, "PATIENCE", 0.05)
    monkeypatch.setattr(guest_moment, "ENDS_WITHIN", 0.05)
    monkeypatch.setattr(guest_moment, "PAUSE", 0.01)
    monkeypatch.setattr(lock, "FOLDER", str(tmp_path / "locks"))
    monkeypatch.setattr(guests.unfinished, "__defaults__", (str(tmp_path / "moves"),))
    monkeypatch.setattr(backup_log, "FOLDER", str(tmp_path / "last"))
    return fake


@pytest.fixture
def guest_module():
    """Makes modules with the options of a backup."""
    return module_of
