# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fate of each piece of a container's state in a move: the inventory.

A row says that a piece is `carried` (by what), the `same` on both hosts (how that is proven), `made anew` (nothing of value is in it),
`told` (a sentence in the check and after the move) or `refused` (with the cure). Rows of the first kind are keys of podman's inspect;
a key that has no row and holds something is refused by name. Those of the second kind are the further state of a running container.
"""

from __future__ import annotations

import typing as t

from .._core import inventory
from .._core.inventory import ANEW, CARRIED, REFUSED, SAME, TOLD, Row, rows as _rows

__all__ = ("ANEW", "CARRIED", "INSPECT", "REFUSED", "SAME", "TOLD", "Row", "refusal", "row_of", "unaccounted")

# How the rows say it that many of them share.
ESSENCE = "compared with the twin's"
CREATED = "by the command that created the container, which makes the twin"
OF_THE_HOST = "the engine's own affair on each host"
OF_THE_TWIN = "the twin has its own"
UNUSED = "podman keeps it for Docker's clients and never fills it"


# By key of `podman container inspect`. A row is about all that is below its key; [] is any element of a list, * any key of a map.
INSPECT: dict[str, Row] = {
    **_rows(SAME, ESSENCE, "Name", "Image", "OCIRuntime", "Path", "Args", "EffectiveCaps", "BoundingCaps"),
    **_rows(ANEW, OF_THE_TWIN, "Id", "Created", "lockNumber", "SizeRw", "SizeRootFs"),
    **_rows(ANEW, "a name for the image, which itself is compared", "ImageName", "ImageDigest"),
    **_rows(ANEW, "a file or folder of the engine's for this container, made again for the twin", "ResolvConfPath", "HostnamePath", "HostsPath",
            "StaticDir", "OCIConfigPath", "ConmonPidFile", "PidFile"),
    **_rows(SAME, "both hosts have the storage driver overlay", "Driver", "GraphDriver.Name", check="storage_driver"),
    **_rows(CARRIED, "the layer's files by a tree of the session, up to the freeze and in it", "GraphDriver.Data"),
    **_rows(CARRIED, "block by block, by the session, if it is an image volume as a whole; any other directory is refused", "Rootfs", check="create_command"),
    **_rows(ANEW, "a count of the engine's that begins again", "RestartCount"),
    **_rows(ANEW, "the confinement that the destination gives its containers", "MountLabel", "ProcessLabel", "AppArmorProfile"),
    **_rows(TOLD, "processes of podman exec end on the source", "ExecIDs", check="exec_sessions"),
    **_rows(SAME, "a member is made in the same pod, and its pod moves with all its members", "Pod", "IsInfra"),
    **_rows(REFUSED, "move it with the containers that it needs, as one", "Dependencies", check="required_by"),
    **_rows(ANEW, "a mark of podman kube's, whose containers are in pods", "IsService", "KubeExitCodePropagation"),
    **_rows(ANEW, UNUSED, "Namespace"),
    **_rows(CARRIED, CREATED, "UseImageHosts", "UseImageHostname"),
    # State
    **_rows(ANEW, OF_THE_TWIN, "State.OciVersion", "State.Pid", "State.ConmonPid", "State.CgroupPath"),
    **_rows(CARRIED, "one that runs goes on running, one that is stopped stays so", "State.Status", "State.Running", "State.Dead", "State.Restarting"),
    **_rows(REFUSED, "unpause it", "State.Paused", check="running"),
    **_rows(CARRIED, "written for the twin where podman's database is SQLite", "State.StartedAt"),
    **_rows(TOLD, "one that does not run is called created on the destination", "State.ExitCode", "State.FinishedAt", check="stopped"),
    **_rows(ANEW, "times and results of the engine's own book", "State.OOMKilled", "State.Error",
            "State.CheckpointedAt", "State.RestoredAt", "State.StoppedByUser"),
    **_rows(ANEW, "a dump of its own that podman made before, of which nothing depends", "State.Checkpointed", "State.CheckpointLog",
            "State.CheckpointPath", "State.Restored", "State.RestoreLog"),
    **_rows(CARRIED, "the checks go on with it when the timer is made again; offline they begin as after a start", "State.Health", "State.Healthcheck"),
    # Mounts
    **_rows(SAME, ESSENCE, "Mounts[].Type", "Mounts[].Name", "Mounts[].Source", "Mounts[].Destination", "Mounts[].Options", "Mounts[].RW",
            "Mounts[].Propagation"),
    **_rows(CARRIED, CREATED, "Mounts[].Mode"),
    **_rows(CARRIED, "by the command that makes the twin; a restore finds it by its place in the volume", "Mounts[].SubPath", check="subpaths"),
    **_rows(CARRIED, "the volume is made again with its driver, options and labels", "Mounts[].Driver"),
    # Network
    **_rows(CARRIED, "pinned in the command that makes the twin", "NetworkSettings.Networks.*.IPAddress", "NetworkSettings.Networks.*.GlobalIPv6Address",
            "NetworkSettings.Networks.*.MacAddress"),
    **_rows(CARRIED, CREATED, "NetworkSettings.Networks.*.Aliases", "NetworkSettings.Networks.*.IPAMConfig", "NetworkSettings.Networks.*.DriverOpts",
            "NetworkSettings.Networks.*.Links"),
    **_rows(SAME, "the network has the same subnets on both hosts", "NetworkSettings.Networks.*.Gateway", "NetworkSettings.Networks.*.IPv6Gateway",
            "NetworkSettings.Networks.*.IPPrefixLen", "NetworkSettings.Networks.*.GlobalIPv6PrefixLen", "NetworkSettings.Networks.*.AdditionalMacAddresses",
            check="networks"),
    **_rows(ANEW, OF_THE_HOST, "NetworkSettings.Networks.*.NetworkID", "NetworkSettings.Networks.*.EndpointID"),
    **_rows(CARRIED, "the same again for the first network", "NetworkSettings.IPAddress", "NetworkSettings.MacAddress", "NetworkSettings.GlobalIPv6Address",
            "NetworkSettings.IPPrefixLen", "NetworkSettings.GlobalIPv6PrefixLen", "NetworkSettings.Gateway", "NetworkSettings.IPv6Gateway",
            "NetworkSettings.EndpointID"),
    **_rows(SAME, ESSENCE, "NetworkSettings.Ports"),
    **_rows(ANEW, OF_THE_TWIN, "NetworkSettings.SandboxID", "NetworkSettings.SandboxKey"),
    **_rows(ANEW, UNUSED, "NetworkSettings.Bridge", "NetworkSettings.HairpinMode", "NetworkSettings.LinkLocalIPv6Address",
            "NetworkSettings.LinkLocalIPv6PrefixLen", "NetworkSettings.SecondaryIPAddresses", "NetworkSettings.SecondaryIPv6Addresses",
            "NetworkSettings.AdditionalMACAddresses"),
    # Config
    **_rows(SAME, ESSENCE, "Config.User", "Config.WorkingDir", "Config.Hostname", "Config.Domainname", "Config.Tty", "Config.OpenStdin", "Config.StopSignal",
            "Config.StopTimeout", "Config.Umask", "Config.Timeout", "Config.Healthcheck", "Config.StartupHealthCheck", "Config.HealthcheckOnFailureAction",
            "Config.sdNotifyMode", "Config.Entrypoint", "Config.Cmd", "Config.Env", "Config.Labels", "Config.Annotations"),
    **_rows(SAME, ESSENCE, "Config.Secrets", check="secrets"),
    **_rows(CARRIED, CREATED, "Config.Passwd", "Config.Timezone", "Config.ChrootDirs", "Config.SystemdMode", "Config.ExposedPorts",
            "Config.HealthLogDestination", "Config.HealthcheckMaxLogCount", "Config.HealthcheckMaxLogSize", "Config.CreateCommand", "Config.Volumes",
            "Config.StdinOnce"),
    **_rows(ANEW, OF_THE_HOST, "Config.sdNotifySocket"),
    **_rows(ANEW, "a name for the image, which itself is compared", "Config.Image"),
    **_rows(ANEW, UNUSED, "Config.OnBuild", "Config.AttachStdin", "Config.AttachStdout", "Config.AttachStderr"),
    # HostConfig
    **_rows(SAME, ESSENCE, "HostConfig.NetworkMode", "HostConfig.IpcMode", "HostConfig.PidMode", "HostConfig.UTSMode", "HostConfig.CgroupMode",
            "HostConfig.Privileged", "HostConfig.ReadonlyRootfs", "HostConfig.ShmSize", "HostConfig.Memory", "HostConfig.MemoryReservation",
            "HostConfig.MemorySwap", "HostConfig.NanoCpus", "HostConfig.CpuShares", "HostConfig.CpuPeriod", "HostConfig.CpuQuota", "HostConfig.CpusetCpus",
            "HostConfig.CpusetMems", "HostConfig.PidsLimit", "HostConfig.OomScoreAdj", "HostConfig.BlkioWeight", "HostConfig.Tmpfs",
            "HostConfig.RestartPolicy", "HostConfig.CgroupParent", "HostConfig.CapAdd", "HostConfig.SecurityOpt", "HostConfig.Dns", "HostConfig.DnsOptions",
            "HostConfig.DnsSearch", "HostConfig.ExtraHosts", "HostConfig.GroupAdd", "HostConfig.PortBindings"),
    **_rows(SAME, "the capabilities themselves are compared", "HostConfig.CapDrop"),
    **_rows(REFUSED, "create it without --init, or move it offline", "HostConfig.Init", check="init"),
    **_rows(REFUSED, "create it again without --rm; one that its unit makes with it moves", "HostConfig.AutoRemove", "HostConfig.AutoRemoveImage", check="rm"),
    **_rows(SAME, "the destination has /dev/net/tun and /dev/fuse, too; for any other, create it without --device", "HostConfig.Devices", check="devices"),
    **_rows(REFUSED, "create it without a user namespace", "HostConfig.UsernsMode", "HostConfig.IDMappings", check="user_namespace"),
    **_rows(REFUSED, "create it without another container", "HostConfig.VolumesFrom", "HostConfig.Links", check="create_command"),
    **_rows(SAME, "the mounts are compared", "HostConfig.Binds"),
    **_rows(TOLD, "the log up to now stays on the source; its driver and limits are those of the command that created the container", "HostConfig.LogConfig",
            check="log"),
    **_rows(SAME, "the annotations of the container are compared", "HostConfig.Annotations"),
    **_rows(CARRIED, "by the command that created the container; the host's defaults are the destination's, and live each process keeps its own",
            "HostConfig.Ulimits"),
    **_rows(CARRIED, CREATED, "HostConfig.PublishAllPorts", "HostConfig.Cgroups", "HostConfig.CgroupConf", "HostConfig.OomKillDisable",
            "HostConfig.MemorySwappiness", "HostConfig.KernelMemory", "HostConfig.CpuRealtimePeriod", "HostConfig.CpuRealtimeRuntime",
            "HostConfig.BlkioWeightDevice", "HostConfig.BlkioDeviceReadBps", "HostConfig.BlkioDeviceReadIOps", "HostConfig.BlkioDeviceWriteBps",
            "HostConfig.BlkioDeviceWriteIOps", "HostConfig.IntelRdtClosID", "HostConfig.HostsFile"),
    **_rows(ANEW, OF_THE_HOST, "HostConfig.CgroupManager", "HostConfig.ContainerIDFile", "HostConfig.Cgroup"),
    **_rows(ANEW, "Docker's word for the runtime; the runtime itself is compared", "HostConfig.Runtime"),
    **_rows(ANEW, UNUSED, "HostConfig.ConsoleSize", "HostConfig.Isolation", "HostConfig.VolumeDriver", "HostConfig.DiskQuota", "HostConfig.CpuCount",
            "HostConfig.CpuPercent", "HostConfig.IOMaximumIOps", "HostConfig.IOMaximumBandwidth"),
}  # fmt: skip


def row_of(key: str) -> Row | None:
    """The row about a key of podman's inspect, if there is one."""
    return inventory.row_of(INSPECT, key)


def unaccounted(inspect: t.Any) -> list[str]:
    """The keys that hold something and that no row is about."""
    return inventory.unaccounted(INSPECT, inspect)


def refusal(workload: str, source: str, key: str, name: str) -> str:
    """Why a key without a row is in the way."""
    return (
        "{0} has something that podman on {1} calls {2}, and it is not known whether a move keeps it: "
        "see with `podman container inspect {0}`, and list '{3}' in handover_ignore_checks if it does not matter".format(workload, source, key, name)
    )
