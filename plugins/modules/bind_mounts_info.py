#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: bind_mounts_info

short_description: Describe the paths that a container bind-mounts

version_added: 0.1.0

description:
  - Looks at files and folders of a host that a container mounts by their paths, or would mount there.

extends_documentation_fragment:
  - livefleet.handover._attributes
  - livefleet.handover._attributes.info_module

options:
  workload:
    description:
      - Name of the container, which does not count among those that use a path.
    type: str
    required: true
  driver:
    description:
      - The engine that runs it. The containers of both are looked for; Docker itself is asked for its own workload alone, and its records are read
        otherwise, since a question would start a daemon that is down.
    type: str
    choices: [docker, podman]
    default: podman
  paths:
    description:
      - The paths.
    type: list
    elements: str
    required: true
  digest:
    description:
      - Those of the paths at which everything is read for a digest of it.
    type: list
    elements: str
    default: []
  flags:
    description:
      - Whether to look for flags (chattr) of all files at the paths.
    type: bool
    default: false
  timeout:
    description:
      - Longest time for the questions to podman, in seconds.
    type: int
    default: 120

seealso:
  - module: livefleet.handover.preflight
  - module: livefleet.handover.workload_info

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Look at a folder that a container mounts
  livefleet.handover.bind_mounts_info:
    workload: shop
    paths: [/srv/shop]
    digest: [/srv/shop]
  register: seen
"""

RETURN = r"""
paths:
  description: The file or folder there, by path.
  returned: success
  type: dict
  contains:
    kind:
      description: C(file), C(directory), C(socket), C(device), C(pipe), or nothing.
      type: str
    real:
      description: The same path without links.
      type: str
    empty:
      description: Whether it is an empty file or folder.
      type: bool
    size:
      description: Bytes that it takes on the disk.
      type: int
    missing:
      description: The path and the folders above it that are not there, the deepest first.
      type: list
      elements: str
    inside:
      description: The place in which the first of those would be made, C(directory) if it can be.
      type: str
    kept:
      description: Whether something is beside it that an earlier move has left, by its name and C(.migrated).
      type: bool
    fstype:
      description: The kind of file system that it is on.
      type: str
    mounted:
      description: Whether it is a mount point.
      type: bool
    mounts_below:
      description: The mount points in it.
      type: list
      elements: str
    users:
      description: Names of other containers that mount it, something in it, or a folder that it is in.
      type: list
      elements: str
    digest:
      description: A digest of content, kinds, owners, modes and extended attributes, if it was asked for.
      type: str
    flags:
      description: Flags (chattr) without which a copy fails, each with the first path that has it, and whether a copy can carry it; if they were asked for.
      type: list
      elements: dict
    flags_missing:
      description: Names of the flags that the file system of the path cannot have.
      type: list
      elements: str
    path:
      description: The path.
      type: str
    free:
      description: Free bytes of its file system.
      type: int
    device:
      description: The number of its file system.
      type: int
  sample:
    /srv/shop: {kind: directory, empty: false, size: 73728, users: [], digest: "", flags: [{name: immutable, path: /srv/shop/key, carried: true}]}
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._core import loop
from ..module_utils._core.pcopy import Pcopy
from ..module_utils._core.runtime import HandoverError, Runtime
from ..module_utils._drivers.containers import OTHERS
from ..module_utils._podman import file_flags
from ..module_utils._podman.bind_facts import facts_of, users_of


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "workload": {"type": "str", "required": True},
            "driver": {"type": "str", "choices": sorted(OTHERS), "default": "podman"},
            "paths": {"type": "list", "elements": "str", "required": True},
            "digest": {"type": "list", "elements": "str", "default": []},
            "flags": {"type": "bool", "default": False},
            "timeout": {"type": "int", "default": 120},
        },
        supports_check_mode=True,
    )
    runtime = Runtime(module, module.params["timeout"])
    try:
        others = OTHERS[module.params["driver"]](runtime, module.params["workload"])
        mounts = loop.read_mounts()
        pcopy = Pcopy(runtime)
        paths = {
            path: {
                **facts_of(path, mounts, path in module.params["digest"]),
                "users": users_of(path, others),
                "flags": file_flags.found(pcopy, path) if module.params["flags"] else [],
                "flags_missing": file_flags.missing(pcopy, path),
            }
            for path in module.params["paths"]
        }
        module.exit_json(changed=False, paths=paths)
    except (HandoverError, OSError) as exc:
        module.fail_json(msg=str(exc))


if __name__ == "__main__":
    main()
