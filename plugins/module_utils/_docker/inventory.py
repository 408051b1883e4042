# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fate of each key of `docker inspect` in a move: Docker's inventory. The rows' form is that of every engine."""

from __future__ import annotations

import typing as t

from .._core import inventory
from .._core.inventory import ANEW, CARRIED, REFUSED, SAME, TOLD, Row, rows

COMPARED = "compared with the twin's"
REQUEST = "in the request that makes the twin"
OF_THE_HOST = "the engine's own affair on each host"
OF_THE_TWIN = "the twin has its own"
OF_WINDOWS = "for containers of Windows"

INSPECT: dict[str, Row] = {
    **rows(SAME, COMPARED, "Name", "Image", "Path", "Args"),
    **rows(ANEW, OF_THE_TWIN, "Id", "Created", "SizeRw", "SizeRootFs"),
    **rows(ANEW, "a file of the engine's for this container, made again for the twin", "ResolvConfPath", "HostnamePath", "HostsPath"),
    **rows(TOLD, "the log up to now stays on the source", "LogPath", check="log"),
    **rows(ANEW, "a count of the engine's that begins again", "RestartCount"),
    **rows(SAME, "both hosts have the storage driver overlay2", "Driver", "GraphDriver.Name", "Storage", check="storage_driver"),
    **rows(CARRIED, "the layer's files by a tree of the session", "GraphDriver.Data"),
    **rows(ANEW, "the image is compared by its ID", "ImageManifestDescriptor"),
    **rows(SAME, COMPARED, "Platform"),
    **rows(ANEW, "the confinement that the destination gives its containers", "MountLabel", "ProcessLabel", "AppArmorProfile"),
    **rows(TOLD, "processes of docker exec end on the source", "ExecIDs", check="exec_sessions"),
    # State
    **rows(CARRIED, "one that runs goes on running, one that is stopped stays so", "State.Status", "State.Running", "State.Dead", "State.Restarting"),
    **rows(REFUSED, "unpause it", "State.Paused", check="running"),
    **rows(ANEW, OF_THE_TWIN, "State.Pid", "State.StartedAt", "State.OOMKilled", "State.Error"),
    **rows(TOLD, "one that does not run is called created on the destination", "State.ExitCode", "State.FinishedAt", check="stopped"),
    **rows(ANEW, "the checks begin again with the start", "State.Health"),
    # Mounts
    **rows(SAME, "the mounts are compared, but for the place of a volume on each host", "Mounts[].Type", "Mounts[].Name", "Mounts[].Destination",
           "Mounts[].Driver", "Mounts[].RW", "Mounts[].Propagation"),
    **rows(CARRIED, REQUEST, "Mounts[].Mode"),
    **rows(CARRIED, "the files by a tree of the session", "Mounts[].Source"),
    # Network
    **rows(CARRIED, REQUEST + ", as far as it was asked for", "NetworkSettings.Networks.*.IPAMConfig", "NetworkSettings.Networks.*.Aliases",
           "NetworkSettings.Networks.*.DriverOpts", "NetworkSettings.Networks.*.GwPriority"),
    **rows(CARRIED, "in the request for a macvlan; elsewhere the driver makes it", "NetworkSettings.Networks.*.MacAddress"),
    **rows(REFUSED, "connect it without --link", "NetworkSettings.Networks.*.Links", check="links"),
    **rows(CARRIED, "fixed addresses are kept; others on a bridge only live, as fixed ones", "NetworkSettings.Networks.*.IPAddress",
           "NetworkSettings.Networks.*.GlobalIPv6Address"),
    **rows(SAME, "a live move keeps the routes, so the destination's network has it", "NetworkSettings.Networks.*.Gateway",
           "NetworkSettings.Networks.*.IPv6Gateway", check="gateway"),
    **rows(SAME, "the network is the same on both hosts, or the move makes it there", "NetworkSettings.Networks.*.IPPrefixLen",
           "NetworkSettings.Networks.*.GlobalIPv6PrefixLen", check="networks"),
    **rows(ANEW, OF_THE_HOST, "NetworkSettings.Networks.*.NetworkID", "NetworkSettings.Networks.*.EndpointID"),
    **rows(ANEW, "Docker names the twin by its name and its own ID", "NetworkSettings.Networks.*.DNSNames"),
    **rows(ANEW, "Docker binds the ports that were asked for", "NetworkSettings.Ports", check="ports"),
    **rows(ANEW, "the same again for the default bridge", "NetworkSettings.IPAddress", "NetworkSettings.MacAddress", "NetworkSettings.GlobalIPv6Address",
           "NetworkSettings.IPPrefixLen", "NetworkSettings.GlobalIPv6PrefixLen", "NetworkSettings.Gateway", "NetworkSettings.IPv6Gateway",
           "NetworkSettings.EndpointID"),
    **rows(ANEW, OF_THE_TWIN, "NetworkSettings.SandboxID", "NetworkSettings.SandboxKey"),
    **rows(ANEW, OF_THE_HOST, "NetworkSettings.Bridge", "NetworkSettings.HairpinMode", "NetworkSettings.LinkLocalIPv6Address",
           "NetworkSettings.LinkLocalIPv6PrefixLen", "NetworkSettings.SecondaryIPAddresses", "NetworkSettings.SecondaryIPv6Addresses"),
    # Config
    **rows(SAME, COMPARED, "Config.Hostname", "Config.Domainname", "Config.User", "Config.AttachStdin", "Config.AttachStdout", "Config.AttachStderr",
           "Config.StdinOnce", "Config.Env", "Config.Cmd", "Config.ArgsEscaped", "Config.Healthcheck", "Config.Volumes",
           "Config.WorkingDir", "Config.Entrypoint", "Config.NetworkDisabled", "Config.OnBuild", "Config.Labels", "Config.StopSignal",
           "Config.StopTimeout", "Config.Shell", "Config.ExposedPorts", "Config.Tty", "Config.OpenStdin"),
    **rows(CARRIED, "as the address of its first network", "Config.MacAddress"),
    **rows(ANEW, "a name for the image, which itself is compared", "Config.Image"),
    # HostConfig
    **rows(SAME, COMPARED, "HostConfig.LogConfig", "HostConfig.NetworkMode", "HostConfig.VolumeDriver", "HostConfig.Annotations", "HostConfig.CapAdd",
           "HostConfig.CapDrop", "HostConfig.CgroupnsMode", "HostConfig.Dns", "HostConfig.DnsOptions", "HostConfig.DnsSearch", "HostConfig.ExtraHosts",
           "HostConfig.GroupAdd", "HostConfig.Cgroup", "HostConfig.OomScoreAdj", "HostConfig.Privileged",
           "HostConfig.PublishAllPorts", "HostConfig.ReadonlyRootfs", "HostConfig.SecurityOpt", "HostConfig.StorageOpt", "HostConfig.Tmpfs",
           "HostConfig.ShmSize", "HostConfig.Sysctls", "HostConfig.Runtime", "HostConfig.CpuShares", "HostConfig.Memory",
           "HostConfig.NanoCpus", "HostConfig.CgroupParent", "HostConfig.BlkioWeight", "HostConfig.BlkioWeightDevice", "HostConfig.BlkioDeviceReadBps",
           "HostConfig.BlkioDeviceWriteBps", "HostConfig.BlkioDeviceReadIOps", "HostConfig.BlkioDeviceWriteIOps", "HostConfig.CpuPeriod",
           "HostConfig.CpuQuota", "HostConfig.CpuRealtimePeriod", "HostConfig.CpuRealtimeRuntime", "HostConfig.CpusetCpus", "HostConfig.CpusetMems",
           "HostConfig.DeviceCgroupRules", "HostConfig.KernelMemory", "HostConfig.KernelMemoryTCP", "HostConfig.MemoryReservation",
           "HostConfig.MemorySwap", "HostConfig.MemorySwappiness", "HostConfig.OomKillDisable", "HostConfig.PidsLimit", "HostConfig.Ulimits",
           "HostConfig.MaskedPaths", "HostConfig.ReadonlyPaths"),
    # A live move refuses it.
    **rows(SAME, COMPARED, "HostConfig.Init", check="init"),
    **rows(CARRIED, "off while it moves, and on the destination from its start there", "HostConfig.RestartPolicy", check="restart_policy"),
    **rows(CARRIED, REQUEST + ", with the names that Docker gave to anonymous volumes; the mounts themselves are compared", "HostConfig.Binds",
           "HostConfig.Mounts"),
    **rows(REFUSED, "create it without --rm", "HostConfig.AutoRemove", check="auto_remove"),
    **rows(SAME, COMPARED, "HostConfig.PortBindings", check="ports"),
    **rows(REFUSED, "create it without another container", "HostConfig.VolumesFrom", "HostConfig.Links", check="links"),
    **rows(REFUSED, "create it without --device", "HostConfig.Devices", "HostConfig.DeviceRequests", check="devices"),
    **rows(REFUSED, "create it with namespaces of its own", "HostConfig.IpcMode", "HostConfig.PidMode", "HostConfig.UTSMode", "HostConfig.UsernsMode",
           check="namespaces"),
    **rows(ANEW, OF_THE_HOST, "HostConfig.ContainerIDFile"),
    **rows(ANEW, "the size of the terminal that created it", "HostConfig.ConsoleSize"),
    **rows(ANEW, OF_WINDOWS, "HostConfig.Isolation", "HostConfig.CpuCount", "HostConfig.CpuPercent", "HostConfig.IOMaximumIOps",
           "HostConfig.IOMaximumBandwidth"),
}  # fmt: skip


def unaccounted(inspect: t.Mapping[str, t.Any]) -> list[str]:
    """The keys that hold something and that no row is about."""
    return inventory.unaccounted(INSPECT, inspect)


def refusal(workload: str, source: str, key: str, name: str) -> str:
    """Why a key without a row is in the way."""
    return (
        "{0} has something that Docker on {1} calls {2}, and it is not known whether a move keeps it: "
        "see with `docker inspect {0}`, and list '{3}' in handover_ignore_checks if it does not matter".format(workload, source, key, name)
    )


_LIVE = "by CRIU's dump"

# State of a container that runs, in a live move. CRIU takes an open file, a socket or a timer of Docker's as it does podman's.
STATE: dict[str, Row] = {
    "memory": Row(CARRIED, "by CRIU's dump and the pages sent before it", "memory"),
    "open files, pipes, locks, timers, sockets of all kinds": Row(
        CARRIED, _LIVE + ", as [of podman's containers](container-inventory.md); the same are refused, with the same names of checks", "files"
    ),
    "TCP connections over a macvlan or ipvlan": Row(CARRIED, _LIVE + ", with the address; the peers are told to wait, and that there is room again"),
    "TCP connections over a bridge, with a container that moves at the same moment": Row(CARRIED, _LIVE + " on both sides", "begun_elsewhere"),
    "TCP connections through a published port on a floating address": Row(
        CARRIED, _LIVE + "; the session carries the address and the NAT's entry of the connection", "floating_addresses"
    ),
    "other TCP connections over a bridge": Row(REFUSED, "put it on a macvlan or ipvlan network, or publish on a floating address", "connections"),
    "an address on a bridge that was not fixed": Row(CARRIED, "the twin has it as a fixed one, and the check says so", "addresses"),
    "such an address on the default bridge, or on a network without a subnet of its own that others are on": Row(
        REFUSED, "put it on a network with --subnet, or move it offline", "fixed_address"
    ),
    "such an address on a macvlan or ipvlan": Row(REFUSED, "create it with --ip, or move it offline", "networks"),
    "a published port that Docker draws at each start": Row(REFUSED, "publish it on a port of your choice, or move it offline", "drawn_ports"),
    "settings of its network namespace, routes, rules, tables of nftables": Row(CARRIED, "by the session, before the release, and compared"),
    "the processors that a thread is bound to": Row(
        CARRIED, "by the session, which looks that they hold before the release; told where the destination lacks one of them", "affinity"
    ),
    "the MTU of its interfaces": Row(CARRIED, "by the session; a network that does not carry packets of that size is refused", "mtu"),
    "a unit of systemd that starts it, on either host": Row(REFUSED, "have a restart policy start it", "systemd_unit"),
    "a unit that has compose start its project": Row(REFUSED, "disable it, and enable one on the destination afterwards", "project_units"),
    "another container in its network, process or IPC namespace, or with its volumes": Row(REFUSED, "create that without it", "required_by"),
    "Docker's own rules in it, which lead to its answers for names": Row(ANEW, "Docker makes them again for the twin"),
    "interfaces, neighbours, rules of iptables and so on that the container has made": Row(REFUSED, "have Docker make them", "own_network"),
    "a tmpfs with 4 MiB or more in it": Row(CARRIED, "as a plain volume, and into the mount that CRIU makes on the destination"),
    "a tmpfs with less, or with a mount in it": Row(TOLD, "CRIU packs the files in the pause", "tmpfs"),
    "/dev/shm": Row(CARRIED, _LIVE),
    "a database of SQLite's that is open": Row(REFUSED, "its inode is another there: move it offline", "databases"),
    "a /dev/shm that others share (--ipc shareable)": Row(REFUSED, "create it with --ipc private", "shared_memory"),
    "cgroups that it has made below its own": Row(REFUSED, "move it offline", "cgroups"),
    "its own cgroup": Row(ANEW, "the runtime makes the twin's, and CRIU leaves the processes in it"),
    "a terminal, an open standard input": Row(CARRIED, _LIVE + "; `docker attach` reaches it on the destination"),
    "input from outside that is not read yet": Row(REFUSED, "have it read", "unread_input"),
    "the program of --init": Row(REFUSED, "create it without, or move it offline", "init"),
    "user namespaces (userns-remap)": Row(REFUSED, "move it offline", "user_namespace"),
    "what a health check has found": Row(ANEW, "the checks begin again when it runs there"),
}

_ABOUT = """\
# The fate of a container's state under Docker

Made from the rows of `plugins/module_utils/_docker/inventory.py`; [container-inventory.md](container-inventory.md) explains the five fates. A key of
`docker inspect` that holds a value and has no row is refused as `inventory:KEY`. [docker.md](docker.md) says how such a container moves.

## State of a container that runs, in a live move

| state | becomes | how, or the cure | check |
|---|---|---|---|
"""

_KEYS = """

## Keys of docker inspect

| key of `docker inspect` | becomes | how, or the cure | check |
|---|---|---|---|
"""


def page() -> str:
    """The page of the documentation."""
    return _ABOUT + inventory.lines(STATE) + _KEYS + inventory.lines({"`{0}`".format(key): row for key, row in INSPECT.items()}) + "\n"
