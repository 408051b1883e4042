# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What podman says of a container, in the words of this collection.

Pure functions from podman's JSON documents to facts. Two things are made here: the facts that preflight, the driver table
and the twin are made from, and the *essence* of a container, which has to be equal on both hosts.
"""

from __future__ import annotations

import posixpath
import typing as t

from ansible_collections.livefleet.handover.plugins.module_utils._create_command import (
    Attachment,
    Identity,
    Port,
)

Document = t.Mapping[str, t.Any]

# The fields of podman's inspect that make a container what it is. Left out on purpose: what podman computes from the host
# it runs on (default ulimits, log paths, cgroup paths), and what it has only while the container runs.
_CONFIG = (
    "User", "WorkingDir", "Hostname", "Domainname", "Tty", "OpenStdin", "StopSignal", "StopTimeout", "Umask", "Timeout",
    "Healthcheck", "StartupHealthCheck", "HealthcheckOnFailureAction", "sdNotifyMode", "Secrets",
)  # fmt: skip
_HOST_CONFIG = (
    "NetworkMode", "IpcMode", "PidMode", "UTSMode", "UsernsMode", "CgroupMode", "Privileged", "ReadonlyRootfs", "ShmSize", "Memory",
    "MemoryReservation", "MemorySwap", "NanoCpus", "CpuShares", "CpuPeriod", "CpuQuota", "CpusetCpus", "CpusetMems", "PidsLimit", "OomScoreAdj",
    "BlkioWeight", "Tmpfs", "RestartPolicy", "AutoRemove", "CgroupParent", "Init",
)  # fmt: skip
_HOST_CONFIG_SETS = ("CapAdd", "CapDrop", "SecurityOpt", "Dns", "DnsOptions", "DnsSearch", "ExtraHosts", "GroupAdd")
# podman writes these as its own bookkeeping and changes them from version to version.
_OWN_ANNOTATIONS = ("io.container.", "io.podman.", "io.kubernetes.", "org.opencontainers.image.", "org.systemd.", "org.criu.")


def missing_volumes(mounts: t.Iterable[Document], defined: t.Container[str]) -> t.Dict[str, Document]:
    """podman's volumes that a twin needs and that are not there, by name, each with its driver, options and labels."""
    return {mount["name"]: mount["volume"] for mount in mounts if mount["type"] == "volume" and mount["volume"] and mount["name"] not in defined}


def find(containers: t.Iterable[Document], name: str) -> t.Optional[Document]:
    """The container of this name or ID in the answer of `podman ps --all --format json`."""
    for container in containers:
        if name in (container.get("Names") or []) or container.get("Id") == name:
            return container
    return None


def command_of(inspect: Document) -> t.List[str]:
    """The program and its arguments."""
    return [inspect.get("Path") or "", *(inspect.get("Args") or [])]


def is_shared(network: Document) -> bool:
    """Whether a network leads out of its host at the level of hardware addresses, so that an address can move with its container."""
    driver, mode = network.get("driver", ""), (network.get("options") or {}).get("mode", "")
    return driver in ("macvlan", "ipvlan") or (driver == "bridge" and mode == "unmanaged")


def networks_of(inspect: Document, networks: t.Iterable[Document]) -> t.List[t.Dict[str, t.Any]]:
    """The networks that the container is on, with what it has there; in the order of its interfaces."""
    known = {network["name"]: network for network in networks}
    found = []
    for name, endpoint in ((inspect.get("NetworkSettings") or {}).get("Networks") or {}).items():
        # podman's words for being on none, or on the host's own: it lists them, and knows no such networks.
        if name in ("none", "host") and name not in known:
            continue
        network = known.get(name, {})
        interfaces = ((network.get("containers") or {}).get(inspect.get("Id", "")) or {}).get("interfaces") or {}
        found.append(
            {
                "name": name,
                "driver": network.get("driver", ""),
                "subnets": [subnet["subnet"] for subnet in network.get("subnets") or []],
                "shared": is_shared(network),
                "interface": next(iter(sorted(interfaces)), ""),
                "ip": endpoint.get("IPAddress") or "",
                "ip6": endpoint.get("GlobalIPv6Address") or "",
                "mac": endpoint.get("MacAddress") or "",
            }
        )
    return sorted(found, key=lambda each: (each["interface"], each["name"]))


def ports_of(inspect: Document) -> t.List[t.Dict[str, t.Any]]:
    """The published ports."""
    found = []
    for port, bindings in sorted(((inspect.get("HostConfig") or {}).get("PortBindings") or {}).items()):
        number, _slash, protocol = port.partition("/")
        for binding in bindings or []:
            found.append(
                {
                    "container_port": int(number),
                    "protocol": protocol or "tcp",
                    "host_port": str(binding.get("HostPort") or ""),
                    "host_ip": "" if binding.get("HostIp") in (None, "0.0.0.0") else binding["HostIp"],
                }
            )
    return found


def mounts_of(inspect: Document) -> t.List[t.Dict[str, t.Any]]:
    """Its volumes and binds, by destination; podman lists neither its own mounts nor those of --tmpfs here."""
    return [
        {
            "type": mount.get("Type") or "",
            "name": mount.get("Name") or "",
            "source": mount.get("Source") or "",
            "destination": mount.get("Destination") or "",
            "options": sorted(mount.get("Options") or []),
            "read_only": not mount.get("RW", True),
            "propagation": mount.get("Propagation") or "",
        }
        for mount in sorted(inspect.get("Mounts") or [], key=lambda each: each.get("Destination") or "")
    ]


def facts_of(inspect: Document, networks: t.Iterable[Document]) -> t.Dict[str, t.Any]:
    """What a container's own inspect tells; image volumes, memory and processes are added by who can see the host."""
    config, host, state = inspect.get("Config") or {}, inspect.get("HostConfig") or {}, inspect.get("State") or {}
    static = inspect.get("StaticDir") or ""
    return {
        "id": inspect["Id"],
        "name": inspect["Name"],
        "state": state.get("Status") or "",
        "running": bool(state.get("Running")) and not state.get("Paused"),
        "pid": int(state.get("Pid") or 0),
        "image": {"id": inspect.get("Image") or "", "name": inspect.get("ImageName") or ""},
        "create_command": list(config.get("CreateCommand") or []),
        "command": command_of(inspect),
        "auto_remove": bool(host.get("AutoRemove")),
        "privileged": bool(host.get("Privileged")),
        "runtime": posixpath.basename(inspect.get("OCIRuntime") or ""),
        "network_mode": host.get("NetworkMode") or "",
        "network_namespace": (inspect.get("NetworkSettings") or {}).get("SandboxKey") or "",
        "pid_mode": host.get("PidMode") or "",
        "ipc_mode": host.get("IpcMode") or "",
        "uts_mode": host.get("UTSMode") or "",
        "hostname": config.get("Hostname") or "",
        "environment": list(config.get("Env") or []),
        "pod": inspect.get("Pod") or "",
        "dependencies": list(inspect.get("Dependencies") or []),
        "systemd_unit": (config.get("Labels") or {}).get("PODMAN_SYSTEMD_UNIT", ""),
        "devices": [device.get("PathOnHost", "") for device in host.get("Devices") or []],
        "upper_dir": ((inspect.get("GraphDriver") or {}).get("Data") or {}).get("UpperDir") or "",
        "static_dir": static,
        "checkpoint_dir": posixpath.join(static, "checkpoint") if static else "",
        "shm_dir": posixpath.join(static, "shm") if static else "",
        "shm_size": int(host.get("ShmSize") or 0),
        "networks": networks_of(inspect, networks),
        "ports": ports_of(inspect),
        "mounts": mounts_of(inspect),
        "essence": essence(inspect),
    }


def essence(inspect: Document) -> t.Dict[str, t.Any]:
    """What has to be equal on both hosts, in the order in which a difference is worth telling."""
    config, host = inspect.get("Config") or {}, inspect.get("HostConfig") or {}
    found: t.Dict[str, t.Any] = {
        "Name": inspect.get("Name"),
        "Image": inspect.get("Image"),
        "OCIRuntime": posixpath.basename(inspect.get("OCIRuntime") or ""),
        "Command": command_of(inspect),
        "Config.Entrypoint": _words(config.get("Entrypoint")),
        "Config.Cmd": _words(config.get("Cmd")),
        "Config.Env": sorted(config.get("Env") or []),
        "Config.Labels": dict(config.get("Labels") or {}),
        "Config.Annotations": {key: value for key, value in (config.get("Annotations") or {}).items() if not key.startswith(_OWN_ANNOTATIONS)},
        "Mounts": [
            # Where podman keeps a named volume is the host's own affair; where a bind comes from is not.
            {**mount, "source": "" if mount["type"] == "volume" else mount["source"]}
            for mount in mounts_of(inspect)
        ],
        "Networks": sorted((inspect.get("NetworkSettings") or {}).get("Networks") or {}),
        "EffectiveCaps": sorted(inspect.get("EffectiveCaps") or []),
        "BoundingCaps": sorted(inspect.get("BoundingCaps") or []),
        "HostConfig.PortBindings": [str(Port(**port)) for port in ports_of(inspect)],
        "HostConfig.Devices": sorted(device.get("PathOnHost", "") for device in host.get("Devices") or []),
    }
    for key in _CONFIG:
        found["Config." + key] = config.get(key)
    for key in _HOST_CONFIG:
        found["HostConfig." + key] = host.get(key)
    for key in _HOST_CONFIG_SETS:
        found["HostConfig." + key] = sorted(host.get(key) or [])
    return found


def _words(value: t.Any) -> t.List[str]:
    """podman 4 writes an entrypoint as a string, podman 5 as a list."""
    if not value:
        return []
    return value.split(" ") if isinstance(value, str) else list(value)


def first_difference(source: Document, twin: Document) -> t.Optional[t.Tuple[str, t.Any, t.Any]]:
    """(field, on the source, here) of the first field in which two essences differ."""
    for key, value in source.items():
        found = twin.get(key)
        if key == "Config.Env" and found is not None:
            own = _names(value)
            found = [word for word in found if _names([word]) <= own or not _names([word]) <= _ADDED_AT_FIRST_START]
        if found != value:
            return key, value, twin.get(key)
    return None


# Variables that podman gives a container when it is readied for the first time: one that never was does not have them.
_ADDED_AT_FIRST_START = {"HOME", "HOSTNAME"}


def _names(environment: t.Iterable[str]) -> t.Set[str]:
    return {word.partition("=")[0] for word in environment}


def identity_of(facts: Document, image: str) -> Identity:
    """What the twin's create command has to pin; `image` is how the image is called on the other host."""
    networks = []
    for network in facts["networks"]:
        addresses = tuple(address for address in (network["ip"], network["ip6"]) if address)
        networks.append(Attachment(network["name"], addresses, network["mac"], network["interface"]))
    return Identity(
        name=facts["name"],
        image=image,
        hostname=None if facts["uts_mode"] == "host" else facts["hostname"] or None,
        networks=tuple(networks),
        ports=tuple(Port(**port) for port in facts["ports"]),
        environment=tuple(facts["environment"]),
    )
