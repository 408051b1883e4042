# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The containers of a Docker that need not run, from its own records. A question to its socket would start the daemon.

Under the data root, `containers/ID/config.v2.json` has a container's name and its mounts (moby, daemon/container: `Container.MountPoints`).
"""

from __future__ import annotations

import glob
import json
import os
import re
import typing as t

from .._core.host import read_text
from .._core.runtime import HandoverError, Runtime

SETTINGS = "/etc/docker/daemon.json"
DATA_ROOT = "/var/lib/docker"
SNAP_ROOT = "/var/snap/docker/common/var-lib-docker"
# Docker's record of its networks, under its data root.
NETWORKS = "network/files/local-kv.db"
_DRAWN = re.compile(r'"ipamV([46])Config":"\[\{\\"PreferredPool\\":\\"\\"')
UNIT = "docker.service"
# Under either name the daemon runs.
UNITS = (UNIT, "snap.docker.dockerd.service")


def containers(runtime: Runtime) -> list[dict[str, t.Any]]:
    """Name and mounts of each, as `docker inspect` words them. Records of a Docker that was removed start nothing."""
    roots = [*([data_root(runtime)] if runtime.find("dockerd") else []), SNAP_ROOT]
    return [_container(path) for root in roots for path in sorted(glob.glob(os.path.join(root, "containers", "*", "config.v2.json")))]


def data_root(runtime: Runtime) -> str:
    """The folder that the daemon's command line or its settings name; it does not start where both do."""
    started = runtime.run(["systemctl", "show", "--property=ExecStart", "--value", UNIT]).stdout
    named = re.search(r"\s(?:--data-root|-g)[= ](\S+)", started)
    if named:
        return named.group(1)
    root = _read(SETTINGS).get("data-root") if os.path.exists(SETTINGS) else None
    return root or DATA_ROOT


def _container(path: str) -> dict[str, t.Any]:
    record = _read(path)
    mounts = (record.get("MountPoints") or {}).values()
    return {"Name": (record.get("Name") or "").lstrip("/"), "Mounts": [{"Type": each.get("Type"), "Source": each.get("Source")} for each in mounts]}


def _read(path: str) -> dict[str, t.Any]:
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError) as exc:
        raise HandoverError(f"it is not known which paths Docker's containers mount, since {path} cannot be read ({exc}): mend it, or remove Docker") from exc
    if not isinstance(found, dict):
        raise HandoverError(f"it is not known which paths Docker's containers mount, since {path} holds no object: mend it, or remove Docker")
    return found


def drawn_subnets(root: str, identifiers: t.Mapping[str, str]) -> dict[str, list[str]]:
    """By name of a network, the versions of IP in which Docker has drawn its subnet, which the API does not tell. A record of another form says nothing.

    There are old pages in it, too; what was given to a network never changes.
    """
    text = read_text(os.path.join(root, NETWORKS))
    found = {}
    for name, identifier in identifiers.items():
        record = re.search(r'"id":"{0}"(.{{0,20000}}?)"name":"{1}"'.format(re.escape(identifier), re.escape(name)), text, re.DOTALL)
        drawn = _DRAWN.findall(record.group(1)) if record else []
        if drawn:
            found[name] = sorted(drawn)
    return found
