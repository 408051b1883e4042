# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two hosts of the lab, a container that writes on one of them, and the operator's playbooks."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import typing as t
from dataclasses import dataclass, field
from pathlib import Path

import yaml

CHECKOUT = Path(__file__).resolve().parent.parent.parent
INVENTORY = Path(os.environ.get("FAULTS_INVENTORY", CHECKOUT / "lab" / "inventory.yml"))
PARAMETERS = os.environ.get("FAULTS_PARAMETERS", "")
# A play is stopped by the line that names its task. Where Ansible is told to leave out what it skips, as molecule tells it, that line comes with the result.
ANSIBLE = {
    **os.environ,
    "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"),
    "ANSIBLE_FORCE_COLOR": "0",
    "ANSIBLE_NOCOLOR": "1",
    "ANSIBLE_DISPLAY_SKIPPED_HOSTS": "true",
}
BIN = Path(sys.executable).parent

WORKLOAD = "ledger"
VOLUME = "ledgerdata"
MOUNTED = f"/var/lib/handover/mnt/{VOLUME}"
LEDGER = f"{MOUNTED}/ledger"
SESSIONS = "/var/lib/handover/sessions"
PCOPY = "/usr/local/libexec/handover/pcopy"

# Of the plays of one run that are no moves.
NUMBERS = itertools.count(1)

# In each virtual machine of the lab.
SHELL_PORT = 2323

# Its number and its time. A look at a line that is being written may show only a part of it.
LINE = re.compile(r"([0-9]+) ([0-9]{19})")

# Limits of a move in which nothing is slow, so that what fails is found soon.
LIMITS = {"migrate_peer_timeout": 10, "migrate_reconnect_timeout": 10, "migrate_hook_timeout": 25, "migrate_cutover_timeout": 60, "migrate_presync_timeout": 90}

# Everything that a move makes on a host, but for what the workload itself has where it lives.
FOOTPRINT = f"""
only() {{ grep -E '{WORKLOAD}|fault-|/checkpoint$' | grep -v ^/var/lib/containers/storage/volumes/ | sort | xargs; }}
echo "containers: $(timeout 10 podman ps --all --format '{{{{.Names}}}}={{{{.State}}}}' | only)"
echo "podman volumes: $(podman volume ls --format '{{{{.Name}}}}' | only)"
for folder in sessions volumes mnt; do echo "$folder: $(ls -A /var/lib/handover/$folder 2>/dev/null | only)"; done
echo "sockets: $(find /run/handover -type s 2>/dev/null | only)"
echo "mounts: $(findmnt --list --noheadings --output TARGET | only)"
echo "units: $(systemctl list-units --plain --no-legend 'handover-fault*' | cut -d' ' -f1 | only)"
echo "processes: $(pgrep --list-name 'pcopy|criu|heartbeat' | cut -d' ' -f2 | sort | xargs)"
"""
AT_HOME = {
    "containers": f"{WORKLOAD}=running",
    "podman volumes": VOLUME,
    "volumes": f"{VOLUME}.img",
    "mnt": VOLUME,
    "mounts": f"/var/lib/handover/mnt/{VOLUME}",
    "processes": "heartbeat",
}


@dataclass(frozen=True)
class Engine:
    """What the matrix has to know of a container engine: words for a host's shell, and what they say where the workload is at home."""

    at_home: t.Mapping[str, str]
    marks: str
    # The lines that the workload writes here, for as long as the connection lasts.
    lines: str
    ledger: str
    # Its own count of them.
    gaps: str
    # As a unit, or an operator, starts it after a boot.
    start: str
    # Succeeds where it is whole, and the engine knows that.
    whole: str = "true"
    asked: t.Mapping[str, t.Any] = field(default_factory=dict)  # of a move


# A line that is being written may come without its end. The empty line after it keeps it from becoming the head of the next one's number.
PODMAN = Engine(
    at_home=AT_HOME,
    marks=FOOTPRINT,
    lines="while tail -n 1 {ledger} 2>/dev/null; echo; do sleep 0.5; done",
    ledger=LEDGER,
    gaps=f"podman exec {WORKLOAD} heartbeat -gaps /data/ledger",
    start=f"podman start {WORKLOAD}",
)


def until(what: str, true: t.Callable[[], t.Any], seconds: float = 120) -> t.Any:
    """Waits for something to become true, and returns it."""
    end = time.monotonic() + seconds
    while True:
        found = true()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"it did not happen within {seconds:.0f} s: {what}")
        time.sleep(0.2)


def inside(address: str, script: str, seconds: float = 30) -> str:
    """What a script says that runs in a virtual machine of the lab: each has a shell that only the lab's own network reaches."""
    with socket.create_connection((address, SHELL_PORT), timeout=seconds) as shell:
        shell.sendall(f"{script}; echo; echo said-$?-all; exit\n".encode())
        said = b""
        while b"said-0-all" not in said:
            piece = shell.recv(65536)
            assert piece, f"in the guest at {address}: {script}: {said.decode(errors='replace')}"
            said += piece
    return said.decode().partition("\nsaid-0-all")[0].strip()


@dataclass(frozen=True)
class Host:
    """One host of the lab, over a connection that is kept."""

    name: str
    address: str
    ssh: tuple[str, ...]
    ledger: str = LEDGER
    marks: str = FOOTPRINT
    lines: str = PODMAN.lines

    def ask(self, script: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
        """Runs a script there, and returns what came of it."""
        return subprocess.run(
            ["ssh", *self.ssh, self.name, script], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, check=False
        )

    def run(self, script: str, seconds: float = 60) -> str:
        """Runs a script that has to succeed."""
        done = self.ask(script, seconds)
        assert done.returncode == 0, f"on {self.name}: {script}: {done.stdout}{done.stderr}"
        return done.stdout

    def footprint(self) -> dict[str, str]:
        return {key: value for key, _colon, value in (line.partition(": ") for line in self.run(self.marks).splitlines()) if value}

    def paused(self, session: str) -> bool:
        """Whether the session here stands still; it is waited for a little there, since asking costs more than waiting."""
        look = f"grep -q '\"event\":\"paused\"' {SESSIONS}/{session}/events.jsonl 2>/dev/null"
        return self.ask(f"for try in 1 2 3 4 5 6 7 8 9 10; do {look} && exit 0; sleep 0.3; done; exit 1").returncode == 0

    def follow(self) -> subprocess.Popen[str]:
        """The last line of the ledger, twice a second, for as long as the connection lasts."""
        script = self.lines.format(ledger=self.ledger)
        return subprocess.Popen(["ssh", *self.ssh, self.name, script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def last(self) -> int:
        """The last line of the ledger that is whole, from outside the container; 0 if there is none."""
        whole = [found for found in map(LINE.fullmatch, self.ask(f"tail -n 2 {self.ledger} 2>/dev/null").stdout.splitlines()) if found]
        return int(whole[-1][1]) if whole else 0

    def writes(self) -> bool:
        """Whether somebody writes to the ledger here."""
        before = self.last()
        time.sleep(0.3)
        return self.last() > before


class Play:
    """One run of a playbook, which can be stopped at a task and killed."""

    def __init__(self, playbook: str, variables: t.Mapping[str, t.Any], stop_at: str = "", words: t.Sequence[str] = ()) -> None:
        self.stop_at = stop_at
        self.stopped = threading.Event()
        self.lines: list[str] = []
        self.log = log_of(variables.get("migrate_session") or f"{Path(playbook).stem}-{os.getpid()}-{next(NUMBERS)}")
        self.process = subprocess.Popen(
            playbook_command(playbook, "--extra-vars", json.dumps(variables), *words),
            cwd=CHECKOUT, env=ANSIBLE, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            self.log.write(f"{time.strftime('%T')} {line}")
            self.log.flush()
            if self.stop_at and line.startswith("TASK [") and f": {self.stop_at}]" in line:
                self._signal(signal.SIGSTOP)
                self.stop_at = ""
                self.stopped.set()

    def _signal(self, what: signal.Signals) -> None:
        """To all of it. No process gets its number while one of its group is left: where one has it, that is somebody else's."""
        if self.process.poll() is not None and Path(f"/proc/{self.process.pid}").exists():
            return
        try:
            os.killpg(self.process.pid, what)
        except ProcessLookupError:
            pass

    def stand_still(self) -> None:
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def interrupt(self) -> None:
        """As by Ctrl-C."""
        self._signal(signal.SIGINT)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        self.process.wait()

    def end(self, seconds: float = 600) -> int:
        """Its exit status."""
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the play did not end within {seconds:.0f} s: {self.text[-3000:]}") from None
        self.reader.join(10)
        return status

    @property
    def text(self) -> str:
        return "".join(self.lines)


def log_of(name: str) -> t.TextIO:
    """Where one can look what a play does, or did, and when."""
    folder = CHECKOUT / "tests" / "output" / "faults"
    folder.mkdir(parents=True, exist_ok=True)
    return (folder / f"{name}.log").open("w", encoding="utf-8")


def playbook_command(playbook: str, *words: str) -> list[str]:
    parameters = ["--extra-vars", f"@{PARAMETERS}"] if PARAMETERS else []
    return [str(BIN / "ansible-playbook"), f"--inventory={INVENTORY}", *parameters, playbook, *words]


def play(playbook: str, **variables: t.Any) -> str:
    """Runs a playbook that has to succeed."""
    run = Play(playbook, variables)
    status = run.end()
    assert status == 0, run.text[-5000:]
    return run.text


class Fleet:
    """Both hosts."""

    def __init__(
        self, reports: Path, at_home: t.Mapping[str, str] | None = None, ledger: str = "", marks: str = "", engine: Engine = PODMAN
    ) -> None:
        self.engine = engine
        self.at_home = dict(engine.at_home if at_home is None else at_home)
        inventory = yaml.safe_load(INVENTORY.read_text(encoding="utf-8"))["lab_hosts"]
        ssh = tuple(inventory["vars"]["ansible_ssh_common_args"].split())
        hosts = inventory["children"]["lab"]["hosts"]
        seen = (ledger or engine.ledger, marks or engine.marks, engine.lines)
        self.hosts = [Host(name, hosts[name]["ansible_host"], ssh, *seen) for name in sorted(hosts)][:2]
        self.reports = reports
        self.moves = 0

    def other(self, host: Host) -> Host:
        return next(each for each in self.hosts if each.name != host.name)

    def home(self) -> Host:
        """The host on which the workload lives."""
        (host,) = [host for host in self.hosts if host.footprint().get("containers") == self.at_home["containers"]]
        return host

    def tidy(self) -> bool:
        """Whether the workload runs on one host, and nothing of any move is left on either."""
        return sorted((host.footprint() for host in self.hosts), key=len) == [{}, self.at_home]

    def begin(self, source: Host, pause_at: t.Mapping[str, str], stop_at: str, **variables: t.Any) -> tuple[str, Play]:
        self.moves += 1
        session = f"fault-{os.getpid()}-{self.moves}"
        asked = {
            "handover_workload": WORKLOAD,
            "handover_source": source.name,
            "handover_destination": self.other(source).name,
            "handover_report_dir": str(self.reports),
            "migrate_session": session,
            "migrate_pause_at": dict(pause_at),
            # Both hosts have this machine's clock; on a busy one, asking them takes so long that it seems otherwise.
            "handover_ignore_checks": ["clock"],
            **self.engine.asked,
            **LIMITS,
            **variables,
        }
        return session, Play("playbooks/migrate.yml", asked, stop_at)

    def begin_recovery(self, session: str = "", stop_at: str = "", **variables: t.Any) -> Play:
        asked = {"handover_hosts": "lab", "handover_report_dir": str(self.reports), "recover_timeout": 90, "handover_session": session, **variables}
        return Play("playbooks/recover.yml", asked, stop_at)

    def recover(self, session: str = "", **variables: t.Any) -> tuple[int, str]:
        run = self.begin_recovery(session, "", **variables)
        return run.end(), run.text

    def power_off(self, host: Host) -> None:
        """As if the plug was pulled; its connections here go as well."""
        play("lab/power.yml", power_host=host.name)
        host.ask("true", 20)

    def power_on(self, host: Host) -> None:
        play("lab/power.yml", power_host=host.name, power_state="started")
        subprocess.run(["ssh", *host.ssh, "-O", "exit", host.name], capture_output=True, check=False)
        until(f"{host.name} answers", lambda: host.ask("systemctl is-system-running --wait || true").returncode == 0)


def sentences(text: str) -> str:
    """What Ansible said went wrong."""
    said = re.findall(r"^\[ERROR\]: (.*?)^Origin: ", text, flags=re.MULTILINE | re.DOTALL)
    return " | ".join(" ".join(each.split()) for each in said) if said else text[-1500:]
