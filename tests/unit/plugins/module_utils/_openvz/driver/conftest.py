# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host of OpenVZ's in a folder: the stand-in for vzctl of the scenario, the gate and the commands of a move, with the paths of that folder."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

CHECKOUT = pathlib.Path(__file__).parents[6]
FILES = CHECKOUT / "roles" / "pcopy" / "files"
STAND_IN = CHECKOUT / "tests" / "openvz" / "vzctl.py"
CONF = 'NAME="shop"\nVE_LAYOUT="simfs"\nVE_PRIVATE="{0}/vz/private/$VEID"\nVE_ROOT="{0}/vz/root/$VEID"\n'


# systemd keeps the process of a unit, and none of a scope.
SYSTEMD_RUN = """#!/bin/sh
unit=
while case $1 in --*) true ;; *) false ;; esac; do
    case $1 in --unit=*) unit=${{1#--unit=}} ;; esac
    shift
done
[ -n "$unit" ] || exec "$@"
"$@" </dev/null >/dev/null 2>&1 &
echo $! >{0}/$unit
"""
SYSTEMCTL = """#!/bin/sh
for unit in "$@"; do :; done
case $1 in
show) cat {0}/$unit 2>/dev/null || echo 0 ;;
stop) [ -f {0}/$unit ] && kill $(cat {0}/$unit) && rm {0}/$unit ;;
esac
"""
# Not every machine that tests run on has CRIU. This keeps a process's words, and begins it again, stopped; with the file criu-fails beside it, it does not.
# That a process goes on from its dump is for molecule/openvz-hosts.
CRIU = """
import os, pathlib, signal, subprocess, sys, time
words = dict(zip(sys.argv[2:], sys.argv[3:]))
memory = pathlib.Path(words["--images-dir"], "memory")
if pathlib.Path(sys.argv[0]).with_name("criu-fails").exists():
    sys.exit(1)
if sys.argv[1] == "dump":
    memory.write_bytes(pathlib.Path("/proc", words["--tree"], "cmdline").read_bytes())
    sys.exit()
argv = memory.read_bytes().split(bytes(1))[:-1]
null = subprocess.DEVNULL
child = subprocess.Popen(argv, start_new_session=True, stdin=null, stdout=null, stderr=null).pid
time.sleep(0.1)
os.kill(child, signal.SIGSTOP)
pathlib.Path(words["--pidfile"]).write_text(str(child))
"""


class Host:
    """Its folder stands for /."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.conf, self.state, self.staged = (root / name for name in ("etc/vz/conf", "state", "staged"))
        for folder in (self.conf, root / "etc/vz/names", self.state, root / "bin"):
            folder.mkdir(parents=True)
        (root / "etc/vz/vz.conf").write_text(f"VE_PRIVATE={root}/vz/private/$VEID\nVE_ROOT={root}/vz/root/$VEID\n", encoding="utf-8")
        self.program("vzctl", f"#!{sys.executable}\n" + self.moved(STAND_IN.read_text(encoding="utf-8")))
        for name in ("vzpid", "vzcptcheck", "prlctl", "vzquota", "vzdqdump", "vzdqload"):
            stand_in = STAND_IN.parent / ("vzquota.py" if "q" in name else f"{name}.py")
            self.program(name, f"#!{sys.executable}\n" + self.moved(stand_in.read_text(encoding="utf-8")))
        self.program("criu", f"#!{sys.executable}\n" + CRIU)
        self.program("systemctl", SYSTEMCTL.format(root))
        self.program("systemd-run", SYSTEMD_RUN.format(root))
        self.turn_program = self.program("turn", self.moved((FILES / "openvz-turn").read_text(encoding="utf-8")))
        for name in ("criu", "criu-gate"):
            self.program("of-criu" if name == "criu" else name, self.moved((FILES / f"openvz-{name}").read_text(encoding="utf-8")))
        self.program("premount", self.moved((FILES / "openvz-premount").read_text(encoding="utf-8")))
        self.helper(True)
        script = self.conf / "vps.premount"
        script.write_text(self.moved((FILES / "openvz-vps.premount").read_text(encoding="utf-8")), encoding="utf-8")
        script.chmod(0o755)

    def moved(self, text: str) -> str:
        for path, place in (
            ("/usr/local/libexec/handover/openvz", self.root / "bin"),
            ("/usr/local/libexec/handover/pcopy", self.root / "bin" / "pcopy"),
            ('"${0%/*}/criu"', self.root / "bin" / "of-criu"),
            ("/usr/local/sbin/vzctl", self.root / "bin" / "vzctl"),
            ("/var/lib/handover/openvz", self.staged),
            ("/run/handover/openvz-turns", self.root / "turns"),
            ("/vz/lock", self.root / "lock"),
            ("/var/lock/vzctl", self.root / "entry"),
            ("/vz/dump", self.root / "dump"),
            ("/var/lib/vzctl-stand-in", self.state),
            ("/etc/vz", self.root / "etc/vz"),
        ):
            text = text.replace(path, str(place))
        return text

    def program(self, name: str, text: str) -> pathlib.Path:
        path = self.root / "bin" / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        return path

    def helper(self, says: bool) -> None:
        self.program("pcopy", f'#!/bin/sh\ncat >>{self.root}/asked\necho " $*" >>{self.root}/asked\nexit {0 if says else 1}\n')

    def asked(self) -> str:
        path = self.root / "asked"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def call(self, *words: object) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PATH": f"{self.root}/bin:{os.environ['PATH']}"}
        return subprocess.run([str(word) for word in words], env=environment, capture_output=True, text=True, check=False, timeout=30)

    def turn(self, *words: object) -> tuple[int, str]:
        done = self.call(self.turn_program, *words)
        return done.returncode, done.stderr

    def begin(self, *words: object) -> subprocess.Popen[str]:
        """A command of a move that is still under way."""
        environment = {**os.environ, "PATH": f"{self.root}/bin:{os.environ['PATH']}"}
        asked = [str(word) for word in (self.turn_program, *words)]
        return subprocess.Popen(asked, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def vzctl_first(self, script: str) -> None:
        """What a vzctl does before its own work."""
        behind = self.root / "behind"
        behind.mkdir()
        (self.root / "bin" / "vzctl").rename(behind / "vzctl")
        self.program("vzctl", f'#!/bin/sh\n{script}\nexec {behind}/vzctl "$@"\n')

    def status(self) -> str:
        return self.call(self.root / "bin" / "vzctl", "status", "101").stdout.strip()

    def have(self, *scripts: str) -> pathlib.Path:
        """Container 101, which does not run."""
        (self.conf / "101.conf").write_text(CONF.format(self.root), encoding="utf-8")
        for name in scripts:
            (self.conf / name).write_text("#!/bin/sh\n", encoding="utf-8")
        private = self.root / "vz/private/101"
        for folder in ("etc", "var/log"):
            (private / folder).mkdir(parents=True)
        (private / "etc/hostname").write_text("shop\n", encoding="utf-8")
        return private


def newer(host: Host, owner: str = "node1") -> pathlib.Path:
    """The private area of container 101 of libvzctl's, which this host does not know yet."""
    (host.state / "ERA").write_text("7", encoding="utf-8")
    (host.state / "SERVERID").write_text("node2", encoding="utf-8")
    private = host.have()
    conf = (host.conf / "101.conf").rename(private / "ve.conf")
    conf.write_text(conf.read_text(encoding="utf-8") + 'UUID="101"\nVEFORMAT="ploop"\n', encoding="utf-8")
    (private / ".ve.layout").symlink_to("5")
    (private / ".owner").write_text(owner, encoding="utf-8")
    return private


@pytest.fixture(name="newer_area")
def one_newer_area(openvz_host):
    return newer(openvz_host)


@pytest.fixture(name="openvz_host")
def one_host(tmp_path):
    host = Host(tmp_path)
    yield host
    (host.state / "STOP_SECONDS").write_text("0", encoding="utf-8")
    (host.state / "FAULT").unlink(missing_ok=True)
    host.call(host.root / "bin" / "vzctl", "--skiplock", "stop", "101")
    host.call(host.root / "bin" / "systemctl", "stop", "handover-openvz-101.service")
