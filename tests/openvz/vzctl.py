# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A stand-in for vzctl on a host without OpenVZ's kernel, as far as an import and a move use it.

It keeps its state in files, has the exit statuses and the words of both eras (ERA in its state folder is 4 or 7), and refuses what the real one refuses:
a start of a disabled container (8), a second start (32), a stop of one that does not run (31), a start that the script vps.premount or CTID.premount is
against (79), and to destroy one that runs (32). A container that runs is a process that writes a line into /var/log/beat every tenth of a second: in its
folder if it is a directory container. CTID.witness in the state folder has the time of each, and stays on the host. FAULT there names a verb that ends with 0
and does nothing.

A ploop container with the file root.hdd/root.hds.counted counts in it as the kernel writes to a ploop disk: by no system call that a watcher would be told of.
CTID.counted in the state folder has the first number and the last one that this host has seen.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

STATE = Path("/var/lib/vzctl-stand-in")
CONF = Path("/etc/vz/conf")
BEAT = 'n=0; while :; do n=$((n+1)); echo "$n" >>"$1/var/log/beat"; date +%s%N >>"$2"; sleep 0.1; done'

COUNT = """
import mmap, os, sys, time
path, said = sys.argv[1:3]
with open(path, "r+b") as disk:
    page = mmap.mmap(disk.fileno(), 4096)
first = number = int.from_bytes(page[:8], "little")
while True:
    number += 1
    page[:8] = number.to_bytes(8, "little")
    with open(said + ".new", "w") as file:
        file.write(f"{first} {number}")
    os.replace(said + ".new", said)
    time.sleep(0.05)
"""


def read(name: str, default: str = "") -> str:
    path = STATE / name
    return path.read_text(encoding="utf-8").strip() if path.exists() else default


def value(ctid: str, name: str, default: str = "") -> str:
    found = re.findall(rf'^\s*{name}="?([^"\n]*)"?\s*$', (CONF / f"{ctid}.conf").read_text(encoding="utf-8"), re.MULTILINE)
    return found[0].replace("$VEID", ctid) if found else default


def running(ctid: str) -> int:
    pid = read(f"{ctid}.pid")
    words = Path(f"/proc/{pid}/cmdline")
    # After a power cut the number is another process's, or nobody's.
    return int(pid) if pid and words.exists() and f"{ctid}.witness" in words.read_text(encoding="utf-8") else 0


def status(ctid: str) -> int:
    word = "VEID" if read("ERA", "4") == "7" else "CTID"
    if not (CONF / f"{ctid}.conf").exists():
        print(word, ctid, "deleted", "unmounted", "down")
        return 0
    up = running(ctid)
    print(word, ctid, "exist", "mounted" if up or read(f"{ctid}.mounted") else "unmounted", "running" if up else "down")
    return 0


def start(ctid: str) -> int:
    if running(ctid):
        print("Container is already running", file=sys.stderr)
        return 32
    if value(ctid, "DISABLED") == "yes":
        print(f"Container start disabled: use vzctl set {ctid} --disabled no", file=sys.stderr)
        return 8
    private = value(ctid, "VE_PRIVATE", f"/vz/private/{ctid}")
    for script in (CONF / "vps.premount", CONF / f"{ctid}.premount"):
        environment = {**os.environ, "VEID": ctid, "VE_CONFFILE": str(CONF / f"{ctid}.conf")}
        if script.exists() and subprocess.run([str(script)], env=environment, check=False).returncode:
            print(f"Error executing premount script {script}", file=sys.stderr)
            return 79
    if not os.path.isdir(private):
        print(f"Container private area {private} does not exist", file=sys.stderr)
        return 43
    writes = private if os.path.isdir(private + "/etc") else str(STATE / f"{ctid}.root")
    Path(writes, "var/log").mkdir(parents=True, exist_ok=True)
    beat = ["setsid", "sh", "-c", BEAT, "sh", writes, str(STATE / f"{ctid}.witness")]
    counted = Path(private, "root.hdd", "root.hds.counted")
    if counted.exists():
        # Its last word says to `running` who it is.
        beat = ["setsid", sys.executable, "-c", COUNT, str(counted), str(STATE / f"{ctid}.counted"), f"{ctid}.witness"]
    with subprocess.Popen(beat, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        (STATE / f"{ctid}.pid").write_text(str(child.pid), encoding="utf-8")
        print("Container start in progress...")
        os._exit(0)


def stop(ctid: str) -> int:
    pid = running(ctid)
    if not pid:
        print("Unable to stop: container is not running", file=sys.stderr)
        return 31
    time.sleep(float(read("STOP_SECONDS", "0.5")))
    os.killpg(pid, signal.SIGKILL)
    (STATE / f"{ctid}.pid").unlink()
    print("Container was stopped\nContainer is unmounted")
    return 0


def destroy(ctid: str) -> int:
    if running(ctid):
        print("Container is currently mounted (umount first)", file=sys.stderr)
        return 32
    shutil.rmtree(value(ctid, "VE_PRIVATE", f"/vz/private/{ctid}"))
    (CONF / f"{ctid}.conf").rename(CONF / f"{ctid}.conf.destroyed")
    print("Container private area was destroyed")
    return 0


def set_values(ctid: str, words: list) -> int:
    if "--save" not in words:
        return 0
    words = [word for word in words if word != "--save"]
    names = {"--disabled": "DISABLED", "--onboot": "ONBOOT"}
    path = CONF / f"{ctid}.conf"
    text = path.read_text(encoding="utf-8")
    for option, said in zip(words[::2], words[1::2]):
        if option not in names or said not in ("yes", "no"):
            print(f"Bad parameter {option} {said}", file=sys.stderr)
            return 20
        text = re.sub(rf"^{names[option]}=.*\n", "", text, flags=re.MULTILINE).rstrip("\n") + f'\n{names[option]}="{said}"\n'
    path.write_text(text, encoding="utf-8")
    print(f"CT configuration saved to {path}")
    return 0


def main(words: list) -> int:
    STATE.mkdir(parents=True, exist_ok=True)
    if words == ["--version"]:
        print("vzctl version 7.0.280" if read("ERA", "4") == "7" else "vzctl version 4.11.1")
        return 0
    if len(words) < 2:
        print("Usage: vzctl <command> <ctid> [parameters]", file=sys.stderr)
        return 21
    verb, ctid, *rest = words
    if verb == "status":
        return status(ctid)
    if not (CONF / f"{ctid}.conf").exists():
        print("Container config file does not exist", file=sys.stderr)
        return 14
    (STATE / "log").open("a", encoding="utf-8").write(" ".join(words) + "\n")
    if read("FAULT") == verb:
        return 0
    if verb == "umount":
        (STATE / f"{ctid}.mounted").unlink(missing_ok=True)
        return 0
    verbs = {"start": lambda: start(ctid), "stop": lambda: stop(ctid), "set": lambda: set_values(ctid, rest), "destroy": lambda: destroy(ctid)}
    if verb not in verbs:
        print(f"Bad command {verb}", file=sys.stderr)
        return 20
    return verbs[verb]()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
