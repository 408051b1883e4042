# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The conditions of a live move: kernel 2.6.32 of OpenVZ's, or CRIU on a stock kernel or for libvzctl, dumps a container here, and holds it there."""

from __future__ import annotations

import posixpath
import typing as t

from ..._core.move import Move, dotted
from ..._core.move_checks import Need
from . import gate
from .facts import BY_CRIU, CRIU, DIRECTORY, KERNEL, LIBVZCTL, PLOOP, SIMFS, place

Check = t.Callable[[Move], t.Iterator[str]]

# The first CRIU that reads /etc/criu/default.conf, where its action script is named.
READS_CONFIGURATION = [3, 11]
# By way: the layouts that move with their memory, why no other does, and why CRIU has to be there.
LAYOUTS: dict[str, tuple[tuple[str, ...], str]] = {
    CRIU: ((SIMFS,), "has a ploop disk, and no stock kernel has a device for it"),
    LIBVZCTL: ((DIRECTORY, PLOOP), "is neither a directory container of libvzctl's nor one with a ploop disk"),
}
WITHOUT_CRIU: dict[str, str] = {
    CRIU: "the kernel of {0} is not OpenVZ's, and there is no CRIU",
    LIBVZCTL: "libvzctl dumps and restores by CRIU, and {0} has none",
}
# By way: why its freezer has to be on the destination, too.
WITHOUT_FREEZER: dict[str, str] = {
    CRIU: "a command could run in {0} before the release",
    LIBVZCTL: "the dump of {0} has groups of that",
}
# libvzctl stops the servers of this feature for a dump. Only a CRIU that lives starts them again.
STOPPED_FOR_A_DUMP = "nfsd:on"
# libvzctl runs these of the private area in the container: the first before CRIU lets it go, and the other where a restore has failed.
RUN_INSIDE = ("scripts.start", "scripts.stop")

OFFLINE_CURE = "or move it with migrate_mode=offline"


def _offers(move: Move) -> tuple[t.Mapping[str, t.Any], t.Mapping[str, t.Any]]:
    return move.here["host"]["openvz"], move.there["host"]["openvz"]


def _live(move: Move) -> t.Iterator[str]:
    if not move.live:
        return
    if not move.container["running"]:
        yield "{0} is {1} on {2} and has no memory to hand over: start it there first, {3}".format(
            move.workload, move.container["state"], move.source, OFFLINE_CURE
        )
    ways = [offer.get("way", KERNEL) for offer in _offers(move)]
    if ways[0] != ways[1] and LIBVZCTL in ways:
        # Of two eras, which is a check of its own.
        return
    if CRIU in ways and KERNEL in ways:
        by_criu, by_kernel = (move.source, move.destination) if ways[0] == CRIU else (move.destination, move.source)
        yield "CRIU holds the memory of a container on {0}, and OpenVZ's kernel on {1}, and neither reads the other's dump: boot the same kernel, {2}".format(
            by_criu, by_kernel, OFFLINE_CURE
        )
    else:
        yield from (_by_criu if ways[0] in BY_CRIU else _by_kernel)(move)
        if ways[0] == LIBVZCTL:
            yield from _by_libvzctl(move)


def _by_kernel(move: Move) -> t.Iterator[str]:
    """vzmigrate asks for /proc/cpt and /proc/rst. vzcptcheck gives a number where the kernel has them."""
    here, there = _offers(move)
    if not here["checkpoint"]:
        yield "the kernel of {0} cannot dump {1} (`vzcptcheck version` gives none): load its module vzcpt there, {2}".format(
            move.source, move.workload, OFFLINE_CURE
        )
    if not there["capabilities"]:
        yield "the kernel of {0} cannot restore {1} (`vzcptcheck caps` gives none): load its module vzrst there, {2}".format(
            move.destination, move.workload, OFFLINE_CURE
        )


def _by_criu(move: Move) -> t.Iterator[str]:
    """vzctl leaves all to CRIU, and says nothing of its own."""
    here, there = _offers(move)
    for name, offer in ((move.source, here), (move.destination, there)):
        if not offer["criu"]:
            yield (WITHOUT_CRIU[here["way"]] + ": install criu there, {1}").format(name, OFFLINE_CURE)
        elif offer["criu"][:2] < READS_CONFIGURATION:
            yield "CRIU is {0} on {1}, which does not read {2}, and nothing would hold it before the release: install {3} or later there, {4}".format(
                dotted(offer["criu"]), name, gate.CONFIGURATION, dotted(READS_CONFIGURATION), OFFLINE_CURE
            )
        elif offer["criu_gate"]:
            yield "nothing would hold CRIU on {0} before the release ({1}): {2}".format(name, offer["criu_gate"], gate.CURE)
    if not here["freezer"]:
        yield "{0} has no freezer of cgroup v1, and the tasks of {1} would run on if CRIU were killed: mount it there, {2}".format(
            move.source, move.workload, OFFLINE_CURE
        )
    if not there["freezer"]:
        yield "{0} has no freezer of cgroup v1, and {1}: mount it there, {2}".format(
            move.destination, WITHOUT_FREEZER[here["way"]].format(move.workload), OFFLINE_CURE
        )
    if here["criu"][:2] > there["criu"][:2] and there["criu"]:
        yield "CRIU is {0} on {1} and {2} on {3}, which is older: install the same version there, {4}".format(
            dotted(here["criu"]), move.source, dotted(there["criu"]), move.destination, OFFLINE_CURE
        )
    # A move holds CRIU by the folder that it dumps to, and knows that of the host. This setting moves with the container. libvzctl is told the folder.
    own = here["way"] == CRIU and move.container["parameters"].get("DUMPDIR")
    for name, offer in ((move.source, here), (move.destination, there)) if own else ():
        usual, chosen = posixpath.dirname(offer["dump"]), posixpath.normpath(place(move.container["parameters"], "DUMPDIR", move.container["id"]))
        if chosen != posixpath.normpath(usual):
            yield "{0} has a DUMPDIR of its own ({1}), and the dumps of {2} are in {3}, where alone CRIU is held: remove it from its configuration, {4}".format(
                move.workload, chosen, name, usual, OFFLINE_CURE
            )
    layouts, why = LAYOUTS[here["way"]]
    if move.container["layout"] not in layouts:
        yield "{0} {1}: {2}".format(move.workload, why, OFFLINE_CURE[len("or ") :])


def _by_libvzctl(move: Move) -> t.Iterator[str]:
    """Its scripts for a dump read files of cgroup v1 on the source, and its CRIU writes to the same there."""
    here, there = _offers(move)
    for name, offer in ((move.source, here), (move.destination, there)):
        if offer["restore_options"]:
            yield "{0} gives CRIU words of its own for a restore (RESTORE_EXTRA_OPT={1}), and it may not be held before the release: {2}, {3}".format(
                name, offer["restore_options"], "take them out of /etc/vz/vz.conf there", OFFLINE_CURE
            )
    inside = [name.partition(".")[2] for name in RUN_INSIDE if name in move.container["own_scripts"]]
    if inside:
        yield "{0} has the action script {1}, which libvzctl runs in it on {2} before the release: take it out of {3}/scripts, {4}".format(
            move.workload, " and ".join(inside), move.destination, move.container["private"], OFFLINE_CURE
        )
    if move.container["layout"] == PLOOP and move.container["encrypted"]:
        yield "the ploop disk of {0} is encrypted, and it is not known whether {1} has its key before the release: {2}".format(
            move.workload, move.destination, OFFLINE_CURE[len("or ") :]
        )
    if STOPPED_FOR_A_DUMP in move.container["parameters"].get("FEATURES", "").replace(",", " ").split():
        yield "{0} has the feature nfsd: libvzctl stops its servers for a dump, and if CRIU were killed nothing would start them again: {1}, {2}".format(
            move.workload, "take it off with `vzctl set {0} --features nfsd:off --save`".format(move.workload), OFFLINE_CURE
        )


def _checkpoint(move: Move) -> t.Iterator[str]:
    """A kernel reads dumps of its own version and of earlier ones; vzmigrate ends with 17."""
    here, there = (offer["checkpoint"] for offer in _offers(move))
    if move.live and here and there and here > there:
        yield "the kernel of {0} writes dumps of version {1}, and that of {2} reads them up to version {3}: boot a newer kernel there, {4}".format(
            move.source, here, move.destination, there, OFFLINE_CURE
        )


def _cpu(move: Move) -> t.Iterator[str]:
    """vzmigrate asks the kernel alone, and ends with 18. A program that was built for the source's processor fails after a start, too."""
    if not move.live:
        return
    missing = sorted(set(move.here["host"]["cpu_features"]) - set(move.there["host"]["cpu_features"]))
    if missing:
        yield "the processor of {0} lacks {1}, which programs in {2} may be using: choose a host like {3}, {4}".format(
            move.destination, ", ".join(missing), move.workload, move.source, OFFLINE_CURE
        )
    here, there = (offer["capabilities"] for offer in _offers(move))
    if here and there and here & ~there:
        yield "the processor of {0} cannot do all that {1} may be using (`vzcptcheck caps` says {2} there and {3} here): choose a host like {4}, {5}".format(
            move.destination, move.workload, there, here, move.source, OFFLINE_CURE
        )


def _databases(move: Move) -> t.Iterator[str]:
    """The files of a directory container get other inodes, and the device of a disk may be another one. vzmigrate does not look."""
    for path in move.container.get("databases", []) if move.live else []:
        yield "{0} has the SQLite database {1} open on {2}, known to it by device and inode, which may be others on {3}: end the program, {4}".format(
            move.workload, path, move.source, move.destination, OFFLINE_CURE
        )


def needs(move: Move) -> list[Need]:
    """The dump is a file on both hosts until it runs there."""
    if not move.live:
        return []
    here, there = _offers(move)
    size = move.container["memory"]
    return [Need("the dump of its memory", name, offer["dump_store"], size) for name, offer in ((move.source, here), (move.destination, there))]


# Cannot be ignored: without them nothing of its memory would come.
FIRM: dict[str, Check] = {"live": _live, "checkpoint": _checkpoint}
CHECKS: dict[str, Check] = {"cpu": _cpu, "databases": _databases}
