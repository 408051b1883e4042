# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Docker in the matrix: its words, and the faults that strike its containers."""

from __future__ import annotations

import typing as t

import strikes
from fleet import SESSIONS, VOLUME, WORKLOAD, Engine
from matrix import DAEMON_FAULTS
from scene import Scene

LEDGER = f"/var/lib/containers/docker/volumes/{VOLUME}/_data/ledger"
# Everything that a move makes on a host, and what the container itself has there. Docker drew the name of one of its volumes. A task without a process is
# containerd's, of a daemon that was killed in the middle of its own restore. An empty folder that a power cut leaves goes with its container.
MARKS = f"""
only() {{ grep -E '{WORKLOAD}|fault-' | sort | xargs; }}
echo "containers: $(timeout 10 docker ps --all --format '{{{{.Names}}}}={{{{.State}}}}' | only)"
echo "policy: $(docker inspect --type=container --format '{{{{.HostConfig.RestartPolicy.Name}}}}' {WORKLOAD} 2>/dev/null)"
echo "volumes: $(docker volume ls --quiet | sed -E 's/^[0-9a-f]{{64}}$/nameless/' | sort | xargs)"
unknown() {{
    ctr --namespace moby task list |
        while read -r task pid _; do test ! -d /proc/$pid || docker inspect --type=container $task >/dev/null || echo $task; done
}}
echo "unknown tasks: $(unknown 2>/dev/null | xargs)"
echo "sessions: $(ls -A {SESSIONS} 2>/dev/null | only)"
echo "sockets: $(find /run/handover -type s 2>/dev/null | only)"
echo "dumps: $({{ ls -d /run/handover/images/*; find /var/lib/containers/docker/containers/*/handover -mindepth 1; }} 2>/dev/null | xargs)"
echo "started: $(ls -A /run/handover/started 2>/dev/null | xargs)"
echo "mounts: $(findmnt --list --noheadings --output TARGET | grep -E '^/run/handover/|/containers/.*/handover$' | xargs)"
echo "units: $(systemctl list-units --plain --no-legend 'handover-fault*' | cut -d' ' -f1 | only)"
echo "processes: $(pgrep --list-name 'pcopy|criu|heartbeat' | cut -d' ' -f2 | sort | xargs)"
"""
# The copy of a volume shows the source's lines, too. So only a process that has written since the last look is heard.
LINES = """
while :; do
    pid=$(pgrep --exact --oldest heartbeat)
    now="$pid $(grep syscw /proc/${{pid:-none}}/io 2>/dev/null)"
    if [ "$now" != "$before" ] && [ "${{now%% *}}" = "${{before%% *}}" ]; then tail -n 1 {ledger} 2>/dev/null; fi
    before=$now
    echo
    sleep 0.3
done
"""
ANSWERS = "timeout 90 sh -c 'until docker ps >/dev/null 2>&1; do sleep 0.5; done'"
ENGINE = Engine(
    at_home={"containers": f"{WORKLOAD}=running", "policy": "always", "volumes": f"{VOLUME} nameless", "processes": "heartbeat"},
    marks=MARKS,
    lines=LINES,
    ledger=LEDGER,
    gaps=f"docker exec {WORKLOAD} heartbeat -gaps /data/ledger",
    start=f"{ANSWERS}; docker start {WORKLOAD}",
    # Docker looks for its processes in its own cgroup.
    whole=f"docker top {WORKLOAD} | grep -q heartbeat && test \"$(docker exec {WORKLOAD} cat /note /nameless/note | xargs)\" = 'kept kept'",
    asked={"handover_driver": "docker"},
)


def strike_daemon(side: str, words: str) -> strikes.Fault:
    def strike(scene: Scene) -> None:
        (scene.source if side == "source" else scene.destination).run(words, 180)

    def lift(scene: Scene) -> None:
        # systemd gives up on a unit that is started too often.
        host = scene.source if side == "source" else scene.destination
        host.run(f"systemctl reset-failed docker.service; systemctl start docker.service && {ANSWERS}", 180)

    return strikes.Fault(strike, lift)


# systemd starts a daemon anew that was killed.
KILL, RESTART = "systemctl kill --signal=KILL --kill-whom=main docker.service", "systemctl restart containerd.service docker.service"
# Its volumes are folders: none of them has a disk to fill.
FAULTS: t.Final = {
    **{name: fault for name, fault in strikes.TABLE.items() if name != "destination disk full"},
    **{name: strike_daemon(side, KILL if name.endswith("killed") else RESTART) for name, side in DAEMON_FAULTS.items()},
}
