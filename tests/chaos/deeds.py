# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How each kind of fault is brought about, and how it is lifted again. A table."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from fleet import MOUNTED, WORKLOAD, Host
from plan import Stroke
from scene import Scene
from strikes import TABLE as FAULTS

# The name that an operator gives the workload for a moment.
RENAMED = f"{WORKLOAD}-renamed"
Act = t.Callable[[Scene, Stroke], None]


def host_of(scene: Scene, stroke: Stroke) -> Host:
    return scene.source if stroke.side == "source" else scene.destination


def there(script: str) -> Act:
    """A script on the host that the fault is on. It may fail: the process that it means may not be there."""

    def act(scene: Scene, stroke: Stroke) -> None:
        host_of(scene, stroke).ask(script.format(target=stroke.target), 60)

    return act


def on_both(script: str) -> Act:
    def act(scene: Scene, _stroke: Stroke) -> None:
        for host in (scene.source, scene.destination):
            host.ask(script, 60)

    return act


def hearing(verdict: str, both: bool) -> Act:
    """What a host does with packets of the other one."""

    def act(scene: Scene, stroke: Stroke) -> None:
        here = host_of(scene, stroke)
        for host in (scene.source, scene.destination) if both else (here,):
            peer = scene.destination if host is scene.source else scene.source
            host.ask(
                "nft add table inet handover-faults"
                " && nft add chain inet handover-faults in '{ type filter hook input priority -300; }'"
                f" && nft add rule inet handover-faults in ip saddr {peer.address} {verdict}"
            )

    return act


HEAR = on_both("nft delete table inet handover-faults 2>/dev/null")
# The file system of /run keeps what it has, and takes nothing more.
FILL_RUN = there(
    "findmnt -no OPTIONS /run | grep -o 'size=[^,]*' >/root/run-size"
    " && mount -o remount,size=$(df --output=used -k /run | tail -n 1 | xargs)k /run"
)
EMPTY_RUN = there("test ! -s /root/run-size || mount -o remount,$(cat /root/run-size) /run; rm -f /root/run-size")


def power_off(scene: Scene, stroke: Stroke) -> None:
    scene.fleet.power_off(host_of(scene, stroke))


def power_on(scene: Scene, stroke: Stroke) -> None:
    scene.fleet.power_on(host_of(scene, stroke))
    # As a unit would at boot. Where the workload may run on the other host, this has to be refused.
    host_of(scene, stroke).ask(f"podman start {WORKLOAD}")


def kill_the_play(scene: Scene, _stroke: Stroke) -> None:
    scene.play.kill()


def begin_another(scene: Scene, _stroke: Stroke) -> None:
    """As if a second operator wanted the same, at the same time. Its end is waited for by the healing."""
    _session, scene.second = scene.fleet.begin(scene.source, {}, "")


def end_another(scene: Scene, _stroke: Stroke) -> None:
    scene.second.end()


def full_disk(name: str) -> Act:
    """A fault of the matrix. It is always the destination's disk that is full."""

    def act(scene: Scene, _stroke: Stroke) -> None:
        getattr(FAULTS["destination disk full"], name)(scene)

    return act


def nothing(_scene: Scene, _stroke: Stroke) -> None:
    pass


@dataclass(frozen=True)
class Deed:
    """strike at its time; lift after its seconds if it is brief, or else when the play has ended."""

    strike: Act
    lift: Act = nothing
    brief: bool = True
    before: Act = nothing
    after: Act = nothing


DEEDS: dict[str, Deed] = {
    "kill": Deed(there("pkill --signal KILL --exact {target}")),
    "stop": Deed(there("pkill --signal STOP --exact {target}"), there("pkill --signal CONT --exact {target}")),
    "kill the play": Deed(kill_the_play),
    "cut": Deed(hearing("drop", both=True), HEAR),
    "one-way cut": Deed(hearing("drop", both=False), HEAR),
    "loss": Deed(hearing("numgen random mod 100 < 20 drop", both=True), HEAR),
    "full /run": Deed(FILL_RUN, EMPTY_RUN),
    "full volumes": Deed(full_disk("strike"), full_disk("lift"), before=full_disk("before"), after=full_disk("after")),
    "power cut": Deed(power_off, power_on, brief=False),
    "second play": Deed(begin_another, end_another, brief=False),
    "podman stop": Deed(there(f"timeout 40 podman stop --time 2 {WORKLOAD}")),
    "podman restart": Deed(there(f"timeout 40 podman restart --time 2 {WORKLOAD}")),
    "podman rename": Deed(there(f"timeout 20 podman rename {WORKLOAD} {RENAMED}"), there(f"timeout 20 podman rename {RENAMED} {WORKLOAD}")),
    "podman exec": Deed(there(f"timeout 20 podman exec {WORKLOAD} sleep 3")),
    "podman prune": Deed(there("timeout 40 podman system prune --force --filter label=of-nobody")),
    "daemon-reload": Deed(there("systemctl daemon-reload")),
    "fsfreeze": Deed(there(f"mountpoint -q {MOUNTED} && fsfreeze --freeze {MOUNTED}"), there(f"fsfreeze --unfreeze {MOUNTED}")),
}
