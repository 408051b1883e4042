# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The request that makes a container's twin: pure functions of the source's inspect."""

from __future__ import annotations

import copy
import posixpath
import typing as t

from .facts import NO_NETWORKS, SHORT_ID, Document

# The label by which Docker's own clients know a volume that was given no name.
ANONYMOUS = "com.docker.volume.anonymous"


def request(inspect: Document, image: str, drivers: t.Mapping[str, str], addresses: t.Mapping[str, t.Mapping[str, str]]) -> dict[str, t.Any]:
    """The body of POST /containers/create. `image` is the image's name or ID here, `drivers` those of the networks by name, `addresses` those that
    it keeps on them though none was asked for."""
    config = copy.deepcopy(dict(inspect.get("Config") or {}))
    config.pop("MacAddress", None)
    host = copy.deepcopy(dict(inspect.get("HostConfig") or {}))
    # Nothing starts it here by itself before the session does.
    host["RestartPolicy"] = {"Name": "no", "MaximumRetryCount": 0}
    host.pop("ContainerIDFile", None)
    _name_volumes(host, inspect.get("Mounts") or [])
    connected = ((inspect.get("NetworkSettings") or {}).get("Networks") or {}).items()
    endpoints = {name: _endpoint(each, inspect["Id"], drivers.get(name, "")) for name, each in connected if name not in NO_NETWORKS}
    for name, kept in addresses.items():
        endpoints[name]["IPAMConfig"] = {**endpoints[name].get("IPAMConfig", {}), **kept}
    return {**config, "Image": image, "HostConfig": host, "NetworkingConfig": {"EndpointsConfig": endpoints}}


def _endpoint(endpoint: Document, identifier: str, driver: str) -> dict[str, t.Any]:
    """The part of an endpoint that was asked for. A macvlan's hardware address goes along: the segment knows the container by it."""
    asked = {key: endpoint[key] for key in ("IPAMConfig", "DriverOpts", "GwPriority") if endpoint.get(key)}
    # Older daemons list the ID of the container among its names.
    aliases = [alias for alias in endpoint.get("Aliases") or [] if alias != identifier[:SHORT_ID]]
    if aliases:
        asked["Aliases"] = aliases
    if driver == "macvlan" and endpoint.get("MacAddress"):
        asked["MacAddress"] = endpoint["MacAddress"]
    return asked


def _name_volumes(host: dict[str, t.Any], mounts: t.Sequence[Document]) -> None:
    """Names the volumes for which Docker drew a name, or it would draw another one."""
    asked = {posixpath.normpath(mount.get("Target") or "/"): mount for mount in host.get("Mounts") or []}
    binds = list(host.get("Binds") or [])
    named = {posixpath.normpath(bind.split(":")[1]) for bind in binds if ":" in bind}
    for mount in mounts:
        place = posixpath.normpath(mount.get("Destination") or "/")
        if mount.get("Type") != "volume" or place in named:
            continue
        if place in asked:
            asked[place]["Source"] = mount["Name"]
        else:
            binds.append("{0}:{1}{2}".format(mount["Name"], place, "" if mount.get("RW", True) else ":ro"))
    host["Binds"] = binds or None
