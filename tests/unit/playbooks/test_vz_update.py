# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

"""The playbook vz_update on stand-ins for rpm, yum and the reboot, which keep their state in files and refuse what the real ones refuse."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.livefleet.handover.plugins.plugin_utils._declaration import COLLECTION

pytest.importorskip("ansible_collections.community.general", reason="community.general is not installed beside this ansible-core: the part `python` has it")

PLAYBOOK = Path(sys.executable).with_name("ansible-playbook")
OLD, NEW = "2.6.32-042stab059.7", "2.6.32-042stab061.2"

# One program under eight names. Its state: kernel, boot, rpms (a line each), updates (a line each), log; of the containers `places` (id and host, a line
# each), of which veinfo-HOST is the kernel's list. HOST is the host that it runs on.
STAND_IN = r'''#!{python}
import os, sys
from pathlib import Path
STATE = Path("{state}")
def lines(name): return [l for l in (STATE / name).read_text().splitlines() if l]
def write(name, text): (STATE / name).write_text(text)
tool, words = os.path.basename(sys.argv[0]), sys.argv[1:]
installed = dict((l.split()[0] + "-" + l.split()[1] + "." + l.split()[2], l.split()) for l in lines("rpms"))
names = {{each[0] for each in installed.values()}}
offers = {{l.split()[0].rpartition(".")[0]: l.split()[1] for l in lines("updates")}}
def log(text):
    with (STATE / "log").open("a") as f: f.write(text + "\n")
def keep(rows): write("rpms", "".join(" ".join(r) + "\n" for r in rows))
def offer(left): write("updates", "".join(f"{{n}}.x86_64 {{v}} repo\n" for n, v in offers.items() if n in left))
def number(v): return [int(x) if x.isdigit() else 0 for x in v.replace("-", ".").replace("stab", ".").split(".")]
def check(rows):
    """What rpm refuses: an old vzctl without ploop, a new ploop beside an old kernel or on RHEL5."""
    have = {{r[0]: r[1] for r in rows}}
    if number(have.get("vzctl", "4"))[0] < 4 and "ploop" not in have: sys.exit("vzctl requires ploop")
    if number(have.get("ploop", "1.4"))[:2] >= [1, 5]:
        for r in rows:
            if r[0] == "vzkernel" and number(r[1]) < number("2.6.32-042stab061.1"): sys.exit("ploop conflicts with " + r[1])
    return rows
def updated(rows, which):
    rows = [r for r in rows if not (r[0] in which and r[0] in offers and r[0] != "vzkernel")]
    return rows + [[n, offers[n], "x86_64"] for n in which if n in offers and n in names]
if tool == "uname": print(lines("kernel")[0]) if words == ["-r"] else os.execv("/bin/uname", ["uname", *words])
elif tool == "cat":
    if words == ["/proc/sys/kernel/random/boot_id"]: print(lines("boot")[0])
    else: os.execv("/bin/cat", ["cat", *words])
elif tool in ("ssh", "vzctl", "vzmigrate"):
    own, places = os.environ["HOST"], dict(l.split() for l in lines("places"))
    hosts = {{"192.0.2.1": "vz1", "192.0.2.2": "vz2"}}
    if tool == "ssh":
        if lines("unreachable"): sys.exit("Permission denied (publickey).")
    elif words[0] == "status":
        print(f"CTID {{words[1]}} " + ("exist mounted running" if places.get(words[1]) == own else "deleted unmounted down"))
    elif tool == "vzmigrate":
        there, ctid = hosts[words[1]], words[2]
        log(f"{{ctid}} to {{there}}")
        if ctid in lines("busy"): print("CT is locked"); sys.exit(20)
        if places.get(ctid) != own: sys.exit(10)
        places[ctid] = there
        write("places", "".join(f"{{c}} {{h}}\n" for c, h in places.items()))
        for host in hosts.values():
            write("veinfo-" + host, "  0 0 8\n" + "".join(f" {{c}} 1 8 10.0.0.1\n" for c, h in places.items() if h == host))
elif tool == "reboot":
    log("reboot")
    if "vz1" in (STATE / "places").read_text(): log("and has stopped containers")
    newest = max((r[1] for r in installed.values() if r[0] == "vzkernel"), key=number)
    write("kernel", (lines("sticks") or [newest])[0])
    write("boot", "second")
elif tool == "rpm":
    if words[0] == "-q": sys.exit(0 if words[1] in names else 1)
    print((STATE / "rpms").read_text(), end="")
elif words == ["-q", "check-update"]:
    print((STATE / "updates").read_text(), end=""); sys.exit(100 if offers else 0)
elif words == ["-y", "shell"]:
    rows = list(installed.values())
    for line in sys.stdin.read().splitlines():
        log("shell: " + line)
        verb, *rest = line.split()
        if verb == "remove": rows = [r for r in rows if r[0] not in rest]
        elif verb == "update": rows = updated(rows, rest)
        elif verb == "run":
            if lines("fails"): sys.exit(0)  # as the real shell ends
            keep(check(rows)); offer(set(offers) - {{"vzctl"}} - ({{"ploop", "ploop-lib"}}))
else:
    log("yum " + " ".join(words[1:]))
    rows = list(installed.values())
    if words[1] == "remove":
        running = lines("kernel")[0]
        if any(w == f"vzkernel-{{running}}.x86_64" for w in words): sys.exit("the running kernel is not removed")
        if not all(w in installed for w in words[2:]): sys.exit("no such package")
        keep(check([r for key, r in installed.items() if key not in words]))
    else:
        which = words[2:] or list(offers)
        keep(check(updated(rows, which))); offer(set(offers) - set(which))
'''

# In the place of ssh, which Ansible ends its calls of with the address and the command.
CONNECTION = """#!/bin/sh
while [ $# -gt 2 ]; do [ "$1" = -O ] && exit; shift; done
HOST=vz${1##*.} exec /bin/sh -c "$2"
"""


@pytest.fixture(name="host")
def some_host(tmp_path):
    state, tools = tmp_path / "state", tmp_path / "tools"
    state.mkdir()
    tools.mkdir()
    program = tools / "stand-in"
    program.write_text(STAND_IN.format(python=sys.executable, state=state), encoding="utf-8")
    program.chmod(0o755)
    for tool in ("uname", "cat", "reboot", "rpm", "yum", "ssh", "vzctl", "vzmigrate"):
        (tools / tool).symlink_to(program)
    for name in ("log", "fails", "sticks", "places", "busy", "unreachable"):
        (state / name).write_text("", encoding="utf-8")
    connection = tmp_path / "connection"
    connection.write_text(CONNECTION, encoding="utf-8")
    connection.chmod(0o755)
    hosts = [f"vz{number} ansible_host=192.0.2.{number} ansible_ssh_executable={connection} ansible_python_interpreter=/bin/false" for number in (1, 2)]
    (state / "boot").write_text("first", encoding="utf-8")
    found = tmp_path / "collections" / "ansible_collections" / "livefleet"
    found.mkdir(parents=True)
    (found / "handover").symlink_to(COLLECTION)
    (tmp_path / "inventory").write_text("\n".join([*hosts, ""]), encoding="utf-8")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    environment.update(
        ANSIBLE_COLLECTIONS_PATH=str(tmp_path / "collections"), ANSIBLE_NOCOLOR="1", ANSIBLE_HOME=str(tmp_path / "home"), COLUMNS="1000",
        PATH=f"{tools}:{environment['PATH']}",
    )  # fmt: skip

    class Host:
        def set(self, **files):
            for name, text in files.items():
                (state / name).write_text(text, encoding="utf-8")

        def update(self, *arguments):
            done = subprocess.run(
                [PLAYBOOK, "-i", tmp_path / "inventory", "livefleet.handover.vz_update", "-e", "handover_hosts=vz1", "-e", "__vz_update_pause=0",
                 "-e", f"__vz_update_away={state}/away", "-e", f"__vz_update_veinfo={state}/veinfo-vz1", *arguments],
                cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=120,
            )  # fmt: skip
            return done.returncode, done.stdout + done.stderr

        def places(self):
            return dict(line.split() for line in (state / "places").read_text(encoding="utf-8").splitlines())

        def away(self):
            return (state / "away").exists()

        def done(self):
            return (state / "log").read_text(encoding="utf-8").splitlines()

        def rpms(self):
            return {tuple(line.split()[:2]) for line in (state / "rpms").read_text(encoding="utf-8").splitlines()}

    return Host()


TOOLS = "vzctl 3.0.30.2-1 x86_64\nploop 1.4-1 x86_64\nploop-lib 1.4-1 x86_64\n"
OFFERED = "vzctl.x86_64 4.0-1 repo\nploop.x86_64 1.5-1 repo\nploop-lib.x86_64 1.5-1 repo\n"
NEW_TOOLS = {("vzctl", "4.0-1"), ("ploop", "1.5-1"), ("ploop-lib", "1.5-1")}
SITUATIONS = {
    "a RHEL5-based kernel": (
        {"kernel": "2.6.18-028stab101.1", "rpms": TOOLS, "updates": OFFERED},
        ["shell: remove ploop ploop-lib", "shell: update vzctl", "shell: run"],
        {("vzctl", "4.0-1")},
    ),
    "an old kernel runs": (
        {"kernel": OLD, "rpms": f"{TOOLS}vzkernel {OLD} x86_64\n", "updates": f"{OFFERED}vzkernel.x86_64 {NEW} repo\n"},
        ["yum update vzkernel", "reboot", f"yum remove vzkernel-{OLD}.x86_64", "yum update"],
        {*NEW_TOOLS, ("vzkernel", NEW)},
    ),
    "an old kernel is installed": (
        {"kernel": NEW, "rpms": f"{TOOLS}vzkernel {OLD} x86_64\nvzkernel {NEW} x86_64\n", "updates": OFFERED},
        [f"yum remove vzkernel-{OLD}.x86_64", "yum update"],
        {*NEW_TOOLS, ("vzkernel", NEW)},
    ),
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_the_texts_situations(host, situation):
    state, steps, left = SITUATIONS[situation]
    host.set(**state)
    status, said = host.update()
    assert status == 0, said
    assert host.done() == steps
    assert host.rpms() == left


def test_a_trial_prints_each_step_with_its_reason_and_a_second_run_does_nothing(host):
    state, steps, left = SITUATIONS["an old kernel is installed"]
    host.set(**state)
    status, said = host.update("--check")
    assert status == 0, said
    assert re.findall(r"^ *\d\. (.*?) *$", said, re.M) == steps
    assert len(re.findall("^ *because ", said, re.M)) == len(steps)
    assert host.done() == []
    host.set(rpms="".join(f"{name} {version} x86_64\n" for name, version in left), updates="")
    status, said = host.update()
    assert status == 0 and "nothing to do" in said, said
    assert host.done() == []


def test_a_host_that_boots_its_old_kernel_again_keeps_it(host):
    host.set(**SITUATIONS["an old kernel runs"][0], sticks=OLD)
    status, said = host.update()
    assert status != 0 and f"it has booted {OLD} again, and not the new kernel" in said, said
    assert host.done() == ["yum update vzkernel", "reboot"]


def test_a_transaction_that_was_not_carried_out_fails_the_play(host):
    host.set(**SITUATIONS["a RHEL5-based kernel"][0], fails="yes")
    status, said = host.update()
    assert status != 0 and "Refuse a transaction that was not carried out" in said, said


def test_another_host_is_left_alone(host):
    host.set(kernel="6.1.0-13-amd64", rpms="", updates="")
    status, said = host.update()
    assert status != 0 and "is no kernel of OpenVZ's" in said, said
    assert host.done() == []


OLD_RUNS = {**SITUATIONS["an old kernel runs"][0], "places": "101 vz1\n102 vz1\n103 vz2\n", "veinfo-vz1": "  0 0 8\n 101 1 8 10.0.0.1\n 102 1 8 10.0.0.2\n"}
AT_HOME = {"101": "vz1", "102": "vz1", "103": "vz2"}
DRAIN = ("-e", "vz_update_drain_to=vz2")


def test_the_containers_are_away_at_the_reboot_and_back_when_all_is_updated(host):
    host.set(**OLD_RUNS)
    status, said = host.update(*DRAIN)
    assert status == 0, said
    assert host.done() == [
        "yum update vzkernel", "101 to vz2", "102 to vz2", "reboot", f"yum remove vzkernel-{OLD}.x86_64", "yum update", "101 to vz1", "102 to vz1"
    ]  # fmt: skip
    assert (host.places(), host.away()) == (AT_HOME, False)
    status, said = host.update(*DRAIN)
    assert status == 0 and "nothing to do" in said, said
    assert host.places() == AT_HOME


def test_a_trial_says_which_containers_would_go_and_moves_none(host):
    host.set(**OLD_RUNS)
    status, said = host.update(*DRAIN, "--check")
    assert status == 0 and "before the reboot 101, 102 to vz2, live, and back at the end" in said, said
    assert (host.done(), host.away()) == ([], False)


def test_without_a_place_for_the_containers_nothing_is_touched(host):
    host.set(**OLD_RUNS)
    for arguments, sentence in (
        ((), "containers run here, and the host has to be rebooted: 101, 102"),
        (("-e", "vz_update_drain_to=vz9"), "vz_update_drain_to is vz9, and that is no host of the inventory"),
        (("-e", "vz_update_drain_to=vz1"), "vz_update_drain_to is vz1, and that is this very host"),
    ):
        status, said = host.update(*arguments)
        assert status != 0 and sentence in said, said
    host.set(unreachable="yes")
    for arguments in (DRAIN, (*DRAIN, "--check")):
        status, said = host.update(*arguments)
        assert status != 0, said
        assert "vz1 cannot move containers to vz2: it needs vzmigrate, and root's ssh to 192.0.2.2 without a password (Permission denied" in said, said
    assert host.done() == []


def test_a_container_that_does_not_go_keeps_the_host_from_its_reboot_and_the_next_run_ends_it(host):
    host.set(**OLD_RUNS, busy="102")
    status, said = host.update(*DRAIN)
    assert status != 0 and "container 102 was not moved from vz1 to vz2: somebody works on it: wait until vzctl is done (CT is locked)" in said, said
    assert "reboot" not in host.done() and host.places() == {**AT_HOME, "101": "vz2"}
    host.set(busy="", log="")
    status, said = host.update(*DRAIN)
    assert status == 0, said
    assert host.done() == ["102 to vz2", "reboot", f"yum remove vzkernel-{OLD}.x86_64", "yum update", "101 to vz1", "102 to vz1"]
    assert (host.places(), host.away()) == (AT_HOME, False)
