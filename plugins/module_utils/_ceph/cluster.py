# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A Ceph cluster, asked through its own command on a host that has the administrator's key.

How the command is called depends on how the cluster was deployed. The table is in `_COMMANDS`; the first whose mark is on
the host is taken, unless the play names one.
"""

from __future__ import annotations

import glob
import json
import os
import typing as t
from dataclasses import dataclass

from .._core.runtime import Completed, HandoverError, Runtime

# Seconds that the command may look for a monitor.
CONNECT_SECONDS = 15
EBUSY = 16


@dataclass(frozen=True)
class _Command:
    """One way to call `ceph`."""

    deployment: str
    mark: str  # a pattern for a path that is there on such a host
    engine: tuple[str, ...]  # the first of these programs that the host has
    argv: tuple[str, ...]  # the words after it; {0} is the mark's last part after `mon.` or `mon-`


# The keyring is what makes a host an administrator's host; the package alone is on others too.
_COMMANDS = (
    _Command("packaged", "/etc/ceph/*.client.admin.keyring", ("ceph",), ()),
    _Command("ceph-ansible", "/etc/systemd/system/ceph-mon@.service", ("podman", "docker"), ("exec", "ceph-mon-{hostname}", "ceph")),
    _Command("cephadm", "/var/lib/ceph/*/mon.*", ("cephadm",), ("shell", "--fsid", "{fsid}", "--", "ceph")),
)


def find_command(runtime: Runtime, root: str = "/") -> list[str]:
    """How `ceph` is called on this host."""
    for command in _COMMANDS:
        marks = sorted(glob.glob(os.path.join(root, command.mark.lstrip("/"))))
        engine = next((path for path in map(runtime.find, command.engine) if path), None)
        if marks and engine:
            values = {"hostname": os.uname().nodename.partition(".")[0], "fsid": marks[0].split("/")[-2]}
            return [engine, *(word.format(**values) for word in command.argv)]
    raise HandoverError(
        "this host cannot administer a Ceph cluster, for it has neither a client.admin keyring in /etc/ceph nor a monitor in a container: "
        "name a host that can with ceph_osd_restart_admin_host, or the command with ceph_command"
    )


class Cluster:
    """The cluster."""

    def __init__(self, runtime: Runtime, command: t.Sequence[str] = ()) -> None:
        self.runtime = runtime
        self.command = list(command) or find_command(runtime)

    def run(self, *words: str, accept: t.Container[int] = (0,), timeout: float = 60) -> Completed:
        """Runs one command of the cluster's."""
        return self.runtime.run([*self.command, f"--connect-timeout={CONNECT_SECONDS}", *words], accept=accept, timeout=timeout)

    def ask(self, *words: str, timeout: float = 60) -> t.Any:
        """The answer to one command, which has one in JSON."""
        completed = self.run(*words, "--format=json", timeout=timeout)
        try:
            return json.loads(completed.stdout)
        except ValueError as exc:
            raise HandoverError(f"`ceph {' '.join(words)}` answered something that is not JSON: {completed.last_words}") from exc

    def osds(self) -> dict[int, dict[str, t.Any]]:
        """Each OSD of the map, by its number."""
        return {osd["osd"]: osd for osd in self.osd_map()["osds"]}

    def osd_map(self) -> dict[str, t.Any]:
        return self.ask("osd", "dump")

    def remembered(self, key: str) -> t.Any:
        """The value that the monitors keep for us under a key; None for none."""
        completed = self.run("config-key", "get", key, accept=(0, 2))
        return json.loads(completed.stdout) if completed.rc == 0 and completed.stdout.strip() else None

    def remember(self, key: str, value: t.Any) -> None:
        self.run("config-key", "set", key, json.dumps(value))

    def forget(self, key: str) -> None:
        self.run("config-key", "rm", key)


def demand_known(asked: t.Iterable[int], known: t.Container[int]) -> None:
    """Refuses numbers of OSDs that the cluster does not have."""
    unknown = [f"osd.{osd}" for osd in asked if osd not in known]
    if unknown:
        raise HandoverError(f"the cluster has no {', '.join(unknown)}: name OSDs that `ceph osd ls` lists")


def crush_order(tree: t.Mapping[str, t.Any]) -> dict[int, list[str]]:
    """Each OSD's place in the CRUSH tree, in the order in which one walks it: from the root down, the buckets that it is in, as `type name`.

    A caller that takes the OSDs in this order finishes one failure domain before the next, for any kind of domain.
    """
    nodes = {node["id"]: node for node in tree["nodes"]}
    children = {child for node in tree["nodes"] for child in node.get("children", ())}
    order: dict[int, list[str]] = {}

    def walk(number: int, path: list[str]) -> None:
        node = nodes[number]
        if node["type"] == "osd":
            order.setdefault(number, path)
            return
        for child in sorted(node.get("children", ()), key=lambda each: (nodes[each]["type"] == "osd", each if each >= 0 else 0, nodes[each]["name"])):
            walk(child, [*path, f"{node['type']} {node['name']}"])

    for node in sorted(tree["nodes"], key=lambda each: each["name"]):
        if node["id"] not in children:
            walk(node["id"], [])
    for stray in tree.get("stray", ()):
        order.setdefault(stray["id"], [])
    return order
