# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What may happen: how it is brought about, and how it is lifted again. A table."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass
from pathlib import Path

from fleet import MOUNTED, VOLUME
from matrix import STATES
from scene import Scene

FLIP = "/run/handover-faults"
VOLUMES = "/var/lib/handover/volumes"
DISK = "/run/handover-faults-disk"


def kill_helper(side: str) -> t.Callable[[Scene], None]:
    def strike(scene: Scene) -> None:
        host = scene.source if side == "source" else scene.destination
        # There is none yet, or none any more, at the steps that are the play's own. At the others it stands still.
        act = host.run if scene.step in STATES else host.ask
        act(f"systemctl kill --signal=KILL --kill-whom=main handover-{scene.session}-{side}.service")

    return strike


def kill_criu(side: str) -> t.Callable[[Scene], None]:
    def strike(scene: Scene) -> None:
        host = scene.source if side == "source" else scene.destination
        # As a kernel would that has no memory left. At some steps there is none.
        host.ask("pkill --signal KILL --exact criu")

    return strike


def kill_controller(scene: Scene) -> None:
    scene.play.kill()


def cut_power(side: str) -> t.Callable[[Scene], None]:
    def strike(scene: Scene) -> None:
        scene.fleet.power_off(scene.source if side == "source" else scene.destination)

    return strike


def restore_power(side: str) -> t.Callable[[Scene], None]:
    def lift(scene: Scene) -> None:
        host = scene.source if side == "source" else scene.destination
        scene.fleet.power_on(host)
        # As a unit would at boot. Where the workload may run on the other host, this has to be refused.
        host.ask(scene.fleet.engine.start)

    return lift


def cut_network(scene: Scene) -> None:
    """Between the two hosts; the controller reaches both of them."""
    for here, there in ((scene.source, scene.destination), (scene.destination, scene.source)):
        here.run(
            "nft add table inet handover-faults"
            " && nft add chain inet handover-faults in '{ type filter hook input priority -300; }'"
            f" && nft add rule inet handover-faults in ip saddr {there.address} drop"
        )


def heal_network(scene: Scene) -> None:
    for host in (scene.source, scene.destination):
        host.ask("nft delete table inet handover-faults")


def lay_small_disk(scene: Scene) -> None:
    """Before the move: the destination's volumes have a disk of their own, which can be filled without filling the machine's."""
    scene.destination.run(
        f"mkdir -p {VOLUMES} && truncate -s 96M {DISK} && mkfs.ext4 -q -m 0 {DISK} && mount -o loop {DISK} {VOLUMES} && chmod 700 {VOLUMES}"
    )


def fill_disk(scene: Scene) -> None:
    """Nothing finds room there any more but the workload, once it has its volume there: a thin one cannot write on a full disk, on any host."""
    scene.destination.run(f"! mountpoint -q {MOUNTED} || fallocate --length $(stat -c %s {VOLUMES}/{VOLUME}.img) {VOLUMES}/{VOLUME}.img")
    scene.destination.run(f"! dd if=/dev/zero of={VOLUMES}/ballast bs=4k 2>/dev/null && sync")


def empty_disk(scene: Scene) -> None:
    scene.destination.ask(f"rm -f {VOLUMES}/ballast")


def take_small_disk(scene: Scene) -> None:
    """What has moved onto it has to go first."""
    if scene.destination.footprint().get("containers"):
        _session, back = scene.fleet.begin(scene.destination, {}, "")
        assert back.end() == 0, back.text[-4000:]
    scene.destination.run(f"umount {VOLUMES} && rm {DISK}")


def spoil_restore(scene: Scene) -> None:
    """CRIU is told something that it does not understand. Nothing finds that out before the restore."""
    scene.destination.run("echo planted-by-a-test >> /etc/criu/runc.conf")


def mend_restore(scene: Scene) -> None:
    scene.destination.ask("sed -i /^planted-by-a-test$/d /etc/criu/runc.conf")


def stand_between(scene: Scene) -> None:
    """Before the move: what the helper sends goes through a proxy, which flips one bit when it is told to."""
    scene.source.run(
        f"mkdir -p {FLIP} && cat > {FLIP}/flip.py <<'EOF'\n{(Path(__file__).parent / 'flip.py').read_text(encoding='utf-8')}EOF\n"
        "systemd-run --quiet --collect --unit=handover-faults-flip /usr/bin/python3 /run/handover-faults/flip.py"
        " && nft add table ip handover-faults-flip"
        " && nft add chain ip handover-faults-flip out '{ type nat hook output priority -100; }'"
        f" && nft add rule ip handover-faults-flip out ip daddr {scene.destination.address} tcp dport 30000-65535 meta mark != 77 redirect to :7"
    )


def flip(scene: Scene) -> None:
    scene.source.run(f"touch {FLIP}/now")


def stand_aside(scene: Scene) -> None:
    scene.source.ask(f"nft delete table ip handover-faults-flip; systemctl stop handover-faults-flip; rm -rf {FLIP}")


def hang_criu(scene: Scene) -> None:
    """CRIU on the source does nothing for a minute, which is longer than it may take."""
    scene.source.run(
        f"mkdir -p {FLIP} && printf '#!/bin/sh\\ncase \"$*\" in *swrk*) echo $$ >{FLIP}/pid; exec sleep 45 ;; esac\\nexec {FLIP}/criu \"$@\"\\n' > {FLIP}/hang"
        f" && for at in /usr/local/sbin/criu /usr/sbin/criu; do cp --no-clobber $at {FLIP}/criu; chmod +x {FLIP}/hang; mount --bind {FLIP}/hang $at; done"
    )


def free_criu(scene: Scene) -> None:
    scene.source.ask(f"for at in /usr/local/sbin/criu /usr/sbin/criu; do umount $at; done; test ! -e {FLIP}/pid || kill $(cat {FLIP}/pid); rm -rf {FLIP}")


def nothing(_scene: Scene) -> None:
    pass


@dataclass(frozen=True)
class Fault:
    """strike when the move stands at its step; lift when everybody has noticed. before: what has to be in place."""

    strike: t.Callable[[Scene], None]
    lift: t.Callable[[Scene], None] = nothing
    before: t.Callable[[Scene], None] = nothing
    after: t.Callable[[Scene], None] = nothing


TABLE = {
    "sender killed": Fault(kill_helper("source")),
    "receiver killed": Fault(kill_helper("destination")),
    "controller killed": Fault(kill_controller),
    "dumping CRIU killed": Fault(kill_criu("source")),
    "restoring CRIU killed": Fault(kill_criu("destination")),
    "source loses power": Fault(cut_power("source"), restore_power("source")),
    "destination loses power": Fault(cut_power("destination"), restore_power("destination")),
    "network cut, later healed": Fault(cut_network, heal_network),
    "destination disk full": Fault(fill_disk, empty_disk, lay_small_disk, take_small_disk),
    "restore fails": Fault(spoil_restore, mend_restore),
    "byte flipped on the wire": Fault(flip, before=stand_between, after=stand_aside),
    "freeze command hangs": Fault(hang_criu, free_criu),
    "offline: source loses power": Fault(cut_power("source"), restore_power("source")),
    "offline: destination loses power": Fault(cut_power("destination"), restore_power("destination")),
}
