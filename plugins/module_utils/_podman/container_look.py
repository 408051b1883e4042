# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A look at a container beyond its inspect: asks the host's programs for the input of container_facts."""

from __future__ import annotations

import json
import os
import typing as t

from .._core import units
from .._core.host import allocated, read_text
from .._core.pcopy import Pcopy
from .._core.runtime import HandoverError, Runtime
from . import container_facts as facts_of, file_flags, health_check as health, inventory, service, sysctls, task_facts
from .own_network import OwnNetwork
from .podman import Podman
from .workload import asked

# Drivers whose log is a file beside the container, which goes with it.
FILE_DRIVERS = ("k8s-file", "json-file")

Document = t.Mapping[str, t.Any]


class Look:
    """The facts about one container on this host."""

    def __init__(self, runtime: Runtime, podman: Podman, inspect: Document, facts: Document) -> None:
        self.runtime = runtime
        self.podman = podman
        self.inspect = inspect
        self.facts = facts
        self.config: Document = inspect.get("Config") or {}
        self.host: Document = inspect.get("HostConfig") or {}

    def still(self) -> dict[str, t.Any]:
        """The facts that hold whether it runs or not."""
        log = self.host.get("LogConfig") or {}
        return {
            "unaccounted": inventory.unaccounted(self.inspect),
            "secrets": secrets_of(self.config),
            "sysctls": sysctls.named(self.config.get("CreateCommand") or []),
            "health_check": self._health_check(),
            "init": bool(self.host.get("Init")),
            "userns": _userns(self.host),
            "storage_driver": (self.inspect.get("GraphDriver") or {}).get("Name") or "",
            "log": {
                "driver": log.get("Type") or "",
                "path": log.get("Path") or "",
                "folder": log_folder(log, self.inspect.get("StaticDir") or ""),
                "size": allocated(log["Path"]) if log.get("Type") in FILE_DRIVERS and log.get("Path") else 0,
            },
            "service": self._service(),
            "project_units": units.project_units(self.runtime, self.config.get("Labels") or {}),
            "auto_update": bool((self.config.get("Labels") or {}).get("io.containers.autoupdate")),
        }

    def running(self, pids: t.Sequence[int]) -> dict[str, t.Any]:
        """The facts that only its processes can have."""
        pid = self.facts["pid"]
        mounts = facts_of.mounts_of(pid)
        tmpfs = facts_of.own_tmpfs(mounts, pid)
        return {
            "own_mounts": ["{0} ({1})".format(mount.place, mount.fstype) for mount in facts_of.own_mounts(mounts, self._configured())],
            "tmpfs": tmpfs,
            "layer_watches": facts_of.layer_watches(pids, mounts),
            "entered": facts_of.entered(pid, pids),
            "conmon_gone": facts_of.conmon_gone(self.inspect),
            "huge_pages": facts_of.huge_pages(pids),
            # That of a pod's members is the pod's, and told of that.
            "multicast": [] if self.facts["network_mode"].startswith("container:") else task_facts.multicast_groups(pid),
            "pinned": task_facts.pinned(pids),
            **self._own_network(pid),
        }

    def _health_check(self) -> dict[str, t.Any]:
        """What its checks have found, and whether those of the start-up are over; empty where podman checks nothing by itself."""
        if not health.interval(self.inspect, startup=False):
            return {}
        startup = bool(self.config.get("StartupHealthCheck"))
        return {
            "results": health.results(self.inspect),
            "startup_passed": startup and bool(self.facts["running"]) and health.HealthTimer(self.runtime, self.facts["id"]).startup_passed(self.podman),
        }

    def _service(self) -> dict[str, t.Any]:
        """The unit that starts and stops it; empty where there is none."""
        label = self.facts["systemd_unit"]
        # podman-compose writes the name of a unit that it may never have made.
        label = label if label and units.unit_exists(label) else ""
        acting = units.acting(self.runtime, units.units_of("podman", self.facts["name"], self.facts["id"]))
        return service.facts(self.runtime, service.units_there(label, acting), self.inspect, bool(self.facts["running"]))

    def _configured(self) -> set[str]:
        try:
            return facts_of.configured_places(json.loads(read_text(self.inspect.get("OCIConfigPath") or "") or "{}"))
        except ValueError as exc:
            raise HandoverError("the OCI configuration {0} is no JSON: {1}".format(self.inspect.get("OCIConfigPath"), exc)) from exc

    def _own_network(self, pid: int) -> dict[str, t.Any]:
        if self.facts["network_mode"].startswith(("host", "container:", "ns:")):
            return {"own_network": [], "own_tables": [], "mtus": {}}
        own = OwnNetwork(self.runtime, pid)
        tables = own.tables()[0] if self.runtime.find("nft") else self._tables_without_nft(pid)
        interfaces = {network["interface"] for network in self.facts["networks"]}
        # podman did not tell the names where a held container keeps it from that.
        left = own.left_behind(() if "" in interfaces else interfaces | {"lo"})
        return {"own_network": left, "own_tables": tables, "mtus": own.mtus()}

    def _tables_without_nft(self, pid: int) -> list[str]:
        """Those that the kernel names to the helper."""
        return list(file_flags.ask(Pcopy(self.runtime), "own-tables", "/proc/{0}/ns/net".format(pid)).get("tables", []))


def secrets_of(config: Document) -> list[str]:
    """Names of its secrets: podman lists those that are files, and the command those that are variables, too."""
    named = {value.partition(",")[0] for value in asked(config.get("CreateCommand") or [], "secret")}
    return sorted(named | {secret["Name"] for secret in config.get("Secrets") or []})


def log_folder(log: Document, beside: str) -> str:
    """The folder that an option of the log's driver names; podman makes none, and conmon opens no file without it. Empty: podman's own."""
    path = log.get("Path") or ""
    if log.get("Type") not in FILE_DRIVERS or not path or beside and path.startswith(beside.rstrip("/") + "/"):
        return ""
    return os.path.dirname(path)


def _userns(host: Document) -> str:
    """How it has a user namespace of its own; empty if it has none."""
    mode = host.get("UsernsMode") or ""
    return mode if mode not in ("", "host") else "mapped" if host.get("IDMappings") else ""
