# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A look at a host: its features and offers to a workload that is to leave it or to arrive."""

from __future__ import annotations

import os
import platform
import socket
import time
import typing as t

from .._core import floating_look, host, kernel_devices, loop
from .._core.parts import NETWORK, Parts
from .._core.pcopy import Pcopy
from .._core.runtime import Runtime
from .._core.sizes import parse_size
from . import container_facts, file_flags, processes, sysctls, workload
from .create_command import HIDDEN, Grammar
from .groups import project_of
from .network_twin import definition
from .podman import HELPER_DIRECTORIES, Podman, network_backend
from .sessions import Sessions

# runc hands this file to CRIU unless the container's annotations name another.
CRIU_CONFIGURATION = "/etc/criu/runc.conf"
CONFIGURATION_ANNOTATION = "org.criu.config"
PROBE_SECONDS = 20.0
# Where podman packs and unpacks archives of images.
TEMPORARY = "/var/tmp"

# Where podman looks for the program of a pod's infra container.
CATATONIT = (*HELPER_DIRECTORIES, "/usr/bin", "/usr/libexec/catatonit")

# Asks a question, and gives the second where there is no answer; the reason is kept.
Ask = t.Callable[[t.Callable[[], t.Any], t.Any], t.Any]
Documents = t.List[t.Dict[str, t.Any]]


class HostOffer:
    """The facts about this host."""

    def __init__(self, runtime: Runtime, podman: Podman, params: t.Mapping[str, t.Any], ask: Ask) -> None:
        self.runtime = runtime
        self.podman = podman
        self.params = params
        self.pcopy = Pcopy(runtime)
        self.has_podman = runtime.find("podman") is not None
        self._ask = ask

    def engine(self, containers: Documents, networks: Documents, images: Documents, volumes: Documents, grammars: t.Sequence[Grammar]) -> dict[str, t.Any]:
        """podman's part; its lists were asked for already."""
        info = self._ask(self.podman.info, {}) if self.has_podman else {}
        runtime = (info.get("host") or {}).get("ociRuntime") or {}
        store = info.get("store") or {}
        return {
            "installed": self.has_podman,
            "create_options": sorted({*grammars[2].options, *HIDDEN}) if grammars else [],
            "defaults": host.engine_defaults(),
            "version": host.parse_version((info.get("version") or {}).get("Version", "")),
            "path": self.runtime.find("podman") or "",
            "catatonit": any(os.access(os.path.join(folder, "catatonit"), os.X_OK) for folder in CATATONIT),
            "runtime": runtime.get("name", ""),
            "runtime_path": runtime.get("path", ""),
            "network": network_backend(info),
            # Of a container that it removes by itself, the book has to be written to before a dump.
            "sqlite": os.path.exists(os.path.join(store.get("graphRoot") or "", "db.sql")),
            "store": {
                "driver": store.get("graphDriverName", ""),
                **(host.place(store["graphRoot"]) if store.get("graphRoot") else {"path": "", "free": 0, "device": 0}),
                "flags_missing": self._ask(lambda: file_flags.missing(self.pcopy, store["graphRoot"]), []) if store.get("graphRoot") else [],
            },
            "containers": [
                {
                    "name": (each.get("Names") or [""])[0],
                    "id": each["Id"],
                    "state": each.get("State", ""),
                    "pod": each.get("PodName", ""),
                    "project": project_of(each),
                    "published_on": sorted({port.get("host_ip") or "" for port in each.get("Ports") or []}),
                }
                for each in containers
            ],
            "remains": self._ask(lambda: self._remains(containers), []) if self.has_podman else [],
            "networks": [
                {
                    "name": each["name"],
                    "driver": each.get("driver", ""),
                    "subnets": [subnet["subnet"] for subnet in each.get("subnets") or []],
                    "shared": workload.is_shared(each),
                    "parent": each.get("network_interface") or "",
                    "mtu": int((each.get("options") or {}).get("mtu") or 0),
                    "taken": _taken(each),
                    "definition": definition(each),
                    "claimed": Parts().claimed(NETWORK, each["name"]),
                }
                for each in networks
            ],
            "images": [{"id": image["Id"], "names": image.get("Names") or []} for image in images],
            "secrets": self._ask(self.podman.secrets, []) if self.has_podman else [],
            "volumes": {volume["Name"]: volume.get("Options") or {} for volume in volumes},
        }

    def _remains(self, containers: Documents) -> list[str]:
        """Names that podman gives to no container, since its storage still has one of that name."""
        return [name for each in self.podman.remains(containers) for name in each.get("Names") or []]

    def host(self) -> dict[str, t.Any]:
        """The facts that are no engine's."""
        return {
            "name": platform.node(),
            "arch": platform.machine(),
            "kernel": platform.release(),
            "clock": time.time(),
            "seccomp_filter": host.has_seccomp_filter(),
            "cpu_features": host.cpu_features(),
            "memory_available": host.memory_available(),
            "huge_pages": container_facts.free_huge_pages(),
            "network_settings": sysctls.known(),
            "nft": bool(self.runtime.find("nft")),
            "kernel_devices": kernel_devices.present(),
            "processors": host.online_processors(),
            "systemd": self._first_version(["systemctl", "--version"]),
            "addresses": self._ask(self._addresses, []),
            "configured_addresses": floating_look.configured(),
            "binds_anywhere": floating_look.binds_anywhere(),
            "takes_over": floating_look.takes_over(),
            "interfaces": [name for _index, name in socket.if_nameindex()],
            "mtus": host.mtus(),
            "gateway_interface": host.gateway_interface(),
            "listening": host.listening_ports(),
            "images": {**host.place(self.params["images"]), "present": _files(self.params["images"])},
            "sessions": host.place(self.params["sessions"]),
            "temporary": host.place(TEMPORARY),
            "loops": loop.taken(),
            "mountpoints": sorted({mount.mountpoint for mount in loop.read_mounts()}),
            "criu": self._criu(),
            "pcopy": self._pcopy(),
        }

    def _addresses(self) -> list[dict[str, t.Any]]:
        addresses = host.parse_addresses(self.runtime.run_json([self.runtime.tool("ip", "iproute2"), "-json", "address"]) or [])
        return [{**address, "speed": host.link_speed(address["interface"])} for address in addresses]

    def _first_version(self, argv: list[str]) -> list[int]:
        path = self.runtime.find(argv[0])
        if path is None:
            return []
        completed = self._ask(lambda: self.runtime.run([path, *argv[1:]], timeout=PROBE_SECONDS), None)
        return host.parse_version(completed.stdout) if completed else []

    def _criu(self) -> dict[str, t.Any]:
        options = host.parse_criu_configuration(host.read_text(CRIU_CONFIGURATION))
        found: dict[str, t.Any] = {
            "version": self._first_version(["criu", "--version"]),
            "check": False,
            "said": "",
            "action_script": options.get("action-script", ""),
            "action_script_works": os.access(options.get("action-script", ""), os.X_OK),
            "tcp_established": "tcp-established" in options,
            "manage_cgroups": options.get("manage-cgroups", ""),
            "ghost_limit": ghost_limit(options),
            "lazy_pages": False,
            "network_lock": {"method": options.get("network-lock", "iptables"), "works": False, "named": "network-lock" in options},
        }
        path = self.runtime.find("criu")
        if path is not None:
            found["lazy_pages"] = self._has_feature(path, "uffd-noncoop")
            found["network_lock"]["works"] = self._network_lock(path, found["network_lock"]["method"])
            checked = self._ask(lambda: self.runtime.run([path, "check"], accept=range(256), timeout=PROBE_SECONDS), None)
            if checked is not None:
                found.update(check=checked.rc == 0, said=checked.last_words)
        return found

    def _network_lock(self, criu: str, method: str) -> bool:
        """Whether CRIU can lock a network in the way that it is configured for."""
        if method == "nftables":
            return self._has_feature(criu, "network_lock_nftables")
        return method == "iptables" and all(self.runtime.find(tool) for tool in ("iptables-restore", "ip6tables-restore"))

    def _has_feature(self, criu: str, name: str) -> bool:
        """Whether CRIU finds the kernel's support for a feature."""
        asked = self._ask(lambda: self.runtime.run([criu, "check", "--feature", name], accept=range(256), timeout=PROBE_SECONDS), None)
        return asked is not None and asked.rc == 0

    def _pcopy(self) -> dict[str, t.Any]:
        installed = os.access(self.pcopy.path, os.X_OK)
        found: dict[str, t.Any] = {"installed": installed, "version": "", "protocol": 0, "findings": [], "sessions": self.sessions()}
        if found["installed"]:
            version = self._ask(self.pcopy.version, {})
            found.update(version=version.get("version", ""), protocol=version.get("protocol", 0), can=version.get("can", []), needs=version.get("needs", {}))
            # Nothing was said by those before the first release.
            found["interface"] = version.get("interface", 0)
            probed = self._ask(lambda: self.pcopy.call("probe", "--recall", timeout=PROBE_SECONDS), {})
            found.update(findings=probed.get("findings", []), silence=probed.get("silence"), flows=probed.get("flows"))
        return found

    def sessions(self) -> list[dict[str, t.Any]]:
        """The facts about the sessions on this host that an operator needs, and no more."""
        if not os.access(self.pcopy.path, os.X_OK):
            return []
        statuses = self._ask(lambda: Sessions(self.pcopy, self.params["sessions"]).statuses(), [])
        keys = ("id", "role", "workload", "state", "ended", "running", "error", "restarted")
        plans = [status.get("plan") or {} for status in statuses]
        return [
            {
                **{key: status.get(key) for key in keys},
                "by": plan.get("by"),
                "destination": plan.get("destination"),
                "members": plan.get("members") or [],
            }
            for status, plan in zip(statuses, plans)
        ]


def _taken(network: t.Mapping[str, t.Any]) -> list[dict[str, str]]:
    """Addresses that containers have on this network."""
    return [
        {"address": subnet["ipnet"].partition("/")[0], "container": container.get("name", "")}
        for container in (network.get("containers") or {}).values()
        for interface in (container.get("interfaces") or {}).values()
        for subnet in interface.get("subnets") or []
    ]


def ghost_limit(options: t.Mapping[str, str]) -> int:
    """How large a deleted file may be that CRIU copies, by its configuration."""
    try:
        return parse_size(options.get("ghost-limit", "")) or processes.GHOST_LIMIT
    except ValueError:
        return processes.GHOST_LIMIT


def _files(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []
