# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stand-in for the vzctl of libvzctl, with its checkpoints: `vzctl` itself in the era 7, and the freezer of `vzctl-stock` under another name.

A checkpoint without a word of its own is the whole dump and the end of the container. It goes to the folder that --dumpfile names, or to dump/Dump in the
private area: under that name with .tmp until CRIU has ended, and .fail where it has failed. If the name cannot be given the container stays mounted (16).
--suspend and --resume are the freezer alone, and a container that it keeps is "paused".

A restore begins with its folder (17 without one). CRIU leaves the container's freezer before it comes to the action script that the host's configuration
names: libvzctl's own is asked first. Where CRIU fails all tasks are ended, and the status is 17. Where it ends well its logs are in a folder with .restore,
and the dump is removed if it was in the private area. A start restores one that is suspended, and lets one go on that is paused.

A ploop disk is checked (e2fsck -p) and mounted by the start or the restore itself, which unmounts first what is mounted. It is unmounted when the container
has ended, also by a checkpoint. Its process keeps the file with its lines open: CRIU restores that only where it has the length of the dump.

A checkpoint locks the entry of the container as long as it lasts. While that is locked no command of an operator's is run in it (8), unless --skiplock
is said.

`restore fails` in FAULT of the state folder is a restore that has failed and ends with 0. CTID.actions has the steps at which the own script was asked.
"""

import contextlib
import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from importlib.machinery import SourceFileLoader
from pathlib import Path

STOCK = "/usr/local/sbin/vzctl-stock"
ENTRY = Path("/var/lock/vzctl")

sys.dont_write_bytecode = True
loader = SourceFileLoader("vzctl_stock", STOCK)
stock = importlib.util.module_from_spec(importlib.util.spec_from_loader("vzctl_stock", loader))
loader.exec_module(stock)
vzctl = stock.vzctl
stock.NAME = "machine.slice/{0}"

# Of a container with a disk.
KEPT = """
import sys, time
number = 0
with open(sys.argv[1] + "/var/log/beat", "a+") as beat:
    while True:
        number += 1
        beat.write(f"{number}\\n")
        beat.flush()
        with open(sys.argv[2], "a") as witness:
            witness.write(f"{time.time_ns()}\\n")
        time.sleep(0.1)
"""

# What libvzctl does by its own action script, as far as a move can see it.
ACTIONS = """#!/bin/sh
echo "$CRTOOLS_SCRIPT_ACTION" >>{state}/{ctid}.actions
case $CRTOOLS_SCRIPT_ACTION in
post-dump) echo core >"$CRTOOLS_IMAGE_DIR/vz_core_pattern.img" ;;
post-restore) {leave} ;;
esac
"""


def own_script(ctid: str) -> str:
    path = vzctl.STATE / f"{ctid}.script"
    # In the plain folder of a test nothing has entered it.
    leave = ":" if vzctl.read("FREEZER") else f"echo $PPID >{stock.freezers()}/cgroup.procs"
    path.write_text(ACTIONS.format(state=vzctl.STATE, ctid=ctid, leave=leave), encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def in_the_area(ctid: str) -> Path:
    return Path(vzctl.value(ctid, "VE_PRIVATE", f"/vz/private/{ctid}"), "dump", "Dump")


def place_of(ctid: str, options: dict) -> Path:
    return Path(options.get("--dumpfile") or in_the_area(ctid))


def frozen(ctid: str) -> bool:
    state = stock.freezer(ctid) / "freezer.state"
    return state.exists() and state.read_text(encoding="utf-8").strip() == "FROZEN"


def freeze(ctid: str, word: str) -> int:
    (stock.freezer(ctid) / "freezer.state").write_text(word, encoding="utf-8")
    return 0


def mounted(ctid: str, up: int) -> bool:
    """Of a disk it asks the image, and else its own word."""
    return os.path.ismount(vzctl.root_of(ctid)) if vzctl.plain_disk(ctid) else bool(up or vzctl.read(f"{ctid}.mounted"))


def mount_disk(ctid: str) -> None:
    disk = vzctl.plain_disk(ctid)
    if disk and not os.path.ismount(vzctl.root_of(ctid)):
        script = 'dev=$(losetup --find --show --offset 1M "$1") && { e2fsck -p "$dev"; end=$?; losetup --detach "$dev"; exit $end; }'
        checked = subprocess.run(["sh", "-c", script, "sh", disk], check=False, stdin=subprocess.DEVNULL).returncode
        if checked > 1:
            raise SystemExit(vzctl.refuse(151, f"Failed to mount image {disk}: e2fsck has ended with {checked}"))
        vzctl_mount_disk(ctid)


def status(ctid: str) -> int:
    if not (vzctl.CONF / f"{ctid}.conf").exists():
        print("VEID", ctid, "deleted unmounted down")
        return 0
    up = stock.running(ctid)
    state = ("paused" if frozen(ctid) else "running") if up else "suspended" if in_the_area(ctid).is_dir() else "down"
    print("VEID", ctid, "exist", "mounted" if mounted(ctid, up) else "unmounted", state)
    return 0


@contextlib.contextmanager
def entry_locked(ctid: str, how: int, patience: float = 6) -> object:
    """A checkpoint goes on where it does not get it in time."""
    ENTRY.mkdir(parents=True, exist_ok=True)
    with (ENTRY / f"{ctid}-enter.lck").open("a", encoding="utf-8") as file:
        end = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(file, how | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() < end:
                    time.sleep(0.05)
                    continue
                yield False
            else:
                yield True
            return


def execute(ctid: str, words: list, skips_lock: bool) -> int:
    if not stock.running(ctid):
        return vzctl.refuse(31, "Container is not running")
    with entry_locked(ctid, fcntl.LOCK_SH, 0) as free:
        if not free and not skips_lock:
            return vzctl.refuse(8, "Unable to lock ENTER operation")
    return vzctl.inside(words, lambda: stock.enter(ctid))


def after_the_end(ctid: str) -> None:
    vzctl.umount(ctid)
    (vzctl.STATE / f"{ctid}.pid").unlink(missing_ok=True)


def criu(ctid: str, verb: str, *words: str, enters: bool = False) -> bool:
    asked = ["criu", verb, "--manage-cgroups=ignore", "--log-file", f"{verb}.log", "--action-script", own_script(ctid), *words]
    return subprocess.run(asked, stdin=subprocess.DEVNULL, check=False, preexec_fn=(lambda: stock.enter(ctid)) if enters else None).returncode == 0


def chkpnt(ctid: str, options: dict) -> int:
    if not stock.running(ctid):
        return vzctl.refuse(31, "Container is not running")
    if vzctl.read("FAULT") == "chkpnt":
        return 0
    if "--suspend" in options or "--resume" in options:
        return freeze(ctid, "FROZEN" if "--suspend" in options else "THAWED")
    print("Setting up checkpoint...")
    with entry_locked(ctid, fcntl.LOCK_EX):
        return checkpoint(ctid, place_of(ctid, options))


def checkpoint(ctid: str, place: Path) -> int:
    images = Path(f"{place}.tmp")
    shutil.rmtree(images, ignore_errors=True)
    images.mkdir(parents=True)
    vzctl.write(f"{ctid}.mounted", "yes")
    if not criu(ctid, "dump", "--images-dir", str(images), "--freeze-cgroup", str(stock.freezer(ctid)), "--tree", vzctl.read(f"{ctid}.pid")):
        shutil.rmtree(f"{place}.fail", ignore_errors=True)
        subprocess.run(["mv", "-f", str(images), f"{place}.fail"], check=False)
        return vzctl.refuse(16, f"Failed to checkpoint the Container\nAll dump files and logs were saved to {place}.fail\nCheckpointing failed")
    shutil.rmtree(place, ignore_errors=True)
    if subprocess.run(["mv", str(images), str(place)], check=False).returncode:
        return vzctl.refuse(16, f"Failed to mv {images}\nCheckpointing failed")
    until = time.monotonic() + 5
    while stock.running(ctid) and time.monotonic() < until:
        time.sleep(0.02)
    after_the_end(ctid)
    print("Checkpointing finished successfully")
    return 0


def restore(ctid: str, options: dict) -> int:
    place = place_of(ctid, options)
    if stock.running(ctid):
        return vzctl.refuse(32, "Container is already running")
    if not place.is_dir():
        return vzctl.refuse(17, "Container is not suspended")
    vzctl.umount(ctid)
    refused = vzctl.premount(ctid)
    if refused or vzctl.read("FAULT") == "restore":
        return refused
    vzctl.mount_disk(ctid)
    pid = vzctl.STATE / f"{ctid}.pid"
    pid.unlink(missing_ok=True)
    vzctl.write(f"{ctid}.mounted", "yes")
    if not criu(ctid, "restore", "--images-dir", str(place), "--work-dir", str(place), "--restore-detached", f"--pidfile={pid}", enters=True):
        print(f"The restore log was saved in {place}/restore.log", file=sys.stderr)
        stock.end(ctid, 0)
        after_the_end(ctid)
        return 0 if vzctl.read("FAULT") == "restore fails" else vzctl.refuse(17, "Failed to restore the Container")
    kept = Path(f"{place}.restore")
    kept.mkdir(exist_ok=True)
    for log in ("dump.log", "restore.log"):
        if (place / log).exists():
            (place / log).rename(kept / log)
    if "--dumpfile" not in options:
        shutil.rmtree(place)
    print("Container was restored successfully")
    return 0


def start(ctid: str) -> int:
    if stock.running(ctid) and frozen(ctid):
        print("Unpause the Container")
        return freeze(ctid, "THAWED")
    if in_the_area(ctid).is_dir() and restore(ctid, {}) == 0:
        return 0
    if vzctl.plain_disk(ctid):
        vzctl.BEAT = KEPT
    return vzctl_start(ctid)


def stop(ctid: str) -> int:
    if stock.running(ctid) and frozen(ctid):
        freeze(ctid, "THAWED")
    ended = vzctl_stop(ctid)
    vzctl.umount(ctid)
    return ended


vzctl_start, vzctl_stop, vzctl_mount_disk = vzctl.start, vzctl.stop, vzctl.mount_disk
vzctl.status, vzctl.start, vzctl.stop, vzctl.chkpnt, vzctl.restore = status, start, stop, chkpnt, restore
vzctl.mount_disk, vzctl.execute = mount_disk, execute

if __name__ == "__main__":
    sys.exit(vzctl.main(sys.argv[1:]))
