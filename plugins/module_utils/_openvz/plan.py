# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan of an import: a row for each line of the configuration and for all else that the container is, and what podman is told.

Nothing here touches a host. The same plan is printed by a trial and carried out by a run.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, field

from .._core.inits import init_of
from . import action_scripts, mends, networks
from .look import state_of
from .podman_options import NOT_GIVEN, RIGHTS, ways
from .translation import CARRIED, REFUSED, REPORTED, TRANSLATED, table, translate

MIB = 1 << 20
# The metadata of a file system take some of it. DISKSPACE is the room for files.
OVERHEAD = 1.07
SPARE = 64 * MIB
INODE = 256
# The first systemd that runs on control groups of version 2 alone, and the last C library that calls through the vsyscall page.
SYSTEMD_V2 = 232
VSYSCALL_GLIBC = (2, 13)
INITS = {"systemd": "systemd", "upstart": "Upstart", "sysvinit": "System V's init"}
_SECTORS = re.compile(r"<Disk_size>\s*(\d+)\s*</Disk_size>")
_IMAGE = re.compile(r"<File>([^<]*)</File>")
# podman's limits on a container's name.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
# Rows about the container as a whole, which cannot be left out.
WHOLE = ("(container)", "(state)", "(machine)", "(data)", "(name)", "(room)")


@dataclass(frozen=True)
class Wishes:
    """What the operator says."""

    name: str = ""
    size: int = 0
    networks: t.Mapping[str, str] = field(default_factory=dict)
    ignore: t.Sequence[str] = ()


class _Table:
    """The rows, with what the operator leaves out."""

    def __init__(self, ignore: t.Sequence[str]) -> None:
        self.ignore = ignore
        self.rows: list[dict[str, t.Any]] = []

    def add(self, name: str, fate: str, text: str, line: int = 0, value: str = "") -> None:
        if fate == REFUSED and name in self.ignore and name not in WHOLE:
            fate, text = REPORTED, "left out, as asked: " + text
        self.rows.append({"line": line, "name": name, "value": value, "fate": fate, "text": text})

    def refused(self) -> list[str]:
        found = []
        for each in self.rows:
            if each["fate"] == REFUSED:
                name = each["name"] or f"line {each['line']}"
                found.append(f"{name}: {each['text']}" + ("" if name in WHOLE else f" (import_openvz_ignore: [{name!r}] leaves it out)"))
        return found


def make(look: t.Mapping[str, t.Any], offer: t.Mapping[str, t.Any], wishes: Wishes, mountpoint: str) -> dict[str, t.Any]:
    """The plan. `mountpoint` is where the volume will be mounted, with {name} in it."""
    told = _translated(look)
    values = with_scripts(dict(told["container"]), look["scripts"])
    rows = _Table(wishes.ignore)
    options: list[str] = []
    for each in told["rows"]:
        answers = ways(each["sets"], values, offer)
        bad = next((answer.refused for answer in answers if answer.refused), "")
        said = [word for answer in answers for word in ([*answer.options] or [answer.told]) if word]
        fate, text = (REFUSED, bad) if bad else (each["fate"], " → ".join([each["text"], *([" ".join(said)] if said else [])]))
        rows.add(each["name"], fate, text, each["line"], each["value"])
        options += [] if bad else [option for answer in answers for option in answer.options]
    name = wishes.name or values.get("name") or "ct" + look["id"][:8]
    mountpoint = mountpoint.replace("{name}", name)
    # A ploop disk keeps its size, and grows if that is asked for.
    size = wishes.size or (0 if look["layout"] == "ploop" else volume_size(values.get("disk_bytes"), values.get("disk_inodes")))
    _whole(rows, look, offer, name, size)
    options += _scripts(rows, look["scripts"], values, offer)
    reached = _network(rows, values, offer, wishes.networks)
    if reached == ["--network=none"]:
        options = [each for each in options if not each.startswith("--dns")]
    options += reached
    options += _rights(rows, values.get("cap_drop") or [])
    options += _defaults(rows, values, offer, reached)
    _init(rows, look["root"], offer)
    return {
        "id": look["id"], "host": look["host"], "name": name, "layout": look["layout"], "private": look["private"], "source_mountpoint": look["mountpoint"],
        "running": state_of(look["status"])["running"], "rows": rows.rows, "lines": table(rows.rows), "refused": rows.refused(),
        "options": list(dict.fromkeys(options)), "mountpoint": mountpoint, "size": size, "inodes": values.get("disk_inodes") or 0,
        "onboot": values.get("onboot") or False, "boot_order": values.get("boot_order") or 0, "disabled": bool(values.get("disabled")),
        "interfaces": [each["name"] for each in networks.interfaces_of(values)],
    }  # fmt: skip


def _translated(look: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    return translate(look["files"].get("conf", ""), look["id"], look["files"].get("vz.conf", ""))


def with_scripts(values: dict[str, t.Any], scripts: t.Mapping[str, str]) -> dict[str, t.Any]:
    """With the bind mounts of the mount scripts."""
    for name, text in scripts.items():
        if name.endswith((".mount", ".premount")):
            found, _strange = action_scripts.bind_mounts(text)
            values["script_mounts"] = [*values.get("script_mounts", []), *found]
    return values


def paths_of(look: t.Mapping[str, t.Any]) -> list[str]:
    """The devices and folders of a host that the container is to see."""
    values = with_scripts(dict(_translated(look)["container"]), look["scripts"])
    mounts = [*values.get("bind_mounts", []), *values.get("script_mounts", [])]
    return [each.partition(":")[0] for each in values.get("devices", [])] + [each.partition(",")[0].partition(":")[0] for each in mounts]


def volume_size(files: int | None, inodes: int | None) -> int:
    """The size of a volume that has so many bytes for files, in whole MiB; 0 where there is no limit."""
    return 0 if not files else -(-int(files * OVERHEAD + SPARE + (inodes or 0) * INODE) // MIB) * MIB


def _whole(rows: _Table, look: t.Mapping[str, t.Any], offer: t.Mapping[str, t.Any], name: str, size: int) -> None:
    state = state_of(look["status"])
    if look["lacks"]:
        rows.add("(container)", REFUSED, f"the source has no {' and no '.join(look['lacks'])}: install it there")
    if not state["exists"]:
        rows.add("(container)", REFUSED, f"vzctl status says {look['status']!r}: name a container that exists")
    if state["suspended"] or state["paused"]:
        rows.add("(state)", REFUSED, "it is suspended, and its memory cannot come along: resume it, or stop it")
    elif state["running"]:
        rows.add("(state)", TRANSLATED, "it runs: a first copy is made beside it, then it is stopped, and starts there")
    else:
        rows.add("(state)", CARRIED, "it is stopped, and so it stays")
    if look["owner"] not in ("", "0"):
        rows.add("(owner)", REFUSED, f"its files belong to users from {look['owner']} on: give them back their own (chown in a user namespace) first")
    if look["machine"] != offer["machine"]:
        rows.add("(machine)", REFUSED, f"the source is {look['machine']}, and the destination {offer['machine']}")
    if look["layout"] == "vzfs":
        rows.add("(data)", REFUSED, "its files are partly in a template (VZFS): convert it first (vzctl convert)")
    elif look["layout"] == "directory":
        rows.add("(data)", REFUSED, f"it is a directory container of libvzctl's ({look['private']}/fs): convert it first (vzctl convert)")
    elif not look["layout"]:
        rows.add("(data)", REFUSED, f"neither a disk nor files are in {look['private']}: see VE_PRIVATE")
    elif look["layout"] == "both":
        rows.add("(data)", REFUSED, f"{look['private']} has a disk and files of a directory container: take away the one that it does not run from")
    elif _beyond(look):
        rows.add("(data)", REFUSED, f"its disk has images outside of its folder ({_beyond(look)[0]}): bring them into it first (ploop merge)")
    elif look["layout"] == "ploop" and 0 < size < _disk_size(look):
        rows.add("(data)", REFUSED, f"its disk has {_disk_size(look) // MIB} MiB, and a disk is not made smaller here: leave import_openvz_size out")
    elif not size and look["layout"] != "ploop":
        rows.add("(data)", REFUSED, "DISKSPACE has no limit, and a volume has one: say how large it is to be, as in import_openvz_size=20G")
    elif look["layout"] == "simfs" and look["kib"] * 1024 > size:
        rows.add("(data)", REFUSED, f"it has {look['kib'] // 1024} MiB, and DISKSPACE is for less: say how large it is to be, as in import_openvz_size=20G")
    else:
        _not_carried(rows, look)
        whence = f"{look['private']}/root.hdd" if look["layout"] == "ploop" else look["private"]
        volume = f"an image volume of {size // MIB} MiB" if size else "an image volume of the disk's size"
        rows.add("(data)", TRANSLATED, f"{look['kib'] // 1024} MiB of {whence} ({look['layout']}) → {volume}")
        # A ploop image is beside the volume for as long as it is unpacked.
        need = look["kib"] * 1024 * (2 if look["layout"] == "ploop" else 1)
        if need > offer["free"]:
            rows.add("(room)", REFUSED, f"{need // MIB} MiB are needed on the destination, and {offer['free'] // MIB} MiB are free")
    if not _NAME.fullmatch(name):
        rows.add("(name)", REFUSED, f"{name!r} is no name of podman's: give one of up to 64 letters, digits and _ . - in import_openvz_name")
    elif name in offer["taken"]:
        rows.add("(name)", REFUSED, f"the destination has a container or a volume {name} already: give another in import_openvz_name")
    else:
        rows.add("(name)", CARRIED, name)


def _beyond(look: t.Mapping[str, t.Any]) -> list[str]:
    """Images of the disk that are not in its own folder, which alone is copied."""
    return [each for each in _IMAGE.findall(look["files"].get("descriptor", "")) if "/" in each.strip()]


def _disk_size(look: t.Mapping[str, t.Any]) -> int:
    """Bytes of the disk; 0 where its descriptor says none."""
    found = _SECTORS.search(look["files"].get("descriptor", ""))
    return int(found.group(1)) * 512 if found else 0


def _not_carried(rows: _Table, look: t.Mapping[str, t.Any]) -> None:
    snapshots = max(0, look["files"].get("descriptor", "").count("<Shot>") - 1)
    if snapshots:
        rows.add("(snapshots)", REPORTED, f"its {snapshots} snapshots stay on the source: here it has the disk as it is now")
    if look["layout"] == "simfs":
        rows.add("(data)", REPORTED, "attributes of files that chattr sets, as immutable, are not carried: set them again")


def _scripts(rows: _Table, scripts: t.Mapping[str, str], values: t.Mapping[str, t.Any], offer: t.Mapping[str, t.Any]) -> list[str]:
    options = []
    for name, text in scripts.items():
        mounts, strange = action_scripts.bind_mounts(text) if name.endswith((".mount", ".premount")) else ([], action_scripts.unknown_lines(text, name))
        missing = [each.partition(":")[0] for each in mounts if each.partition(":")[0] not in offer["paths"]]
        if strange:
            rows.add(name, REFUSED, f"the action script does more than podman can be told: {strange[0]}")
        elif missing:
            rows.add(name, REFUSED, f"the destination has no {', '.join(missing)}: bring it there first")
        else:
            found = [f"--volume={each}" for each in mounts]
            rows.add(name, TRANSLATED, "the action script's bind mounts → " + " ".join(found) if found else "the action script has nothing to do")
            options += found
    return options


def _network(rows: _Table, values: t.Mapping[str, t.Any], offer: t.Mapping[str, t.Any], chosen: t.Mapping[str, str]) -> list[str]:
    values, chosen, wrong = networks.choices(values, chosen)
    options, problems = networks.options(values, offer["networks"], chosen)
    for problem in [*wrong, *problems]:
        rows.add("(network)", REFUSED, problem)
    rows.add("(network)", TRANSLATED, " ".join(options))
    for sentence in networks.unasked(values, offer["networks"], chosen):
        rows.add("(network)", REPORTED, sentence)
    return options


def _rights(rows: _Table, dropped: t.Sequence[str]) -> list[str]:
    options = [f"--cap-add={each}" for each in RIGHTS if each not in dropped]
    rows.add("(rights)", CARRIED, "those of each container of OpenVZ → " + " ".join(options))
    rows.add("(rights)", REPORTED, f"{', '.join(NOT_GIVEN)} are not given: on a stock kernel they reach the host")
    return options


def _defaults(rows: _Table, values: t.Mapping[str, t.Any], offer: t.Mapping[str, t.Any], reached: t.Sequence[str]) -> list[str]:
    """podman has defaults of its own where the configuration is silent."""
    options = ["--no-hosts"]
    if reached == ["--network=none"]:
        rows.add("(network)", REPORTED, "without a network podman takes no word about DNS")
    elif "nameservers" not in values:
        options.append("--dns=none")
    if "pids_limit" not in values and "pids" in offer["controllers"]:
        options.append("--pids-limit=-1")
    if "stop_timeout" not in values:
        options.append("--stop-timeout=120")
    rows.add("(defaults)", CARRIED, "the container's own files, and OpenVZ's defaults → " + " ".join(options))
    return options


def _init(rows: _Table, root: t.Mapping[str, t.Any], offer: t.Mapping[str, t.Any]) -> None:
    if not root["path"]:
        rows.add("(init)", REPORTED, "its disk is not mounted there: its init and the mends are looked at when the data have come")
        return
    problem = fault_of(root, offer)
    if problem:
        rows.add(problem[0], REFUSED, problem[1])
    kind = init_of(root)
    if kind:
        version = f" {root['systemd']}" if root["systemd"] else ""
        rows.add("(init)", CARRIED, f"{INITS[kind]}{version}" + (f", release {root['release']}" if root["release"] else ""))
    for mend in mends.needed(root) if kind else []:
        said = [*mend.options("{volume}"), *(path for path, _change in mend.files), *mend.masks]
        rows.add("(init)", TRANSLATED, f"{mend.name}: {mend.reason} → {' '.join(said)}")
    if kind == "systemd" and mends.LINGER in root["has"]:
        rows.add("(init)", REPORTED, "users have services that run without a login: it moves live only after `systemctl mask user@.service` in it")


def fault_of(root: t.Mapping[str, t.Any], offer: t.Mapping[str, t.Any]) -> tuple[str, str] | None:
    """Why this root file system cannot come up on the destination, with the name to leave that out by."""
    kind = init_of(root)
    if not kind:
        return "(init)", f"/sbin/init is {root['init'] or 'not there'}, which is none of systemd, Upstart and System V's init"
    if kind == "systemd" and offer["cgroup"] == 2 and root["systemd"] < SYSTEMD_V2:
        age = f"systemd {root['systemd']}" if root["systemd"] else f"a systemd before {SYSTEMD_V2}"
        return "(cgroup)", (
            f"{age} needs control groups of version 1, and the destination has version 2: boot it with systemd.unified_cgroup_hierarchy=0, "
            "or upgrade the distribution in the container first"
        )
    if kind == "systemd" and "tmp" not in root["has"]:
        return "(tmp)", "/tmp is no folder, but a link or nothing: podman would mount an empty tmpfs there; make it a folder in the container first"
    glibc = [int(each) for each in re.findall(r"\d+", root["glibc"])]
    if glibc and tuple(glibc[:2]) <= VSYSCALL_GLIBC and not offer["vsyscall"]:
        return "(vsyscall)", f"programs of glibc {root['glibc']} call the kernel through the vsyscall page: boot the destination with vsyscall=emulate"
    return None
