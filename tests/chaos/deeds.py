# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How each kind of fault is brought about, and how it is lifted again. A table."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from fleet import MOUNTED, VOLUME, WORKLOAD, Host
from plan import Stroke
from scene import Scene

# The name that an operator gives the workload for a moment.
RENAMED = f"{WORKLOAD}-renamed"
Act = t.Callable[[Scene, Stroke], None]


def host_of(scene: Scene, stroke: Stroke) -> Host:
    return scene.source if stroke.side == "source" else scene.destination


def there(script: str) -> Act:
    """A script on the host that the fault is on. It may fail: the process that it means may not be there."""

    def act(scene: Scene, stroke: Stroke) -> None:
        host_of(scene, stroke).ask(script.format(target=stroke.target, seconds=stroke.seconds), 60)

    return act


def surely(script: str) -> Act:
    def act(scene: Scene, stroke: Stroke) -> None:
        host_of(scene, stroke).run(script, 60)

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
# A process of the host itself lets them go on again: the connection may be one of those that stand still.
STOP = there("systemd-run --quiet --collect sh -c 'pkill --signal STOP --exact {target}; sleep {seconds}; pkill --signal CONT --exact {target}'")
IMAGE = f"/var/lib/handover/volumes/{VOLUME}.img"
LOOPS = f"$(losetup --noheadings --output NAME --associated {IMAGE})"
# An image that the move has removed by then stays away.
GROW = there(f"truncate --no-create --size +4M {IMAGE} && for each in {LOOPS}; do losetup -c $each && resize2fs $each; done")
# A file system that was unmounted while it was frozen is frozen still, and thawed where it is mounted again.
THAW = there(
    f"fsfreeze --unfreeze {MOUNTED} || for each in {LOOPS}; do"
    " mount $each /mnt && fsfreeze --unfreeze /mnt; umount /mnt; done"
)


def power_off(scene: Scene, stroke: Stroke) -> None:
    scene.fleet.power_off(host_of(scene, stroke))


def power_on(scene: Scene, stroke: Stroke) -> None:
    scene.fleet.power_on(host_of(scene, stroke))
    # As a unit would at boot. Where the workload may run on the other host, this has to be refused.
    if scene.fleet.runs:
        host_of(scene, stroke).ask(f"timeout 40 podman start {WORKLOAD}")


def kill_the_play(scene: Scene, _stroke: Stroke) -> None:
    scene.play.kill()


def interrupt_the_play(scene: Scene, _stroke: Stroke) -> None:
    scene.play.interrupt()


def stop_the_play(scene: Scene, _stroke: Stroke) -> None:
    scene.play.stand_still()


def go_on_with_the_play(scene: Scene, _stroke: Stroke) -> None:
    scene.play.go_on()


def begin_another(scene: Scene, _stroke: Stroke) -> None:
    """As if a second operator wanted the same, at the same time. Its end is waited for by the healing."""
    _session, another = scene.fleet.begin(scene.source, {}, "", migrate_mode=scene.fleet.mode)
    scene.others.append(another)


def begin_recovery(scene: Scene, _stroke: Stroke) -> None:
    """As if an operator thought that the move was stuck."""
    scene.others.append(scene.fleet.begin_recovery())


def end_others(scene: Scene, _stroke: Stroke) -> None:
    for play in scene.others:
        play.end()


# Packets wait for each other, for seconds once there are many.
QUEUE = "tc qdisc replace dev host0 root tbf rate 4mbit burst 16kb latency 3s"
BALLAST = f"mountpoint -q {MOUNTED} && rm -f {MOUNTED}/ballast"
SMALL_DISK = "/var/tmp/chaos-disk"


def lay_small_disk(folder: str) -> Act:
    """Before the move: the folder has a disk of its own, which can be filled without filling the machine's."""
    return surely(
        f"fallocate --length 112M {SMALL_DISK} && mkfs.ext4 -q -m 0 {SMALL_DISK} && mkdir -p {folder} && mount -o loop {SMALL_DISK} {folder}"
        f" && rmdir {folder}/lost+found && chmod 700 {folder}"
    )


def fill_small_disk(folder: str) -> Act:
    """What the workload itself has there can still be written: a thin image on a full disk fails on any host, and so does a ledger without room."""
    filled = f"dd if=/dev/zero of={folder}/ballast bs=4k; truncate --size=-1M {folder}/ballast; sync"
    return there(f"test ! -e {IMAGE} || fallocate --length $(stat -c %s {IMAGE}) {IMAGE}; {filled}")


def empty_small_disk(folder: str) -> Act:
    return there(f"rm -f {folder}/ballast")


def take_small_disk(folder: str) -> Act:

    def act(scene: Scene, stroke: Stroke) -> None:
        host = host_of(scene, stroke)
        # Where the workload lives the folder is in use: it moves back first.
        if folder.endswith("/volumes") and host.footprint().get("containers"):
            _session, back = scene.fleet.begin(host, {}, "", migrate_mode=scene.fleet.mode)
            assert back.end() == 0, back.text[-4000:]
        host.run(f"rm -f {folder}/ballast; umount {folder} && rm {SMALL_DISK}")

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


def full(folder: str) -> Deed:
    return Deed(fill_small_disk(folder), empty_small_disk(folder), brief=False, before=lay_small_disk(folder), after=take_small_disk(folder))


DEEDS: dict[str, Deed] = {
    "kill": Deed(there("pkill --signal KILL --exact {target}")),
    "stop": Deed(STOP),
    "kill the play": Deed(kill_the_play),
    "interrupt the play": Deed(interrupt_the_play),
    "stop the play": Deed(stop_the_play, go_on_with_the_play),
    "cut": Deed(hearing("drop", both=True), HEAR),
    "one-way cut": Deed(hearing("drop", both=False), HEAR),
    "loss": Deed(hearing("numgen random mod 100 < 20 drop", both=True), HEAR),
    "long queue": Deed(there(QUEUE), there("tc qdisc delete dev host0 root")),
    "slow link": Deed(hearing("limit rate over 300 kbytes/second drop", both=True), HEAR),
    "full /run": Deed(FILL_RUN, EMPTY_RUN),
    "full volumes": full("/var/lib/handover/volumes"),
    "full plain volumes": full("/var/lib/containers/storage/volumes"),
    "full volume": Deed(there(f"mountpoint -q {MOUNTED} && dd if=/dev/zero of={MOUNTED}/ballast bs=4k"), brief=False, after=on_both(BALLAST)),
    "full sessions": full("/var/lib/handover/sessions"),
    "power cut": Deed(power_off, power_on, brief=False),
    "reboot": Deed(power_off, power_on),
    "second play": Deed(begin_another, end_others, brief=False),
    "recovery": Deed(begin_recovery, end_others, brief=False),
    "stop of the session": Deed(there("systemctl stop 'handover-fault*'")),
    "podman stop": Deed(there(f"timeout 40 podman stop --time 2 {WORKLOAD}")),
    "podman restart": Deed(there(f"timeout 40 podman restart --time 2 {WORKLOAD}")),
    "podman pause": Deed(there(f"timeout 20 podman pause {WORKLOAD}"), on_both(f"timeout 20 podman unpause {WORKLOAD}")),
    "podman kill": Deed(there(f"timeout 20 podman kill {WORKLOAD}")),
    "podman rename": Deed(there(f"timeout 20 podman rename {WORKLOAD} {RENAMED}"), there(f"timeout 20 podman rename {RENAMED} {WORKLOAD}")),
    "podman exec": Deed(there(f"timeout 20 podman exec {WORKLOAD} sleep 3")),
    # podman itself spares a container that runs: these two mean the twin that is prepared.
    # All but networks, of which the hosts have one for the workload from the start.
    "podman prune": Deed(there("for each in container volume image; do timeout 20 podman $each prune --force; done")),
    "podman rm": Deed(there(f"timeout 40 podman rm {WORKLOAD}")),
    "daemon-reload": Deed(there("systemctl daemon-reload")),
    "daemon-reexec": Deed(there("systemctl daemon-reexec")),
    "reload of the firewall": Deed(there("nft flush ruleset")),
    "fsfreeze": Deed(there(f"mountpoint -q {MOUNTED} && fsfreeze --freeze {MOUNTED}"), THAW),
    "volume grown": Deed(GROW),
}
