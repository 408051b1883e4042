# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The unit of systemd that starts and stops a container."""

from __future__ import annotations

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..._core.runtime import HandoverError, Runtime
from ..._core.step import Step
from ..podman import Podman
from ..service_move import Unit
from ..service_pod import PodUnits
from ..workload import find


def run(module: AnsibleModule) -> dict[str, t.Any]:
    """Brings the unit to the state asked for."""
    params = module.params
    runtime = Runtime(module, params["timeout"])
    of_pod = bool(params["service"].get("parts"))
    unit: Unit | PodUnits = (PodUnits if of_pod else Unit)(runtime, params["service"], module.check_mode)
    live = params["mode"] == "live"
    result: dict[str, t.Any] = {}
    state = params["state"]
    if state == "prepared":
        twin = _twin(runtime, params["container"])
        if twin is None and not of_pod and not module.check_mode:
            raise HandoverError("there is no container named {0} on this host that {1} could have".format(params["container"], unit.name))
        known = {"id": (twin or {}).get("Id") or "", "oci_config": (twin or {}).get("OCIConfigPath") or ""}
        result["cgroups" if of_pod else "cgroup"] = unit.prepare(params["session"], live, params["running"], known)
    elif state == "settled":
        unit.settle(_twin(runtime, params["container"]), params["start"])
    else:
        steps: dict[str, t.Callable[[], t.Any]] = {
            "dumpable": lambda: unit.keep(False),
            "held": lambda: unit.hold(params["session"], live),
            "freed": lambda: unit.free(params["start"]),
            "aside": unit.put_aside,
            "withdrawn": unit.withdraw,
        }
        steps[state]()
    return dict(result, changed=bool(unit.reasons), reasons=unit.reasons)


def _twin(runtime: Runtime, name: str) -> dict[str, t.Any] | None:
    podman = Podman(runtime)
    listed = find(podman.containers(), name)
    return podman.inspect(listed["Id"]) if listed else None


STATES = ("dumpable", "held", "freed", "aside", "prepared", "withdrawn", "settled")
STEP = Step(
    arguments={
        "service": {"type": "dict", "required": True},
        "state": {"type": "str", "choices": list(STATES), "required": True},
        "container": {"type": "str"},
        "session": {"type": "path"},
        "mode": {"type": "str", "choices": ["live", "offline"], "default": "live"},
        "running": {"type": "bool", "default": True},
        "start": {"type": "bool", "default": False},
        "timeout": {"type": "int", "default": 120},
    },
    required_if=[("state", "held", ["session"]), ("state", "prepared", ["session", "container"]), ("state", "settled", ["container"])],
    run=run,
)
