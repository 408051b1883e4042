# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The essence of a container: all that has to be equal on both hosts for it to be the same container.

Two podmans write the same thing in different words, and some fields are the host's own. Both stand in a table here: for
each such field the function that brings it to one form.
"""

from __future__ import annotations

import posixpath
import signal
import typing as t

from .create_command import Port
from .workload import command_of, environment_of, mounts_of, ports_of

Document = t.Mapping[str, t.Any]

# The fields of podman's inspect that define a container. Left out on purpose: values that podman computes from the host
# it runs on (default ulimits, log paths, cgroup paths), and values that exist only while the container runs.
_CONFIG = (
    "User", "WorkingDir", "Hostname", "Domainname", "Tty", "OpenStdin", "StopSignal", "StopTimeout", "Umask", "Timeout",
    "Healthcheck", "StartupHealthCheck", "HealthcheckOnFailureAction", "sdNotifyMode", "Secrets",
)  # fmt: skip
_HOST_CONFIG = (
    "NetworkMode", "IpcMode", "PidMode", "UTSMode", "UsernsMode", "CgroupMode", "Privileged", "ReadonlyRootfs", "ShmSize", "Memory",
    "MemoryReservation", "MemorySwap", "NanoCpus", "CpuShares", "CpuPeriod", "CpuQuota", "CpusetCpus", "CpusetMems", "PidsLimit", "OomScoreAdj",
    "BlkioWeight", "Tmpfs", "RestartPolicy", "AutoRemove", "CgroupParent", "Init",
)  # fmt: skip
# Not CapDrop: podman 4 counts it from another set of defaults. The capabilities themselves are compared.
_HOST_CONFIG_SETS = ("CapAdd", "SecurityOpt", "Dns", "DnsOptions", "DnsSearch", "ExtraHosts", "GroupAdd")
# podman writes these as its own bookkeeping and changes them from version to version.
_OWN_ANNOTATIONS = ("io.container.", "io.podman.", "io.kubernetes.", "org.opencontainers.image.", "org.systemd.", "org.criu.")


def essence(inspect: Document) -> dict[str, t.Any]:
    """The fields that have to be equal on both hosts, in the order in which a difference is worth reporting."""
    config, host = inspect.get("Config") or {}, inspect.get("HostConfig") or {}
    found: dict[str, t.Any] = {
        "Name": inspect.get("Name"),
        "Image": inspect.get("Image"),
        "Rootfs": inspect.get("Rootfs") or "",
        "OCIRuntime": posixpath.basename(inspect.get("OCIRuntime") or ""),
        "Command": command_of(inspect),
        "Config.Entrypoint": config.get("Entrypoint"),
        "Config.Cmd": config.get("Cmd"),
        "Config.Env": environment_of(inspect),
        "Config.Labels": dict(config.get("Labels") or {}),
        "Config.Annotations": {key: value for key, value in (config.get("Annotations") or {}).items() if not key.startswith(_OWN_ANNOTATIONS)},
        "Mounts": [
            # Where podman keeps a named volume is the host's own affair; where a bind comes from is not.
            # podman writes "exec", which is the default, for the volume of an image only.
            # A memory snapshot that was taken by an older version has no word about a place in a volume.
            {
                **{key: value for key, value in mount.items() if key != "subpath" or value},
                "source": "" if mount["type"] == "volume" else mount["source"],
                "options": [option for option in mount["options"] if option != "exec"],
            }
            for mount in mounts_of(inspect)
        ],
        # podman 5 lists the absence of a network, and the host's own, as if they were networks.
        "Networks": sorted(set((inspect.get("NetworkSettings") or {}).get("Networks") or {}) - {"host", "none"}),
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
    if host.get("Privileged"):
        # Only podman 5 explains this value.
        found["HostConfig.SecurityOpt"] = [option for option in found["HostConfig.SecurityOpt"] if option != "unmask=all"]
    return {field: _normal(field, value) for field, value in found.items()}


def of_twin(source: Document) -> dict[str, t.Any]:
    """The essence that the twin of a container has, from the facts about that."""
    wanted = dict(source["essence"])
    if (source.get("service") or {}).get("made_by_unit"):
        # The unit removes it by its own command. A restore that is begun again would be none if podman did so, too.
        wanted["HostConfig.AutoRemove"] = False
    return wanted


# The mounts that podman itself makes over a read-only root.
_READ_ONLY_TMPFS = ("/run", "/tmp", "/var/tmp")
_READ_ONLY_OPTIONS = "rw,rprivate,nosuid,nodev,tmpcopyup"


# Values that podmans write in different ways, or that differ from host to host and mean the same.


def signal_number(value: t.Any) -> t.Any:
    """podman 4 writes the number of a stop signal, podman 5 its name; SIGRTMIN+3 is known to both."""
    if not isinstance(value, str) or not value:
        return value or None
    if value.isdigit():
        return int(value)
    name, plus, further = value.upper().partition("+")
    name = name if name.startswith("SIG") else "SIG" + name
    if name == "SIGRTMIN":
        # As the C library counts, and with it runc and podman, also where this Python's own library leaves one out.
        return 34 + int(further if plus else "0")
    if name.startswith("SIGRTMAX"):
        return 64 - int(name.partition("-")[2] or "0")
    found = getattr(signal, name, None)
    return int(found) if found is not None else value


def words(value: t.Any) -> str:
    """podman 4 writes an entrypoint as a string, podman 5 as a list; where one word ends can be told of the second only."""
    return value if isinstance(value, str) else " ".join(value or [])


def named_secrets(value: t.Any) -> list[dict[str, t.Any]]:
    """The ID of a secret is drawn by each host for itself; its name and its view in the container are the request."""
    return sorted(({key: row for key, row in secret.items() if key != "ID"} for secret in value or []), key=lambda secret: str(sorted(secret.items())))


def environment(value: t.Any) -> list[str]:
    """Without podman's own: the ID of the container, which an init is told, and the terminal that only podman 4 names."""
    return sorted(word for word in value or [] if not word.startswith("container_uuid=") and word != "TERM=xterm")


def restart_policy(value: t.Any) -> t.Any:
    """podman 5 writes "no" where podman 4 writes nothing."""
    policy = dict(value or {})
    return {**policy, "Name": policy.get("Name") or "no"}


def own_ipc(value: t.Any) -> t.Any:
    """podman 4 calls every namespace shareable; whether another container may join it is nothing that this one notices."""
    return "shareable" if value == "private" else value


def asked_tmpfs(value: t.Any) -> t.Any:
    """podman 4 lists those of a read-only container among the ones that were asked for."""
    return {path: options for path, options in (value or {}).items() if path not in _READ_ONLY_TMPFS or options != _READ_ONLY_OPTIONS} or None


def filled(value: t.Any) -> t.Any:
    """Nothing is written as null, as an empty text or list, or not at all."""
    return value or None


# By field. A field that does not stand here is compared as it is written.
NORMAL: t.Mapping[str, t.Callable[[t.Any], t.Any]] = {
    "Config.Entrypoint": words,
    "Config.Cmd": lambda value: list(value or []),
    "Config.Env": environment,
    "Config.StopSignal": signal_number,
    "Config.Secrets": named_secrets,
    "Config.Healthcheck": filled,
    "Config.StartupHealthCheck": filled,
    # "none" is how podman 5 writes that there is no such action.
    "Config.HealthcheckOnFailureAction": lambda value: None if value in ("none", "") else value,
    "HostConfig.IpcMode": own_ipc,
    "HostConfig.RestartPolicy": restart_policy,
    "HostConfig.Tmpfs": asked_tmpfs,
    "HostConfig.UsernsMode": filled,
}


def _normal(field: str, value: t.Any) -> t.Any:
    return NORMAL[field](value) if field in NORMAL else value


def first_difference(source: Document, twin: Document) -> tuple[str, t.Any, t.Any] | None:
    """(field, on the source, here) of the first field in which two essences differ."""
    for key, value in source.items():
        found = twin.get(key)
        if key == "Config.Env" and found is not None:
            own = _names(value)
            found = [word for word in found if _names([word]) <= own or not _names([word]) <= ADDED_AT_FIRST_START]
        if found != value:
            return key, value, twin.get(key)
    return None


# Variables that podman gives a container when it is readied for the first time: one that never was does not have them.
ADDED_AT_FIRST_START = {"HOME", "HOSTNAME"}


def _names(environment: t.Iterable[str]) -> set[str]:
    return {word.partition("=")[0] for word in environment}
