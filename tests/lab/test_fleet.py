# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Boots a fleet of its own, breaks it, and looks at what is left afterwards.

Needs root, and the base image, which is built if it is not cached. The fleet of
`make lab-up` is not touched.
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest

HERE = pathlib.Path(__file__).parent
REPOSITORY = HERE.parent.parent
STATE = pathlib.Path("/var/lib/handover-labtest")

sys.path.insert(0, str(REPOSITORY / "lab" / "module_utils"))
import lab_machine

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="booting hosts needs root")


def command(playbook, *arguments):
    """How a playbook of the lab is run on this test's own fleet."""
    beside_python = pathlib.Path(sys.executable).with_name("ansible-playbook")
    return [
        str(beside_python) if beside_python.exists() else "ansible-playbook",
        "-i", str(HERE / "inventory.yml"), "-e", f"@{HERE / 'parameters.yml'}",
        str(REPOSITORY / "lab" / playbook), *arguments,
    ]


ENVIRONMENT = {**os.environ, "ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg"), "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json"}


def play(playbook, *arguments, fails=False):
    """Runs a playbook and returns what it says of each host."""
    done = subprocess.run(
        command(playbook, *arguments), env=ENVIRONMENT, cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert bool(done.returncode) == fails, done.stdout[-4000:] + done.stderr[-2000:]
    return json.loads(done.stdout[done.stdout.index("{"):])


def changed(result):
    """How many tasks changed something, on all hosts."""
    return sum(host["changed"] for host in result["stats"].values())


def ssh(host, *words):
    """Runs one command on a host of the fleet."""
    done = subprocess.run(
        ["ssh", "-F", str(STATE / "ssh_config"), host, *words], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def lock_of(host):
    """The file with which systemd-nspawn locks a host's folder."""
    status = os.stat(STATE / "hosts" / host / "root")
    return pathlib.Path(f"/run/systemd/nspawn/locks/inode-{status.st_dev}:{status.st_ino}")


@pytest.fixture(name="fleet", scope="module")
def booted_fleet():
    """The fleet, up; and down again whatever the tests did to it."""
    play("destroy.yml")
    play("create.yml")
    yield lab_machine.running_hosts(str(STATE))
    play("destroy.yml")
    shutil.rmtree(STATE, ignore_errors=True)


@pytest.fixture(name="mounted_loop")
def mounted_loop_device(tmp_path):
    """A file system of somebody else's, mounted from a file."""
    image, mountpoint = tmp_path / "disk image", tmp_path / "mount point"
    mountpoint.mkdir()
    with image.open("wb") as file:
        file.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    # With the option loop the device goes with its mount.
    subprocess.run(["mount", "-o", "loop", image, mountpoint], check=True)
    yield image, mountpoint
    subprocess.run(["umount", "--quiet", mountpoint], check=False)


def test_hosts_are_whole(fleet):
    assert sorted(fleet) == ["labtest1", "labtest2"]
    for host in fleet:
        assert ssh(host, "systemctl is-system-running") == "running"
        assert ssh(host, "hostname") == host
        assert "lan" in ssh(host, "podman network ls --format '{{.Name}}'").split()
        version = ssh(host, "criu --version").split()[1]
        assert tuple(int(part) for part in version.split(".")) >= (4, 2), "CRIU before 4.2 cannot dump TCP here"


def test_hosts_reach_each_other(fleet):
    for host, other in (("labtest1", "labtest2"), ("labtest2", "labtest1")):
        assert ssh(host, "ssh", "-o", "BatchMode=yes", other, "hostname") == other
        ssh(host, "ping", "-c1", "-W2", "10.214.0.1" if other == host else other)
        ssh(host, "ping", "-6", "-c1", "-W2", other)


def test_second_run_changes_nothing(fleet):
    before = lab_machine.running_hosts(str(STATE))
    assert changed(play("create.yml")) == 0
    assert lab_machine.running_hosts(str(STATE)) == before


def test_a_host_holds_no_device_that_is_not_its_own(fleet, mounted_loop):
    image, mountpoint = mounted_loop
    host = min(fleet)
    os.kill(lab_machine.running_hosts(str(STATE))[host], signal.SIGKILL)
    play("create.yml")
    subprocess.run(["umount", mountpoint], check=True)
    assert lab_machine.wait_until(lambda: not lab_machine.loops(str(image.parent)), 10), "the host's mount namespace holds the device"


def test_killed_host_comes_back_with_its_disk(fleet):
    ssh("labtest1", "echo kept > /root/kept; sync")
    os.kill(lab_machine.running_hosts(str(STATE))["labtest1"], signal.SIGKILL)
    survivor = lab_machine.running_hosts(str(STATE))["labtest2"]
    time.sleep(0.5)
    play("create.yml")
    assert ssh("labtest1", "cat /root/kept") == "kept"
    assert lab_machine.running_hosts(str(STATE))["labtest2"] == survivor


def test_container_moves_by_hand(fleet):
    """The hosts are fit for what the project is about: CRIU, one image id everywhere, one network."""
    play("images.yml", "-e", json.dumps({"lab_images": ["tools"]}))
    image = "localhost/handover/tools:lab"
    ids = {ssh(host, f"podman image inspect {image} --format '{{{{.Id}}}}'") for host in fleet}
    assert len(ids) == 1
    ssh("labtest1", f"podman run -d --name beat --network lan --ip 10.214.0.50 {image} heartbeat -file /data/beat; sleep 1")
    ssh("labtest1", "podman container checkpoint --export /run/beat.tar beat && scp -q /run/beat.tar labtest2:/run/")
    ssh("labtest2", "podman container restore --import /run/beat.tar && sleep 1")
    assert ssh("labtest2", "podman inspect beat --format '{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}'") == "10.214.0.50"
    beats = json.loads(ssh("labtest2", "podman exec beat heartbeat -gaps /data/beat"))
    assert beats["missed"] == beats["broken"] == 0
    assert 50 < beats["gap_ms"] < 20000, "the container stood still while it travelled, and says so itself"
    ssh("labtest2", "podman rm -f -t0 beat")


def test_limited_uplink(fleet):
    """What is sent, and what arrives, is held to the rate; lifting it is one call too."""
    limits = json.dumps({"lab_limits": {"rate": "100mbit"}})
    assert changed(play("shape.yml", "-e", limits)) == 4
    assert changed(play("shape.yml", "-e", limits)) == 0
    script = (
        "import subprocess, time; began = time.monotonic(); "
        "subprocess.run(\"head -c 25000000 /dev/zero | ssh labtest2 cat\", shell=True, check=True, stdout=subprocess.DEVNULL); "
        "print(time.monotonic() - began)"
    )
    # There is no upper bound: how much slower a busy machine is says nothing about the limit.
    assert float(ssh("labtest1", f"python3 -c '{script}'")) > 1.9, "200 Mbit over a link of 100 Mbit/s, there and back at the same time"
    assert changed(play("shape.yml")) == 4
    assert "tbf" not in ssh("labtest1", "tc qdisc show dev host0")


def test_left_over_things_are_named(fleet):
    result = play("check_clean.yml", fails=True)
    said = json.dumps(result)
    for thing in ("systemd-nspawn of labtest1", f"mount {STATE}/hosts/labtest1/root", "bridge handover9", "address 10.214.0.1"):
        assert thing in said


@pytest.mark.parametrize("killed", [False, True], ids=["running", "killed"])
def test_take_down_of_a_fleet_in_the_worst_state(fleet, killed):
    """A frozen file system with a writer that hangs in it, a loop device nobody mounts, one whose file is gone, files that nobody may remove."""
    play("create.yml")
    ssh("labtest1", """set -e
        mkdir -p /var/lib/handover/mnt/frozen /var/lib/handover/volumes; cd /var/lib/handover/volumes
        truncate -s 64M frozen.img idle.img unlinked.img
        mkfs.ext4 -q frozen.img
        mount -o loop frozen.img /var/lib/handover/mnt/frozen
        losetup -f idle.img; losetup -f unlinked.img; rm unlinked.img
        truncate -s 8M /root/in-overlay.img; losetup -f /root/in-overlay.img
        touch fixed log; chattr +i fixed; chattr +a log
        setsid sh -c 'trap "" TERM HUP; while :; do date >> /var/lib/handover/mnt/frozen/log; done' >/dev/null 2>&1 </dev/null &
        sleep 0.3
        fsfreeze -f /var/lib/handover/mnt/frozen""")
    # What a fleet beside this one has unlinked is found, too, as long as the host lives.
    made = {"frozen.img", "idle.img", "unlinked.img", "in-overlay.img"}
    loops = [loop for loop in lab_machine.loops(str(STATE / "hosts" / "labtest1"), alive=True) if os.path.basename(loop.backing).split()[0] in made]
    assert len(loops) == 4
    locks = {lock_of(host) for host in fleet}
    if killed:
        for nspawn in lab_machine.running_hosts(str(STATE)).values():
            os.kill(nspawn, signal.SIGKILL)
    assert changed(play("destroy.yml")) > 0
    assert not {loop.identity for loop in loops} & {loop.identity for loop in lab_machine.bound_loops()}
    assert not any(lock.exists() for lock in locks)
    assert not STATE.exists()
    assert changed(play("destroy.yml")) == 0


@pytest.mark.parametrize("seconds", [4, 8])
def test_take_down_after_a_run_that_was_killed(fleet, seconds):
    """The run is killed with everything it started in its own session; hosts that boot live on."""
    run = subprocess.Popen(
        command("create.yml"), env=ENVIRONMENT, cwd=REPOSITORY, stdout=subprocess.DEVNULL, start_new_session=True
    )
    time.sleep(seconds)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    play("destroy.yml")
    assert not lab_machine.running_hosts(str(STATE)) and not lab_machine.cgroups(str(STATE)) and not STATE.exists()


def test_a_lab_whose_name_begins_with_this_ones_is_another():
    """What is taken down is this lab's, and nobody else's."""
    folders = [os.path.join(tree, lab_machine.cgroup_name(f"{STATE}-other", "host")) for tree in lab_machine.cgroup_trees()]
    try:
        for folder in folders:
            os.mkdir(folder)
        assert set(lab_machine.cgroups(f"{STATE}-other")) == set(folders)
        assert not set(lab_machine.cgroups(str(STATE))) & set(folders)
    finally:
        for folder in folders:
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(folder)


def test_no_root_no_lab(fleet):
    """One sentence with what to do, before anything is touched."""
    done = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *command("create.yml")],
        env={**ENVIRONMENT, "HOME": "/tmp", "ANSIBLE_LOCAL_TEMP": "/tmp/handover-labtest-nobody"},
        cwd="/", capture_output=True, text=True, check=False,
    )
    shutil.rmtree("/tmp/handover-labtest-nobody", ignore_errors=True)
    assert done.returncode and "needs root: run this as root" in done.stdout
    assert not STATE.exists()
