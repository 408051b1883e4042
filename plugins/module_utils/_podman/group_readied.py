# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The twins of a pod's members, made ready to be restored: their infra container runs here, and nothing of its network is heard."""

from __future__ import annotations

import os
import typing as t

from ansible.module_utils.basic import AnsibleModule

from .._core.runtime import HandoverError
from .book import exit_policy, started_at
from .halted import STAND_IN
from .podman import Podman, network_backend
from .twin_init import Initialisation

Facts = t.Mapping[str, t.Any]

# As long as this folder has a file of the infra container's name, its network comes up silent. The environment that names the file stays
# with podman's processes beside the container, and must not silence a later start.
SILENT = "/run/handover/silent"


# podman's words for whether a pod ends with the last of its members.
STOP, CONTINUE = "stop", "continue"


def set_exit_policy(podman: Podman, pod: Facts, policy: str) -> None:
    """Whether the pod, by its inspect, ends with the last of its members."""
    why = exit_policy(podman.root(), pod["Id"], policy)
    if why:
        raise HandoverError("podman on this host cannot be told the exit policy {0} of the pod {1}: {2}".format(policy, pod["Name"], why))


class Readied:
    """The members of one workload that ran on the source."""

    def __init__(self, module: AnsibleModule, podman: Podman) -> None:
        self.module = module
        self.podman = podman

    def run(self, source: Facts, exiting: t.Container[str] = ()) -> None:
        """CRIU restores a member by the configuration that podman writes for it, which names the namespaces of an infra container that runs.

        Of pods that are `exiting`, podman would stop that behind each member that is readied: not as long as the move lasts.
        """
        for pod in self.podman.pods(pod["name"] for pod in source["pods"]):
            if pod["Name"] in exiting:
                set_exit_policy(self.podman, pod, CONTINUE)
            self._start_silent(pod["InfraContainerID"])
        for member in source["members"]:
            if member["running"] and not member["infra"]:
                initialisation = Initialisation(self.podman.runtime, self.podman, member["name"])
                # It has no interfaces of its own that would come up.
                inspect = initialisation.run({**member, "networks": []})
                if not member["ipc_mode"].startswith("container:"):
                    initialisation.mount_shared_memory(inspect)
                self._note_start(member, inspect)

    def _start_silent(self, infra: str) -> None:
        if (self.podman.inspect(infra).get("State") or {}).get("Running"):
            raise HandoverError("the infra container {0} of the pod runs on this host already: remove the pod, and move it again".format(infra[:12]))
        network = network_backend(self.podman.info())
        if network["backend"] != "netavark" or not network["path"]:
            raise HandoverError("podman on this host makes its networks without netavark, so none of them could come up silent")
        runtime = self.podman.runtime
        asked = os.path.join(SILENT, infra)
        environment = ["CONTAINERS_HELPER_BINARY_DIR=" + STAND_IN, "HANDOVER_NETAVARK=" + network["path"], "HANDOVER_SILENT=" + asked]
        os.makedirs(SILENT, mode=0o700, exist_ok=True)
        with open(asked, "w", encoding="utf-8"):
            pass
        try:
            runtime.run([runtime.tool("env", "coreutils"), *environment, self.podman.path, "start", infra])
        finally:
            os.remove(asked)

    def _note_start(self, member: Facts, inspect: Facts) -> None:
        passed = bool((member.get("health_check") or {}).get("startup_passed"))
        why = started_at(self.podman.root(), inspect["Id"], member["started"], passed) if member["started"] else ""
        if why:
            self.module.warn("`podman ps` will not tell since when {0} runs here: {1}".format(member["name"], why))
