# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host has of workloads and of moves, and how it is made empty after a finding."""

from __future__ import annotations

# Everything, and not only what bears the workload's name: nothing else lives on these hosts. A stopped container that has moved was
# made there and never ran there, which podman calls created. The lock of a workload, the kernel's probe and podman's help texts may stay,
# and a small disk of the harness lies over its folder until the round has been judged. A health check that is under way is one
# more conmon and runc for an instant; what it runs is not the workload.
MARKS = r"""
line() { sort | xargs; }
has=$(timeout 20 podman ps --all --external --format '{{.Names}}={{.State}}' | sed 's/=created$/=exited/' | line)
echo "containers: $has"
echo "podman volumes: $(timeout 20 podman volume ls --format '{{.Name}}' | line)"
echo "kept: $(find /var/lib/handover -mindepth 2 -maxdepth 2 -printf '%P\n' | line)"
made='^(locks|locks/.*|gates|started|probe.json|help.json)$'
echo "run: $(find /run/handover /run/handover-* -mindepth 1 -printf '%P\n' 2>/dev/null | grep -Ev "$made" | line)"
small='^/var/lib/(handover/(sessions|volumes)|containers/storage/volumes)$'
mounted='^/(var/lib|run)/(handover/|containers/storage/volumes)|checkpoint|criu'
echo "mounts: $(findmnt --list --noheadings --output TARGET | grep -E "$mounted" | grep -Ev "$small" | line)"
echo "units: $(systemctl list-units --plain --no-legend 'handover-fault*' | cut -d' ' -f1 | line)"
echo "failed: $(systemctl list-units --failed --plain --no-legend | cut -d' ' -f1 | grep -Ev '^[0-9a-f]{64}' | line)"
test -n "$has" || echo "health timers: $(systemctl list-units --plain --no-legend | cut -d' ' -f1 | grep -E '^[0-9a-f]{64}.*timer$' | line)"
echo "entries of the runtime: $(ls /run/runc 2>/dev/null | wc -l | grep -v ^0)"
echo "tables: $(nft list tables | grep -v netavark | line)"
echo "namespaces: $(ls /run/netns 2>/dev/null | wc -l | grep -v ^0)"
ours=$(ps -C pcopy,criu,heartbeat,conmon,runc,rsync -o comm=,args= | grep -Ev -- '--exec-process-spec| exec | init$' | cut -d' ' -f1)
echo "processes: $(echo "$ours" | line)"
"""

# For a person who looks into a finding.
EVIDENCE = r"""
for each in /var/lib/handover/sessions/*; do
  echo "== $each"; ls -la "$each"; cat "$each/plan.json" "$each/events.jsonl"; /usr/local/libexec/handover/pcopy session show "$each"
done
journalctl --no-pager --since -8min | tail -n 1500
ps axf; findmnt; podman ps --all; podman volume ls; find /run/handover /run/runc
"""

# Whatever a run left, also one that was killed: every fault is lifted, and nothing of any workload or session stays.
EMPTY = r"""
pkill --signal CONT --exact 'pcopy|criu|runc|podman|sshd-session|python3|conmon'
nft delete table inet handover-faults 2>/dev/null
tc qdisc delete dev host0 root 2>/dev/null
test ! -s /root/run-size || mount -o remount,$(cat /root/run-size) /run; rm -f /root/run-size
for each in /var/lib/handover/sessions /var/lib/handover/volumes /var/lib/containers/storage/volumes; do mountpoint -q $each && umount --lazy $each; done
rm -f /var/tmp/chaos-disk
systemctl stop 'handover-fault*' handover-recover.service; systemctl reset-failed
for each in /etc/systemd/system/handover-loop-*.service; do test -e "$each" && systemctl disable --now "$(basename "$each")"; done
timeout 60 podman rm --all --force --time 0
timeout 60 podman ps --all --external --quiet | xargs --no-run-if-empty podman rm --force
timeout 60 podman volume rm --all --force
findmnt --list --noheadings --output TARGET | grep ^/var/lib/handover/ | xargs --no-run-if-empty umount
chattr -i /var/lib/handover/mnt/* 2>/dev/null
rm -rf /run/handover/started/* /run/handover/gates/* /var/lib/handover/mnt/* /var/lib/handover/sessions/* /var/lib/handover/volumes/*
find /etc/systemd/system -name 'handover-loop-*' -delete; find /etc/systemd/system -name 'var-lib-handover-mnt-*' -delete
systemctl daemon-reload; systemctl reset-failed
"""
