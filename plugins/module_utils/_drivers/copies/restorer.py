# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A KVM guest that comes back on a host that may have containers, too."""

from __future__ import annotations

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..._core.runtime import HandoverError, Runtime
from ..._kvm.copies.guest_restorer import GuestRestorer
from ..._podman import workload
from ..._podman.podman import Podman


def restore(module: AnsibleModule) -> dict[str, t.Any]:
    """An error where a container of the host has the name."""
    name = module.params["name"] or module.params["workload"]
    runtime = Runtime(module, module.params["timeout"])
    if runtime.find("podman") is not None and workload.find(Podman(runtime).containers(), name) is not None:
        raise HandoverError(f"{name} is a container of this host, and a guest of that name could not be told from it: choose another name")
    return GuestRestorer(module).run()
