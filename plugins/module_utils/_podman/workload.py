# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""podman's facts about a container, in the words of this collection.

Pure functions from podman's JSON documents to the facts that preflight, the driver table and the twin are made from.
"""

from __future__ import annotations

import posixpath
import typing as t

from .create_command import Attachment, Identity, Port
from .network_twin import definition
from .settings import settings_of

Document = t.Mapping[str, t.Any]

# How podman 5 shows the value of a secret.
MASKED = "*******"


def missing_volumes(mounts: t.Iterable[Document], defined: t.Container[str]) -> dict[str, Document]:
    """podman's volumes that a twin needs and that are not there, by name, each with its driver, options and labels."""
    return {mount["name"]: mount["volume"] for mount in mounts if mount["type"] == "volume" and mount["volume"] and mount["name"] not in defined}


def find(containers: t.Iterable[Document], name: str) -> Document | None:
    """The container of this name or ID in the answer of `podman ps --all --format json`."""
    for container in containers:
        if name in (container.get("Names") or []) or container.get("Id") == name:
            return container
    return None


# So many digits of an ID are printed by `podman ps`.
SHORT_ID = 12


def resolve(containers: t.Iterable[Document], word: str) -> Document | None:
    """The container that an operator means by a name, or by an ID as podman prints it, short or in full.

    A shorter piece of an ID is not taken: it could as well be the name of a container on another host.
    """
    listed = list(containers)
    found = find(listed, word)
    if found is None and len(word) >= SHORT_ID:
        begun = [container for container in listed if container.get("Id", "").startswith(word)]
        found = begun[0] if len(begun) == 1 else None
    return found


def name_of(listed: Document, word: str) -> str:
    """The name of a container that was found by `word`: podman gives the first, and more than one only to those in a pod of its own."""
    names = listed.get("Names") or []
    return word if word in names or not names else names[0]


def command_of(inspect: Document) -> list[str]:
    """The program and its arguments."""
    return [inspect.get("Path") or "", *(inspect.get("Args") or [])]


def is_shared(network: Document) -> bool:
    """Whether a network leads out of its host at the level of hardware addresses, so that an address can move with its container."""
    driver, mode = network.get("driver", ""), (network.get("options") or {}).get("mode", "")
    return driver in ("macvlan", "ipvlan") or (driver == "bridge" and mode == "unmanaged")


def networks_of(inspect: Document, networks: t.Iterable[Document]) -> list[dict[str, t.Any]]:
    """The networks that the container is on, with its addresses there; in the order of its interfaces."""
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
                "definition": definition(network) if network else {},
            }
        )
    return sorted(found, key=lambda each: (each["interface"], each["name"]))


def ports_of(inspect: Document) -> list[dict[str, t.Any]]:
    """The published ports; podman lists those of one port of the container's in any order."""
    found: list[dict[str, t.Any]] = []
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
    return sorted(found, key=lambda each: tuple(each.values()))


def mounts_of(inspect: Document) -> list[dict[str, t.Any]]:
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
            "subpath": mount.get("SubPath") or "",
        }
        for mount in sorted(inspect.get("Mounts") or [], key=lambda each: each.get("Destination") or "")
    ]


def asked(command: t.Sequence[str], option: str) -> list[str]:
    """The values of a long option in a create command; the workload's own arguments may add some that are none."""
    long = "--" + option
    pairs = zip(command, [*command[1:], ""])
    return [following if word == long else word[len(long) + 1 :] for word, following in pairs if word == long or word.startswith(long + "=")]


def environment_of(inspect: Document) -> list[str]:
    """Its variables without those that are secrets: podman 4 shows their values, podman 5 stars."""
    config = inspect.get("Config") or {}
    hidden = set()
    for value in asked(config.get("CreateCommand") or [], "secret"):
        name, _comma, options = value.partition(",")
        given = dict(option.partition("=")[::2] for option in options.split(","))
        if given.get("type") == "env":
            hidden.add(given.get("target") or name)
    return [word for word in config.get("Env") or [] if word.partition("=")[0] not in hidden and not word.endswith("=" + MASKED)]


def facts_of(inspect: Document, networks: t.Iterable[Document]) -> dict[str, t.Any]:
    """The facts from a container's own inspect; image volumes, memory and processes are added by a caller on the host."""
    config, host, state = inspect.get("Config") or {}, inspect.get("HostConfig") or {}, inspect.get("State") or {}
    static = inspect.get("StaticDir") or ""
    return {
        "id": inspect["Id"],
        "name": inspect["Name"],
        "state": state.get("Status") or "",
        "running": bool(state.get("Running")) and not state.get("Paused"),
        "pid": int(state.get("Pid") or 0),
        "started": state.get("StartedAt") or "",
        "exit_code": int(state.get("ExitCode") or 0),
        "image": {"id": inspect.get("Image") or "", "name": inspect.get("ImageName") or ""},
        "rootfs": inspect.get("Rootfs") or "",
        "create_command": list(config.get("CreateCommand") or []),
        "command": command_of(inspect),
        "auto_remove": bool(host.get("AutoRemove")),
        "privileged": bool(host.get("Privileged")),
        "runtime": posixpath.basename(inspect.get("OCIRuntime") or ""),
        "network_mode": host.get("NetworkMode") or "",
        "network_namespace": (inspect.get("NetworkSettings") or {}).get("SandboxKey") or "",
        "pid_mode": host.get("PidMode") or "",
        # podman 4 calls the host's own shareable, too.
        "ipc_mode": next(iter(asked(config.get("CreateCommand") or [], "ipc")), "") or host.get("IpcMode") or "",
        "uts_mode": host.get("UTSMode") or "",
        "hostname": config.get("Hostname") or "",
        "environment": environment_of(inspect),
        "labels": dict(config.get("Labels") or {}),
        "settings": settings_of(inspect),
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
    }


def identity_of(facts: Document, image: str) -> Identity:
    """The values that the twin's create command has to pin; `image` is the image's name on the other host."""
    joined = facts["network_mode"].startswith("container:")
    networks = []
    for network in facts["networks"]:
        addresses = tuple(address for address in (network["ip"], network["ip6"]) if address)
        networks.append(Attachment(network["name"], addresses, network["mac"], network["interface"]))
    return Identity(
        name=facts["name"],
        image=image,
        hostname=None if facts["uts_mode"] == "host" or facts["uts_mode"].startswith("container:") else facts["hostname"] or None,
        networks=tuple(networks),
        ports=() if joined else tuple(Port(**port) for port in facts["ports"]),
        environment=tuple(facts["environment"]),
        labels=tuple("{0}={1}".format(key, value) for key, value in sorted(facts["labels"].items())),
        settings=facts.get("settings") or {},
        volumes={mount["destination"]: mount["name"] for mount in facts["mounts"] if (mount.get("directory_volume") or {}).get("anonymous")},
        made_by_unit=bool((facts.get("service") or {}).get("made_by_unit")),
        pod=facts.get("pod_name") or "",
        joined=joined,
        requires_later=bool(facts.get("wave") or facts.get("requires_later")),
        others=facts.get("others") or {},
    )
