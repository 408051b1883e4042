# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A stand-in for vzctl on a host without OpenVZ's kernel, as far as an import and a move use it.

It keeps its state in files, has the exit statuses and the words of both eras (ERA in its state folder is 4 or 7), and refuses what the real one refuses:
a start of a disabled container (8), a second start (32), a stop of one that does not run (31), a start or restore that the script vps.premount or CTID.premount
is against (79), to destroy one that runs (32), and any work on one that another process has locked (9). A container that runs is a process that writes a line
into /var/log/beat every tenth of a second: in its folder if it is a directory container. CTID.witness in the state folder has the time of each, and stays on
the host.

A checkpoint is the one of kernel 2.6.32: --suspend, --dump, and then --resume or --kill; --undump there, and then --resume or --kill. Each refuses (16, 17)
what does not follow. The process is really stopped, and CRIU dumps and restores it underneath. As the real one, a restore ends with 0 where CRIU has failed.

FAULT in the state folder names a verb, or a verb and its option, that ends with 0 and does nothing; `runs --undump` is one that does not hold what it restored.

In the era 7 a container is registered by its private area: ve.conf, .ve.layout, and .owner, which names the host. Another host's is refused (140).

A ploop container with the file root.hdd/root.hds.counted counts in it as the kernel writes to a ploop disk: by no system call that a watcher would be told of.
CTID.counted in the state folder has the first number and the last one that this host has seen.
A ploop container with a plain image (as `ploop init -f raw` makes it) and a file system in it is mounted in its root, from its start or restore to its end and
umount, by a loop device that writes past the page cache and tells no watcher. Its process writes its lines there.
Where KERNEL of the state folder names another, vzctl-stock (vzctl_stock.py) or vzctl-libvzctl (vzctl_libvzctl.py) is asked instead.
"""

import ctypes
import os
import random
import re
import runpy
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

STATE = Path("/var/lib/vzctl-stand-in")
CONF = Path("/etc/vz/conf")
DEFAULTS = Path("/etc/vz/vz.conf")

BEAT = """
import sys, time
number = 0
while True:
    number += 1
    with open(sys.argv[1] + "/var/log/beat", "a") as beat:
        beat.write(f"{number}\\n")
    with open(sys.argv[2], "a") as witness:
        witness.write(f"{time.time_ns()}\\n")
    time.sleep(0.1)
"""

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


def write(name: str, text: str) -> None:
    (STATE / name).write_text(text, encoding="utf-8")


def value_in(path: Path, name: str) -> str:
    found = re.findall(rf'^\s*{name}="?([^"\n]*)"?\s*$', path.read_text(encoding="utf-8"), re.MULTILINE) if path.exists() else []
    return found[0] if found else ""


def value(ctid: str, name: str, default: str = "") -> str:
    said = value_in(CONF / f"{ctid}.conf", name) or value_in(DEFAULTS, name)
    return said.replace("$VEID", ctid) if said else default


def refuse(status: int, why: str) -> int:
    print(why, file=sys.stderr)
    return status


def running(ctid: str) -> int:
    pid = read(f"{ctid}.pid")
    words = Path(f"/proc/{pid}/cmdline")
    # After a power cut the number is another process's, or nobody's.
    return int(pid) if pid and words.exists() and f"{ctid}.witness" in words.read_text(encoding="utf-8") else 0


def stage(ctid: str) -> str:
    """How far a checkpoint or a restore has come; it goes with the processes."""
    return read(f"{ctid}.stage") if running(ctid) else ""


def status(ctid: str) -> int:
    word = "VEID" if newer() else "CTID"
    if not (CONF / f"{ctid}.conf").exists():
        print(word, ctid, "deleted", "unmounted", "down")
        return 0
    up = running(ctid)
    suspended = " suspended" if not up and Path(value(ctid, "DUMPDIR", "/vz/dump"), f"Dump.{ctid}").exists() else ""
    print(word, ctid, "exist", "mounted" if up or read(f"{ctid}.mounted") else "unmounted", ("running" if up else "down") + suspended)
    return 0


def premount(ctid: str) -> int:
    for script in (CONF / "vps.premount", CONF / f"{ctid}.premount"):
        environment = {"PATH": os.environ["PATH"], "VEID": ctid, "VE_CONFFILE": str(CONF / f"{ctid}.conf")}
        if script.exists() and subprocess.run([str(script)], env=environment, check=False).returncode:
            return refuse(79, f"Error executing premount script {script}")
    return 0


def fork(number: int) -> int:
    """A child with this number: on the host that it moves to, no other process may have it."""
    numbers = (ctypes.c_int * 1)(number)
    words = [0, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, ctypes.addressof(numbers), 1, 0]
    arguments = (ctypes.c_uint64 * len(words))(*words)
    child = ctypes.CDLL(None, use_errno=True).syscall(435, ctypes.byref(arguments), ctypes.sizeof(arguments))
    return os.fork() if child < 0 else child


def spawn(words: list) -> int:  # noqa: RET503 - the child becomes another program
    child = fork(random.randrange(1000000, 4000000))
    if child:
        return child
    os.setsid()
    os.chdir("/")
    for number in range(3):
        os.dup2(os.open(os.devnull, os.O_RDWR), number)
    os.closerange(3, 64)
    os.execv(words[0], words)


def plain_disk(ctid: str) -> str:
    """The image that a kernel without ploop can mount, too."""
    folder = Path(value(ctid, "VE_PRIVATE", f"/vz/private/{ctid}"), "root.hdd")
    descriptor = folder / "DiskDescriptor.xml"
    text = descriptor.read_text(encoding="utf-8") if descriptor.exists() else ""
    found = re.findall(r"<Type>Plain</Type><File>([^<]+)</File>", text)
    return str(folder / found[0]) if len(found) == 1 else ""


def root_of(ctid: str) -> str:
    return value(ctid, "VE_ROOT", f"/vz/root/{ctid}")


def mount_disk(ctid: str) -> None:
    disk, root = plain_disk(ctid), root_of(ctid)
    if disk and not os.path.ismount(root):
        os.makedirs(root, exist_ok=True)
        # The device goes with the mount.
        script = 'dev=$(losetup --find --show --direct-io=on --offset 1M "$1") && { mount -t ext4 "$dev" "$2"; end=$?; losetup --detach "$dev"; exit $end; }'
        subprocess.run(["sh", "-c", script, "sh", disk, root], check=True, stdin=subprocess.DEVNULL)


def unmount_disk(ctid: str) -> None:
    if plain_disk(ctid) and os.path.ismount(root_of(ctid)):
        subprocess.run(["umount", root_of(ctid)], check=True)


def start(ctid: str) -> int:
    if running(ctid):
        return refuse(32, "Container is already running")
    if value(ctid, "DISABLED") == "yes":
        return refuse(8, f"Container start disabled: use vzctl set {ctid} --disabled no")
    private = value(ctid, "VE_PRIVATE", f"/vz/private/{ctid}")
    refused = premount(ctid)
    if refused:
        return refused
    if not os.path.isdir(private):
        return refuse(43, f"Container private area {private} does not exist")
    if value(ctid, "QUOTAUGIDLIMIT", "0") != "0" and not read(f"{ctid}.quota-on"):
        if not (STATE / f"{ctid}.quota").exists():
            quotainit(ctid)
        quotaon(ctid)
    mount_disk(ctid)
    area = next((each for each in (private, f"{private}/fs") if os.path.isdir(f"{each}/etc")), str(STATE / f"{ctid}.root"))
    writes = root_of(ctid) if plain_disk(ctid) else area
    Path(writes, "var/log").mkdir(parents=True, exist_ok=True)
    beat = [sys.executable, "-c", BEAT, writes, str(STATE / f"{ctid}.witness")]
    counted = Path(private, "root.hdd", "root.hds.counted")
    if counted.exists():
        # Its last word says to `running` who it is.
        beat = [sys.executable, "-c", COUNT, str(counted), str(STATE / f"{ctid}.counted"), f"{ctid}.witness"]
    write(f"{ctid}.stage", "")
    write(f"{ctid}.pid", str(spawn(beat)))
    print("Container start in progress...")
    return 0


def end(ctid: str, pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    while running(ctid):
        time.sleep(0.01)
    (STATE / f"{ctid}.pid").unlink()


def stop(ctid: str) -> int:
    pid = running(ctid)
    if not pid:
        return refuse(31, "Unable to stop: container is not running")
    time.sleep(float(read("STOP_SECONDS", "0.5")))
    end(ctid, pid)
    unmount_disk(ctid)
    print("Container was stopped\nContainer is unmounted")
    return 0


def criu(verb: str, folder: str, *words: str) -> bool:
    with open(STATE / f"criu-{verb}.log", "wb") as log:
        asked = ["criu", verb, "--images-dir", folder, "--leave-stopped", "--manage-cgroups=ignore", "--log-file", f"{verb}.log", *words]
        return subprocess.run(asked, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False).returncode == 0


def let_go(ctid: str, pid: int, verb: str) -> int:
    print("Resuming...")
    if f"{verb} --resume" != read("FAULT"):
        os.kill(pid, signal.SIGCONT)
        write(f"{ctid}.stage", "")
    return 0


def kill(ctid: str, pid: int, verb: str) -> int:
    print("Killing...")
    if f"{verb} --kill" != read("FAULT"):
        end(ctid, pid)
        write(f"{ctid}.mounted", "yes")
    return 0


def suspend(ctid: str, pid: int, _options: dict) -> int:
    if stage(ctid):
        return refuse(16, "Can not suspend container: Device or resource busy")
    os.kill(pid, signal.SIGSTOP)
    while " T " not in Path(f"/proc/{pid}/stat").read_text(encoding="utf-8"):
        time.sleep(0.005)
    write(f"{ctid}.stage", "suspended")
    return 0


def dump(ctid: str, pid: int, options: dict) -> int:
    if stage(ctid) != "suspended":
        return refuse(16, "Can not dump container: Invalid argument")
    with tempfile.TemporaryDirectory() as images:
        if not criu("dump", images, "--tree", str(pid)):
            return refuse(16, "Can not dump container")
        with tarfile.open(options["--dumpfile"], "w") as packed:
            packed.add(images, ".")
    write(f"{ctid}.stage", "dumped")
    return 0


def chkpnt(ctid: str, options: dict) -> int:
    verb, pid = next((word for word in ("--suspend", "--dump", "--resume", "--kill") if word in options), ""), running(ctid)
    if verb in ("--resume", "--kill"):
        if stage(ctid) not in ("suspended", "dumped"):
            return refuse(16, f"Can not join cpt context {ctid}: No such file or directory")
        return (let_go if verb == "--resume" else kill)(ctid, pid, "chkpnt")
    if not pid:
        return refuse(31, "Unable to setup checkpointing: container is not running")
    if f"chkpnt {verb}" == read("FAULT"):
        return 0
    return {"--suspend": suspend, "--dump": dump}[verb](ctid, pid, options)


def restore(ctid: str, options: dict) -> int:
    pid = running(ctid)
    if "--resume" in options or "--kill" in options:
        if stage(ctid) != "undumped":
            return refuse(17, f"Can not join cpt context {ctid}: No such file or directory")
        return (let_go if "--resume" in options else kill)(ctid, pid, "restore")
    if pid:
        return refuse(32, "Unable to perform restore: container already running")
    dumped = options.get("--dumpfile", value(ctid, "DUMPDIR", "/vz/dump") + f"/Dump.{ctid}")
    if not os.path.isfile(dumped):
        return refuse(17, f"Unable to open {dumped}: No such file or directory")
    refused = premount(ctid)
    if refused or read("FAULT") == "restore --undump":
        return refused
    mount_disk(ctid)
    with tempfile.TemporaryDirectory() as images:
        with tarfile.open(dumped) as packed:
            packed.extractall(images)
        if not criu("restore", images, "--restore-detached", "--pidfile", str(STATE / f"{ctid}.pid")):
            unmount_disk(ctid)
            print("Error: undump failed", file=sys.stderr)
            return 0
    write(f"{ctid}.stage", "undumped")
    if "--undump" not in options or read("FAULT") == "runs --undump":
        return let_go(ctid, running(ctid), "restore")
    return 0


def newer() -> bool:
    return read("ERA", "4") == "7"


def this_host() -> str:
    return read("SERVERID", os.uname().nodename)


def register(private: str, ctid: str) -> int:
    """As libvzctl does: the configuration is in the private area, and /etc/vz/conf and /etc/vz/names have links to it."""
    area, conf = Path(private), Path(private, "ve.conf")
    owner = area / ".owner"
    if not (area / ".ve.layout").is_symlink():
        return refuse(140, "Warning: Container in old data format, registration skipped.")
    if not conf.is_file():
        return refuse(140, f"Error: Broken Container, no {conf} file found")
    if owner.exists() and owner.read_text(encoding="utf-8") not in ("", this_host()):
        return refuse(140, f"Owner check failed on the server {this_host()}; Container is registered for {owner.read_text(encoding='utf-8')}")
    owner.write_text(this_host(), encoding="utf-8")
    kept = [line for line in conf.read_text(encoding="utf-8").splitlines() if not re.match(r"\s*(VE_PRIVATE|VEID|UUID)=", line)]
    conf.write_text("\n".join([*kept, f'VE_PRIVATE="{private}"', f'VEID="{ctid}"', f'UUID="{ctid}"']) + "\n", encoding="utf-8")
    name = value_in(conf, "NAME")
    for link in (CONF / f"{ctid}.conf", *([CONF.parent / "names" / name] if name else [])):
        link.unlink(missing_ok=True)
        link.symlink_to(conf)
    print(f"Container {ctid} was successfully registered")
    return 0


def unregister(ctid: str) -> int:
    if running(ctid):
        return refuse(32, "Container is running, Stop Container before proceeding.")
    conf = (CONF / f"{ctid}.conf").resolve()
    name = value_in(conf, "NAME")
    conf.write_text("".join(f"{line}\n" for line in conf.read_text(encoding="utf-8").splitlines() if not line.startswith("VEID=")), encoding="utf-8")
    (conf.parent / ".owner").unlink(missing_ok=True)
    (CONF.parent / "names" / name).unlink(missing_ok=True)
    (CONF / f"{ctid}.conf").unlink()
    print("Container unregistered succesfully")
    return 0


def destroy(ctid: str) -> int:
    if running(ctid):
        return refuse(32, "Container is currently mounted (umount first)")
    private = value(ctid, "VE_PRIVATE", f"/vz/private/{ctid}")
    for file in STATE.glob(f"{ctid}.quota*"):
        file.unlink()
    if (CONF / f"{ctid}.conf").is_symlink():
        unregister(ctid)
        shutil.rmtree(private)
        return 0
    shutil.rmtree(private)
    (CONF / f"{ctid}.conf").rename(CONF / f"{ctid}.conf.destroyed")
    print("Container private area was destroyed")
    return 0


def umount(ctid: str) -> int:
    unmount_disk(ctid)
    (STATE / f"{ctid}.mounted").unlink(missing_ok=True)
    return 0


def quotainit(ctid: str) -> int:
    if (STATE / f"{ctid}.quota").exists():
        return refuse(62, "vzquota : (error) Quota file already exists")
    write(f"{ctid}.quota", "ugid\n")
    return 0


def quotaon(ctid: str) -> int:
    if not (STATE / f"{ctid}.quota").exists():
        return refuse(61, "vzquota : (error) Quota file does not exist")
    write(f"{ctid}.quota-on", read(f"{ctid}.quota"))
    return 0


def inside(words: list, enter: object = None) -> int:
    """A command that an operator runs in the container. It takes no lock."""
    return subprocess.run(words or ["true"], stdin=subprocess.DEVNULL, check=False, preexec_fn=enter).returncode


def execute(ctid: str, words: list, _skips_lock: bool) -> int:
    """Kernel 2.6.32 lets nobody into a container from its suspend, or its undump, to its resume."""
    if not running(ctid):
        return refuse(31, "Container is not running")
    return refuse(7, "Unable to enter the container: Device or resource busy") if stage(ctid) else inside(words)


def set_values(ctid: str, words: list) -> int:
    if "--save" not in words:
        return 0
    words = [word for word in words if word != "--save"]
    names = {"--disabled": "DISABLED", "--onboot": "ONBOOT"}
    path = CONF / f"{ctid}.conf"
    text = path.read_text(encoding="utf-8")
    for option, said in zip(words[::2], words[1::2]):
        if option not in names or said not in ("yes", "no"):
            return refuse(20, f"Bad parameter {option} {said}")
        text = re.sub(rf"^{names[option]}=.*\n", "", text, flags=re.MULTILINE).rstrip("\n") + f'\n{names[option]}="{said}"\n'
    path.write_text(text, encoding="utf-8")
    print(f"CT configuration saved to {path}")
    return 0


def options_of(words: list) -> dict:
    """The options, each with its value where it has one."""
    return {word: words[at + 1] if at + 1 < len(words) and not words[at + 1].startswith("--") else "" for at, word in enumerate(words) if word.startswith("--")}


def locker(ctid: str) -> str:
    path = Path(value(ctid, "LOCKDIR", "/vz/lock"), f"{ctid}.lck")
    pid = path.read_text(encoding="utf-8").split()[0] if path.exists() else ""
    return pid if pid and os.path.isdir(f"/proc/{pid}") else ""


def main(words: list) -> int:
    STATE.mkdir(parents=True, exist_ok=True)
    if words == ["--version"]:
        print("vzctl version 7.0.280" if newer() else "vzctl version 4.11.1")
        return 0
    skips_lock = "--skiplock" in words[:1]
    words = words[1:] if skips_lock else words
    if len(words) < 2:
        return refuse(21, "Usage: vzctl <command> <ctid> [parameters]")
    verb, ctid, *rest = words
    if verb == "status":
        return status(ctid)
    if verb == "register" and newer():
        with (STATE / "log").open("a", encoding="utf-8") as log:
            log.write(" ".join(words) + "\n")
        return 0 if read("FAULT") == verb else register(ctid, rest[0])
    if not (CONF / f"{ctid}.conf").exists():
        return refuse(14, "Container config file does not exist")
    if verb in ("exec", "exec2", "enter"):
        return execute(ctid, rest, skips_lock)
    if not skips_lock and locker(ctid):
        return refuse(9, f"Container already locked\nLocked by: pid {locker(ctid)}")
    with (STATE / "log").open("a", encoding="utf-8") as log:
        log.write(" ".join(words) + "\n")
    if read("FAULT") == verb:
        return 0
    verbs = {
        "start": lambda: start(ctid), "stop": lambda: stop(ctid), "set": lambda: set_values(ctid, rest), "destroy": lambda: destroy(ctid),
        "quotainit": lambda: quotainit(ctid), "quotaon": lambda: quotaon(ctid), "umount": lambda: umount(ctid),
        "chkpnt": lambda: chkpnt(ctid, options_of(rest)), "restore": lambda: restore(ctid, options_of(rest)),
        "restart": lambda: stop(ctid) or start(ctid),
        **({"unregister": lambda: unregister(ctid)} if newer() else {}),
    }  # fmt: skip
    return verbs[verb]() if verb in verbs else refuse(20, f"Bad command {verb}")


if __name__ == "__main__":
    if read("KERNEL"):
        runpy.run_path(f"/usr/local/sbin/vzctl-{read('KERNEL')}", run_name="__main__")
    sys.exit(main(sys.argv[1:]))
