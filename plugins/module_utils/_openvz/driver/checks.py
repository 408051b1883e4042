# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The conditions before a container of OpenVZ's is moved: vzmigrate's, and those of the session.

A check is a pure function of the facts about both hosts, and yields one sentence for each fault: the thing, the place, and the way out.
"""

from __future__ import annotations

import typing as t

from ..._core import move_checks
from ..._core.move import IGNORE, UNACCOUNTED, Finding, Move, dotted
from ..._core.move_checks import Need
from . import gate, inventory, live
from .facts import DIRECTORY, HELD, INSIDE, NEWER, PRIVATE, SCRIPTS, SIMFS

Check = t.Callable[[Move], t.Iterator[str]]

# Nodes of devices that are the same on every host.
COMMON_DEVICES = ("net/tun", "fuse", "ppp")
# By era: whether it is one of libvzctl's.
LAYOUTS = {False: (SIMFS, "ploop"), True: (SIMFS, "ploop", DIRECTORY)}
# The session watches the files while they are used, by their handles.
WATCHED = ("ext4", "xfs")
# Storage that several hosts see, by the kinds of its file system.
SHARED = ("fuse.vstorage", "fuse.pstorage", "nfs", "nfs4", "gfs2")


def _offer(move: Move) -> t.Mapping[str, t.Any]:
    return t.cast("t.Mapping[str, t.Any]", move.there["host"]["openvz"])


def _openvz(move: Move) -> t.Iterator[str]:
    for name, host in move.hosts:
        if not host["openvz"]["installed"]:
            yield "OpenVZ is not on {0}, as vzctl or /etc/vz/conf is missing: install vzctl there, or name another host".format(name)


def _unknown_workload(move: Move) -> t.Iterator[str]:
    if move.container.get("machine"):
        yield "{0} is a virtual machine on {1}, and this driver moves containers: move it with `prlctl migrate`, or as a guest of libvirt's".format(
            move.workload, move.source
        )
    elif not move.container["exists"]:
        known = ["{id} ({name})".format(**each) if each["name"] else each["id"] for each in move.here["host"]["openvz"]["containers"]]
        yield "OpenVZ has no container {0} on {1}: name one of its containers{2}".format(
            move.workload, move.source, " ({0})".format(", ".join(known)) if known else ", of which it has none"
        )


def _another_name(move: Move) -> t.Iterator[str]:
    if move.container["exists"] and move.container["id"] != move.workload:
        yield "{0} is the container {1} on {2}: name it {1}, by which OpenVZ knows it on both hosts".format(move.workload, move.container["id"], move.source)


def _gate(move: Move) -> t.Iterator[str]:
    """Without it OpenVZ would start what has moved away, at a boot or at an operator's word."""
    for name, host in move.hosts:
        if host["openvz"]["gate"]:
            yield "nothing would keep OpenVZ on {0} from starting {1} while the other host runs it ({2}): {3}".format(
                name, move.workload, host["openvz"]["gate"], gate.CURE
            )


def _running(move: Move) -> t.Iterator[str]:
    state, dump = move.container["state"], move.container.get("dump")
    if state in (HELD, "suspended"):
        words = "vzctl chkpnt {0} --resume" if state == HELD else "vzctl restore {0}"
        yield "{0} is {1} on {2} and not running: let it go on there with `{3}`, or stop it".format(
            move.workload, state, move.source, words.format(move.workload)
        )
    elif dump:
        yield "{0} has a dump of its memory on {1} ({2}), with which it would go on there: start it there, or remove the dump".format(
            move.workload, move.source, dump
        )
    elif state == "mounted":
        yield "{0} does not run and is mounted on {1}: unmount it there with `vzctl umount {0}`".format(move.workload, move.source)


def _era(move: Move) -> t.Iterator[str]:
    """Each era registers a container otherwise, and reads another configuration."""
    here, there = (host["openvz"]["version"][:1] >= [NEWER] for _name, host in move.hosts)
    if here != there:
        yield "vzctl is {0} on {1} and {2} on {3}, and the two read other configurations: move it to a host of the same era".format(
            *(word for name, host in move.hosts for word in (dotted(host["openvz"]["version"]), name))
        )
    elif here and not move.container["newer"]:
        yield "{0} is of an earlier OpenVZ than {1} itself, which only runs it: convert it there with `vzctl convert {0}`".format(move.workload, move.source)
    elif here and not move.container["inside"]:
        yield "the configuration of {0} on {1} is not {2}/{3}: register it there with `vzctl register {2} {0}`".format(
            move.workload, move.source, move.container["private"], INSIDE
        )


def _files(move: Move) -> t.Iterator[str]:
    for name in move.container["unreadable"]:
        yield "the file /etc/vz/conf/{0} on {1} is no plain text of UTF-8 with line feeds, and would not be the same on {2}: write it as such".format(
            name, move.source, move.destination
        )


def _engine_lock(move: Move) -> t.Iterator[str]:
    for name, host in move.hosts:
        if host["openvz"]["lock"]:
            yield "vzctl or another program works on {0} on {1} (process {2} has its lock): wait for its end".format(
                move.workload, name, host["openvz"]["lock"]
            )


def _layout(move: Move) -> t.Iterator[str]:
    if move.container["layout"] not in LAYOUTS[move.container["newer"]]:
        yield "the private area {0} of {1} on {2} is {3}, and only simfs and ploop can move: convert it with `vzctl convert {1}`".format(
            move.container["private"], move.workload, move.source, move.container["layout"] or "of no kind that is known here"
        )
    if move.container["fstype"] in SHARED:
        yield "the private area {0} of {1} is on {2}, which other hosts see as well: unregister it on {3} and register it there, without a copy".format(
            move.container["private"], move.workload, move.container["fstype"], move.source
        )
    if move.container["linked"]:
        yield "the private area {0} of {1} on {2} is a link: put the folder itself there, or mount it there".format(
            move.container["private"], move.workload, move.source
        )


def _filesystem(move: Move) -> t.Iterator[str]:
    if move.container["fstype"] not in WATCHED:
        yield "the private area {0} of {1} on {2} is on {3}, whose files cannot be watched: put it on ext4 or xfs".format(
            move.container["private"], move.workload, move.source, move.container["fstype"] or "a file system that is not known"
        )


def _ploop(move: Move) -> t.Iterator[str]:
    if move.container["layout"] == "ploop" and not _offer(move)["ploop"]:
        yield "{0} has a ploop disk, and {1} gives it no device (`ploop getdev`): install ploop and its kernel there".format(move.workload, move.destination)


def _already_there(move: Move) -> t.Iterator[str]:
    if move.there["workload"]["exists"]:
        yield "{1} has a container {0} already, which is {2}: destroy it there with `vzctl destroy {0}`, or give this one another id".format(
            move.workload, move.destination, move.there["workload"]["state"]
        )
    if _offer(move)["private_exists"]:
        yield "{0} is on {1} already, and is never overwritten: move it away there".format(_offer(move)["private"], move.destination)


def _names(move: Move) -> t.Iterator[str]:
    title = move.container["title"]
    for each in _offer(move)["containers"]:
        if title and each["name"] == title:
            yield "the container {0} on {1} is called {2}, as {3} is: give one of them another name with `vzctl set --name`".format(
                each["id"], move.destination, title, move.workload
            )


def _addresses(move: Move) -> t.Iterator[str]:
    taken = {each["address"]: each["container"] for each in _offer(move)["taken"]}
    for address in move.container["addresses"]:
        if address in taken:
            yield "the address {0} of {1} is that of the container {2} on {3}: give that another with `vzctl set`".format(
                address, move.workload, taken[address], move.destination
            )


def _bridges(move: Move) -> t.Iterator[str]:
    for bridge in move.container["bridges"]:
        if bridge not in move.there["host"]["interfaces"]:
            yield "{0} has an interface on the bridge {1}, which {2} does not have: make it there".format(move.workload, bridge, move.destination)


def _ipv6(move: Move) -> t.Iterator[str]:
    if any(":" in address for address in move.container["addresses"]) and not _offer(move)["ipv6"]:
        yield "{0} has an address of IPv6, and the module ipv6 is not loaded on {1}: load it there".format(move.workload, move.destination)


def _devices(move: Move) -> t.Iterator[str]:
    parameters = move.container["parameters"]
    found = [word for name in ("NETDEV", "PCI", "DEVICES") for word in parameters.get(name, "").split()]
    nodes = parameters.get("DEVNODES", "").replace(",", " ").split()
    found += [word for word in nodes if word.rpartition(":")[0] not in COMMON_DEVICES and not word.endswith(":none")]
    if found:
        yield "{0} has devices of {1} ({2}), which cannot move: take them away with `vzctl set`".format(move.workload, move.source, ", ".join(found))


def _disks(move: Move) -> t.Iterator[str]:
    if move.container["parameters"].get("DISK"):
        yield "{0} has a disk beside that of its root (DISK), and it may be outside of {1}: detach it with `prlctl set {0} --device-del`".format(
            move.workload, move.container["private"]
        )


def _bind_mounts(move: Move) -> t.Iterator[str]:
    """A script may mount a folder of the host, too. It moves, and fails there where the folder is missing."""
    if move.container["parameters"].get("BINDMOUNT"):
        yield "{0} mounts a folder of {1} (BINDMOUNT), which would stay behind: take it off with `vzctl set {0} --bindmount_del`".format(
            move.workload, move.source
        )


def _cluster(move: Move) -> t.Iterator[str]:
    if move.container["parameters"].get("HA_ENABLE") == "yes":
        yield "{0} is under high availability (HA_ENABLE), and its cluster could start it elsewhere: take it out with `prlctl set {0} --ha-enable no`".format(
            move.workload
        )


def _quota(move: Move) -> t.Iterator[str]:
    for name, host in move.hosts:
        if move.container["quota"] and not host["openvz"]["quota"]:
            yield "{0} has limits for users and groups in its quota (QUOTAUGIDLIMIT), and {1} lacks vzdqdump, vzdqload or vzquota: {2}".format(
                move.workload,
                name,
                "install vzquota there, take them off with `vzctl set {0} --quotaugidlimit 0 --save`, or list the check 'quota' in {1}".format(
                    move.workload, IGNORE
                ),
            )


def _version(move: Move) -> t.Iterator[str]:
    here, there = (host["openvz"]["version"] for _name, host in move.hosts)
    if here[:2] > there[:2]:
        yield "vzctl is {0} on {1} and {2} on {3}, which is older: install the same version there, or list the check 'vzctl_version' in {4}".format(
            dotted(here), move.source, dotted(there), move.destination, IGNORE
        )


def _kernel(move: Move) -> t.Iterator[str]:
    here, there = (host["openvz"]["kernel"] for _name, host in move.hosts)
    if here and not there:
        yield "{0} runs OpenVZ's kernel and {1} does not, whose containers have no limits of their own: boot it there".format(move.source, move.destination)


def _arch(move: Move) -> t.Iterator[str]:
    here, there = (host["arch"] for _name, host in move.hosts)
    if here != there:
        yield "{0} is {1} and {2} is {3}, which cannot run the programs of {4}: choose a host like {0}".format(
            move.source, here, move.destination, there, move.workload
        )


def _space(move: Move) -> t.Iterator[str]:
    yield from move_checks.space(move, [Need("its private area", move.destination, _offer(move)["store"], move.container["size"]), *live.needs(move)])


def _scripts(move: Move) -> t.Iterator[str]:
    """vzctl runs no other, so one that has another name is nothing that a move knows."""
    known = {"{0}.{1}".format(move.container["id"], word) for word in SCRIPTS}
    for name in sorted(set(move.container["scripts"]) - known):
        yield "{0} has the script {1} on {2}, and it is not known whether OpenVZ on {3} runs it: remove it, or list the check 'scripts' in {4}".format(
            move.workload, name, move.source, move.destination, IGNORE
        )


def _options(move: Move) -> t.Iterator[str]:
    for asked, option in (
        (move.lazy_pages, "migrate_lazy_pages"),
        (move.auto_converge, "migrate_auto_converge"),
    ):
        if asked:
            yield "{0} is about the memory of podman's containers, and {1} is OpenVZ's: move it without {0}".format(option, move.workload)


BASICS: dict[str, Check] = {
    "same_host": move_checks.same_host,
    "openvz": _openvz,
    "workload": _unknown_workload,
    "name": _another_name,
    # Among the basics because nothing else would keep it from running twice.
    "gate": _gate,
    "locked": move_checks.locked,
}

# Cannot be ignored either, and are asked with the rest: without them the move would lose something, or write over it.
FIRM: dict[str, Check] = {
    "running": _running,
    **live.FIRM,
    "era": _era,
    "files": _files,
    "engine_lock": _engine_lock,
    "layout": _layout,
    "already_there": _already_there,
}

CHECKS: dict[str, Check] = {
    "filesystem": _filesystem,
    "ploop": _ploop,
    "names": _names,
    "addresses": _addresses,
    "bridges": _bridges,
    "ipv6": _ipv6,
    "devices": _devices,
    "disks": _disks,
    "bind_mounts": _bind_mounts,
    "cluster": _cluster,
    "quota": _quota,
    "scripts": _scripts,
    "vzctl_version": _version,
    "openvz_kernel": _kernel,
    "arch": _arch,
    **live.CHECKS,
    "space": _space,
    "memory_options": _options,
    "pcopy": move_checks.pcopy,
    "systemd": move_checks.systemd,
    "clock": move_checks.clock,
    "unanswered": move_checks.unanswered,
}


def twin(move: Move) -> dict[str, t.Any]:
    """Everything that a move makes on the destination, and removes again if it is undone."""
    return {"made": not move.there["workload"]["exists"], "volumes": [PRIVATE], "folders": [], "secrets": [], "dump": move.live or move.container["quota"]}


def examine(move: Move, ignore: t.Container[str] = ()) -> tuple[list[Finding], list[Finding]]:
    """The faults that count, and those to be ignored. Where the basics are wrong, the rest is not asked."""
    found = [Finding(name, sentence) for name, check in BASICS.items() for sentence in check(move)]
    ignored: list[Finding] = []
    if found:
        return found, ignored
    every = [Finding(name, sentence) for name, check in {**FIRM, **CHECKS}.items() for sentence in check(move)]
    for key in move.container.get("unaccounted", []):
        name = UNACCOUNTED + key
        every.append(Finding(name, inventory.refusal(move.workload, move.source, key, name)))
    for finding in every:
        # No name of a firm one is on the list: unknown_names has refused it.
        (ignored if finding.check in ignore else found).append(finding)
    return found, ignored


def unknown_names(ignore: t.Iterable[str]) -> list[str]:
    """Names on an ignore list that no check has."""
    return [name for name in ignore if name not in CHECKS and not name.startswith(UNACCOUNTED)]
