# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re
import typing as t

from ansible.plugins.action import ActionBase
from ansible_collections.livefleet.handover.plugins.plugin_utils._ansible import add_host

# How a host is reached. Other variables with this prefix are facts, and Ansible's own about a run.
_CONNECTION = re.compile(
    r"ansible_(host|port|user|password|connection|timeout|private_key_file|pipelining|python_interpreter|remote_tmp|async_dir|scp_if_ssh|"
    r"(ssh|sftp|scp|become|shell|control|paramiko|winrm|psrp|podman|docker|incus|lxd|network|host_key)(_.*)?)"
)


class ActionModule(ActionBase):
    """Adds a host to the inventory in memory that is another name of one that is there."""

    TRANSFERS_FILES = False
    BYPASS_HOST_LOOP = True
    _VALID_ARGS = frozenset(("name", "of", "groups", "variables"))
    _requires_connection = False

    def run(self, tmp: t.Any = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        _validation, asked = self.validate_argument_spec(
            argument_spec={
                "name": {"type": "str", "required": True},
                "of": {"type": "str", "required": True},
                "groups": {"type": "list", "elements": "str", "default": []},
                "variables": {"type": "dict", "default": {}},
            }
        )
        everyone = (task_vars or {})["hostvars"]
        if asked["of"] not in everyone:
            return dict(failed=True, msg="{0} is not in the inventory: name one of its hosts".format(asked["of"]))
        known = everyone[asked["of"]]
        reached = {key: known[key] for key in known if _CONNECTION.fullmatch(key)}
        reached.setdefault("ansible_host", asked["of"])
        groups = [group for group in known["group_names"] if group not in ("all", "ungrouped")]
        return {"changed": False, **add_host(self, asked["name"], groups + asked["groups"], {**reached, **asked["variables"]})}
