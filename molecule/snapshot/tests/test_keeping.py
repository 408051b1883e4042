# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A second container from a snapshot of one; backups, also by a timer; and a container that is lost with its disk, and comes back from a backup.

Of the scenario's containers it is tenant2. One with a plain volume, which it writes to all the time, is beside it.
"""

from __future__ import annotations

import json
import os
import re
import typing as t
from pathlib import Path

import pytest
from hosts import Hosts

NAME = "tenant2"
CLONE = "tenant6"
PLAIN = "plain1"
WRITES = "n=0; while :; do n=$((n+1)); for d in a b; do echo $n > /plain/new; mv /plain/new /plain/$d; done; done"
REPOSITORY = "/var/lib/handover/test-backups"
PCOPY = "/usr/local/libexec/handover/pcopy"
VOLUME = f"{NAME}data"
MOUNT = f"var-lib-handover-mnt-{VOLUME}.mount"
IMAGE = f"/var/lib/handover/volumes/{VOLUME}.img"


class Keeper:
    """The container, and the host that it is on."""

    def __init__(self, fleet: Hosts) -> None:
        self.fleet = fleet
        (self.name,) = [name for name, found in fleet.running().items() if NAME in found]
        self.host = fleet.hosts[self.name]
        self.other = next(name for name in fleet.names if name != self.name)

    def play(self, playbook: str, **more: t.Any) -> str:
        reports = {"handover_report_dir": str(self.fleet.reports)} if playbook == "backup_list" else {}
        status, text = self.fleet.play(playbook, **{"handover_source": self.name, "handover_workload": NAME, **reports, **more})
        assert status == 0, text[-4000:]
        return text

    def say(self, name: str, command: str) -> str:
        return self.host.check_output(f"podman exec {name} {command}")

    def beats(self, name: str) -> dict[str, t.Any]:
        found = json.loads(self.say(name, "heartbeat -gaps /data/heartbeat"))
        assert (found["missed"], found["broken"]) == (0, 0)
        return found

    def addresses(self) -> list[str]:
        """For the clone: outside the ranges of which podman gives each host's containers the first that is free."""
        listed = self.host.check_output("podman network inspect lan --format '{{range .Subnets}}{{.Subnet}} {{end}}'").split()
        subnet, subnet6 = sorted(listed, key=lambda each: ":" in each)
        return [subnet.rpartition(".")[0] + ".66", subnet6.partition("/")[0] + "2:66"]

    def backups(self) -> list[dict[str, t.Any]]:
        return json.loads(self.host.check_output(f"{PCOPY} snapshot list --json {REPOSITORY}/{NAME}"))["snapshots"]

    def lose(self) -> None:
        """The container, its volume and its disk, as when the host's disk is gone."""
        units = f"/etc/systemd/system/{MOUNT} /etc/systemd/system/handover-loop-{VOLUME}.service"
        self.host.check_output(f"podman rm --force --time 0 {NAME}")
        self.host.check_output(f"podman volume rm {VOLUME}")
        self.host.check_output(f"systemctl disable --now {MOUNT}")
        self.host.check_output(f"rm {units} {IMAGE}")
        self.host.check_output("systemctl daemon-reload")


@pytest.fixture(scope="module")
def keeper() -> t.Iterator[Keeper]:
    keeper = Keeper(Hosts(Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "reports"))
    try:
        yield keeper
    finally:
        keeper.fleet.play("clone", handover_source=keeper.name, handover_clone=CLONE, handover_state="absent")
        keeper.host.run(f"podman rm --force --time 0 {PLAIN}; podman volume rm {PLAIN}")
        keeper.fleet.play("backup", handover_source=keeper.name, handover_workload=NAME, handover_repository=REPOSITORY, handover_schedule="never")
        keeper.host.run(f"{PCOPY} snapshot untrack {REPOSITORY}/{NAME}; rm --recursive --force {REPOSITORY}")
        keeper.host.run(f"{PCOPY} snapshot untrack {keeper.other}:{REPOSITORY}/{NAME}")
        keeper.fleet.hosts[keeper.other].run(f"rm --recursive --force {REPOSITORY}")
        snapshots = "/var/lib/handover/snapshots"
        folders = [f"{snapshots}/{place}{name}" for name in (NAME, PLAIN) for place in ("", ".disks/")]
        keeper.host.run(f"rm --recursive --force {' '.join(folders)} {snapshots}/.brought /var/lib/handover/folders")


def test_a_clone_has_the_files_of_its_snapshot_and_leaves_nothing(keeper: Keeper) -> None:
    addresses = keeper.addresses()
    keeper.say(NAME, "sh -c 'echo then > /data/said && sync /data/said'")
    keeper.play("snapshot", handover_snapshot="tried")
    keeper.say(NAME, "sh -c 'echo now > /data/said'")
    asked = {"handover_snapshot": "tried", "handover_clone": CLONE}
    keeper.play("clone", handover_addresses=addresses, **asked)
    assert (keeper.say(CLONE, "cat /data/said"), keeper.say(NAME, "cat /data/said")) == ("then", "now")
    found = keeper.host.check_output(f"podman inspect {CLONE}")
    assert all(f'"{each}"' in found for each in addresses), found
    keeper.say(CLONE, "sh -c 'echo clone > /data/said'")
    assert keeper.say(NAME, "cat /data/said") == "now", "the clone writes to a volume of its own"
    image = keeper.host.check_output(f"podman inspect {NAME} --format '{{{{.ImageName}}}}'")
    keeper.host.check_output(f"podman run --detach --name {PLAIN} --network none --volume {PLAIN}:/plain {image} sh -c '{WRITES}'")
    together = f"{PLAIN}+{NAME}+{CLONE}"
    keeper.play("snapshot", handover_workload=together, handover_snapshot="all")
    records = [keeper.host.file(f"/var/lib/handover/snapshots/{name}/all/snapshot.json").content_string for name in (PLAIN, NAME, CLONE)]
    (taken,) = {(record["taken"], record["paused_ms"], *record["together"]) for record in map(json.loads, records)}
    assert taken[2:] == (PLAIN, NAME, CLONE)
    # The plain volume is that of one moment, and goes back to it.
    copy = f"/var/lib/handover/volumes/{PLAIN}"
    keeper.host.check_output(f"{PCOPY} snapshot restore /var/lib/handover/snapshots/.disks/{PLAIN} all --folder {PLAIN}={copy}")
    one, other = (int(keeper.host.file(f"{copy}/{each}").content_string) for each in ("a", "b"))
    keeper.host.check_output(f"rm --recursive {copy}")
    assert one > 0 and one - other in (0, 1)
    keeper.say(PLAIN, "touch /plain/later")
    keeper.play("rollback", handover_workload=PLAIN, handover_snapshot="all")
    assert "later" not in keeper.say(PLAIN, "sh -c 'echo /plain/*'")
    keeper.play("snapshot", handover_workload=together, handover_snapshot="all", handover_state="absent")
    keeper.play("clone", handover_state="absent", handover_clone=CLONE)
    assert CLONE not in keeper.host.check_output("podman ps --all; podman volume ls; ls /var/lib/handover/volumes; losetup --list")
    keeper.play("snapshot", handover_snapshot="tried", handover_state="absent")
    keeper.beats(NAME)


def test_backups_are_incremental_and_those_that_a_policy_does_not_keep_go(keeper: Keeper) -> None:
    for number in range(3):
        keeper.say(NAME, f"sh -c 'echo {number} > /data/number && sync /data/number'")
        text = keeper.play("backup", handover_repository=REPOSITORY, handover_keep={"last": 2})
        (how,) = re.findall(rf"^  {VOLUME} +(\w+) ", text, flags=re.MULTILINE)
        assert how == ("full" if number == 0 else "marks")
        if number == 0:
            (full,) = keeper.backups()
    kept = keeper.backups()
    assert len(kept) == 2 and full["id"] not in [each["id"] for each in kept]
    assert all(each["stored"] < full["stored"] / 2 for each in kept), (full, kept)
    text = keeper.play("backup_list", handover_repository=REPOSITORY, handover_verify=True)
    assert [each["id"] for each in kept] == re.findall(rf"^  {NAME} +container +([0-9a-f]{{16}}) ", text, flags=re.MULTILINE)
    (page,) = re.findall(r"Report: (/\S+)", text)
    drawn = Path(page).read_text(encoding="utf-8")
    assert all(f"<code>{each['id']}</code>" in drawn for each in kept)


def test_the_host_takes_backups_by_itself(keeper: Keeper) -> None:
    """The timer's unit is started by hand here. What it cannot do is a failed unit, and stands in the metrics until it can."""
    unit, asked = f"handover-backup-{NAME}", {"handover_repository": REPOSITORY, "handover_schedule": "yearly"}
    failed = f"{PCOPY} host metrics | grep '^handover_backup_failed.*{NAME}'"
    text = keeper.play("backup", handover_keep={"last": 1}, **asked)
    assert f"by {unit}.timer, next at 2" in text
    keeper.host.check_output(f"systemctl start {unit}.service")
    assert len(keeper.backups()) == 1, "the policy is the timer's, too"
    keeper.host.check_output(f"mv {REPOSITORY} {REPOSITORY}.away && touch {REPOSITORY}")
    try:
        assert keeper.host.run(f"systemctl start {unit}.service").rc != 0
    finally:
        keeper.host.check_output(f"rm {REPOSITORY} && mv {REPOSITORY}.away {REPOSITORY}")
    assert f"{NAME} was not backed up: " in keeper.host.check_output(f"journalctl --priority err HANDOVER_WORKLOAD={NAME} --output cat")
    assert keeper.host.check_output(failed).endswith(" 1")
    keeper.host.check_output(f"systemctl start {unit}.service")
    assert keeper.host.check_output(failed).endswith(" 0")
    keeper.play("backup", **{**asked, "handover_schedule": "never"})
    assert NAME not in keeper.host.check_output("systemctl list-timers --all; ls /var/lib/handover/backups/*")


def test_a_container_that_is_lost_comes_back(keeper: Keeper) -> None:
    """From another host, for its own may have lost the repository, too. The backups go there over ssh, from host to host."""
    there = f"{keeper.other}:{REPOSITORY}"
    for how in ("full", "marks"):
        keeper.say(NAME, f"sh -c 'echo {how} > /data/number && sync /data/number'")
        text = keeper.play("backup", handover_repository=there)
        assert re.search(rf"^  {VOLUME} +{how} ", text, flags=re.MULTILINE), text[-2000:]
    # A host that has never had the container looks into its backup.
    text = keeper.play("backup_mount", handover_source=keeper.other, handover_repository=REPOSITORY)
    (place,) = re.findall(rf"mounted on (/\S+/{VOLUME})", text)
    other = keeper.fleet.hosts[keeper.other]
    assert other.file(f"{place}/number").content_string == "marks\n" and other.run(f"touch {place}/new").rc != 0
    keeper.play("backup_mount", handover_source=keeper.other, handover_state="unmounted")
    # The hosts see one another's loop devices.
    assert "/.mounted/" not in other.check_output("cat /proc/mounts; losetup --list")
    assert other.check_output(f"ls -A /var/lib/handover/snapshots/.mounted/{NAME}") == ""
    keeper.lose()
    assert NAME not in keeper.host.check_output(f"podman ps --all --format '{{{{.Names}}}}'; ls {os.path.dirname(IMAGE)}")
    keeper.play("backup_restore", handover_repository=there, handover_hosts=",".join(keeper.fleet.names))
    assert keeper.say(NAME, "cat /data/number") == "marks"
    keeper.beats(NAME)
    assert keeper.host.check_output(f"podman inspect {NAME} --format '{{{{.State.Running}}}}'") == "true"
    left = keeper.host.run(f"ls /var/lib/handover/snapshots/{NAME} /var/lib/handover/snapshots/.brought/{NAME}").stdout
    assert re.findall(r"^[^/\s].*", left, flags=re.MULTILINE) == [], "the backup was a snapshot only for the restore"
    # The disk is another: its marks are none of the backup before.
    text = keeper.play("backup", handover_repository=there)
    assert re.search(rf"^  {VOLUME} +digests ", text, flags=re.MULTILINE), text[-2000:]
    keeper.play("backup_list", handover_repository=there, handover_verify=True)
