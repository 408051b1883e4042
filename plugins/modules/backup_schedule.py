#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: backup_schedule

short_description: Have a host back up a container at times, without a controller

version_added: 1.0.0

description:
  - Sets up a systemd timer on the host, or takes it away. Each of its runs is one of M(livefleet.handover.backup), with the same options.
  - The code of that module stays on the host, as C(/usr/local/libexec/handover/backup.pyz). Run this module again after an update of the collection.
  - With O(state=present) it is seen first whether a backup could be taken now. A host that does not have the container gets its timer nevertheless. It
    takes no backup until the container has moved there. So a container that moves is backed up wherever it is, if all its hosts have the timer.
  - A backup that fails is a failed unit, C(handover-backup-<workload>.service), an error in the journal, and C(handover_backup_failed) in the metrics
    of C(pcopy host metrics).

extends_documentation_fragment:
  - livefleet.handover._attributes
  - livefleet.handover._backup

attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full

options:
  workload:
    description:
      - The container, by name.
    type: str
    required: true
  repository:
    description:
      - The folder of the backups, as for M(livefleet.handover.backup). It is made if it is missing. If it lies on a file system that systemd
        mounts, no backup is taken while that is not mounted.
      - Required with O(state=present).
    type: path
  calendar:
    description:
      - When backups are taken, as systemd writes it (V(daily), V(hourly), V(*-*-* 02:30)). See C(systemd.time(7)). Each is up to five minutes later,
        and one that was missed because the host was off is taken at its next start.
      - Required with O(state=present).
    type: str
  state:
    description:
      - Whether the host has the timer. With V(absent) the backups stay.
    type: str
    choices: [present, absent]
    default: present

requirements:
  - the helper on the host (role livefleet.handover.pcopy)
  - podman or Docker, and systemd on the host

seealso:
  - module: livefleet.handover.backup

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Back up the shop every night, and keep a week and a year
  livefleet.handover.backup_schedule:
    workload: shop
    repository: /srv/backups
    calendar: "*-*-* 02:30"
    keep: {daily: 7, monthly: 12}

- name: Back it up no more
  livefleet.handover.backup_schedule:
    workload: shop
    state: absent
"""

RETURN = r"""
reasons:
  description: Why something was changed, or in check mode would be.
  returned: always
  type: list
  elements: str
  sample: [handover-backup-shop.timer did not run]
timer:
  description: The timer's unit.
  returned: always
  type: str
  sample: handover-backup-shop.timer
next:
  description: When the next backup is due. Empty without a timer, and in check mode.
  returned: always
  type: str
  sample: "2026-11-27T02:32:10Z"
here:
  description: Whether the host has the timer then.
  returned: always
  type: bool
  sample: true
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._core.runtime import finish
from ..module_utils._drivers.copies.backup_scheduler import OPTIONS, PROGRAM, BackupScheduler
from ..module_utils._podman.copies.backup_taker import ARGUMENTS


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            **{name: ARGUMENTS[name] for name in OPTIONS},
            "repository": {"type": "path"},
            "calendar": {"type": "str"},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        },
        supports_check_mode=True,
    )
    finish(module, lambda: BackupScheduler(module).run(), PROGRAM)


if __name__ == "__main__":
    main()
