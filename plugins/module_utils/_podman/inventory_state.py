# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory's rows about the state that a running container has, and about things that the engine keeps beside it."""

from __future__ import annotations

import typing as t

from .._core.inventory import lines
from .inventory import ANEW, CARRIED, REFUSED, SAME, TOLD, Row

_CRIU = "by CRIU's dump"

# Kinds by heading. A live move is meant; offline, a process ends as podman stop ends it, and its files move.
STATE: dict[str, dict[str, Row]] = {
    "File systems and mounts": {
        "the container's own layer (overlay)": Row(CARRIED, "by a tree of the session"),
        "an image volume": Row(CARRIED, "block by block, by the session"),
        "the container's root, where it is an image volume as a whole": Row(CARRIED, "block by block, by the session"),
        "a root that is any other directory": Row(REFUSED, "create it from an image", "create_command"),
        "an image volume that may outgrow the destination's free space": Row(
            TOLD, "make room there, or reserve it (handover_reserve_space): writes fail when it is full", "growth"
        ),
        "a plain volume of podman's": Row(CARRIED, "by a tree of the session"),
        "an anonymous volume": Row(CARRIED, "by a tree of the session, under its name; podman takes it for a named one there: `podman rm --volumes` keeps it"),
        "flags of files and folders in them (chattr)": Row(
            CARRIED, "by the tree: immutable, append only, synchronous; those about how a file is stored where the other file system can have them"
        ),
        "those that the destination's file system cannot have, or that a read does not get past (fs-verity, encryption)": Row(
            REFUSED, "take them away, or have another file system there", "file_flags"
        ),
        "a socket's file in them": Row(CARRIED, "by the tree"),
        "a volume that other containers have, too": Row(REFUSED, "give each a volume of its own", "directory_volumes"),
        "a file or folder of the host (bind mount), with handover_bind_mounts=carry": Row(
            CARRIED, "as a plain volume, to the same path, where nothing may be; a single file whole in the pause", "bind_mounts"
        ),
        "one that is only read, with handover_bind_mounts=same": Row(SAME, "content, owners, modes and attributes by digest", "bind_mounts_same"),
        "a place for it that holds something": Row(REFUSED, "move that away", "bind_mounts_taken"),
        "any other bind mount, or a volume of another driver": Row(REFUSED, "carry it, have it the same, or move its files to a volume", "directories"),
        "an overlay over a volume or a folder (option O)": Row(REFUSED, "create it without that option", "overlays"),
        "an image that is mounted": Row(REFUSED, "copy its files into the container's image or a volume", "overlays"),
        "a mount with an option that podman's command does not simply set again, such as idmap": Row(REFUSED, "create it without", "mount_options"),
        "/dev/shm": Row(CARRIED, "by a tree of the session"),
        "a tmpfs with 4 MiB or more in it": Row(CARRIED, "as a plain volume, and into the mount that CRIU makes on the destination"),
        "a tmpfs with less, with a mount in it, or of two members of a pod": Row(TOLD, "CRIU packs the files in the pause", "tmpfs"),
        "extended attributes on a tmpfs": Row(CARRIED, "by the session, before the release"),
        "a tmpfs with too many files to be looked at for them": Row(REFUSED, "move the files to a volume", "tmpfs_attributes"),
        "/dev, /proc, /sys, a cgroup hierarchy, mqueue, devpts": Row(ANEW, "the runtime mounts them for each container"),
        "hosts, hostname, resolv.conf, .containerenv": Row(ANEW, "podman writes them for each container, with the same names and addresses"),
        "a mount of a kind that CRIU mounts, made inside": Row(CARRIED, _CRIU),
        "a mount of another kind, made inside": Row(REFUSED, "unmount it", "own_mounts"),
    },
    "Open files": {
        "a file of the layer or of a volume": Row(CARRIED, "by CRIU, which opens it again by its path"),
        "a deleted file up to CRIU's limit": Row(CARRIED, _CRIU),
        "a larger deleted file": Row(REFUSED, "close it, or raise ghost-limit", "ghost_files"),
        "a database of SQLite's on an image volume": Row(CARRIED, "the volume gets a loop device of the same number, or the move is refused", "databases"),
        "one elsewhere": Row(REFUSED, "put it on an image volume", "databases"),
        "a file under another mount": Row(REFUSED, "close it", "overmounts"),
        "a trigger on memory.pressure and the like, of systemd or of a service that systemd has told it": Row(CARRIED, "the session sets it again"),
        "another trigger of that kind": Row(REFUSED, "start the process without one", "pressure_triggers"),
        "a file lock": Row(CARRIED, _CRIU),
        "a pipe, a FIFO": Row(CARRIED, _CRIU),
        "a pipe in packet mode": Row(REFUSED, "end the process that opened it", "packet_pipes"),
        "a terminal": Row(CARRIED, _CRIU),
        "a pipe with input from outside that is not read yet": Row(REFUSED, "have it read", "unread_input"),
        "eventfd": Row(CARRIED, _CRIU),
        "eventpoll": Row(CARRIED, _CRIU),
        "signalfd": Row(CARRIED, _CRIU),
        "timerfd": Row(CARRIED, "by CRIU, if it fires once"),
        "inotify": Row(CARRIED, "by CRIU, on a volume or a tmpfs"),
        "fanotify": Row(CARRIED, "by CRIU, on a volume or a tmpfs"),
        "inotify or fanotify on the layer": Row(CARRIED, "by CRIU; the session finds the way to each watched file before the freeze", "layer_watches"),
        "one on a file of the layer that has lost its name": Row(REFUSED, "end the process; the session finds it before the freeze", "layer_watches"),
        "bpf-map": Row(CARRIED, _CRIU),
        "memfd": Row(CARRIED, _CRIU),
        "pidfd": Row(CARRIED, "by CRIU 4.1 and later", "pidfds"),
        "pidfd of a thread": Row(REFUSED, "end the process that opened it", "thread_pidfds"),
        "io_uring": Row(REFUSED, "another way of reading and writing", "io_uring"),
        "a device other than null, zero, full, random, tty, tun": Row(REFUSED, "end the process that opened it", "files"),
        "any other kind": Row(REFUSED, "end the process that opened it", "files"),
    },
    "Sockets": {
        "TCP, established": Row(CARRIED, "by CRIU, with the address; a network that both hosts are on", "connections"),
        "TCP, established, through a published port on a floating address": Row(
            CARRIED, "by CRIU; the session carries the address and the NAT's entry of the connection", "floating_addresses"
        ),
        "TCP, listening": Row(CARRIED, _CRIU),
        "a connection that waits to be accepted": Row(CARRIED, "the session has the container accept it before the freeze"),
        "UDP, ICMP, raw, packet, netlink": Row(CARRIED, _CRIU),
        "Unix, inside the container": Row(CARRIED, _CRIU),
        "memberships in multicast groups": Row(
            REFUSED, "move it offline, or have the program join again; those that it joins after the check take the move back", "multicast"
        ),
        "MPTCP, SCTP, vsock and others": Row(REFUSED, "end the process that opened it", "sockets"),
    },
    "Memory": {
        "private memory": Row(CARRIED, "placed by the session while CRIU restores; where that cannot be, by CRIU's dump", "place_memory"),
        "shared memory, System V and POSIX": Row(CARRIED, "by CRIU's dump and the pages sent before it"),
        "mapped files": Row(CARRIED, "by CRIU, which maps them again"),
        "huge pages": Row(CARRIED, "by CRIU, if the destination has as many free", "huge_pages"),
    },
    "Timers and clocks": {
        "interval timers": Row(CARRIED, "by CRIU, which arms them; only the task itself can ask for them"),
        "POSIX timers": Row(CARRIED, "by CRIU; the session looks that they are there before the release"),
        "a sleep that asks for the time that remains (on x86-64)": Row(
            CARRIED, "the session has it made again for that time, also on the source if the dump comes to nothing"
        ),
        "a poll without a limit, a futex until a point of time (on x86-64)": Row(CARRIED, "the session has it made again in the same way"),
        "another sleep, a wait with a limit": Row(CARRIED, "as after a signal: it returns EINTR, and a program that does not expect that may end"),
        "a timerfd that fires again and again": Row(
            CARRIED, "by CRIU; one that fires in the pause is armed again in the dump, and the session looks that it is before the release"
        ),
        "the monotonic clock": Row(CARRIED, "by CRIU, in a time namespace"),
        "the wall clock": Row(SAME, "both hosts' clocks are compared", "clock"),
    },
    "Processes and namespaces": {
        "process, IPC, UTS, mount and network namespace of its own": Row(CARRIED, "by CRIU, as the session tells it; podman makes the network"),
        "a cgroup namespace of its own": Row(CARRIED, "by CRIU, in the twin's cgroup", "own_cgroups"),
        "the host's, or another container's": Row(REFUSED, "create it without that", "namespaces"),
        "cgroups that it has made below its own, with their limits": Row(
            CARRIED, "the session makes them below the twin's own, also the empty ones; CRIU restores the processes in them", "own_cgroups"
        ),
        "a user namespace": Row(REFUSED, "create it without that", "user_namespace"),
        "a namespace inside the container's": Row(REFUSED, "run the process without it", "nested_namespaces"),
        "a systemd of one user (user@.service)": Row(REFUSED, "mask that unit; logins work without", "user_managers"),
        "a tracer": Row(REFUSED, "end the debugger", "traced"),
        "settings of the network namespace (--sysctl net.*)": Row(
            CARRIED, "by the session, as they are when it is frozen, and compared before the release; the destination's kernel has to know them", "sysctls"
        ),
        "the processors that a thread is bound to": Row(
            CARRIED, "by the session, which looks that they hold before the release; told where the destination lacks one of them", "affinity"
        ),
        "a system call filter": Row(CARRIED, "by CRIU, where the host lets it", "seccomp"),
        "addresses, routes and rules for routes that the container made, or took away": Row(
            CARRIED, "by the session, before there is a socket, and compared before the release"
        ),
        "MTU, queue, flags and hardware address that it gave an interface": Row(
            CARRIED, "by the session; a network that does not carry packets of that size is refused", "mtu"
        ),
        "tables of nftables that it made": Row(CARRIED, "by the session, with their counters, if both hosts have nft", "own_tables"),
        "tracked connections that it forwards for others": Row(TOLD, "they are new to it on the destination", "own_tables"),
        "interfaces, neighbours, queueing disciplines, next hops, IPsec, rules of iptables that it made": Row(
            REFUSED, "have podman make them, or move it offline", "own_network"
        ),
        "instructions of the processor in use": Row(SAME, "the features of both processors are compared", "cpu"),
        "processes of podman exec": Row(TOLD, "they end on the source", "exec_sessions"),
    },
    "Beside the container": {
        "secrets": Row(SAME, "by a digest of each value under a key of this one move", "secrets"),
        "secrets of the driver file, with handover_secrets=carry": Row(
            CARRIED, "encrypted for the destination alone, with their labels; the source keeps its own", "secrets"
        ),
        "a secret that the destination has with another value": Row(REFUSED, "make it the same, or remove it there", "secrets"),
        "a secret that another driver keeps, or one that was changed since the container was created": Row(
            REFUSED, "create it there; create the container again", "secrets"
        ),
        "the timer of a health check": Row(CARRIED, "made again when the container runs there; the source's goes with the container"),
        "the log": Row(TOLD, "the log up to now stays on the source", "log"),
        "a log in a folder that the destination lacks": Row(REFUSED, "make the folder there", "log_folder"),
        "the unit of systemd that starts it: a quadlet with those that it names, or a unit's file; drop-ins, files with variables": Row(
            CARRIED, "as files, enabled as it was; the source keeps its own with .migrated behind their names", "unit_files"
        ),
        "the unit's word that it is active": Row(CARRIED, "the unit there takes the container over while it runs"),
        "the unit of a pod, with those of its members, live": Row(CARRIED, "it takes over the destination's infra container, and each member's its member"),
        "a unit that others need or start, that needs others, is an instance of a template, or has its container in the foreground": Row(
            REFUSED, "change the unit as the finding says", "systemd_unit"
        ),
        "a unit that has compose start its project": Row(REFUSED, "disable it, and enable one on the destination afterwards", "project_units"),
        "the layer of a container that its unit creates at each start, offline": Row(TOLD, "it begins empty, as at each start", "unit_layer"),
        "its anonymous volumes, offline": Row(REFUSED, "name them in the unit, or move it live", "unit_offline"),
        "a label for podman auto-update": Row(TOLD, "it needs a unit", "auto_update"),
        "a pod": Row(CARRIED, "as one with all its members; one member alone is refused"),
        "the infra container of a pod": Row(ANEW, "it holds nothing; live, that of the destination runs before the members are restored"),
        "the exit policy of a pod, live": Row(CARRIED, "the same when all of its members run there; until then it does not end with them"),
        "the members that a member requires (--requires), live": Row(CARRIED, "podman is told of them when all of them run there"),
        "the namespaces that members of a pod share, live": Row(CARRIED, "CRIU restores each member into those of the destination's infra container"),
        "System V objects and message queues that they share": Row(REFUSED, "make the pod with --share=net,uts, or move it offline", "group_ipc"),
        "a member of a pod that is to move alone": Row(REFUSED, "move the pod", "pod"),
        "containers that it cannot be parted from, if it is to move without them": Row(REFUSED, "move them as one", "required_by"),
        "the image": Row(CARRIED, "as an archive in its own format, which keeps its ID", "image_format"),
        "its conmon": Row(ANEW, "podman starts another with the twin; where it has died, the container is refused: stop it and start it again", "conmon"),
        "an older checkpoint or export": Row(ANEW, "no part of the container: podman makes another when asked"),
    },
}


_ABOUT = """\
# The fate of a container's state

Made from the rows of `plugins/module_utils/_podman/inventory.py` and `inventory_state.py`. A move begins only when each
piece of state has one of five fates:

- **carried** to the destination;
- proven to be the **same** there;
- **made anew**, because nothing of value is in it;
- **told**, in the check and with the move;
- **refused**, with the cure.

The check in the last column is the name by which a finding can be [ignored](preflight.md). A key of `podman container inspect` that holds a value
and has no row is refused as `inventory:KEY`.
"""


def page(inspect: t.Mapping[str, Row]) -> str:
    """The page of the documentation."""
    parts = [_ABOUT]
    for heading, rows in {**STATE, "Keys of podman's inspect": {"`{0}`".format(key): row for key, row in inspect.items()}}.items():
        parts.append("## {0}\n".format(heading))
        parts.append("| state | becomes | how, or the cure | check |\n|---|---|---|---|")
        parts.append(lines(rows) + "\n")
    return "\n".join(parts)
