# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rows of one disk: the second backup, the way back, and the restore of a long chain.

The disk is an image file with ext4 on a loop device with direct I/O, as a container's image volume is. Before each contender the host forgets
the pages that it has of the image, so that all of them read from the disk.
"""

from __future__ import annotations

import contextlib
import json
import typing as t
from dataclasses import dataclass
from pathlib import Path

from hosts import Fleet
from results import Bar, spread

HERE = Path(__file__).resolve().parent
FOLDER = "/var/lib/bench-snapshot"
IMAGE, MOUNTED, FULL = f"{FOLDER}/disk.img", f"{FOLDER}/mounted", f"{FOLDER}/full.img"
STORE, SINGLE, RESTORED = f"{FOLDER}/store", f"{FOLDER}/single", f"{FOLDER}/restored.img"
RESTIC, BORG, PASSWORD = f"{FOLDER}/restic", f"{FOLDER}/borg", f"{FOLDER}/password"
PCOPY = "/usr/local/libexec/handover/pcopy"
CLUSTER = 64 << 10
OURS = "handover"
# The hosts' own root is an overlay: an ext4 in a file of it is below the disk, as on a host with disks of its own.
BELOW, BELOW_SIZE = f"{FOLDER}-below.img", "40G"
# Whatever a run has left, also one that was killed.
CLEAN = f"""
test ! -d {STORE} || {PCOPY} snapshot untrack {STORE} || true
mountpoint -q {MOUNTED} && umount {MOUNTED}
losetup --list --noheadings --output NAME,BACK-FILE | awk '$2 == "{IMAGE}" {{ print $1 }}' | xargs -r losetup --detach
mountpoint -q {FOLDER} && umount {FOLDER}
rm -rf {FOLDER} {BELOW}
"""

Samples = dict[str, list[dict[str, float]]]


@dataclass(frozen=True)
class Sizes:
    """The disk: how large, how much of it is used, the part that changes, and the increments of a long chain."""

    image: str = "10G"
    used_mib: int = 2048
    changed: float = 0.01
    chain: int = 200
    chain_changed: float = 0.001

    def clusters(self, part: float) -> int:
        return round((self.used_mib << 20) // CLUSTER * part)


class Disk:
    """One disk on one host, and what is done to it."""

    def __init__(self, fleet: Fleet, host: str, sizes: Sizes) -> None:
        self.fleet, self.host, self.sizes = fleet, host, sizes
        self.seed = 0

    def script(self, text: str) -> str:
        return self.fleet.run(self.host, "bash", "-euc", text, timeout=3600)

    def timed(self, text: str, forget: str = IMAGE) -> tuple[float, str]:
        """Seconds, and what it said."""
        said = self.script(f"dd if={forget} iflag=nocache count=0 status=none; began=$(date +%s%N)\n{text}\necho took $(($(date +%s%N) - began))")
        *lines, last = said.splitlines()
        return int(last.split()[1]) / 1e9, "\n".join(lines)

    def files(self, *words: object) -> None:
        self.fleet.run(self.host, "python3", "-", *map(str, words), given=(HERE / "files.py").read_bytes(), timeout=3600)

    def rewrite(self, part: float) -> None:
        self.seed += 1
        self.files("rewrite", MOUNTED, self.sizes.clusters(part), self.seed)

    def attach(self) -> None:
        self.script(f"mount $(losetup --find --show --direct-io=on {IMAGE}) {MOUNTED}")

    def detach(self) -> None:
        """As a container's volume is put away before it is written: noted when it is unmounted."""
        note = f"{PCOPY} snapshot note {STORE} --volume data={IMAGE}"
        self.script(f"device=$(findmnt --noheadings --output SOURCE {MOUNTED}); umount {MOUNTED}; {note}; losetup --detach $device")

    def read_bytes(self) -> int:
        """All that was ever read from the disk's device."""
        return int(self.script(f"cut -c1- /sys/class/block/$(basename $(findmnt --noheadings --output SOURCE {MOUNTED}))/stat").split()[2]) * 512

    def take(self) -> dict[str, t.Any]:
        return json.loads(self.script(f"{PCOPY} --json snapshot take {STORE} --volume data={IMAGE}").splitlines()[-1])

    @contextlib.contextmanager
    def ready(self) -> t.Iterator[Disk]:
        self.fleet.run(self.host, "bash", "-c", f"{CLEAN}:")
        try:
            self.script(f"mkdir {FOLDER}; truncate -s {BELOW_SIZE} {BELOW}; mkfs.ext4 -q {BELOW}; mount -o loop {BELOW} {FOLDER}")
            self.script(f"mkdir {MOUNTED}; truncate -s {self.sizes.image} {IMAGE}; mkfs.ext4 -q {IMAGE}")
            self.attach()
            self.files("fill", MOUNTED, self.sizes.used_mib)
            yield self
        finally:
            self.fleet.run(self.host, "bash", "-c", f"{CLEAN}:")


def middle(samples: Samples, who: str, key: str = "seconds") -> float:
    return spread([run[key] for run in samples[who]])["median"]


def spreads(samples: Samples, key: str = "seconds") -> dict[str, dict[str, float]]:
    return {who: spread([run[key] for run in runs]) for who, runs in samples.items() if key in runs[0]}


class Second:
    """The second backup of a disk of which little has changed."""

    title, unit = "The second backup, 1 % of the clusters changed", "s"
    what = (
        "Before each round 1 % of the used clusters are written. pcopy takes a snapshot into its store by the tracker's marks; restic and borg read the same "
        "image file into their repositories on the same disk. restic encrypts and borg packs (lz4), as they do by themselves."
    )
    others = ("restic", "borg")

    def begin(self, disk: Disk) -> None:
        disk.take()
        disk.script(
            f"echo bench > {PASSWORD}; export RESTIC_PASSWORD_FILE={PASSWORD}\n"
            f"restic --quiet --repo {RESTIC} init; restic --quiet --repo {RESTIC} backup {IMAGE}\n"
            f"borg init --encryption none {BORG}; borg create {BORG}::first {IMAGE}"
        )

    def round(self, disk: Disk, number: int) -> dict[str, dict[str, float]]:
        disk.rewrite(disk.sizes.changed)
        before = disk.read_bytes()
        seconds, said = disk.timed(f"{PCOPY} --json snapshot take {STORE} --volume data={IMAGE}")
        taken = json.loads(said.splitlines()[-1])
        used = disk.sizes.used_mib << 20
        ours = {
            "seconds": seconds, "by_marks": float(taken["volumes"][0]["how"] == "marks"),
            "read": (disk.read_bytes() - before) / used, "sent": sum(each["sent"] for each in taken["passes"]) / used,
        }  # fmt: skip
        restic = f"export RESTIC_PASSWORD_FILE={PASSWORD}; restic --quiet --repo {RESTIC} backup {IMAGE}"
        borg = f"borg create {BORG}::round-{number} {IMAGE}"
        return {OURS: ours, "restic": {"seconds": disk.timed(restic)[0]}, "borg": {"seconds": disk.timed(borg)[0]}}

    def bars(self, found: Samples) -> list[Bar]:
        runs, best = len(found[OURS]), min(self.others, key=lambda who: middle(found, who))
        return [
            Bar("second backup: time, as a part of the better one's", middle(found, OURS) / middle(found, best), 0.05, runs, spreads(found), best),
            Bar("second backup: bytes read, as a part of the image's data", middle(found, OURS, "read"), 0.015, runs, spreads(found, "read"), "none"),
            Bar("second backup: bytes sent, as a part of the image's data", middle(found, OURS, "sent"), 0.015, runs, spreads(found, "sent"), "none"),
        ]


class Rollback:
    """The way back to a snapshot from which little differs."""

    title, unit = "The way back, 1 % of the clusters differ", "s"
    what = (
        "1 % of the used clusters are written after a snapshot. A second snapshot is taken, as a rollback keeps the disks as they are, and the disk is "
        "put away. Then it is brought back to the first: by pcopy, or by `cp --sparse=always` of an image that has it, each until all is on the disk."
    )
    other = "cp --sparse=always"

    def begin(self, disk: Disk) -> None:
        self.first = disk.take()["id"]
        disk.script(f"{PCOPY} snapshot export {STORE} {self.first} {FULL} --volume data --format raw")

    def round(self, disk: Disk, number: int) -> dict[str, dict[str, float]]:
        del number
        found = {}
        ways = {OURS: (f"{PCOPY} --json snapshot restore {STORE} {self.first} --current --volume data={IMAGE}", IMAGE)}
        ways[self.other] = (f"cp --sparse=always {FULL} {IMAGE}; sync --file-system {IMAGE}", FULL)
        for who, (command, forget) in ways.items():
            disk.rewrite(disk.sizes.changed)
            disk.take()
            disk.detach()
            seconds, said = disk.timed(command, forget)
            disk.attach()
            found[who] = {"seconds": seconds}
            if who == OURS:
                disk_of = json.loads(said.splitlines()[-1])["volumes"][0]
                found[who] |= {"written": disk_of["written"] / (disk.sizes.used_mib << 20), "by_marks": float(disk_of["how"] == "marks")}
        return found

    def bars(self, found: Samples) -> list[Bar]:
        figure = middle(found, OURS) / middle(found, self.other)
        return [Bar("way back: time, as a part of copying the whole image", figure, 0.1, len(found[OURS]), spreads(found), self.other)]


class Chain:
    """The restore of the newest of many increments."""

    title, unit = "The restore of the newest of 200 increments", "s"
    what = "A new file is written from the newest snapshot of a store with 200 increments, and from a store that has nothing but this snapshot."
    many, single = f"{OURS}, 200 increments", f"{OURS}, one full snapshot"

    def begin(self, disk: Disk) -> None:
        disk.take()
        for _number in range(disk.sizes.chain):
            disk.rewrite(disk.sizes.chain_changed)
            newest = disk.take()["id"]
        disk.script(f"{PCOPY} snapshot copy {STORE} {newest} {SINGLE}")
        self.newest = newest

    def round(self, disk: Disk, number: int) -> dict[str, dict[str, float]]:
        del number
        found = {}
        for who, store in ((self.many, STORE), (self.single, SINGLE)):
            # What was read of the layers in the round before.
            disk.script(f"for file in {store}/layers/*; do dd if=$file iflag=nocache count=0 status=none; done")
            found[who] = {"seconds": disk.timed(f"{PCOPY} snapshot restore {store} {self.newest} --volume data={RESTORED}")[0]}
            disk.script(f"rm {RESTORED}")
        return found

    def bars(self, found: Samples) -> list[Bar]:
        figure = middle(found, self.many) / middle(found, self.single)
        what = "chain of 200 increments: restore of the newest, as a part of one full image's"
        return [Bar(what, figure, 1.5, len(found[self.many]), spreads(found), self.single)]


ROWS: dict[str, t.Callable[[], Second | Rollback | Chain]] = {"second": Second, "rollback": Rollback, "chain": Chain}
