# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host's properties: read off /proc, /sys and /etc, without starting a program."""

from __future__ import annotations

import ipaddress
import os
import re
import stat
import struct
import typing as t

# Docker's and systemd's loopback, and link-local addresses, are on every host and belong to no workload.
_EVERYWHERE = ("127.", "::1", "fe80:", "169.254.")


def read_text(path: str) -> str:
    """A small file's text; empty where there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as source:
            return source.read()
    except OSError:
        return ""


def memory_available(proc: str = "/proc") -> int:
    """Bytes that can be taken without swapping."""
    match = re.search(r"^MemAvailable:\s+(\d+) kB", read_text(os.path.join(proc, "meminfo")), re.MULTILINE)
    return int(match.group(1)) * 1024 if match else 0


def cpu_features(proc: str = "/proc") -> list[str]:
    """The instruction sets and other features of the first processor."""
    match = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", read_text(os.path.join(proc, "cpuinfo")), re.MULTILINE)
    return sorted(match.group(1).split()) if match else []


def numbers(text: str) -> list[int]:
    """A list of the kernel's or libvirt's, such as C(0-2,5), as numbers; C(^) takes one out."""
    found: set[int] = set()
    for word in filter(None, re.split(r"[,\s]+", text.strip())):
        first, _dash, last = word.lstrip("^").partition("-")
        of_word = set(range(int(first), int(last or first) + 1))
        found = found - of_word if word.startswith("^") else found | of_word
    return sorted(found)


def online_processors(root: str = "/") -> list[int]:
    """The processors that this host runs tasks on."""
    return numbers(read_text(os.path.join(root, "sys/devices/system/cpu/online")))


def processors_left(pid: int, proc: str = "/proc", root: str = "/") -> set[int]:
    """The processors that its cgroup leaves a process; all that are online where no cgroup says it."""
    groups = _cgroups(pid, proc)
    old = next((names for names in groups if "cpuset" in names.split(",")), "")
    path, file = (groups[old], "cpuset.effective_cpus") if old else (groups.get("", ""), "cpuset.cpus.effective")
    for line in read_text(os.path.join(proc, "self/mounts")).splitlines():
        columns = line.split(" ")
        if len(columns) > 3 and (columns[2] == "cgroup" and "cpuset" in columns[3].split(",") if old else columns[2] == "cgroup2"):
            top = os.path.join(root, columns[1].lstrip("/"))
            parts = [part for part in path.split("/") if part]
            # The controller may not be handed down as far as the cgroup.
            for depth in range(len(parts), -1, -1):
                text = read_text(os.path.join(top, *parts[:depth], file))
                if text.strip():
                    return set(numbers(text))
    return set(online_processors(root))


def parse_criu_configuration(text: str) -> dict[str, str]:
    """Option → value of a CRIU configuration file; `#` begins a comment, a value may follow a blank or `=`."""
    options = {}
    for line in text.splitlines():
        words = re.split(r"[\s=]+", line.split("#", 1)[0].strip(), maxsplit=1)
        if words[0]:
            options[words[0].lstrip("-")] = words[1].strip().strip("\"'") if len(words) > 1 else ""
    return options


def parse_version(text: str) -> list[int]:
    """The first dotted number of a text, as numbers: `Version: 4.2.1` gives [4, 2, 1]."""
    match = re.search(r"\d+(?:\.\d+)+|\d+", text)
    return [int(part) for part in match.group(0).split(".")] if match else []


def free_space(path: str) -> int:
    """Free bytes of the file system that holds this path, or will hold it."""
    while not os.path.exists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    filesystem = os.statvfs(path)
    return filesystem.f_bavail * filesystem.f_frsize


# Where podman reads the defaults of containers; the later one wins.
ENGINE_FILES = ("/usr/share/containers/containers.conf", "/etc/containers/containers.conf")
# Settings that the destination may have of its own: they are about the engine, not about a container.
_ENGINES_OWN = frozenset(("log_driver", "log_size_max", "log_tag", "base_hosts_file", "host_containers_internal_ip", "prepare_volume_on_create"))
# Written out, these are podman's own defaults: one distribution's file says so, and that of another is silent.
_BUILT_IN = {
    "default_capabilities": '["CHOWN","DAC_OVERRIDE","FOWNER","FSETID","KILL","NET_BIND_SERVICE","SETFCAP","SETGID","SETPCAP","SETUID","SYS_CHROOT"]',
    "pids_limit": "2048",
    "shm_size": '"65536k"',
    "umask": '"0022"',
    "ipcns": '"shareable"',
    "cgroupns": '"private"',
    "pidns": '"private"',
    "utsns": '"private"',
    "netns": '"private"',
    "userns": '"host"',
    "init": "false",
    "label": "true",
    "http_proxy": "true",
}


def engine_defaults(files: t.Sequence[str] = ENGINE_FILES) -> dict[str, str]:
    """The settings of the table `containers` in podman's configuration, as they are written, without blanks and comments."""
    found: dict[str, str] = {}
    for path in files:
        folder = path + ".d"
        names = sorted(name for name in os.listdir(folder) if name.endswith(".conf")) if os.path.isdir(folder) else []
        for each in [path, *(os.path.join(folder, name) for name in names)]:
            found.update(parse_engine_defaults(read_text(each)))
    return {key: value for key, value in found.items() if key not in _ENGINES_OWN and value != _BUILT_IN.get(key)}


def parse_engine_defaults(text: str) -> dict[str, str]:
    """Key → value of the table `containers` of such a file; a list may go over several lines."""
    found: dict[str, str] = {}
    table, key = "", ""
    for line in text.splitlines():
        line = re.sub(r"""("[^"]*"|'[^']*')|#.*$""", lambda match: match.group(1) or "", line).strip()
        heading = re.match(r"\[+\s*([\w.-]+)\s*\]+$", line)
        setting = re.match(r"([\w-]+)\s*=\s*(.*)$", line)
        if not key and heading:
            table = heading.group(1)
        elif key or setting and table == "containers":
            if not key and setting:
                key, line = setting.group(1), setting.group(2)
                found[key] = ""
            found[key] += re.sub(r"\s+", "", line)
            if found[key].count("[") <= found[key].count("]"):
                # Which quotes it has, or a comma after the last of a list, means nothing.
                found[key] = found[key].replace("'", '"').replace(",]", "]")
                key = ""
    return found


def place(path: str) -> dict[str, t.Any]:
    """A directory, or the one that will hold it: free bytes of its file system, and which one that is."""
    above = path
    while not os.path.exists(above) and os.path.dirname(above) != above:
        above = os.path.dirname(above)
    return {"path": path, "free": free_space(path), "device": os.stat(above).st_dev}


def allocated(path: str) -> int:
    """Bytes that a file, or everything below a directory, takes on the disk; files with several names count once."""
    total = 0
    seen: set[tuple[int, int]] = set()
    pending = [path]
    while pending:
        current = pending.pop()
        try:
            status = os.lstat(current)
            if stat.S_ISDIR(status.st_mode):
                pending.extend(entry.path for entry in os.scandir(current))
        except OSError:
            continue
        if (status.st_dev, status.st_ino) not in seen:
            seen.add((status.st_dev, status.st_ino))
            total += status.st_blocks * 512
    return total


def block_device_size(sysfs: str, name: str) -> int:
    """Bytes of a block device, by its kernel name."""
    sectors = read_text(os.path.join(sysfs, "class/block", name, "size")).strip()
    return int(sectors) * 512 if sectors.isdigit() else 0


def backing_file(sysfs: str, name: str) -> str:
    """The file behind a loop device, by its kernel name; empty for any other device."""
    return read_text(os.path.join(sysfs, "class/block", name, "loop/backing_file")).strip("\n")


def mount_options(mountpoint: str, proc: str = "/proc") -> list[str]:
    """The options with which the topmost mount on a directory would be mounted again: those that are not the default of every mount."""
    options: list[str] = []
    for line in read_text(os.path.join(proc, "self/mountinfo")).splitlines():
        columns, _dash, tail = line.partition(" - ")
        fields = columns.split(" ")
        if len(fields) > 5 and fields[4].encode().decode("unicode_escape") == mountpoint:
            of_filesystem = tail.split(" ")[-1].split(",")
            options = [option for option in fields[5].split(",") if option not in ("rw", "relatime")]
            # Of the file system's own options only this one is a choice of ours; the rest is in its superblock or computed.
            options += ["discard"] if "discard" in of_filesystem else []
    return options


def parse_addresses(document: t.Iterable[t.Mapping[str, t.Any]]) -> list[dict[str, t.Any]]:
    """The host's own addresses from `ip -json address`."""
    found = []
    for link in document:
        for address in link.get("addr_info") or []:
            local = address.get("local", "")
            if local and not local.startswith(_EVERYWHERE):
                # The rest is for an address that leaves, and may have to come back as it was.
                rest = {key: address[key] for key in ("label", "broadcast", "secondary", "noprefixroute") if address.get(key)}
                found.append({"address": local, "prefix": int(address.get("prefixlen", 0)), "interface": link.get("ifname", ""), **rest})
    return found


def link_speed(interface: str, sysfs: str = "/sys") -> int:
    """Megabits per second of an interface; 0 where the kernel does not know."""
    try:
        with open(os.path.join(sysfs, "class/net", interface, "speed"), encoding="ascii") as source:
            return max(0, int(source.read()))
    except (OSError, ValueError):
        return 0


def mtus(sysfs: str = "/sys") -> dict[str, int]:
    """The largest packet that each network interface carries."""
    root = os.path.join(sysfs, "class/net")
    found = {name: read_text(os.path.join(root, name, "mtu")).strip() for name in (os.listdir(root) if os.path.isdir(root) else [])}
    return {name: int(mtu) for name, mtu in sorted(found.items()) if mtu.isdigit()}


def gateway_interface(proc: str = "/proc") -> str:
    """The interface of the default route, on which podman makes a network that names none; empty where there is no such route."""
    for line in read_text(os.path.join(proc, "net/route")).splitlines()[1:]:
        fields = line.split()
        if len(fields) > 7 and fields[1] == fields[7] == "00000000":
            return fields[0]
    return ""


def listening_ports(proc: str = "/proc") -> list[dict[str, t.Any]]:
    """Ports of this host's network namespace that have a listener."""
    found = {}
    # State 0A is LISTEN; an unconnected UDP socket is in state 07.
    for table, protocol, state in (("tcp", "tcp", "0A"), ("tcp6", "tcp", "0A"), ("udp", "udp", "07"), ("udp6", "udp", "07")):
        for line in read_text(os.path.join(proc, "net", table)).splitlines()[1:]:
            columns = line.split()
            if len(columns) > 3 and columns[3] == state:
                address, _colon, port = columns[1].partition(":")
                entry = {"protocol": protocol, "address": _decode_address(address), "port": int(port, 16)}
                found[tuple(entry.values())] = entry
    return [found[key] for key in sorted(found)]


def connections(pid: int, proc: str = "/proc") -> dict[str, int]:
    """How many TCP connections with others a process's network namespace has open, by their address here."""
    found: dict[str, int] = {}
    for ours, _port, _theirs in established(pid, proc):
        found[ours] = found.get(ours, 0) + 1
    return found


def established(pid: int, proc: str = "/proc") -> list[tuple[str, int, str]]:
    """Those connections: the address and the port here, and the peer's address."""
    found = []
    for table in ("tcp", "tcp6"):
        for line in read_text(os.path.join(proc, str(pid), "net", table)).splitlines()[1:]:
            columns = line.split()
            if len(columns) > 3 and columns[3] == "01":
                ours, theirs = (_unmapped(_decode_address(columns[index].partition(":")[0])) for index in (1, 2))
                if ours != theirs and not ours.startswith(_EVERYWHERE):
                    found.append((ours, int(columns[1].partition(":")[2], 16), theirs))
    return found


def _unmapped(address: str) -> str:
    """An IPv4 address that an IPv6 socket uses is that address."""
    parsed = ipaddress.ip_address(address)
    return str(getattr(parsed, "ipv4_mapped", None) or parsed)


def _decode_address(text: str) -> str:
    """The kernel prints addresses as 32-bit words in the host's byte order."""
    words = [int(text[index : index + 8], 16) for index in range(0, len(text), 8)]
    return str(ipaddress.ip_address(struct.pack("={0}I".format(len(words)), *words)))


def has_seccomp_filter(pid: int | str = "self", proc: str = "/proc") -> bool:
    """Whether system calls of a process are filtered."""
    return re.search(r"^Seccomp:\s+2$", read_text(os.path.join(proc, str(pid), "status")), re.MULTILINE) is not None


def freezable_cgroup(pid: int, container: str, criu_options: t.Mapping[str, str], proc: str = "/proc", root: str = "/") -> str:
    """The directory of a container's cgroup, if freezing it before CRIU does is of use and harms nothing; else empty.

    It has to be the one that the runtime names to CRIU: the container's own, not one below it that its processes made. And where the
    old hierarchy `freezer` is there too, CRIU would write into its dump that the workload was frozen, and freeze what it restores:
    unless it is told to leave cgroups alone.
    """
    groups = _cgroups(pid, proc)
    if "freezer" in groups and criu_options.get("manage-cgroups") != "ignore":
        return ""
    for directory in _own_cgroups(groups.get("", ""), container, "", proc):
        if os.path.exists(os.path.join(root, directory.lstrip("/"), "cgroup.freeze")):
            return directory
    return ""


def has_own_namespace(pid: int, kind: str, proc: str = "/proc") -> bool:
    """Whether a process is in another namespace of that kind, such as C(cgroup), than this one; not if it has ended."""
    try:
        return os.readlink(os.path.join(proc, str(pid), "ns", kind)) != os.readlink(os.path.join(proc, "self", "ns", kind))
    except OSError:
        return False


def divided_cgroup(pid: int, container: str, cgroup: str, proc: str = "/proc") -> bool:
    """Whether a container's processes have made cgroups below its own, as an init of a whole system does."""
    below = _cgroups(pid, proc).get("", "").partition(container)[2]
    if re.sub(r"^(\.scope)?(/container)?", "", below):
        return True
    return bool(cgroup) and any(entry.is_dir(follow_symlinks=False) for entry in _scan(cgroup))


def _scan(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def limitable_cgroup(pid: int, container: str, proc: str = "/proc", root: str = "/") -> dict[str, str]:
    """The directory of a container's cgroup whose processor time can be limited; or why there is none.

    The controller cpu belongs to one hierarchy: one of the first version, if that is mounted with it, or that of the second.
    """
    groups = _cgroups(pid, proc)
    old = next((names for names in groups if "cpu" in names.split(",")), "")
    version, path, file = ("1", groups[old], "cpu.cfs_quota_us") if old else ("2", groups.get("", ""), "cpu.max")
    directories = list(_own_cgroups(path, container, "cpu" if old else "", proc))
    for directory in directories:
        if os.path.exists(os.path.join(root, directory.lstrip("/"), file)):
            return {"cgroup": directory, "why": ""}
    if directories:
        return {"cgroup": "", "why": "its cgroup {0} has no {1}: the controller cpu is not given to it".format(directories[0], file)}
    return {"cgroup": "", "why": "it has no cgroup of its own in the hierarchy of the controller cpu, which is one of version {0}".format(version)}


def _cgroups(pid: int, proc: str) -> dict[str, str]:
    """Where a process is, by the names of the controllers; those of the second version have none there."""
    lines = read_text(os.path.join(proc, str(pid), "cgroup")).splitlines()
    return {line.split(":", 2)[1]: line.split(":", 2)[2] for line in lines if line.count(":") >= 2}


def _own_cgroups(path: str, container: str, controller: str, proc: str) -> t.Iterator[str]:
    """The directories, one for each mount, of the cgroup that the runtime made for a container, of which `path` is or is below."""
    above, found, below = path.partition(container)
    suffix = ".scope" if below.startswith(".scope") else ""
    for line in read_text(os.path.join(proc, "self/mounts")).splitlines():
        columns = line.split(" ")
        if found and len(columns) > 3 and (columns[2] == "cgroup" and controller in columns[3].split(",") if controller else columns[2] == "cgroup2"):
            yield columns[1] + above + found + suffix
