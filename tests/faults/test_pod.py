# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""After a fault in the live move of a pod all of its members run on one host, every acknowledged line is there, and nothing is left over.

FAULTS=all runs every case, FAULTS="pod: " these alone, or words that a case's name contains; of a sample of the matrix (FAULTS is a number) it is one.
"""

from __future__ import annotations

import os
import subprocess
import typing as t

import pytest
from fleet import ANSIBLE, BIN, CHECKOUT, FOOTPRINT, INVENTORY, Fleet, Host, sentences, until
from matrix import Case
from scene import Scene
from strikes import TABLE, Fault
from watch import Watch

POD = "podbeat"
DB, WEB, VOLUME = f"{POD}-db", f"{POD}-web", f"{POD}-data"
IMAGE = "localhost/handover/tools:lab"
MOUNTED = f"/var/lib/handover/mnt/{VOLUME}"
AT_HOME = {"containers": f"{DB}=running {WEB}=running", "podman volumes": VOLUME, "volumes": f"{VOLUME}.img", "mnt": VOLUME, "mounts": MOUNTED}
COMMANDS = (
    f"podman pod create --name {POD} --network lan --exit-policy=stop --infra-image {IMAGE} --infra-command 'sleep 1000000'",
    f"podman run --detach --name {DB} --pod {POD} --stop-signal 9 --volume {VOLUME}:/data {IMAGE} heartbeat -file /data/ledger -every 20ms -sync 1",
    # Enough memory to go ahead.
    f"podman run --detach --name {WEB} --pod {POD} --stop-signal 9 {IMAGE} heartbeat -file /beats -every 20ms -memory 32M -dirty 1M",
)


def kill_one_restore(scene: Scene) -> None:
    """Of the two that are held, the one that was begun last."""
    scene.destination.run("pkill --signal KILL --newest --exact criu")


STRIKES = {**TABLE, "one restoring CRIU killed": Fault(kill_one_restore)}
# What happens, at which steps, and the side that stands still there.
CASES = [
    Case(fault, step)
    for fault, steps in {
        "sender killed": ("frozen", "prepared", "released"),
        "receiver killed": ("flushed", "prepared", "released"),
        "controller killed": ("prepared", "released"),
        "dumping CRIU killed": ("flushed", "released"),
        "restoring CRIU killed": ("prepared",),
        "source loses power": ("prepared", "released"),
        "destination loses power": ("prepared", "released"),
        "network cut, later healed": ("prepared", "released"),
        "restore fails": ("frozen",),
    }.items()
    for step in steps
]
WORD, SAMPLE = os.environ.get("FAULTS", "all"), 3


def asked() -> list[Case]:
    return CASES[:: len(CASES) // SAMPLE] if WORD.isdigit() else [case for case in CASES if WORD == "all" or WORD in f"pod: {case.name}"]


@pytest.fixture(scope="module")
def pods(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Fleet]:
    marks = FOOTPRINT.replace("ledger", POD).replace("pcopy|criu|heartbeat", "pcopy|criu")
    fleet = Fleet(tmp_path_factory.mktemp("reports"), AT_HOME, f"{MOUNTED}/ledger", marks)
    try:
        image_volume(fleet.hosts[0], "state=mounted size=32M")
        for command in COMMANDS:
            fleet.hosts[0].run(command)
        yield fleet
    finally:
        for host in fleet.hosts:
            host.ask(f"timeout 30 podman pod rm --force --time=0 --ignore {POD}")
            image_volume(host, "state=absent force=true")


def image_volume(host: Host, asked: str) -> None:
    command = [str(BIN / "ansible"), f"--inventory={INVENTORY}", host.name, "-m", "livefleet.handover.image_volume", "-a", f"name={VOLUME} {asked}"]
    done = subprocess.run(command, cwd=CHECKOUT, env=ANSIBLE, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def members_write(host: Host) -> bool:
    """Whether the member without a volume goes on, too."""
    look = f"podman exec {WEB} sh -c 'tail -n 1 /beats; sleep 0.3; tail -n 1 /beats'"
    before, after = host.run(look).splitlines()
    return before != after


def strike_pod(scene: Scene, case: Case) -> None:
    STRIKES[case.fault].strike(scene)


def lift(scene: Scene, case: Case) -> None:
    STRIKES[case.fault].lift(scene)
    if case.fault.endswith("loses power"):
        # As an operator would. Where it may run on the other host, this has to be refused.
        host = scene.source if case.fault.startswith("source") else scene.destination
        host.ask(f"timeout 30 podman pod start {POD}")


@pytest.mark.parametrize("case", asked(), ids=lambda case: f"pod: {case.name}")
def test_all_members_and_every_line(case: Case, pods: Fleet) -> None:
    if not pods.tidy():
        pytest.exit(f"what an earlier case left has to be looked at first: {[host.footprint() for host in pods.hosts]}", returncode=1)
    source = pods.home()
    until("the ledger is written", source.writes)
    scene = Scene(pods, source, pods.other(source))
    lifted = False
    watch = Watch(pods, source)
    try:
        scene.stand_still(case, handover_workload=POD, **case.variables)
        strike_pod(scene, case)
        scene.go_on()
        status = scene.play.end() if case.fault != "controller killed" else -9
        lift(scene, case)
        lifted = True
        after_the_play = "moved" if status == 0 else "stopped: " + sentences(scene.play.text)
        recovered = not pods.tidy()
        if recovered:
            status, text = pods.recover(scene.session if case.fault == "controller killed" else "")
            if not pods.tidy() and case.fault.endswith("loses power"):
                # Nothing starts a pod that lost its power in the middle but an operator.
                for host in pods.hosts:
                    host.ask(f"timeout 30 podman pod start {POD}")
            assert status == 0, f"{after_the_play}\n{text[-4000:]}"
        watch.end()
        home = pods.home()  # exactly one
        until("the ledger is written again", home.writes)
        until("the other member goes on", lambda: members_write(home))
        beats = home.run(f"podman exec {DB} heartbeat -gaps /data/ledger")
        assert '"missed":0' in beats.replace(" ", "") and '"broken":0' in beats.replace(" ", ""), beats
        acknowledged = watch.highest - 1
        assert home.last() >= acknowledged, f"the ledger ends with {home.last()}, and {acknowledged} was acknowledged"
        assert home.footprint() == AT_HOME
        assert pods.other(home).footprint() == {}
        wrote = [turn.host for turn in watch.turns]
        assert wrote in ([source.name], [source.name, pods.other(source).name]), f"both wrote: {watch.turns}"
        print(f"pod: {case.name}: {'moved' if home is not source else 'stayed'}{', recovered' if recovered else ''} ({after_the_play})")
    finally:
        watch.end()
        scene.end()
        if not lifted:
            lift(scene, case)
