#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: maintenance

short_description: Mark a host as under maintenance, or lift the mark

version_added: 0.1.0

description:
  - A host with the mark gets no workloads from the playbooks that place them, until the mark is lifted. Its running workloads run on.
  - The mark is the file C(/var/lib/handover/maintenance.json) on the host, and outlives a reboot.

extends_documentation_fragment:
  - livefleet.handover._attributes

attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
    details:
      - A mark that is there keeps its time and its reason.

options:
  state:
    description:
      - Whether the host bears the mark.
    type: str
    choices: [present, absent]
    default: present
  reason:
    description:
      - The reason, shown to anyone who asks.
    type: str
    default: maintenance

seealso:
  - module: livefleet.handover.host_info

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Put no more workloads here
  livefleet.handover.maintenance:
    reason: the new memory modules

- name: Take workloads again
  livefleet.handover.maintenance:
    state: absent
"""

RETURN = r"""
reasons:
  description: Why something was changed, or in check mode would be.
  returned: always
  type: list
  elements: str
  sample:
    - the host is not under maintenance
mark:
  description: The mark as it is now, or in check mode would be. None where there is none.
  returned: always
  type: dict
  sample:
    since: "2026-11-21T16:30:00Z"
    reason: the new memory modules
"""

import os
import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._core import maintenance


def run(module: AnsibleModule) -> dict[str, t.Any]:
    """The result of the module."""
    mark = maintenance.read()
    wanted = module.params["state"] == "present"
    if wanted == (mark is not None):
        return {"changed": False, "reasons": [], "mark": mark}
    if mark is not None:
        if not module.check_mode:
            os.remove(maintenance.PATH)
        return {"changed": True, "reasons": ["the host is under maintenance: {0}".format(mark["reason"])], "mark": None}
    mark = {"since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "reason": module.params["reason"]}
    if not module.check_mode:
        maintenance.write(mark)
    return {"changed": True, "reasons": ["the host is not under maintenance"], "mark": mark}


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "reason": {"type": "str", "default": "maintenance"},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(**run(module))
    except OSError as exc:
        module.fail_json(msg="{0}: {1}: is the file system writable?".format(maintenance.PATH, exc.strerror or exc))


if __name__ == "__main__":
    main()
