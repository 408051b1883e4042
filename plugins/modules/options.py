#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: options

short_description: Read the variables of one of this collection's playbooks

version_added: 0.1.0

description:
  - Reads the variables C(handover_*) and those of roles that a playbook of this collection was given, on the command line, by a survey,
    or in the inventory, and returns them with their types.
  - A number may come as text, a list as JSON, with commas or with a line for each entry, and an empty answer counts as none.
  - Fails with a sentence for each variable that is missing, is wrong, or that nothing would read.
  - All variables are in the collection's page C(docs/variables.md).

extends_documentation_fragment:
  - livefleet.handover._attributes
  - livefleet.handover._attributes.info_module

options:
  playbook:
    description:
      - The playbook's name, as V(migrate).
    type: str
    required: true

notes:
  - This is an action plugin. It runs on the controller, and asks no host.
  - >-
    C(ceph_hosts), of ceph_restart_osds. The hosts with OSDs, as a pattern of Ansible's.
  - >-
    C(handover_apart), of move, drain. Workloads of which no two may be on one host, by a name for the group.
  - >-
    C(handover_auto_converge), of migrate, move, drain. Whether the workload is throttled while the cutover waits for such a moment.
  - >-
    C(handover_bandwidth), of move, drain. Bytes per second that each host may send, divided among the copies on it.
  - >-
    C(handover_bind_mounts), of migrate, move, drain. The fate of files and folders of the host that the container mounts by their paths.
  - >-
    C(handover_destination), of migrate, kvm_migrate. The host that the workload is to go to.
  - >-
    C(handover_destinations), of move, drain. The hosts that may take something, if not all of them may.
  - >-
    C(handover_empty), of move, drain. Hosts from which everything is to move.
  - >-
    C(handover_fence), of migrate, recover. A command that switches the destination off, word by word.
  - >-
    C(handover_host), of maintenance. The hosts to mark, as a pattern of Ansible's.
  - >-
    C(handover_hosts), of migrate, move, drain, recover, kvm_audit. The hosts on which the container is looked for, as a pattern of
    Ansible's.
  - >-
    C(handover_ignore_checks), of migrate, move, drain. Checks of M(livefleet.handover.preflight) whose findings do not count.
  - >-
    C(handover_lazy_pages), of migrate, move, drain. Whether a live workload runs on the destination before its memory is there, which
    follows (lazy pages, or post-copy).
  - >-
    C(handover_maintenance), of maintenance. Whether the hosts are under maintenance.
  - >-
    C(handover_max_fail_percentage), of move, drain. When more than this part of all moves has failed, no other is begun.
  - >-
    C(handover_max_frozen), of migrate, move, drain. The longest pause in milliseconds in the mode V(live), by the forecast of the source's
    session.
  - >-
    C(handover_memory), of snapshot, rollback. Whether the memory is in the snapshot, or comes back from it, too.
  - >-
    C(handover_mode), of move, drain. live, or offline, which stops a container here and starts it there.
  - >-
    C(handover_moves), of move, drain. The moves, a list of {workload, from, to}.
  - >-
    C(handover_needs), of move, drain. Labels that a workload's host must have, by the workload's name.
  - >-
    C(handover_reason), of drain, maintenance. The reason for the maintenance, shown to anyone who asks.
  - >-
    C(handover_report_dir), of migrate, move, drain, recover, kvm_audit, kvm_consolidation, ceph_restart_osds. Directory on the controller
    for reports.
  - >-
    C(handover_secrets), of migrate, move, drain. What becomes of podman's secrets that the container uses.
  - >-
    C(handover_serial), of move, drain. How many workloads are on their way at once.
  - >-
    C(handover_session), of recover. Only this move; also if its helpers are at work.
  - >-
    C(handover_snapshot), of snapshot, rollback. Name of the snapshot.
  - >-
    C(handover_source), of migrate, drain, snapshot, rollback, kvm_migrate, kvm_cache, kvm_consolidation. The host that the container is on.
  - >-
    C(handover_spare_disk), of move, drain. The disk space that stays free on each host.
  - >-
    C(handover_spare_memory), of move, drain. The memory that stays free on each host.
  - >-
    C(handover_state), of snapshot. V(present) takes the snapshot, V(absent) removes it.
  - >-
    C(handover_throttle), of move, drain. How many of those are prepared, copied, or cut over at once.
  - >-
    C(handover_transport), of migrate, move, drain. How the source's connections come to the destination.
  - >-
    C(handover_trial), of migrate. Freeze and dump the container once before the move and let it run on (true), or do nothing else (only).
  - >-
    C(handover_wave), of move, drain. Containers that are frozen at the same moment and move as one, by a name for the wave.
  - >-
    C(handover_workload), of migrate, snapshot, rollback, kvm_migrate, kvm_cache. The container, by name or id.

seealso:
  - plugin: livefleet.handover.hosts
    plugin_type: lookup

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Read the request
  livefleet.handover.options:
    playbook: migrate
  register: __handover
"""

RETURN = r"""
asked:
  description: The values, by the names of the variables without C(handover_). None where nothing was said and there is no default.
  returned: success
  type: dict
  sample: {workload: shop, destination: node2, source: null, max_frozen: 300, auto_converge: false}
problems:
  description: All that is wrong, a sentence each.
  returned: failure
  type: list
  elements: str
  sample: ["there is no variable handover_max_frozn: did you mean handover_max_frozen?"]
"""
