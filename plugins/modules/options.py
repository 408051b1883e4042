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
    C(handover_accept_data_loss), of kvm_cache. Change it also where the guest may then lose its last writes, when the power goes.
  - >-
    C(handover_addresses), of clone, backup_restore. Addresses of the new container, each in a subnet of one of the container's networks.
  - >-
    C(handover_apart), of move, drain, refill. Workloads of which no two may be on one host, by a name for the group.
  - >-
    C(handover_auto_converge), of migrate, move, drain, refill. Whether the workload is throttled while the cutover waits for such a moment,
    in steps up to 99 % of its processor time.
  - >-
    C(handover_backup), of backup, backup_mount, backup_restore. Name of the backup.
  - >-
    C(handover_bandwidth), of move, drain, refill. Bytes per second that each host may send, divided among the copies on it.
  - >-
    C(handover_bind_mounts), of migrate, move, drain, refill. The fate of files and folders of the host that the container mounts by their
    paths.
  - >-
    C(handover_boot_limit_seconds), of reboot. How long a host may take to answer again.
  - >-
    C(handover_cache_mode), of kvm_cache. The mode, as libvirt calls it.
  - >-
    C(handover_cdrom), of kvm_migrate. Of media in drives of which the destination has no equal file.
  - >-
    C(handover_clone), of clone, backup_restore. Name of the new container or guest.
  - >-
    C(handover_destination), of migrate, kvm_migrate, import_openvz, rollback. The host that the workload is to go to.
  - >-
    C(handover_destinations), of move, drain, refill. The hosts that may take something, if not all of them may.
  - >-
    C(handover_disks), of kvm_migrate, kvm_cache. Targets of the disks to copy.
  - >-
    C(handover_driver), of migrate, snapshot, rollback, backup, backup_restore. The engine that runs the workload.
  - >-
    C(handover_empty), of move, drain, refill. Hosts from which everything is to move.
  - >-
    C(handover_fence), of migrate, recover. A command that switches the destination off, word by word.
  - >-
    C(handover_floating_addresses), of migrate, move, drain, refill. Addresses, without a prefix, that published ports take along.
  - >-
    C(handover_guests), of kvm_audit. The guests to look at.
  - >-
    C(handover_host), of maintenance. The hosts to mark, as a pattern of Ansible's.
  - >-
    C(handover_hosts), of migrate, move, drain, refill, recover, kvm_audit, vz_update, backup_restore. The hosts on which the container is
    looked for, as a pattern of Ansible's.
  - >-
    C(handover_ignore_checks), of migrate, move, drain, refill. Checks of M(livefleet.handover.preflight) whose findings do not count.
  - >-
    C(handover_image), of kvm_consolidation. A guest's boot files, C(kernel), C(initrd), C(disk) and C(cmdline).
  - >-
    C(handover_keep), of backup. How many backups are kept, as a mapping.
  - >-
    C(handover_keep_source), of migrate. Whether a backup of the disks stays here.
  - >-
    C(handover_lazy_pages), of migrate, move, drain, refill. Whether a live workload runs on the destination before all of its memory is
    there.
  - >-
    C(handover_maintenance), of maintenance. Whether the hosts are under maintenance.
  - >-
    C(handover_max_fail_percentage), of move, drain, refill. When more than this part of all moves has failed, no other is begun.
  - >-
    C(handover_max_frozen_ms), of migrate, move, drain, refill, kvm_migrate. The longest pause in milliseconds in the mode V(live), by the
    forecast that the cutover waits for.
  - >-
    C(handover_memory), of snapshot, rollback, backup, backup_restore. Whether the memory is in the snapshot, or comes back from it, too.
  - >-
    C(handover_mode), of migrate, move, drain, refill, kvm_migrate, rollback. live, or offline, which stops a container here and starts it
    there.
  - >-
    C(handover_moves), of move, drain, refill. The moves, a list of {workload, from, to}.
  - >-
    C(handover_needs), of move, drain, refill. Labels that a workload's host must have, by the workload's name.
  - >-
    C(handover_parallel_steps), of move, drain, refill. How many of those are prepared, copied, or cut over at once.
  - >-
    C(handover_reason), of drain, maintenance. The reason for the maintenance, shown to anyone who asks.
  - >-
    C(handover_report_dir), of migrate, move, drain, refill, recover, kvm_audit, kvm_consolidation, ceph_restart_osds, rollback,
    backup_list. Directory on the controller for reports.
  - >-
    C(handover_report_host), of migrate, move, drain, refill, recover, rollback. A host of the inventory that keeps the reports, in the
    folder handover_report_dir, instead of the controller.
  - >-
    C(handover_repository), of clone, backup, backup_list, backup_mount, backup_restore. Of a guest, the folder of its backups, or of
    another host's snapshots (node1:/var/lib/handover/snapshots/.disks).
  - >-
    C(handover_reserve_space), of migrate, move, drain, refill. Whether the destination takes all the room that the image volumes can ever
    need before the first byte is copied.
  - >-
    C(handover_results), of refill. The results of earlier moves, as the playbooks leave them for the next one of a workflow.
  - >-
    C(handover_schedule), of backup. When the host takes backups automatically, as systemd writes it (V(daily), V(hourly), V(*-*-* 02:30)).
  - >-
    C(handover_secrets), of migrate, move, drain, refill. The fate of podman's secrets that the container uses.
  - >-
    C(handover_serial), of move, drain, refill. How many workloads are on their way at once.
  - >-
    C(handover_session), of recover. Only this move; also if its helpers are at work.
  - >-
    C(handover_snapshot), of snapshot, rollback, clone. Name of the snapshot.
  - >-
    C(handover_source), of migrate, drain, refill, reboot, kvm_migrate, kvm_cache, kvm_consolidation, import_openvz, snapshot, rollback,
    clone, backup, backup_list, backup_mount, backup_restore. The host that the container is on.
  - >-
    C(handover_spare_disk), of move, drain, refill. The disk space that stays free on each host.
  - >-
    C(handover_spare_memory), of move, drain, refill. The memory that stays free on each host.
  - >-
    C(handover_state), of snapshot, clone, backup_mount. V(present) takes the snapshot, V(mounted) mounts its volumes or partitions
    read-only, V(unmounted) ends that, V(absent) removes it.
  - >-
    C(handover_storage), of kvm_migrate. Whether disks are shared or copied, see M(livefleet.handover.kvm_migrate).
  - >-
    C(handover_transport), of migrate, move, drain, refill. How the source reaches the destination: with V(tcp) at a port there, with V(ssh)
    over one connection of the source's own ssh.
  - >-
    C(handover_trial), of migrate. Freeze and dump the container once before the move and let it run on (true), or do nothing else (only).
  - >-
    C(handover_verify), of backup_list. Whether all backups are read back and held against their digests.
  - >-
    C(handover_wave), of move, drain, refill. Containers that are frozen at the same moment and move as one, by a name for the wave.
  - >-
    C(handover_workload), of migrate, kvm_migrate, kvm_cache, import_openvz, snapshot, rollback, clone, backup, backup_list, backup_mount,
    backup_restore. The container, pod or project, by name; several as in db+web.

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
  sample: {workload: shop, destination: node2, source: null, max_frozen_ms: 300, auto_converge: false}
problems:
  description: All that is wrong, a sentence each.
  returned: failure
  type: list
  elements: str
  sample: ["there is no variable handover_max_frozn: did you mean handover_max_frozen_ms?"]
"""
