# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stand-in for vzctl 4.11 on a kernel that is not OpenVZ's: `vzctl` itself, with the checkpoints of CRIU that a stock kernel has.

A container is in a freezer of its own (cgroup v1), whose name is vz-CTID; it runs as long as a task is in it, also one of CRIU's. A checkpoint is the whole
dump, to the folder Dump.CTID, and the end of the container; --dump, --resume and --kill find nothing after it (31). A dump that failed is Dump.CTID.fail. A
restore is whole, removes its dump, and begins with that (17 without one). It ends with 0 where CRIU has failed. A command that an operator runs in it enters
its freezer first.

FAULT in the state folder is as for `vzctl`. FREEZER in it names a plain folder that stands for the mount of the freezers.
"""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from importlib.machinery import SourceFileLoader
from pathlib import Path

VZCTL = "/usr/local/sbin/vzctl"
FREEZERS = Path("/run/vzctl-freezer")
NAME = "vz-{0}"

sys.dont_write_bytecode = True
loader = SourceFileLoader("vzctl", VZCTL)
vzctl = importlib.util.module_from_spec(importlib.util.spec_from_loader("vzctl", loader))
loader.exec_module(vzctl)


def freezers() -> Path:
    plain = vzctl.read("FREEZER")
    return Path(plain) if plain else FREEZERS / os.uname().nodename


def freezer(ctid: str) -> Path:
    """Hosts of one fleet have the freezers of their machine in common."""
    plain = vzctl.read("FREEZER")
    if not plain and not os.path.ismount(FREEZERS):
        FREEZERS.mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "cgroup", "-o", "freezer", "cgroup", str(FREEZERS)], check=True, stdin=subprocess.DEVNULL)
    folder = freezers() / NAME.format(ctid)
    folder.mkdir(parents=True, exist_ok=True)
    if plain and not (folder / "tasks").is_symlink():
        (folder / "tasks").symlink_to("cgroup.procs")
    return folder


def tasks(ctid: str) -> list:
    """A task of another host's has no number here. In a plain folder those stay that have ended."""
    file = freezer(ctid) / "cgroup.procs"
    found = [int(line) for line in file.read_text(encoding="utf-8").split() if line != "0"] if file.exists() else []
    return [pid for pid in found if os.path.exists(f"/proc/{pid}") and " Z " not in Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")]


def enter(ctid: str) -> None:
    with (freezer(ctid) / "cgroup.procs").open("a", encoding="utf-8") as file:
        file.write(f"{os.getpid()}\n")


def running(ctid: str) -> int:
    found = tasks(ctid)
    return found[0] if found else vzctl_running(ctid)


def spawn(words: list) -> int:
    """Its tasks are in its freezer from the first instruction on."""
    ctid = next(word for word in words if word.endswith(".witness")).rpartition("/")[2].partition(".")[0]
    return vzctl_spawn(["/bin/sh", "-c", 'echo $$ >>"$0" && exec "$@"', str(freezer(ctid) / "cgroup.procs"), *words])


def end(ctid: str, _pid: int) -> None:
    while found := tasks(ctid) or ([vzctl_running(ctid)] if vzctl_running(ctid) else []):
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.01)
    (vzctl.STATE / f"{ctid}.pid").unlink(missing_ok=True)


def give_up(ctid: str) -> None:
    """A restore that failed has no cgroup any more. Tasks that are left in it are none of vzctl's then."""
    folder = freezer(ctid)
    for pid in tasks(ctid):
        with (folder.parent / "cgroup.procs").open("a", encoding="utf-8") as file:
            file.write(f"{pid}\n")
    if vzctl.read("FREEZER"):
        (folder / "cgroup.procs").write_text("", encoding="utf-8")
    (vzctl.STATE / f"{ctid}.pid").unlink(missing_ok=True)


def dump_of(ctid: str) -> Path:
    return Path(vzctl.value(ctid, "DUMPDIR", "/vz/dump"), f"Dump.{ctid}")


def chkpnt(ctid: str, options: dict) -> int:
    if "--resume" in options or "--kill" in options or not running(ctid):
        return vzctl.refuse(31, "Unable to setup checkpointing: container is not running")
    if vzctl.read("FAULT") == "chkpnt":
        return 0
    images, first = dump_of(ctid), vzctl.read(f"{ctid}.pid")
    images.parent.mkdir(parents=True, exist_ok=True)
    images.mkdir()
    asked = ["criu", "dump", "--images-dir", str(images), "--manage-cgroups=ignore", "--log-file", "dump.log", "--tree", first]
    if subprocess.run(asked, stdin=subprocess.DEVNULL, check=False).returncode:
        shutil.rmtree(f"{images}.fail", ignore_errors=True)
        subprocess.run(["mv", "-f", str(images), f"{images}.fail"], check=False)
        return vzctl.refuse(16, f"Failed to checkpoint the Container\nAll dump files and logs were saved to {images}.fail")
    print("Checkpointing finished successfully")
    return 0


def restore(ctid: str, _options: dict) -> int:
    images = dump_of(ctid)
    if running(ctid):
        return vzctl.refuse(32, "Unable to perform restore: container already running")
    if not images.is_dir():
        return vzctl.refuse(17, f"Unable to open {images}: No such file or directory")
    refused = vzctl.premount(ctid)
    if refused or vzctl.read("FAULT") == "restore":
        return refused
    pid = vzctl.STATE / f"{ctid}.pid"
    pid.unlink(missing_ok=True)
    asked = ["criu", "restore", "--images-dir", str(images), "--manage-cgroups=ignore", "--log-file", "restore.log", "--restore-detached", f"--pidfile={pid}"]
    # CRIU itself is a task of the container, and so is the script that waits for it.
    if subprocess.run(["sh", "-c", '"$@"; exit $?', "sh", *asked], stdin=subprocess.DEVNULL, check=False, preexec_fn=lambda: enter(ctid)).returncode:
        vzctl.write(f"{ctid}.mounted", "yes")
        give_up(ctid)
        print(f"The restore log was saved in {images}/restore.log", file=sys.stderr)
        return 0
    if any(images.glob(".criu.cgyard.*")):
        # That of a CRIU that was killed is mounted there: nothing removes it, and a restore that went well is taken for one that failed.
        print(f"rm: cannot remove {images}: Operation not permitted", file=sys.stderr)
        return 0
    shutil.rmtree(images)
    return 0


def execute(ctid: str, words: list, _skips_lock: bool) -> int:
    return vzctl.inside(words, lambda: enter(ctid)) if running(ctid) else vzctl.refuse(31, "Container is not running")


vzctl_running, vzctl_spawn = vzctl.running, vzctl.spawn
vzctl.running, vzctl.spawn, vzctl.end, vzctl.chkpnt, vzctl.restore, vzctl.execute = running, spawn, end, chkpnt, restore, execute

if __name__ == "__main__":
    sys.exit(vzctl.main(sys.argv[1:]))
