# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bind mounts: which of them are carried, which have to be the same on both hosts, and which are refused.

Everything here is a pure function.
"""

from __future__ import annotations

import typing as t

CARRY, SAME, REFUSE = "carry", "same", "refuse"
CHOICES = (CARRY, SAME, REFUSE)

FILE, FOLDER = "file", "directory"

# By its name beside it, a bind-mounted folder or file stays on the source when it has moved.
KEPT = ".migrated"

# The system's own: nothing is ever copied onto these paths or below them.
SYSTEM = (
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/run", "/sbin", "/sys", "/usr", "/var/run",
    "/var/lib/containers/storage", "/var/lib/containerd", "/var/lib/docker", "/var/lib/handover", "/var/cache/handover",
)  # fmt: skip
# Folders that a whole host shares: their entries have owners, they themselves have none.
SHARED = ("/", "/home", "/media", "/mnt", "/opt", "/root", "/srv", "/tmp", "/var", "/var/cache", "/var/lib", "/var/lib/containers", "/var/log", "/var/tmp")

# File systems on which the kernel reports touched entries, so that a folder in use can be copied.
WATCHED = ("ext2", "ext3", "ext4", "tmpfs", "xfs")

Mount = t.Mapping[str, t.Any]


def is_bind(mount: Mount) -> bool:
    """A file or folder of the host, and not an image volume that is mounted by its path."""
    return bool(mount["type"] == "bind" and mount.get("image_volume") is None and mount.get("kind", FOLDER) in (FILE, FOLDER) and not layered(mount))


def layered(mount: Mount) -> bool:
    """An overlay of podman's own: over a volume (option O), a folder (then podman lists the directories of the overlay), or an image."""
    return mount["type"] == "image" or any(option == "O" or option.startswith("lowerdir=") for option in mount.get("options") or ())


def of_system(path: str) -> bool:
    """Whether a path is the host's own."""
    return path in SHARED or any((path + "/").startswith(root + "/") for root in SYSTEM)


def fate(asked: str, mount: Mount) -> str:
    """The fate of a bind mount. A path of the system that a container only reads is not carried, and can be the same on both hosts."""
    if asked == CARRY and of_system(mount["source"]):
        return SAME if mount["read_only"] else REFUSE
    return asked


def carried(asked: str, mounts: t.Iterable[Mount]) -> list[Mount]:
    """The bind mounts that move along, each path once."""
    return list({mount["source"]: mount for mount in mounts if is_bind(mount) and fate(asked, mount) == CARRY}.values())
