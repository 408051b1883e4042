# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fate of each line of a container's configuration when the container leaves OpenVZ.

A line is carried (it means the same for the new container), translated (in another unit, or by another means), reported (it is not done, and why), or
refused: the container may need it, and somebody has to look. No line is left out: one that is not known is refused, and so is a part of a line.
"""

from __future__ import annotations

import ipaddress
import re
import typing as t

from .config import PAGE, Line, amount, is_newer, limit, read, read_defaults, switches, yes_or_no

CARRIED, TRANSLATED, REPORTED, REFUSED = "carried", "translated", "reported", "refused"
FATES = (CARRIED, TRANSLATED, REPORTED, REFUSED)
# A value of the new container's, by its name; the text says the result.
Part = t.Tuple[str, t.Dict[str, t.Any], str]
# Linux's capabilities by their names without CAP_; OpenVZ has VE_ADMIN beside them.
CAPABILITIES = frozenset(
    """AUDIT_CONTROL AUDIT_READ AUDIT_WRITE BLOCK_SUSPEND BPF CHECKPOINT_RESTORE CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID IPC_LOCK IPC_OWNER KILL
    LEASE LINUX_IMMUTABLE MAC_ADMIN MAC_OVERRIDE MKNOD NET_ADMIN NET_BIND_SERVICE NET_BROADCAST NET_RAW PERFMON SETFCAP SETGID SETPCAP SETUID SYS_ADMIN
    SYS_BOOT SYS_CHROOT SYS_MODULE SYS_NICE SYS_PACCT SYS_PTRACE SYS_RAWIO SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG SYSLOG WAKE_ALARM""".split()
)
_NUMBERS = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*", re.ASCII)
_MAC = re.compile(r"([0-9A-F]{2}:?){5}[0-9A-F]{2}", re.ASCII | re.IGNORECASE)
NETIF_CARRIED = {"ifname": "name", "mac": "mac", "gw": "gateway", "gw6": "gateway6", "bridge": "bridge", "network": "network"}
NETIF_TOLD = {
    "host_ifname": "podman names the host's end",
    "host_mac": "podman chooses the address of the host's end",
    "mac_filter": "podman's bridges filter no addresses",
    "configure": "the container's own files have the addresses",
    "dhcp": "a container gets its addresses from podman, and not by DHCP: give it fixed ones",
    "dhcp6": "a container gets its addresses from podman, and not by DHCP: give it fixed ones",
    "type": "podman makes the interface in its own way",
    "ip_filter": "podman's bridges filter no addresses",
    "ifaceid": "it means nothing outside of OpenVZ",
    "vport": "podman makes the interface in its own way",
    "vporttype": "podman makes the interface in its own way",
}


def carried(key: str) -> t.Callable[[str], list[Part]]:
    return lambda value: [(CARRIED, {key: value}, key)]


def words(key: str) -> t.Callable[[str], list[Part]]:
    return lambda value: [(CARRIED, {key: value.split()}, key)]


def told(why: str) -> t.Callable[[str], list[Part]]:
    return lambda _value: [(REPORTED, {}, why)]


def refused(why: str) -> t.Callable[[str], list[Part]]:
    return lambda _value: [(REFUSED, {}, why)]


def number(key: str) -> t.Callable[[str], list[Part]]:
    return lambda value: [(CARRIED, {key: int(value)}, key)]


def limited(key: str, unit: int, what: str) -> t.Callable[[str], list[Part]]:
    """A limit in another unit; without one there is nothing to be done."""

    def apply(value: str) -> list[Part]:
        bound = limit(value, unit)
        return [(TRANSLATED, {key: bound}, f"{key}: " + ("no limit" if bound is None else f"{bound} {what}"))]

    return apply


def listed(value: str) -> list[str]:
    """Words with blanks between them, or the commas that libvzctl takes as well."""
    return value.replace(",", " ").split()


def addresses(value: str) -> list[Part]:
    found: list[str] = []
    parts: list[Part] = []
    for word in listed(value):
        interface = ipaddress.ip_interface(word)
        found.append(str(interface) if "/" in word else str(interface.ip))
        if "/" in word and str(interface) != word:
            parts.append((TRANSLATED, {}, f"{word} becomes {interface}"))
    return [*parts, (CARRIED, {"addresses": found}, "addresses")]


def names(key: str) -> t.Callable[[str], list[Part]]:
    def apply(value: str) -> list[Part]:
        # The file that comes with vzctl 4 has a remark behind the word.
        if value.split()[0] == "inherit":
            return [(TRANSLATED, {key: None}, f"{key}: those of the new host")]
        return [(CARRIED, {key: listed(value)}, key)]

    return apply


def _settings(text: str) -> t.Iterator[tuple[str, str]]:
    """`key=value` with commas between them. After ip6= stand further addresses: libvzctl writes it as the last one, and without a key to each."""
    last = ""
    for word in filter(None, text.split(",")):
        key, equals, said = word.partition("=")
        if not equals and last == "ip6" and ":" in word:
            key, said = last, word
        elif not equals:
            raise ValueError(f"{word!r} has no equals sign")
        last = key
        yield key, said


def _checked(key: str, said: str) -> str:
    """A value of an interface's that podman would not take fails here, and not after the stop."""
    if key == "mac" and not _MAC.fullmatch(said):
        raise ValueError(f"{said!r} is no MAC address")
    return str(ipaddress.ip_address(said)) if key in ("gw", "gw6") and said else said


def interfaces(value: str) -> list[Part]:
    """`ifname=eth0,mac=…;ifname=eth1,…`."""
    found: list[dict[str, t.Any]] = []
    parts: list[Part] = []
    for text in filter(None, value.split(";")):
        interface: dict[str, t.Any] = {"addresses": []}
        for key, said in _settings(text):
            word = f"{key}={said}"
            if key in ("ip", "ip6"):
                # Of several of IPv4 a colon is between.
                several = [said] if key == "ip6" or said.count(":") > 1 and "." not in said else said.split(":")
                interface["addresses"] += [str(ipaddress.ip_interface(each)) for each in several if each]
            elif key in NETIF_CARRIED:
                interface[NETIF_CARRIED[key]] = _checked(key, said)
                if key in ("bridge", "network"):
                    parts.append((REPORTED, {}, f"{word}: podman's network that has its addresses takes its place"))
            else:
                parts.append((REPORTED if key in NETIF_TOLD else REFUSED, {}, f"{word}: {NETIF_TOLD.get(key, 'it is not known here')}"))
        if "name" not in interface:
            raise ValueError(f"{text!r} has no ifname")
        found.append(interface)
    return [(TRANSLATED, {"interfaces": found}, "a network of podman's for each: " + ", ".join(each["name"] for each in found)), *parts]


def capabilities(value: str) -> list[Part]:
    add: list[str] = []
    drop: list[str] = []
    parts: list[Part] = []
    for name, on in switches(value):
        known = name.upper()
        if known not in CAPABILITIES:
            fate, owner = (REPORTED, ", but OpenVZ's own") if known == "VE_ADMIN" else (REFUSED, "")
            parts.append((fate, {}, f"{name}: this is no capability of Linux's{owner}"))
        else:
            (add if on else drop).append(known)
    return [(CARRIED, {"cap_add": add, "cap_drop": drop}, "cap_add and cap_drop"), *parts]


FEATURES = {
    "nfs": "an NFS file system is mounted on the host and bind-mounted into the container",
    "nfsd": "a container cannot run the kernel's NFS server: run it on the host",
    "sysfs": "a container has /sys, read-only",
    "sit": "the module sit is loaded on the host, and the container needs NET_ADMIN",
    "ipip": "the module ipip is loaded on the host, and the container needs NET_ADMIN",
    "ipgre": "the module ip_gre is loaded on the host, and the container needs NET_ADMIN",
    "bridge": "a container that has NET_ADMIN may make bridges",
    "time": "a container that has SYS_TIME would change the host's clock",
}


def features(value: str) -> list[Part]:
    parts: list[Part] = []
    for name, on in switches(value):
        if not on:
            parts.append((TRANSLATED, {}, f"{name}: a container does not have it"))
        elif name == "ppp":
            parts.append((TRANSLATED, {"devices": ["/dev/ppp"]}, "ppp: the device /dev/ppp; the container needs NET_ADMIN"))
        else:
            parts.append((REPORTED if name in FEATURES else REFUSED, {}, f"{name}: {FEATURES.get(name, 'this feature is not known here')}"))
    return parts


def device_nodes(value: str) -> list[Part]:
    found: list[str] = []
    parts: list[Part] = []
    for word in listed(value):
        name, _colon, mode = word.rpartition(":")
        if not name or not mode or set(mode) - set("rwmQ"):
            if mode != "none" or not name:
                raise ValueError(f"{word!r} is no device and its rights")
            continue
        if "Q" in mode:
            parts.append((REPORTED, {}, f"{word}: quota on a device is not managed from within a container"))
        found.append(f"/dev/{name}:{mode.replace('Q', '')}")
    return [(CARRIED, {"devices": found}, "devices"), *parts]


def device_numbers(value: str) -> list[Part]:
    """`c:10:200:rw`, or `b:8:all:r`."""
    rules = []
    for word in listed(value):
        said = word.split(":")
        if len(said) != 4 or said[0] not in ("b", "c"):
            raise ValueError(f"{word!r} is no kind, major, minor and rights")
        rules.append("{0} {1}:{2} {3}".format(said[0], *(each.replace("all", "*") for each in said[1:3]), said[3]))
    return [(TRANSLATED, {"device_rules": rules}, "rules of the control group for devices")]


def processors(value: str) -> list[Part]:
    if value in ("unlimited", "0"):
        return [(TRANSLATED, {"cpus": None}, "cpus: all of the new host's")]
    return [(TRANSLATED, {"cpus": float(int(value))}, "cpus: as much time as so many processors have; the container sees all of the host's")]


def share(value: str) -> list[Part]:
    """Per cent of one processor; 0 is no limit."""
    if value.endswith("%"):
        raise ValueError(f"{value!r} is a part of all the source's processors: give the per cents of one")
    per_cent = 0.0 if value == "unlimited" else float(value)
    return [(TRANSLATED, {"cpu_limit": per_cent / 100 if per_cent else None}, "cpus: " + (f"{per_cent / 100:g}" if per_cent else "no limit"))]


def weight(value: str) -> list[Part]:
    """OpenVZ's usual 1000 is the 1024 of Linux's control groups."""
    shares = max(2, min(262144, int(value) * 1024 // 1000))
    return [(TRANSLATED, {"cpu_shares": shares}, f"cpu_shares: {shares}")]


def mask(key: str) -> t.Callable[[str], list[Part]]:
    def apply(value: str) -> list[Part]:
        if value.strip() in ("all", "auto"):
            return [(TRANSLATED, {key: None}, f"{key}: all of the new host's")]
        if not _NUMBERS.fullmatch(value.strip()):
            raise ValueError(f"{value!r} is no list of numbers, as 0,2-3")
        return [(CARRIED, {key: value.strip()}, f"{key}, if the new host has these numbers")]

    return apply


def at_boot(value: str) -> list[Part]:
    if value == "auto":
        return [(TRANSLATED, {"onboot": "auto"}, "it starts at each boot, also if it did not run before")]
    return [(CARRIED, {"onboot": yes_or_no(value)}, "onboot")]


def disabled(value: str) -> list[Part]:
    if yes_or_no(value):
        return [(REFUSED, {"disabled": True}, "the container must not be started: set it to no before it is imported, or leave it where it is")]
    return [(CARRIED, {"disabled": False}, "it may be started")]


def inputs(key: str) -> t.Callable[[str], list[Part]]:
    """Bytes or operations a second; 0 is no limit."""

    def apply(value: str) -> list[Part]:
        most = amount(value, 1) or None
        return [(TRANSLATED, {key: most}, f"{key}: " + ("no limit" if most is None else f"{most} a second, on the device of its volume"))]

    return apply


def environment(value: str) -> list[Part]:
    pairs = [word.partition("=")[::2] for word in value.split()]
    return [(CARRIED, {"env": dict(pairs)}, "env")]


def second_quota(value: str) -> list[Part]:
    if int(value) == 0:
        return [(TRANSLATED, {}, "no quota of users within the container: nothing to do")]
    return [(REPORTED, {}, f"quota of {value} users and groups within the container: its limits are set again on the new volume (quotaon, setquota)")]


COUNTED = "OpenVZ's own accounting; limits of memory, swap and processes stand in its place"
ELSEWHERE = "it means nothing outside of OpenVZ"
RATES = "traffic is limited on the new host (tc), by the container's addresses"
RULES: dict[str, t.Callable[[str], list[Part]]] = {
    # Names and the start
    "NAME": carried("name"),
    "HOSTNAME": carried("hostname"),
    "DESCRIPTION": carried("description"),
    "ONBOOT": at_boot,
    "BOOTORDER": number("boot_order"),
    "STOP_TIMEOUT": number("stop_timeout"),
    "AUTOSTOP": told("it is shut down with the host, and not suspended"),
    "DISABLED": disabled,
    "OSTEMPLATE": lambda value: [(TRANSLATED, {"template": value}, "the mends that this distribution needs")],
    "DISTRIBUTION": lambda value: [(TRANSLATED, {"distribution": value}, "the mends that this distribution needs")],
    # The disk
    "VE_PRIVATE": lambda value: [(TRANSLATED, {"private": value}, "the place that the data come from")],
    "VE_LAYOUT": lambda value: [(TRANSLATED, {"layout": value}, "the way in which the data are read")],
    "DISKSPACE": limited("disk_bytes", 1024, "bytes, the size of the volume"),
    "DISKINODES": limited("disk_inodes", 1, "inodes of the volume"),
    "DISK_QUOTA": told("the volume's size is the limit"),
    "QUOTAUGIDLIMIT": second_quota,
    "JOURNALED_QUOTA": told("quota within the container is set up again on the new volume"),
    "QUOTATIME": told("a volume has no soft limit"),
    "MOUNT_OPTS": told("the volume is mounted with the image volume's own options: give them there"),
    "NOATIME": lambda value: [(TRANSLATED, {"noatime": yes_or_no(value)}, "an option of the volume's mount")],
    "BINDMOUNT": words("bind_mounts"),
    "DISK": refused("further disks are imported one by one: each is an image of its own"),
    "ROOT_DISK": told("the disk of the root is the image that is imported"),
    # Processor, memory, disk access
    "PHYSPAGES": limited("memory_bytes", PAGE, "bytes"),
    "PRIVVMPAGES": limited("privvm_bytes", PAGE, "bytes"),
    "SWAPPAGES": limited("swap_bytes", PAGE, "bytes"),
    "NUMPROC": limited("pids_limit", 1, "processes and threads"),
    "CPUS": processors,
    "CPULIMIT": share,
    "CPULIMIT_MHZ": told("a limit in MHz depends on the processor: set cpus"),
    "CPUUNITS": weight,
    "CPUWEIGHT": weight,
    "CPUUWEIGHT": weight,
    "CPUMASK": mask("cpuset_cpus"),
    "NODEMASK": mask("cpuset_mems"),
    "IOLIMIT": inputs("io_bytes"),
    "IOPSLIMIT": inputs("io_operations"),
    "IOPRIO": told("the new host's scheduler knows weights and no priorities: set blkio_weight if it matters"),
    "MEMGUARANTEE": told("no memory is kept for it: set memory_reservation if it matters"),
    "MEMGUARANTEE_BYTES": told("no memory is kept for it: set memory_reservation if it matters"),
    "PAGECACHE_ISOLATION": told("its limit of memory has its page cache in it"),
    "NUMMEMORYSUBGROUPS": told("control groups within the container have no limit of their number"),
    "NUMNETIF": told("the interfaces of a container have no limit of their number"),
    "VM_OVERCOMMIT": told("memory is not promised in advance on a stock kernel"),
    "MEMINFO": told("/proc/meminfo shows the host's memory, unless lxcfs is mounted into the container"),
    # The network
    "IP_ADDRESS": addresses,
    "NETIF": interfaces,
    "NAMESERVER": names("nameservers"),
    "SEARCHDOMAIN": names("search_domains"),
    "NETDEV": refused("a network device of the host is given to the container by hand"),
    "NETFILTER": told("a container that has NET_ADMIN has the whole of netfilter in its own network"),
    "IPTABLES": told("a container that has NET_ADMIN has the whole of netfilter in its own network"),
    "IPV6": told("the network decides whether there is IPv6"),
    "RATE": told(RATES),
    "TOTALRATE": told(RATES),
    "RATEBOUND": told(RATES),
    "TRAFFIC_SHAPING": told(RATES),
    # Rights and devices
    "CAPABILITY": capabilities,
    "FEATURES": features,
    "DEVNODES": device_nodes,
    "DEVICES": device_numbers,
    "PCI": refused("a PCI device is not given to a container"),
    "VE_ENVIRONMENT": environment,
    "LOCAL_UID": number("first_uid"),
    "LOCAL_GID": number("first_gid"),
    "OSRELEASE": told("the container sees the version of the new host's kernel"),
    "HA_ENABLE": told("there is no cluster that would start it elsewhere"),
    "HA_PRIO": told("there is no cluster that would start it elsewhere"),
    "AUTOCOMPACT": told("the volume is sparse, and fstrim gives its space back"),
    "SLMMEMORYLIMIT": told("give the limit as PHYSPAGES"),
    "BURST_CPULIMIT": told("a limit of the processor has no bursts here: set cpus"),
    "BURST_CPU_AVG_USAGE": told("a limit of the processor has no bursts here: set cpus"),
}  # fmt: skip
RULES.update(dict.fromkeys(
    "KMEMSIZE LOCKEDPAGES SHMPAGES VMGUARPAGES OOMGUARPAGES NUMTCPSOCK NUMFLOCK NUMPTY NUMSIGINFO TCPSNDBUF TCPSENDBUF TCPRCVBUF OTHERSOCKBUF "
    "DGRAMRCVBUF NUMOTHERSOCK NUMFILE DCACHESIZE DCACHE NUMIPTENT IPTENTRIES AVNUMPROC TOTVMPAGES IPCSHMPAGES ANONSHPAGES RSSPAGES OOMGUAR NUMSOCK "
    "UNIXSOCKBUF SOCKRCVBUF NUMUNIXSOCK".split(), told(COUNTED),
))  # fmt: skip
FOREIGN = frozenset(
    "VE_ROOT VEID UUID ORIGIN_SAMPLE CONFIGFILE TEMPLATE TEMPLATES TECHNOLOGIES VE_TYPE VEFORMAT VEFSTYPE APPLY_IPONLY USE_NET_RPS CONFIG_CUSTOMIZED "
    "VE_STOP_MODE SLMMODE VETH VIRTUOZZO VE0CPUUNITS VZFASTBOOT NEIGHBOUR_DEVS ERROR_ON_ARPFAIL SKIP_ARPDETECT SKIP_SYSCTL_SETUP VZWDOG IPTABLES_MODULES "
    "IP6TABLES VE_PARALLEL LOCKDIR DUMPDIR LOGGING LOG_LEVEL LOGFILE VERBOSE DEF_OSTEMPLATE USE_VENET_MASK".split()
)  # fmt: skip
RULES.update(dict.fromkeys(FOREIGN, told(ELSEWHERE)))
# In vz.conf these are of the host, or for containers that are made later. The owners of files are looked at.
OF_THE_HOST = FOREIGN | {"VE_PRIVATE", "VE_LAYOUT", "OSTEMPLATE", "LOCAL_UID", "LOCAL_GID"}


def row(line: Line, fate: str, text: str, values: t.Iterable[str] = ()) -> dict[str, t.Any]:
    """One row of the table. `values` are the names of the new container's values that it sets."""
    text = text if line.number else f"the host's default (vz.conf) {line.value}: {text}"
    return {"line": line.number, "name": line.name, "value": line.value, "fate": fate, "text": text, "sets": list(values)}


def translate(text: str, ctid: str | None = None, defaults: str = "") -> dict[str, t.Any]:
    """The rows of the table, the new container's values, and how many rows have each fate. The id stands for $VEID in paths.

    `defaults` is the host's vz.conf: a parameter of a container's that stands there alone is the container's, too.
    """
    lines = read(text)
    newer = is_newer(lines)
    lines += [line for line in read_defaults(defaults, lines) if line.name in RULES and line.name not in OF_THE_HOST]
    counts: dict[str, list[int]] = {}
    for line in lines:
        counts.setdefault(line.name, []).append(line.number)
    rows: list[dict[str, t.Any]] = []
    container: dict[str, t.Any] = {}
    for line in lines:
        chosen = counts[line.name][-1 if newer else 0]
        if line.fault or not line.name:
            rows.append(row(line, REPORTED, f"vzctl does not read this line: {line.fault or 'it has no name'}"))
        elif line.number != chosen:
            rows.append(row(line, REPORTED, f"line {chosen} says it, too, and that one counts"))
        elif line.name not in RULES:
            rows.append(row(line, REFUSED, "this parameter is not known here: find out if the container needs it"))
        elif not line.value.strip():
            rows.append(row(line, TRANSLATED, "nothing is set"))
        else:
            try:
                parts = RULES[line.name](line.value)
            except ValueError as exc:
                rows.append(row(line, REFUSED, f"this value is not understood here: {exc}: correct it, or leave it out"))
                continue
            for fate, values, said in parts or [(TRANSLATED, {}, "nothing is set")]:
                rows.append(row(line, fate, said, values))
                merge(container, values)
    if ctid and "private" in container:
        container["private"] = container["private"].replace("$VEID", ctid)
    fates = [each["fate"] for each in rows]
    return {
        "generation": 7 if newer else 6,
        "rows": rows,
        "container": container,
        "fates": {fate: fates.count(fate) for fate in FATES},
    }


def merge(container: dict[str, t.Any], values: dict[str, t.Any]) -> None:
    """Takes values in; lists of several lines are one list."""
    for key, value in values.items():
        if isinstance(value, list) and key in container:
            container[key] = container[key] + value
        else:
            container[key] = value


def table(rows: t.Sequence[dict[str, t.Any]]) -> list[str]:
    """The rows for people."""
    return [f"{each['line'] or '':>4}  {each['fate']:10}  {each['name'] or each['value']}: {each['text']}" for each in rows]
