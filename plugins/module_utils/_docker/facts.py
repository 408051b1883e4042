# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Docker's facts about a container, in the words of this collection: pure functions of the API's documents."""

from __future__ import annotations

import posixpath
import typing as t

from .inventory import COMPARED, INSPECT
from .network_twin import definition

Document = t.Mapping[str, t.Any]

# So many digits of an ID are printed by `docker ps`.
SHORT_ID = 12
# containerd's folder of bundles for Docker's containers: the OCI hook knows a container by its bundle.
BUNDLES = "/run/containerd/io.containerd.runtime.v2.task/moby"
# Docker's folder of state while it runs.
EXEC_ROOT = "/run/docker"
# CRIU's images of a session, in the container's own folder, and the checkpoint for which Docker looks there: it has to be, and is empty.
IMAGES = "handover"
# Those of a restore are elsewhere: a restore that is begun again, since the layer has changed, fails to Docker first, which then unmounts everything
# below the container's own folder.
ARRIVING = "/run/handover/images"
CHECKPOINT = "handover"
# Docker's networks that are none, and the host's own.
NO_NETWORKS = ("none", "host")
# Drivers that put a container on the segment of its host, so that an address can move with it.
SHARED_DRIVERS = ("macvlan", "ipvlan")


# Of a bridge that was made without an option.
DEFAULT_MTU = 1500
# Options by which a container is in a namespace of another, and their keys in HostConfig.
_JOINING = (("--network container:", "NetworkMode"), ("--pid container:", "PidMode"), ("--ipc container:", "IpcMode"))


def name_of(listed: Document) -> str:
    """The name of a listed container."""
    return next((name.lstrip("/") for name in listed.get("Names") or [] if name.count("/") == 1), "")


def resolve(containers: t.Sequence[Document], word: str) -> Document | None:
    """The container that an operator means by a name, or by an ID as Docker prints it, short or in full."""
    for container in containers:
        if name_of(container) == word or container["Id"] == word:
            return container
    begun = [container for container in containers if len(word) >= SHORT_ID and container["Id"].startswith(word)]
    return begun[0] if len(begun) == 1 else None


def networks_of(inspect: Document, networks: t.Iterable[Document]) -> list[dict[str, t.Any]]:
    """The networks that the container is on, with its addresses there."""
    known = {network["Name"]: network for network in networks}
    found = []
    for name, endpoint in sorted(((inspect.get("NetworkSettings") or {}).get("Networks") or {}).items()):
        if name in NO_NETWORKS:
            continue
        asked = endpoint.get("IPAMConfig") or {}
        driver = known.get(name, {}).get("Driver") or ""
        found.append(
            {
                "name": name,
                "driver": driver,
                "subnets": subnets_of(known.get(name, {})),
                "shared": driver in SHARED_DRIVERS,
                "ip": asked.get("IPv4Address") or "",
                "ip6": asked.get("IPv6Address") or "",
                "own_ip": endpoint.get("IPAddress") or "",
                "own_ip6": endpoint.get("GlobalIPv6Address") or "",
                "gateways": [endpoint[key] for key in ("Gateway", "IPv6Gateway") if endpoint.get(key)],
                "mac": endpoint.get("MacAddress") or "",
                "definition": definition(known[name]) if name in known else {},
            }
        )
    return found


def ports_of(inspect: Document, networks: t.Iterable[Document]) -> dict[str, t.Any]:
    """The ports that it publishes on its host, and those of them for which Docker draws the host's port at each start. A network that leads out of
    the host by itself publishes none."""
    if all(network["shared"] for network in networks):
        return {"ports": [], "drawn_ports": []}
    bound, drawn = [], []
    for key, binding in _bindings(inspect):
        number, _slash, protocol = key.partition("/")
        port, address = binding.get("HostPort") or "", binding.get("HostIp") or ""
        if port.strip("0").isdigit():
            bound.append({"container_port": int(number), "protocol": protocol or "tcp", "host_port": port, "host_ip": address})
        else:
            drawn.append(key)
    return {"ports": bound, "drawn_ports": sorted({*drawn, *_all_exposed(inspect)})}


def published_by(inspect: Document) -> list[str]:
    """The ports of a container that it was asked to publish."""
    return sorted({key for key, _binding in _bindings(inspect)}) + ["all of them"] * bool((inspect.get("HostConfig") or {}).get("PublishAllPorts"))


def published_on(inspect: Document) -> list[str]:
    """The addresses of the host on which it publishes ports; empty for all of them."""
    return sorted({binding.get("HostIp") or "" for _key, binding in _bindings(inspect)})


def _bindings(inspect: Document) -> t.Iterator[tuple[str, Document]]:
    for key, bindings in sorted(((inspect.get("HostConfig") or {}).get("PortBindings") or {}).items()):
        for binding in bindings or []:
            yield key, binding


def _all_exposed(inspect: Document) -> list[str]:
    """Ports that --publish-all publishes."""
    host = inspect.get("HostConfig") or {}
    exposed = (inspect.get("Config") or {}).get("ExposedPorts") or {}
    return [key for key in exposed if not (host.get("PortBindings") or {}).get(key)] if host.get("PublishAllPorts") else []


def with_network_named(inspect: Document, networks: t.Iterable[Document]) -> Document:
    """The inspect with its first network by name. docker compose asks for an external one by its ID, which is another on each host."""
    host = inspect.get("HostConfig") or {}
    mode = host.get("NetworkMode") or ""
    known = {network["Name"]: network["Id"] for network in networks}
    if mode in known or len(mode) < SHORT_ID:
        return inspect
    names = [name for name, identifier in known.items() if identifier.startswith(mode)]
    return {**inspect, "HostConfig": {**host, "NetworkMode": names[0]}} if len(names) == 1 else inspect


def subnets_of(network: Document) -> list[str]:
    """The subnets of a network."""
    return sorted(config["Subnet"] for config in (network.get("IPAM") or {}).get("Config") or [] if config.get("Subnet"))


def mtu_of(network: Document) -> int:
    """The MTU that Docker gives the interfaces of a bridge; 0 for a network of another kind, which has its parent's."""
    if network.get("Driver") != "bridge":
        return 0
    asked = str((network.get("Options") or {}).get("com.docker.network.driver.mtu") or "")
    return int(asked) if asked.isdigit() else DEFAULT_MTU


def mounts_of(inspect: Document) -> list[dict[str, t.Any]]:
    """Its volumes and binds, by destination."""
    return [
        {
            "type": mount.get("Type") or "",
            "name": mount.get("Name") or "",
            "source": mount.get("Source") or "",
            "destination": mount.get("Destination") or "",
            "driver": mount.get("Driver") or "",
            "read_only": not mount.get("RW", True),
            "propagation": mount.get("Propagation") or "",
        }
        for mount in sorted(inspect.get("Mounts") or [], key=lambda each: each.get("Destination") or "")
    ]


# The same thing in two forms: a daemon writes either.
_NORMAL: t.Mapping[str, t.Callable[[t.Any], t.Any]] = {
    "HostConfig.OomKillDisable": bool,
    "HostConfig.CapAdd": lambda value: sorted(value or []),
    "HostConfig.CapDrop": lambda value: sorted(value or []),
}


def essence(inspect: Document) -> dict[str, t.Any]:
    """All that has to be equal on both hosts for it to be the same container: the inventory's rows say what is compared."""
    found: dict[str, t.Any] = {}
    for key, row in INSPECT.items():
        if row.how == COMPARED:
            value: t.Any = inspect
            for part in key.split("."):
                value = (value or {}).get(part)
            # Nothing is written as null, as an empty text, list or map, or not at all.
            found[key] = _NORMAL.get(key, lambda each: each)(value) or None
    found["Mounts"] = [{**mount, "source": mount["source"] if mount["type"] == "bind" else ""} for mount in mounts_of(inspect)]
    found["Networks"] = sorted((inspect.get("NetworkSettings") or {}).get("Networks") or {})
    return found


def first_difference(source: Document, twin: Document) -> tuple[str, t.Any, t.Any] | None:
    """(key, on the source, here) of the first key in which two essences differ."""
    return next(((key, value, twin.get(key)) for key, value in source.items() if twin.get(key) != value), None)


def restart_policy(inspect: Document) -> str:
    """The restart policy as `docker update --restart` takes it."""
    policy = (inspect.get("HostConfig") or {}).get("RestartPolicy") or {}
    name, count = policy.get("Name") or "no", int(policy.get("MaximumRetryCount") or 0)
    return "{0}:{1}".format(name, count) if name == "on-failure" and count else name


def policy_of(text: str) -> dict[str, t.Any]:
    """The API's form of a restart policy that `docker update --restart` takes."""
    name, _colon, count = text.partition(":")
    return {"Name": name, "MaximumRetryCount": int(count or 0)}


def needed_by(inspect: Document, others: t.Iterable[Document]) -> list[str]:
    """Other containers that were made with something of this one, each with the option that says so."""
    identifier, name = inspect["Id"], inspect["Name"].lstrip("/")
    found = []
    for other in others:
        host = other.get("HostConfig") or {}
        for option, words in (
            *((option, [(host.get(key) or "").partition("container:")[2]]) for option, key in _JOINING),
            ("--volumes-from ", [word.partition(":")[0] for word in host.get("VolumesFrom") or []]),
            ("--link ", [word.partition(":")[0].lstrip("/") for word in host.get("Links") or []]),
        ):
            if other["Id"] != identifier and any(word and (word == name or identifier.startswith(word)) for word in words):
                found.append("{0} ({1}{2})".format(other["Name"].lstrip("/"), option, name))
    return sorted(found)


def facts_of(inspect: Document, networks: t.Iterable[Document]) -> dict[str, t.Any]:
    """The facts from a container's own inspect; those of its volumes and files are added by a caller on the host."""
    config, host, state = inspect.get("Config") or {}, inspect.get("HostConfig") or {}, inspect.get("State") or {}
    networks = networks_of(inspect, networks)
    return {
        "id": inspect["Id"],
        "name": inspect["Name"].lstrip("/"),
        "state": state.get("Status") or "",
        "running": bool(state.get("Running")) and not state.get("Paused") and not state.get("Restarting"),
        "pid": int(state.get("Pid") or 0),
        "exit_code": int(state.get("ExitCode") or 0),
        "image": {"id": inspect.get("Image") or "", "name": config.get("Image") or ""},
        "init": bool(host.get("Init")),
        "auto_remove": bool(host.get("AutoRemove")),
        "restart_policy": restart_policy(inspect),
        "runtime": host.get("Runtime") or "",
        "namespaces": {name: host.get(key) or "" for name, key in NAMESPACES},
        "labels": dict(config.get("Labels") or {}),
        "links": sorted([*(host.get("Links") or []), *(host.get("VolumesFrom") or [])]),
        "devices": [device.get("PathOnHost", "") for device in host.get("Devices") or []] + ["--gpus"] * bool(host.get("DeviceRequests")),
        **ports_of(inspect, networks),
        "storage_driver": (inspect.get("GraphDriver") or {}).get("Name") or "",
        "upper_dir": ((inspect.get("GraphDriver") or {}).get("Data") or {}).get("UpperDir") or "",
        **_places(inspect),
        "bundle": posixpath.join(BUNDLES, inspect["Id"]),
        "networks": networks,
        "mounts": mounts_of(inspect),
        "exec_sessions": len(inspect.get("ExecIDs") or []),
        "log": {"driver": (host.get("LogConfig") or {}).get("Type") or "", "path": inspect.get("LogPath") or ""},
    }


def _places(inspect: Document) -> dict[str, str]:
    """Where Docker and its runtime keep what a live move needs: the container's own folder and the images in it, runc's state, the network."""
    layer = ((inspect.get("GraphDriver") or {}).get("Data") or {}).get("UpperDir") or ""
    root = posixpath.dirname(posixpath.dirname(posixpath.dirname(layer)))
    own = posixpath.join(root, "containers", inspect["Id"])
    namespace = (inspect.get("NetworkSettings") or {}).get("SandboxKey") or ""
    state = posixpath.dirname(posixpath.dirname(namespace)) or EXEC_ROOT
    return {
        "own_dir": own,
        "images_dir": posixpath.join(own, IMAGES),
        "arriving_dir": posixpath.join(ARRIVING, inspect["Id"]),
        "checkpoint_dir": posixpath.join(own, "checkpoints", CHECKPOINT),
        "runtime_root": posixpath.join(state, "runtime-runc", "moby"),
        "network_namespace": namespace,
    }


NAMESPACES = (("network", "NetworkMode"), ("process", "PidMode"), ("IPC", "IpcMode"), ("host name's", "UTSMode"), ("user", "UsernsMode"))
