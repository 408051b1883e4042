# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What has to hold before a workload is moved.

A table of checks. Each is a pure function of what is known of both hosts, and yields one sentence for each thing that is
wrong: what, where, and what to do. All are asked; an operator who has to wait for a maintenance window wants the whole list.
"""

from __future__ import annotations

import ipaddress
import typing as t
from dataclasses import dataclass, field

from ansible_collections.livefleet.handover.plugins.module_utils._sizes import (
    format_size,
)
from ansible_collections.livefleet.handover.plugins.module_utils._workload import (
    missing_volumes,
)

LIVE = "live"
OFFLINE = "offline"

# The action script also runs under runc since this version of CRIU.
HOOKS_SINCE = [3, 19]
# These kernels refuse two socket options that older versions of CRIU ask every TCP socket for.
SOCKETS_SINCE = [4, 2]
SOCKETS_KERNEL = [6, 16]
SYSTEMD_SINCE = 240
# podman's states of a container that nothing of is running.
STOPPED = ("created", "exited", "stopped")

# Left free on a file system beside what is copied, so that the host itself goes on working.
SPARE_DISK = 64 * 2**20
# The dump in memory holds CRIU's own records too, and the helper needs its buffers.
SPARE_MEMORY = 128 * 2**20
# Workloads keep time by the wall clock too: leases, certificates, tokens.
CLOCK_SECONDS = 30.0

# What the operator's playbooks call the list of checks that do not count.
IGNORE = "handover_ignore_checks"

PCOPY_CURE = "apply the role livefleet.handover.pcopy to it"

Facts = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class Plan:
    """Who is to be moved from where to where, and what is known of both."""

    workload: str
    source: str
    destination: str
    mode: str
    here: Facts  # workload_info of the source
    there: Facts  # workload_info of the destination
    session: str = ""  # our own, which is no obstacle
    tracker: str = "auto"
    hash_limit: int = 0  # bytes that may be compared in the pause, where writes cannot be tracked; 0 for any number
    auto_converge: bool = False  # it is to be slowed down where the pause would be too long
    lazy_pages: bool = False  # it is to run on the destination before its memory is there
    asked_within: float = 0.0  # seconds in which first the destination was asked, and then the source
    problems: t.Tuple[str, ...] = field(default=())

    @property
    def live(self) -> bool:
        return self.mode == LIVE

    @property
    def container(self) -> Facts:
        return self.here["workload"]

    @property
    def known(self) -> bool:
        """Whether podman told the container's details."""
        return bool(self.container["exists"]) and not self.container["held"]

    @property
    def hosts(self) -> t.Tuple[t.Tuple[str, Facts], t.Tuple[str, Facts]]:
        return (self.source, self.here["host"]), (self.destination, self.there["host"])

    @property
    def volumes(self) -> t.List[Facts]:
        """Its image volumes, each once."""
        found: t.Dict[str, t.Dict[str, t.Any]] = {}
        for mount in self.container.get("mounts", []) if self.known else []:
            if mount["image_volume"]:
                volume = found.setdefault(mount["image_volume"]["image"], dict(mount["image_volume"], podman_volume=""))
                # The podman volume that image_volume made; one that is bound to a directory further down is the user's own.
                if mount["type"] == "volume" and mount["directory"] == volume["mountpoint"]:
                    volume["podman_volume"] = mount["name"]
        return list(found.values())

    @property
    def directories(self) -> t.List[Facts]:
        """Its directory volumes, each once."""
        mounts = self.container.get("mounts", []) if self.known else []
        return list({mount["name"]: mount["directory_volume"] for mount in mounts if mount.get("directory_volume")}.values())


def out_of_reach(destination: str, said: str) -> str:
    """What to say of a destination that did not answer at all; `said` is what the connection said of it, of which the last line tells why."""
    why = (said.strip().splitlines() or ["it gave no reason"])[-1].strip()
    why = why[len("Task failed: ") :] if why.startswith("Task failed: ") else why
    return "the destination {0} cannot be reached: see whether it is up and `ansible {0} -m ping` works ({1})".format(destination, why)


def twin(plan: Plan) -> t.Dict[str, t.Any]:
    """What a move makes on the destination, and takes away again if it is undone: the container, unless it is there, and podman's volumes."""
    podman = plan.there["host"]["podman"]
    return {
        "made": not any(each["name"] == plan.workload for each in podman["containers"]),
        "volumes": sorted(missing_volumes(plan.container["mounts"], podman["volumes"])),
    }


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong."""

    check: str
    sentence: str


Check = t.Callable[[Plan], t.Iterator[str]]


def examine(plan: Plan, ignore: t.Container[str] = ()) -> t.Tuple[t.List[Finding], t.List[Finding]]:
    """What is wrong and counts, and what is wrong and was to be ignored. Where the basics are wrong, the rest is not asked."""
    found: t.List[Finding] = []
    ignored: t.List[Finding] = []
    for stage in (BASICS, CHECKS):
        for name, check in stage.items():
            for sentence in check(plan):
                # The basics cannot be ignored: without them nothing can be moved.
                (ignored if name in ignore and stage is CHECKS else found).append(Finding(name, sentence))
        if found and stage is BASICS:
            break
    return found, ignored


def unknown_names(ignore: t.Iterable[str]) -> t.List[str]:
    """Names on an ignore list that no check has."""
    return [name for name in ignore if name not in CHECKS]


# The basics


def _same_host(plan: Plan) -> t.Iterator[str]:
    if plan.source == plan.destination:
        yield "{0} is on {1} already, and that is also the destination: name another handover_destination".format(plan.workload, plan.source)


def _unknown_workload(plan: Plan) -> t.Iterator[str]:
    if not plan.container["exists"]:
        names = sorted(container["name"] for container in plan.here["host"]["podman"]["containers"])
        yield "there is no container named {0} on {1}: name one of its containers{2}".format(
            plan.workload, plan.source, " ({0})".format(", ".join(names)) if names else ", of which it has none"
        )


def _podman_missing(plan: Plan) -> t.Iterator[str]:
    for name, host in plan.hosts:
        if not host["podman"]["installed"]:
            yield "podman is missing on {0}: install the package podman there".format(name)


def _held(plan: Plan) -> t.Iterator[str]:
    for name, facts in ((plan.source, plan.here), (plan.destination, plan.there)):
        if facts["workload"]["held"]:
            yield "podman on {0} does not answer about {1}, which is being checkpointed, restored or held frozen: wait until that has ended".format(
                name, plan.workload
            )


def _locked(plan: Plan) -> t.Iterator[str]:
    told: t.Set[str] = set()
    for name, host in plan.hosts:
        for session in host["pcopy"]["sessions"]:
            if session["workload"] != plan.workload or session["id"] == plan.session or session["ended"] or session["id"] in told:
                continue
            told.add(session["id"])
            if session["running"]:
                yield "{0} is being moved already, by session {1} on {2}, which is in the state {3}: wait until that has ended".format(
                    plan.workload, session["id"], name, session["state"]
                )
            else:
                yield "the session {1} on {2} has left {0} in the state {3}: end it with `pcopy session abort` there before another begins".format(
                    plan.workload, session["id"], name, session["state"]
                )


BASICS: t.Dict[str, Check] = {
    "same_host": _same_host,
    "podman": _podman_missing,
    "workload": _unknown_workload,
    "held": _held,
    # Among the basics because what a session under way has made on the destination is no rubbish to be removed.
    "locked": _locked,
}


# The workload itself


def _not_running(plan: Plan) -> t.Iterator[str]:
    if plan.container["running"] or (plan.container["state"] in STOPPED and not plan.live):
        return
    yield "{0} is {1} on {2} and not running: {3}".format(
        plan.workload,
        plan.container["state"],
        plan.source,
        "start it there first, as there is no memory to hand over, or move it as it is with migrate_mode=offline"
        if plan.container["state"] in STOPPED
        else "start it or stop it there first",
    )


def _auto_remove(plan: Plan) -> t.Iterator[str]:
    if plan.container["auto_remove"]:
        yield "{0} was started with --rm, so its host forgets it as soon as it stops and could not take it back: create it again without --rm".format(
            plan.workload
        )


def _create_command(plan: Plan) -> t.Iterator[str]:
    if plan.container["cannot_recreate"]:
        yield "{0} cannot be created again on {1}: {2}: make it with podman run or podman create, by itself".format(
            plan.workload, plan.destination, plan.container["cannot_recreate"]
        )
    if plan.container["dependencies"]:
        yield "{0} shares a namespace with another container ({1}), which would stay behind: create it without that".format(
            plan.workload, ", ".join(each[:12] for each in plan.container["dependencies"])
        )


def _systemd_unit(plan: Plan) -> t.Iterator[str]:
    if plan.container["systemd_unit"]:
        yield (
            "{0} is started and stopped by the systemd unit {1} on {2}, which would start it again there: "
            "create it with podman run, without a quadlet or generated unit".format(plan.workload, plan.container["systemd_unit"], plan.source)
        )


def _directories(plan: Plan) -> t.Iterator[str]:
    for mount in plan.container["mounts"]:
        if mount["image_volume"] is None and not mount.get("directory_volume") and mount["type"] in ("volume", "bind"):
            what = "volume {0}".format(mount["name"]) if mount["type"] == "volume" else "directory {0}".format(mount["source"])
            yield (
                "{0} mounts the {1} on {2}, which is neither an image volume nor a plain volume of podman's and would stay behind on {3}: "
                "move its files to a volume made by livefleet.handover.image_volume or by podman volume create, "
                "or list the check 'directories' in {5} if {4} has the same files".format(
                    plan.workload, what, mount["destination"], plan.source, plan.destination, IGNORE
                )
            )


def _directory_volumes(plan: Plan) -> t.Iterator[str]:
    for volume in plan.directories:
        if volume["anonymous"]:
            yield "{0} has a volume without a name of its own ({1}), which its twin on {2} would not have: create it with --volume NAME:PATH".format(
                plan.workload, volume["name"][:12], plan.destination
            )
        if volume["shared_with"]:
            yield "{0} shares the volume {1} on {2} with {3}, and only one of them would have it afterwards: give each a volume of its own".format(
                plan.workload, volume["name"], plan.source, ", ".join(volume["shared_with"])
            )


def _devices(plan: Plan) -> t.Iterator[str]:
    if plan.container["devices"]:
        yield "{0} has devices of {1} ({2}), which cannot move: create it without --device".format(
            plan.workload, plan.source, ", ".join(plan.container["devices"])
        )


def _namespaces(plan: Plan) -> t.Iterator[str]:
    for what, mode in (("network", "network_mode"), ("process", "pid_mode"), ("IPC", "ipc_mode")):
        value = plan.container[mode]
        if value == "host" or value.startswith(("container:", "ns:")):
            yield "{0} uses the {1} namespace of {2} and not one of its own ({3}), which cannot move: create it without that".format(
                plan.workload, what, "the host" if value == "host" else "another container", value
            )


def _connections(plan: Plan) -> t.Iterator[str]:
    if not plan.live:
        return
    for network in plan.container["networks"]:
        number = sum(plan.container["connections"].get(address, 0) for address in (network["ip"], network["ip6"]) if address)
        if number and not network["shared"]:
            yield (
                "{0} has {1} TCP {2} open over the network {3}, which is a bridge of {4} alone, so they would break: "
                "put it on a network that both hosts are on (macvlan, or an unmanaged bridge), or list the check 'connections' in {5}".format(
                    plan.workload, number, "connection" if number == 1 else "connections", network["name"], plan.source, IGNORE
                )
            )


@dataclass(frozen=True)
class Obstacle:
    """What CRIU refuses to dump: in words, the cure, and since which version of CRIU it does not."""

    what: str
    cure: str
    until: t.Tuple[int, ...] = ()


# By check. The words are about one process; they may use {detail}, {size} and {limit}.
OBSTACLES: t.Dict[str, Obstacle] = {
    "io_uring": Obstacle("uses io_uring", "set it to another way of reading and writing (for PostgreSQL, io_method=worker)"),
    "nested_namespaces": Obstacle("is in a {detail} namespace of its own, inside the container's", "run it without one"),
    "ghost_files": Obstacle(
        "holds the deleted file {detail} open, which takes {size}, and CRIU carries up to {limit}",
        "have it close the file, or set ghost-limit in /etc/criu/runc.conf on both hosts",
    ),
    "pidfds": Obstacle("holds a file descriptor of a process (a pidfd)", "install CRIU 4.1 or later on both hosts", (4, 1)),
    "thread_pidfds": Obstacle("holds a file descriptor of a thread (a pidfd with PIDFD_THREAD)", "end what opened it"),
    "packet_pipes": Obstacle("has a pipe in packet mode (O_DIRECT)", "end what opened it"),
    "overmounts": Obstacle("holds {detail} open, over which something else is mounted now", "have it close the file, or unmount what lies over it"),
    "sockets": Obstacle(
        "has a socket of a kind that CRIU does not know, {detail}", "end what opened it (programs in Go use MPTCP unless GODEBUG=multipathtcp=0 is set)"
    ),
    "files": Obstacle("holds something open that CRIU does not know, {detail}", "end what opened it"),
    "traced": Obstacle("is traced by the process {detail}, and CRIU has to trace it itself", "end the debugger or strace"),
}


def _obstacle(check: str) -> Check:
    """The check for one kind of obstacle. The same of several processes is told once, of the first."""
    row = OBSTACLES[check]

    def find(plan: Plan) -> t.Iterator[str]:
        criu = plan.here["host"]["criu"]
        if not plan.live or (row.until and criu["version"] >= list(row.until)):
            return
        found = [obstacle for obstacle in plan.container["obstacles"] if obstacle["check"] == check]
        for detail in dict.fromkeys(obstacle["detail"] for obstacle in found):
            same = [obstacle for obstacle in found if obstacle["detail"] == detail]
            yield "{0} cannot be dumped on {1}: {2} (pid {3}{4}) {5}: {6}, or move it with migrate_mode=offline".format(
                plan.workload,
                plan.source,
                same[0]["process"],
                same[0]["pid"],
                " and {0} more".format(len(same) - 1) if len(same) > 1 else "",
                row.what.format(detail=detail, size=format_size(same[0]["size"]), limit=format_size(criu["ghost_limit"])),
                row.cure,
            )

    return find


# The destination's room for it


def _already_there(plan: Plan) -> t.Iterator[str]:
    if plan.there["workload"]["exists"]:
        yield "{1} has a container named {0} already, which is {2}: remove it with `podman rm {0}` there, or rename it".format(
            plan.workload, plan.destination, plan.there["workload"]["state"]
        )


def _images_taken(plan: Plan) -> t.Iterator[str]:
    present = plan.there["host"]["images"]["present"]
    for volume in plan.volumes:
        directory, _slash, name = volume["image"].rpartition("/")
        if directory == plan.there["host"]["images"]["path"].rstrip("/") and name in present:
            yield "{0} exists on {1} already and is never overwritten: move it away, or remove the image volume {2} there if it is not needed".format(
                volume["image"], plan.destination, volume["name"]
            )


def _filesystems(plan: Plan) -> t.Iterator[str]:
    for volume in plan.volumes:
        if volume["fstype"] not in ("ext4", "xfs"):
            yield "the image volume {0} of {1} holds {2}, and only ext4 and xfs can be handed over: copy its files to a volume that image_volume makes".format(
                volume["name"], plan.workload, volume["fstype"]
            )


def _volumes_taken(plan: Plan) -> t.Iterator[str]:
    defined = plan.there["host"]["podman"]["volumes"]
    for mount in plan.container["mounts"]:
        if mount["type"] == "volume" and mount["name"] in defined and mount["volume"] and defined[mount["name"]] != mount["volume"]["options"]:
            yield "podman on {0} has another volume named {1}: remove it with `podman volume rm {1}` there".format(plan.destination, mount["name"])
    for volume in plan.directories:
        if volume["name"] in defined and not defined[volume["name"]]:
            yield "podman on {0} has a volume named {1} already, and what is in it is never overwritten: remove it with `podman volume rm {1}` there".format(
                plan.destination, volume["name"]
            )


def _image_directories(plan: Plan) -> t.Iterator[str]:
    root = plan.there["host"]["images"]["path"].rstrip("/")
    for volume in plan.volumes:
        if volume["image"].rpartition("/")[0] != root:
            yield "the image volume {0} of {1} is {2}, outside of {3}, where the room on {4} was looked at: set migrate_images to its directory".format(
                volume["name"], plan.workload, volume["image"], root, plan.destination
            )


def _space(plan: Plan) -> t.Iterator[str]:
    need = sum(volume["allocated"] for volume in plan.volumes)
    free = plan.there["host"]["images"]["free"]
    if need and need + SPARE_DISK > free:
        yield "the image volumes of {0} take {1}, and {2} has {3} free in {4}: free {5} there".format(
            plan.workload,
            format_size(need),
            plan.destination,
            format_size(free),
            plan.there["host"]["images"]["path"],
            format_size(need + SPARE_DISK - free),
        )
    store = plan.there["host"]["podman"]["store"]
    # An image that has to be brought along is there twice for a moment: as an archive, and unpacked.
    need = sum(volume["size"] for volume in plan.directories) + plan.container["layer"] + (0 if image_present(plan) else 2 * plan.container["image"]["size"])
    if need + SPARE_DISK > store["free"]:
        yield "the container's own layer, image and directory volumes take {0}, and {1} has {2} free in {3}: free {4} there".format(
            format_size(need), plan.destination, format_size(store["free"]), store["path"], format_size(need + SPARE_DISK - store["free"])
        )


def image_present(plan: Plan) -> bool:
    """Whether the destination has the container's image."""
    return plan.known and any(image["id"] == plan.container["image"]["id"] for image in plan.there["host"]["podman"]["images"])


def _memory(plan: Plan) -> t.Iterator[str]:
    if not plan.live:
        return
    need = plan.container["memory"]
    # On the source the dump lies beside the processes that it was made of; on the destination too, once they are restored.
    for (name, host), total in zip(plan.hosts, (need + SPARE_MEMORY, 2 * need + SPARE_MEMORY)):
        if total > host["memory_available"]:
            yield "{0} uses {1} of memory, moving it takes {2} on {3}, and {4} are available there: free some, or use migrate_mode=offline".format(
                plan.workload, format_size(need), format_size(total), name, format_size(host["memory_available"])
            )


def _networks(plan: Plan) -> t.Iterator[str]:
    there = {network["name"]: network for network in plan.there["host"]["podman"]["networks"]}
    for network in plan.container["networks"]:
        other = there.get(network["name"])
        if other is None:
            yield "podman on {0} has no network named {1}, which {2} is on: create it there with the driver {3} and the subnet {4}".format(
                plan.destination, network["name"], plan.workload, network["driver"], ", ".join(network["subnets"]) or "of the source"
            )
        elif other["driver"] != network["driver"]:
            yield "the network {0} is made by the driver {1} on {2} and by {3} on {4}: create it with the same driver".format(
                network["name"], network["driver"], plan.source, other["driver"], plan.destination
            )
        elif sorted(other["subnets"]) != sorted(network["subnets"]):
            yield "the network {0} is {1} on {2} and {3} on {4}, so {5} could not keep its address: create it with the same subnet".format(
                network["name"],
                ", ".join(network["subnets"]) or "without a subnet",
                plan.source,
                ", ".join(other["subnets"]) or "without a subnet",
                plan.destination,
                plan.workload,
            )
        elif network["shared"] and not other["shared"]:
            yield (
                "the network {0} leads out of {1} and is a bridge of {2} alone, where nobody outside would reach {3}: create it there on the bridge that "
                "the segment is attached to, with --opt mode=unmanaged and --interface-name".format(
                    network["name"], plan.source, plan.destination, plan.workload
                )
            )
        elif other["shared"] and other["parent"] and other["parent"] not in plan.there["host"]["interfaces"]:
            yield "podman on {0} has the network {1} on the interface {2}, which is not there: make it, with a port on the segment of {3}".format(
                plan.destination, network["name"], other["parent"], plan.source
            )


def _addresses(plan: Plan) -> t.Iterator[str]:
    own = {address["address"] for address in plan.there["host"]["addresses"]}
    networks = {network["name"]: network for network in plan.there["host"]["podman"]["networks"]}
    for network in plan.container["networks"]:
        taken = {each["address"]: each["container"] for each in networks.get(network["name"], {}).get("taken", [])}
        for address in filter(None, (network["ip"], network["ip6"])):
            if address in own:
                yield "{0} has the address {1}, which is also an address of {2} itself: give one of them another".format(
                    plan.workload, address, plan.destination
                )
            elif address in taken:
                yield "{0} has the address {1}, which the container {2} on {3} uses: give one of them another".format(
                    plan.workload, address, taken[address], plan.destination
                )


def _ports(plan: Plan) -> t.Iterator[str]:
    for port in plan.container["ports"]:
        for used in plan.there["host"]["listening"]:
            if (
                str(used["port"]) == port["host_port"]
                and used["protocol"] == port["protocol"]
                and (not port["host_ip"] or used["address"] in (port["host_ip"], "0.0.0.0", "::") or _unspecified(port["host_ip"]))
            ):
                yield "{0} publishes port {1}/{2}, on which something on {3} listens already: stop that first".format(
                    plan.workload, port["host_port"], port["protocol"], plan.destination
                )
                break


def _unspecified(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_unspecified
    except ValueError:
        return False


# What both hosts have to be able to do


def _architecture(plan: Plan) -> t.Iterator[str]:
    here, there = plan.here["host"]["arch"], plan.there["host"]["arch"]
    if here != there:
        yield "{0} is a {1} host and {2} is {3}: choose a destination of the same architecture".format(plan.source, here, plan.destination, there)


# What the kernel prints among the features of a processor and a program cannot use: power, virtualisation, and what is done about the
# processor's own mistakes. It differs between hosts that are the same to every program.
KERNELS_OWN = frozenset(
    (
        "acpi", "amd_lbr_v2", "amd_ppin", "aperfmperf", "apic", "arat", "arch_capabilities", "arch_lbr", "arch_perfmon", "avic", "bmec", "bpext", "bts",
        "bus_lock_detect", "cat_l2", "cat_l3", "cdp_l2", "cdp_l3", "constant_tsc", "core_capabilities", "cppc", "cpb", "cpuid", "cpuid_fault", "cqm",
        "cqm_llc", "cqm_mbm_local", "cqm_mbm_total", "cqm_occup_llc", "dca", "debug_swap", "decodeassists", "de", "ds_cpl", "dtes64", "dtherm", "dts",
        "epb", "ept", "ept_ad", "est", "extapic", "extd_apicid", "flexpriority", "flush_l1d", "flushbyasid", "hfi", "ht", "hw_pstate", "hwp",
        "hwp_act_window", "hwp_epp", "hwp_notify", "hwp_pkg_req", "hypervisor", "ibpb", "ibpb_brtype", "ibrs", "ibrs_enhanced", "ibs", "ida",
        "intel_pt", "intel_ppin", "invpcid", "invpcid_single", "irperf", "la57", "lbrv", "lbr_v2", "mba", "mca", "mce", "md_clear", "monitor", "msr",
        "mtrr", "mwaitx", "nonstop_tsc", "npt", "nrip_save", "nx", "osvw", "overflow_recov", "pae", "pat", "pausefilter", "pbe", "pcid", "pconfig", "pdcm",
        "pdpe1gb", "pebs", "perfctr_core", "perfctr_llc", "perfctr_nb", "perfmon_v2", "pfthreshold", "pge", "pln", "proc_feedback", "pse", "pse36",
        "pti", "pts", "rapl", "rdt_a", "rep_good", "rsb_ctxsw", "sdbg", "sev", "sev_es", "sev_snp", "skinit", "sme", "smap", "smca", "smep", "smx",
        "spec_ctrl", "split_lock_detect", "srbds_ctrl", "ss", "ssbd", "ssbs", "stibp", "stibp_always_on", "succor", "svm", "svm_lock", "tm", "tm2", "tme",
        "topoext", "tpr_shadow", "tsc_adjust", "tsc_deadline_timer", "tsc_known_freq", "tsc_reliable", "tsc_scale", "tsx_force_abort", "umip",
        "v_spec_ctrl", "v_vmsave_vmload", "vgif", "vmcb_clean", "vme", "vmmcall", "vmx", "vnmi", "vpid", "virt_ssbd", "wbnoinvd", "wdt", "x2apic", "x2avic",
        "xtopology", "xtpr",
    )
)  # fmt: skip


def _cpu(plan: Plan) -> t.Iterator[str]:
    missing = sorted(set(plan.here["host"]["cpu_features"]) - set(plan.there["host"]["cpu_features"]) - KERNELS_OWN)
    if plan.live and missing and plan.here["host"]["arch"] == plan.there["host"]["arch"]:
        yield "the processor of {0} lacks {1}, which programs on {2} may be using: move it with migrate_mode=offline, or choose another destination".format(
            plan.destination, _some(missing), plan.source
        )


def _some(names: t.Sequence[str], limit: int = 6) -> str:
    return ", ".join(names[:limit]) + (" and {0} more".format(len(names) - limit) if len(names) > limit else "")


def _runtime(plan: Plan) -> t.Iterator[str]:
    if plan.live and plan.container["runtime"] != "runc":
        yield "{0} runs under {1}, and only runc passes CRIU's hooks on: create it with `podman --runtime runc`, or use migrate_mode=offline".format(
            plan.workload, plan.container["runtime"] or "an unknown runtime"
        )
    there = plan.there["host"]["podman"]["runtime"]
    if plan.live and there and there != "runc":
        yield 'podman on {0} uses {1}: set runtime = "runc" in /etc/containers/containers.conf there, or use migrate_mode=offline'.format(
            plan.destination, there
        )


def _podman_version(plan: Plan) -> t.Iterator[str]:
    (_source, here), (_destination, there) = plan.hosts
    if here["podman"]["version"][:2] > there["podman"]["version"][:2]:
        yield "podman is {0} on {1} and {2} on {3}, which is older and may not understand how the container was made: install the same version there".format(
            _dotted(here["podman"]["version"]), plan.source, _dotted(there["podman"]["version"]), plan.destination
        )


def _criu(plan: Plan) -> t.Iterator[str]:
    if not plan.live:
        return
    for name, host in plan.hosts:
        criu = host["criu"]
        if not criu["version"]:
            yield "CRIU is missing on {0}: install the package criu there, or use migrate_mode=offline".format(name)
        elif criu["version"] < HOOKS_SINCE:
            yield "CRIU is {0} on {1}, and its hooks work under runc from {2} on: install a newer one there, or use migrate_mode=offline".format(
                _dotted(criu["version"]), name, _dotted(HOOKS_SINCE)
            )
        elif not criu["check"]:
            yield "CRIU does not work on {0}: `criu check` says: {1}".format(name, criu["said"] or "nothing")


def _criu_sockets(plan: Plan) -> t.Iterator[str]:
    if not plan.live:
        return
    for name, host in plan.hosts:
        version, kernel = host["criu"]["version"], _kernel(host)
        if HOOKS_SINCE <= version < SOCKETS_SINCE and kernel >= SOCKETS_KERNEL:
            yield "CRIU is {0} on {1}, and with its kernel {2} TCP sockets need {3} or later: install a newer CRIU there, or use migrate_mode=offline".format(
                _dotted(version), name, host["kernel"], _dotted(SOCKETS_SINCE)
            )


def _criu_versions(plan: Plan) -> t.Iterator[str]:
    (_source, here), (_destination, there) = plan.hosts
    if plan.live and there["criu"]["version"] and here["criu"]["version"][:2] > there["criu"]["version"][:2]:
        yield "CRIU is {0} on {1} and {2} on {3}, which may not read what the newer one writes: install the same version there".format(
            _dotted(here["criu"]["version"]), plan.source, _dotted(there["criu"]["version"]), plan.destination
        )


def _kernel_versions(plan: Plan) -> t.Iterator[str]:
    (_source, here), (_destination, there) = plan.hosts
    if plan.live and _kernel(here) > _kernel(there):
        yield (
            "the kernel is {0} on {1} and {2} on {3}, which is older and may lack what processes have in use: "
            "boot the same kernel there, use migrate_mode=offline, or list the check 'kernel' in {4} if a trial on a like pair of hosts went well".format(
                here["kernel"], plan.source, there["kernel"], plan.destination, IGNORE
            )
        )


def _network_lock(plan: Plan) -> t.Iterator[str]:
    """While CRIU dumps, nothing may reach the workload's sockets."""
    if not plan.live or not plan.container["networks"]:
        return
    lock = plan.here["host"]["criu"]["network_lock"]
    if lock["method"] == "skip":
        yield "CRIU on {0} is told not to lock the network (network-lock in /etc/criu/runc.conf), so connections would break: {1}".format(
            plan.source, PCOPY_CURE
        )
    elif not lock["works"] and plan.here["host"]["criu"]["version"]:
        yield "CRIU on {0} cannot lock the network with {1}: install the package {1} there, or use migrate_mode=offline".format(plan.source, lock["method"])


def _silence(plan: Plan) -> t.Iterator[str]:
    """Nobody may be heard under the workload's addresses while both hosts have them."""
    if not plan.live or not plan.container["networks"]:
        return
    for name, host in plan.hosts:
        silence = host["pcopy"].get("silence")
        if silence and not silence["ok"]:
            yield "a workload's network cannot be kept silent on {0}: {1}".format(name, silence["text"])
        backend = host["podman"]["network"]
        if backend["backend"] not in ("", "netavark") or not backend["path"]:
            yield (
                "podman on {0} makes its networks with {1}, and the helper works with netavark only: "
                'set network_backend = "netavark" in containers.conf there, or use migrate_mode=offline'
            ).format(name, backend["backend"] or "an unknown program")


def _seccomp(plan: Plan) -> t.Iterator[str]:
    if plan.live and plan.container["seccomp_filter"]:
        for name, host in plan.hosts:
            if host["seccomp_filter"]:
                yield (
                    "{0} is itself a container whose system calls are filtered, so CRIU cannot lift the filter of {1} there: start {0} without one "
                    "(for systemd-nspawn, SYSTEMD_SECCOMP=0), create {1} with --security-opt seccomp=unconfined, or use migrate_mode=offline".format(
                        name, plan.workload
                    )
                )


def _action_script(plan: Plan) -> t.Iterator[str]:
    if not plan.live:
        return
    for name, host in plan.hosts:
        criu = host["criu"]
        if not criu["action_script"]:
            yield "CRIU on {0} has no action script in /etc/criu/runc.conf, so a frozen workload could not be held: {1}".format(name, PCOPY_CURE)
        elif not criu["action_script_works"]:
            yield "CRIU's action script {0} is missing on {1} or not executable: {2}".format(criu["action_script"], name, PCOPY_CURE)
    if plan.container["criu_configuration"] != "/etc/criu/runc.conf":
        yield "{0} has a CRIU configuration of its own ({1}), so the action script does not run: create it without the annotation org.criu.config".format(
            plan.workload, plan.container["criu_configuration"]
        )


def _pcopy(plan: Plan) -> t.Iterator[str]:
    (_source, here), (_destination, there) = plan.hosts
    for name, host in plan.hosts:
        if not host["pcopy"]["installed"]:
            yield "the helper pcopy is missing on {0}: {1}".format(name, PCOPY_CURE)
    if here["pcopy"]["installed"] and there["pcopy"]["installed"] and here["pcopy"]["protocol"] != there["pcopy"]["protocol"]:
        yield "pcopy speaks protocol {0} on {1} and {2} on {3}: apply the role livefleet.handover.pcopy to both".format(
            here["pcopy"]["protocol"], plan.source, there["pcopy"]["protocol"], plan.destination
        )


# What an image volume, a loop device, does without.
_NOT_FOR_LOOPS = "stacked devices"
EBPF, HASH = "ebpf", "hash"


def _tracker(plan: Plan) -> t.Iterator[str]:
    # They stand in the order in which one depends on the other: the first that fails is the reason.
    missing = [finding["text"] for finding in plan.here["host"]["pcopy"]["findings"] if not finding["ok"] and finding["name"] != _NOT_FOR_LOOPS]
    if not plan.volumes or plan.tracker != HASH and not missing:
        return
    if plan.tracker == EBPF:
        yield "writes cannot be tracked on {0}: {1}".format(plan.source, missing[0])
        return
    size = sum(volume["size"] for volume in plan.volumes)
    if plan.hash_limit and size > plan.hash_limit:
        yield (
            "{0} on {1}, so its volumes would be read whole to be compared, also in the pause: "
            "{2}, and at most {3} were allowed: {4}allow more with hash_limit"
        ).format(
            "writes are not to be tracked" if plan.tracker == HASH else "writes cannot be tracked",
            plan.source,
            format_size(size),
            format_size(plan.hash_limit),
            "" if plan.tracker == HASH else "{0}; or ".format(missing[0]),
        )


def _auto_converge(plan: Plan) -> t.Iterator[str]:
    # Of a container that does not run, another check says so.
    if plan.auto_converge and plan.live and plan.container["running"] and not plan.container["throttle"]["cgroup"]:
        yield (
            "auto-converge is not possible for {0} on {1}: {2}: move it without migrate_auto_converge, or give its cgroup the controller cpu"
        ).format(plan.workload, plan.source, plan.container["throttle"]["why"])


def _lazy_pages(plan: Plan) -> t.Iterator[str]:
    if not plan.lazy_pages or not plan.live:
        return
    if not plan.container["cgroup"] and plan.container["running"]:
        yield "lazy pages are not possible for {0}: it has no cgroup of the second version of its own on {1}: move it without migrate_lazy_pages".format(
            plan.workload, plan.source
        )
    criu = plan.there["host"]["criu"]
    if criu["version"] and not criu["lazy_pages"]:
        yield (
            "lazy pages are not possible on {0}: `criu check --feature uffd-noncoop` finds no userfaultfd there that tells of what tasks do to their memory: "
            "move {1} without migrate_lazy_pages, or to a host whose kernel has it (CONFIG_USERFAULTFD)"
        ).format(plan.destination, plan.workload)


def _systemd(plan: Plan) -> t.Iterator[str]:
    for name, host in plan.hosts:
        if not host["systemd"]:
            yield "{0} does not run systemd, which runs the sessions: choose a host that does".format(name)
        elif host["systemd"][0] < SYSTEMD_SINCE:
            yield "systemd is {0} on {1}, and {2} or later is needed: update it".format(host["systemd"][0], name, SYSTEMD_SINCE)


def _clock(plan: Plan) -> t.Iterator[str]:
    # The source was asked later, by up to so much: hosts that are busy with other moves take their time.
    ahead = plan.there["host"]["clock"] - plan.here["host"]["clock"]
    ahead += min(max(0.0, -ahead), plan.asked_within)
    if abs(ahead) > CLOCK_SECONDS:
        yield "the clocks of {0} and {1} are about {2:.0f} s apart, which {3} would see as a jump: set both by NTP".format(
            plan.source, plan.destination, abs(ahead), plan.workload
        )


def _unanswered(plan: Plan) -> t.Iterator[str]:
    for name, facts in ((plan.source, plan.here), (plan.destination, plan.there)):
        for problem in facts["problems"]:
            yield "{0} could not be examined in full: {1}".format(name, problem)


def _kernel(host: Facts) -> t.List[int]:
    return [int(part) for part in host["kernel"].split("-")[0].split(".")[:2] if part.isdigit()]


def _dotted(version: t.Sequence[int]) -> str:
    return ".".join(str(part) for part in version) or "unknown"


CHECKS: t.Dict[str, Check] = {
    "running": _not_running,
    "rm": _auto_remove,
    "create_command": _create_command,
    "systemd_unit": _systemd_unit,
    "directories": _directories,
    "directory_volumes": _directory_volumes,
    "devices": _devices,
    "namespaces": _namespaces,
    "connections": _connections,
    **{check: _obstacle(check) for check in OBSTACLES},
    "already_there": _already_there,
    "images": _images_taken,
    "image_directories": _image_directories,
    "filesystems": _filesystems,
    "volumes": _volumes_taken,
    "space": _space,
    "memory": _memory,
    "networks": _networks,
    "addresses": _addresses,
    "ports": _ports,
    "architecture": _architecture,
    "cpu": _cpu,
    "runtime": _runtime,
    "podman_version": _podman_version,
    "criu": _criu,
    "criu_sockets": _criu_sockets,
    "criu_versions": _criu_versions,
    "kernel": _kernel_versions,
    "network_lock": _network_lock,
    "silence": _silence,
    "seccomp": _seccomp,
    "action_script": _action_script,
    "pcopy": _pcopy,
    "tracker": _tracker,
    "auto_converge": _auto_converge,
    "lazy_pages": _lazy_pages,
    "systemd": _systemd,
    "clock": _clock,
    "unanswered": _unanswered,
}


def listen_address(plan: Plan, wanted: str = "") -> t.Optional[str]:
    """Where the destination is to listen, on a port of its own choice: the wanted address, else one in a subnet that both hosts are in."""
    theirs = plan.there["host"]["addresses"]
    if wanted:
        chosen = [address for address in theirs if address["address"] == wanted]
    else:
        ours = [ipaddress.ip_address(address["address"]) for address in plan.here["host"]["addresses"]]
        chosen = sorted(theirs, key=lambda each: not any(own in _subnet(each) for own in ours))
    if not chosen:
        return None
    address = chosen[0]["address"]
    return "[{0}]:0".format(address) if ":" in address else "{0}:0".format(address)


# Where the kernel does not say how fast a link is.
USUAL_MBITS = 1000


def link_rate(plan: Plan, listen: str) -> int:
    """Bytes per second of the slower of the links over which the hosts talk to each other."""
    there = [address for address in plan.there["host"]["addresses"] if listen.rpartition(":")[0].strip("[]") == address["address"]]
    here = [address for address in plan.here["host"]["addresses"] if there and ipaddress.ip_address(address["address"]) in _subnet(there[0])]
    speeds = [address.get("speed") or USUAL_MBITS for address in here[:1] + there]
    return min(speeds or [USUAL_MBITS]) * 125000


def _subnet(address: Facts) -> t.Union[ipaddress.IPv4Network, ipaddress.IPv6Network]:
    return ipaddress.ip_network("{address}/{prefix}".format(**address), strict=False)
