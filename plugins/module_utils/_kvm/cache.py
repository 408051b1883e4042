# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The effect of a disk's cache mode: for data when the power goes, for a live migration, and for speed.

A verdict is yes, no or unknown, and a reason in words. Nothing here touches a host.

The rule for live migration is libvirt's own (C(qemuMigrationSrcIsSafe) in C(src/qemu/qemu_migration.c)): a disk that both hosts see must
not be in the page cache of one of them, unless its file system keeps the caches of its hosts coherent, or QEMU can be told to drop what it
has cached, which it can since 4.0 (C(x-check-cache-dropped), C(drop-cache) of its file driver).
"""

from __future__ import annotations

import typing as t
from dataclasses import asdict, dataclass, replace

from .domain_xml import Disk

YES, NO, UNKNOWN = "yes", "no", "unknown"

# From which version on QEMU drops cached pages of a disk at the end of a migration.
DROPS_CACHE_SINCE = (4, 0, 0)

# File systems that several hosts mount at once, and of those the ones whose caches are coherent, as libvirt sees it (virFileIsSharedFS,
# virFileIsClusterFS). The names are those of /proc/mounts.
SHARED_FILE_SYSTEMS = frozenset(
    ["nfs", "nfs4", "gfs2", "ocfs2", "afs", "cifs", "smb3", "ceph", "gpfs", "fuse.quobyte", "fuse.glusterfs", "acfs", "beegfs", "fuse.vstorage"]
)
COHERENT_FILE_SYSTEMS = frozenset(["gfs2", "ocfs2", "ceph"])

# Whether QEMU tells the guest of a write before it is on the disk, whether it uses the host's page cache, whether it ignores flushes.
# From QEMU's documentation of -drive cache=.
MODES = {
    # (write cache, page cache, ignores flushes)
    "none": (True, False, False),
    "writeback": (True, True, False),
    "writethrough": (False, True, False),
    "directsync": (False, False, False),
    "unsafe": (True, True, True),
}


# How much of the guest's writes is in memory alone at any moment, and of those that it believes on the disk.
EXPOSURE = {"directsync": 0, "writethrough": 0, "none": 1, "writeback": 2, "unsafe": 3}

# io=native goes past the page cache, and QEMU refuses it beside modes that use it.
NATIVE_IO_MODES = ("none", "directsync")


@dataclass(frozen=True)
class Verdict:
    """An answer and why."""

    verdict: str
    reason: str

    def as_dict(self) -> dict[str, str]:
        return asdict(self)


@dataclass(frozen=True)
class Place:
    """Where a disk's data are, as far as the host can tell."""

    fstype: str | None = None  # of the file system that holds an image file
    rotational: bool | None = None  # of the device underneath
    exported: bool = False  # this host's libvirt is told that other hosts reach the folder

    @property
    def shared(self) -> bool:
        return self.exported or self.fstype in SHARED_FILE_SYSTEMS

    @property
    def coherent(self) -> bool:
        return self.fstype in COHERENT_FILE_SYSTEMS


def is_shared(disk: Disk, place: Place) -> str:
    """Whether other hosts can reach the disk's data: libvirt takes devices on trust."""
    if disk.kind == "network":
        return YES
    if disk.kind in ("file", "dir"):
        return YES if place.shared else NO
    return UNKNOWN


def power_loss(disk: Disk, guest_flushes: str) -> Verdict:
    """Whether data that the guest believes on the disk are there after the power went."""
    if disk.source is None or disk.read_only:
        return Verdict(YES, "nothing is written to it")
    write_cache, _page_cache, ignores = MODES.get(disk.cache, MODES["writeback"])
    if ignores:
        return Verdict(NO, f"cache={disk.cache} ignores the guest's flushes: even a guest that flushes loses its newest data; use none or writeback")
    if not write_cache:
        return Verdict(YES, f"cache={disk.cache} has each write on the disk before the guest is told")
    return {
        YES: Verdict(YES, f"cache={disk.cache} passes the guest's flushes on, and the guest flushes"),
        NO: Verdict(NO, f"the guest does not flush, and cache={disk.cache} relies on that: turn barriers on in the guest, or use writethrough"),
    }.get(
        guest_flushes,
        Verdict(
            UNKNOWN,
            f"cache={disk.cache} passes the guest's flushes on; whether the guest flushes is not known: install its guest agent, "
            "or look at its mount options",
        ),
    )


def live_migration(disk: Disk, place: Place, qemu: tuple[int, int, int]) -> Verdict:
    """Whether the guest can be migrated live with this disk staying where it is: libvirt's rule, where it is known that both hosts have the disk."""
    verdict = _libvirts_rule(disk, place, qemu)
    if verdict.verdict == YES and disk.source is not None and is_shared(disk, place) != YES:
        # libvirt takes this on trust.
        return Verdict(
            UNKNOWN,
            f"nothing says whether both hosts have the same {disk.source}, and libvirt does not ask: the check of a move tells (kvm_migrate, --check)",
        )
    return verdict


def _libvirts_rule(disk: Disk, place: Place, qemu: tuple[int, int, int]) -> Verdict:
    if disk.source is None or disk.read_only:
        return Verdict(YES, "nothing is written to it")
    if disk.kind == "file" and not place.shared:
        return Verdict(NO, "the image is on a file system of this host alone: migrate with the storage (NBD copy), or put it on shared storage")
    if disk.kind == "nvme":
        return Verdict(NO, "the NVMe device belongs to this host: migrate with the storage, or use network storage")
    if disk.kind == "file" and place.coherent:
        return Verdict(YES, f"{place.fstype} keeps the caches of its hosts coherent")
    if disk.kind == "network":
        return Verdict(YES, f"{disk.source.split(':')[0]} is network storage, reached by QEMU itself")
    if disk.shareable:
        return Verdict(YES, "the disk is shareable, which libvirt allows without a cache only")
    if disk.cache in ("none", "directsync"):
        return Verdict(YES, f"cache={disk.cache} keeps nothing of it in the page cache of this host")
    if qemu >= DROPS_CACHE_SINCE:
        return Verdict(YES, f"cache={disk.cache} keeps it in this host's page cache, and QEMU {'.'.join(map(str, qemu))} drops that at the end of a migration")
    return Verdict(
        NO,
        f"cache={disk.cache} keeps it in this host's page cache, and QEMU {'.'.join(map(str, qemu))} cannot drop that: use cache=none, or QEMU 4.0 or later",
    )


def left_behind(disk: Disk, place: Place) -> str | None:
    """Why a disk that stays where it is would be read with old data after the switch, where libvirt does not see it."""
    if disk.cache != "unsafe" or disk.source is None or disk.read_only or disk.kind not in ("file", "block") or place.coherent:
        return None
    return (
        "cache=unsafe ignores flushes, also QEMU's own at the switch, and what this host has cached would not be there for the other one: "
        "change it to none or writeback (role kvm_cache) and start the guest anew"
    )


def risk(disk: Disk, mode: str, guest_flushes: Verdict) -> str | None:
    """Why a disk should not change to a mode; None if nothing more than before can be lost by it."""
    if EXPOSURE[mode] <= EXPOSURE.get(disk.cache, EXPOSURE["writeback"]):
        return None
    after = power_loss(replace(disk, cache=mode), guest_flushes.verdict)
    if after.verdict == YES:
        return None
    return f"{after.reason} ({guest_flushes.reason})" if MODES[mode][2] is False else after.reason


def faster_mode(disk: Disk, place: Place, available: float, guest_flushes: str) -> tuple[str, str]:
    """The mode that is likely the faster one, and why. `available` is the part of the host's memory that is free or cache.

    A rule of thumb, from the measurements of cache=none against writeback: on disks that seek, the page cache merges and orders what guests
    write, as long as there is memory for it; on storage without seeks it costs a copy and gains little. playbooks/kvm_consolidation.yml
    measures it on your hosts.
    """
    if disk.source is None or disk.read_only:
        return disk.cache, "nothing is written to it"
    if disk.cache == "unsafe":
        return ("writeback" if guest_flushes == YES else "none"), "unsafe loses data when the power goes, however fast it is: this is the next"
    if disk.kind == "network":
        return "writeback" if available > 0.25 else "none", "network storage: a cache on this host saves round trips, where there is memory for it"
    if place.rotational is None:
        return disk.cache, "not known what kind of disk is underneath"
    if not place.rotational:
        return "none", "the disk underneath does not seek: the page cache would cost a copy and gain little"
    if guest_flushes != YES:
        return "none", "the disk underneath seeks, so writeback is likely the faster; but it is not certain that the guest flushes"
    if available <= 0.25:
        return "none", f"the disk underneath seeks, but only {available:.0%} of the host's memory could serve as a cache"
    return "writeback", f"the disk underneath seeks, and {available:.0%} of the host's memory can merge and order its writes"


def flushes(mounts: t.Iterable[tuple[str, str]] | None) -> Verdict:
    """Whether a guest flushes, from the (type, options) of its mounted disk file systems; None where they could not be read."""
    if mounts is None:
        return Verdict(UNKNOWN, "the guest has no agent that answers")
    found = [(kind, options.split(",")) for kind, options in mounts if kind in BARRIER_OPTIONS]
    if not found:
        return Verdict(UNKNOWN, "none of its file systems is one whose barriers are known here")
    for kind, options in found:
        off = BARRIER_OPTIONS[kind] & set(options)
        if off:
            return Verdict(NO, f"a mounted {kind} has the option {sorted(off)[0]}")
    return Verdict(YES, f"barriers are on in all of its file systems ({', '.join(sorted({kind for kind, _options in found}))})")


# Mount options that turn a file system's flushes off. ext3's barriers were off unless asked for; Linux has mounted it with ext4's driver,
# and so with them, since 4.3.
BARRIER_OPTIONS = {
    "ext3": {"nobarrier", "barrier=0"},
    "ext4": {"nobarrier", "barrier=0"},
    "xfs": {"nobarrier"},
    "btrfs": {"nobarrier"},
    "jfs": {"nointegrity"},
    "ntfs3": set(),
    "NTFS": set(),
}
