# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A twin is initialised by podman, and nothing of that is seen outside or stays in the places of its files."""

from __future__ import annotations

import contextlib
import os
import typing as t

from .._core import bind_places, loop
from .._core.runtime import HandoverError, Runtime
from . import command_places, root_volume, subpaths, workload
from .podman import Podman


class Initialisation:
    """Of one container, which is never started by it."""

    def __init__(self, runtime: Runtime, podman: Podman, name: str) -> None:
        self.runtime = runtime
        self.podman = podman
        self.name = name

    def run(self, source: t.Mapping[str, t.Any], create: t.Sequence[str] = ()) -> dict[str, t.Any]:
        """Has podman create it with these words, if it is not there yet, and write its OCI configuration, without which it cannot be restored into.

        podman fills a volume that is used for the first time with what the image has at that path. The image volumes come
        later and bring their own files, and so do directory volumes; what is filled now is a tmpfs that goes again.
        """
        # podman looks for a root when it creates a container.
        covered = bool(root_volume.path_of(source))
        if create and not covered:
            self.podman.run(*create)
        with contextlib.ExitStack() as covers:
            shown = self._cover(covers, source["mounts"])
            root_volume.furnish(source)
            if create and covered:
                self.podman.run(*create)
            command_places.make(self.podman.inspect(self.name), shown)
            apart = [*self._own_scope(source), *covers.enter_context(self._apart(source["networks"]))]
            # The helper's hook lets nothing of this name start that is not this.
            prepares = [self.runtime.tool("env", "coreutils"), "LC_HANDOVER_PREPARES=" + self.name]
            self.runtime.run([*apart, *prepares, self.podman.path, "init", self.name])
            self.runtime.run([*apart, self.podman.path, "container", "cleanup", self.name])
        inspect = self.podman.inspect(self.name)
        below = {mount["destination"]: shown[mount["destination"]] for mount in source["mounts"] if mount.get("subpath") and mount["destination"] in shown}
        subpaths.name_places(inspect.get("OCIConfigPath") or "", below)
        return inspect

    def _cover(self, covers: contextlib.ExitStack, mounts: t.Sequence[t.Mapping[str, t.Any]]) -> dict[str, str]:
        """Has the places of volumes covered while `covers` lasts. The folders that the container sees, by where it sees them."""
        shown = {}
        plain = [mount for mount in mounts if mount.get("directory_volume")]
        places = {volume["Name"]: volume["Mountpoint"] for volume in self.podman.volumes()} if plain else {}
        for name in sorted({mount["name"] for mount in plain} & set(places)):
            covers.enter_context(self._covered(places[name]))
            shown.update(self._in_volume(places[name], [mount for mount in plain if mount["name"] == name]))
        empty = bind_places.empty_folders(mounts)
        for directory in empty:
            covers.enter_context(self._covered(directory))
        shown.update({mount["destination"]: mount["source"] for mount in mounts if mount["source"] in empty})
        images = [mount for mount in mounts if mount["image_volume"]]
        for directory in sorted({mount["image_volume"]["mountpoint"] for mount in images}):
            covers.enter_context(self._covered(directory))
        for mount in images:
            os.makedirs(mount["directory"], mode=0o711, exist_ok=True)
            shown.update(self._in_volume(mount["directory"], [mount]))
        return shown

    def _in_volume(self, folder: str, mounts: t.Sequence[t.Mapping[str, t.Any]]) -> dict[str, str]:
        """Where the mounts of a volume are that is in this folder."""
        below = [mount for mount in mounts if mount.get("subpath")]
        subpaths.make(folder, below)
        return {mount["destination"]: subpaths.place(folder, mount) if mount in below else folder for mount in mounts}

    def _own_scope(self, source: t.Mapping[str, t.Any]) -> list[str]:
        """Where podman divides the cgroup that it is in for the container: one that no other process is in."""
        if not (source.get("service") or {}).get("split"):
            return []
        return [self.runtime.tool("systemd-run", "systemd"), "--scope", "--quiet", "--collect", "--property=Delegate=yes"]

    @contextlib.contextmanager
    def _apart(self, attached: t.Iterable[t.Mapping[str, t.Any]]) -> t.Iterator[list[str]]:
        """The words that have a command see networks that lead nowhere, if the container is on one that leads out of the host.

        podman brings up the twin's interfaces when it initialises it. They have the addresses of the container that is still in use on
        the source: the switch would send its clients here, where nobody listens.
        """
        networks = {network["name"]: network for network in self.podman.defined_networks()}
        outside = [networks[each["name"]] for each in attached if workload.is_shared(networks.get(each["name"], {}))]
        if not outside:
            yield []
            return
        ip = self.runtime.tool("ip", "iproute2")
        namespace = "handover-{0}".format(self.name)
        # One that a killed run has left.
        self.runtime.run([ip, "netns", "delete", namespace], accept=(0, 1))
        self.runtime.run([ip, "netns", "add", namespace])
        try:
            # A network that names no interface is on the one with the default route. Bridges, as podman needs them anyway; dummies would be
            # another module of the kernel.
            for interface in sorted({network.get("network_interface") or "handover0" for network in outside}):
                self.runtime.run([ip, "-n", namespace, "link", "add", interface, "type", "bridge"])
                self.runtime.run([ip, "-n", namespace, "link", "set", interface, "up"])
                self.runtime.run([ip, "-n", namespace, "route", "replace", "default", "dev", interface])
            yield [self.runtime.tool("nsenter", "util-linux"), "--net=/run/netns/" + namespace]
        finally:
            self.runtime.run([ip, "netns", "delete", namespace])

    @contextlib.contextmanager
    def _covered(self, directory: str) -> t.Iterator[None]:
        if any(mount.mountpoint == directory for mount in loop.read_mounts()):
            raise HandoverError("something is mounted on {0} already, where an image volume of {1} is to be: unmount it".format(directory, self.name))
        made = not os.path.isdir(directory)
        os.makedirs(directory, mode=0o711, exist_ok=True)
        self.runtime.run([self.runtime.tool("mount", "mount"), "-t", "tmpfs", "-o", "mode=0755", "handover", directory])
        try:
            yield
        finally:
            # It is empty, so a process in it only passes by, like a monitor of file systems, and is no reason to fail.
            self.runtime.run([self.runtime.tool("umount", "mount"), "--lazy", directory])
            # The helper makes it again when the volume has arrived. If it never does, nothing is left behind.
            if made:
                os.rmdir(directory)

    def mount_shared_memory(self, inspect: t.Mapping[str, t.Any]) -> None:
        """Mounts the container's /dev/shm ahead of podman, which then takes it as it is: its content arrives before the restore."""
        facts = workload.facts_of(inspect, ())
        mounts = loop.read_mounts()
        if facts["ipc_mode"] in ("none", "host") or not facts["shm_size"] or any(mount.mountpoint == facts["shm_dir"] for mount in mounts):
            return
        os.makedirs(facts["shm_dir"], mode=0o700, exist_ok=True)
        options = "nosuid,nodev,noexec,mode=1777,size={0}".format(facts["shm_size"])
        self.runtime.run([self.runtime.tool("mount", "mount"), "-t", "tmpfs", "-o", options, "shm", facts["shm_dir"]])
