#!/usr/bin/env python
# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Moves a PostgreSQL container between two hosts while clients use it, and compares the moves with the clients' view.

`make demo` is one move, `make test-ledger` several, there and back. The lab's fleet is brought up if it is not there. What was
brought up is taken down at the end, also after a failure; a fleet that was found is left running, without the shop. With --keep
everything stays.

An operator would type playbooks/migrate.yml. All the rest is the world around it, and says so: a shop, its customers, and
an auditor.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import typing as t
from pathlib import Path

import psycopg
import yaml

CHECKOUT = Path(__file__).resolve().parent.parent
CLIENTS = CHECKOUT / "tests" / "clients"
# A folder of programs and not a package: it can be imported from only when it is in the path.
sys.path.insert(0, str(CLIENTS))
from pgbench import Pgbench
from psql import Sessions
from wire import Resets

# tests/cores names another.
BIN = Path(os.environ.get("ANSIBLE_BIN") or Path(sys.executable).parent)

# The database's view of its clients' connections, except the asking one.
CONNECTIONS = """
SELECT pid::text, host(client_addr), client_port::text, backend_start::text FROM pg_stat_activity
WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() ORDER BY backend_start, pid
"""

# Transactions a second: a steady load that leaves the move the better part of two cores.
RATE = 100
# The clients are alone with the shop for so long before the first move and after the last.
LEAD_SECONDS = 3
# One play, the first build of the images included.
PLAY_SECONDS = 900


class Failure(Exception):
    """The failure, in one sentence for the user."""


def read(path: Path) -> dict[str, t.Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


class Fleet:
    """The lab's own fleet, or one beside it: a folder with an inventory of its own and parameters that differ."""

    def __init__(self, folder: Path | None) -> None:
        own = [CHECKOUT / "lab/group_vars/all/parameters.yml", CHECKOUT / "demo/group_vars/all.yml"]
        inventory = folder / "inventory.yml" if folder else CHECKOUT / "lab/inventory.yml"
        files = [*own, folder / "parameters.yml"] if folder else own
        self.parameters = {name: value for file in files for name, value in read(file).items()}
        self.here, self.there = list(read(inventory)["lab_hosts"]["children"]["lab"]["hosts"])[:2]
        # The lab's inventory is ansible.cfg's, and brings its parameters along.
        self.words = [f"--inventory={inventory}", *[f"--extra-vars=@{file}" for file in files]] if folder else []


class Plays:
    """Runs playbooks of this checkout. Their output goes into a log, unless it is worth looking at."""

    def __init__(self, log: Path, fleet: Fleet) -> None:
        self.log = log
        self.fleet = fleet
        self.environment = {
            **os.environ,
            "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"),
            "ANSIBLE_DISPLAY_SKIPPED_HOSTS": "false",
            "PATH": f"{BIN}:{os.environ['PATH']}:/usr/local/go/bin",
        }

    def run(self, title: str, playbook: str, **variables: str) -> None:
        """One line for the user, and the rest for the log."""
        print(f"{title:.<50} ", end="", flush=True)
        began = time.monotonic()
        try:
            self._logged(playbook, variables)
        except BaseException:
            print("failed", flush=True)
            raise
        print(f"{time.monotonic() - began:4.0f} s", flush=True)

    def show(self, playbook: str, **variables: str) -> None:
        """As an operator would see it."""
        command = self._command(playbook, variables)
        print(f"\n$ {' '.join([Path(command[0]).name, *command[1:]])}", flush=True)
        environment = {"ANSIBLE_STDOUT_CALLBACK": "livefleet.handover.quiet", **self.environment}
        done = subprocess.run(command, cwd=CHECKOUT, env=environment, stdin=subprocess.DEVNULL, timeout=PLAY_SECONDS, check=False)
        if done.returncode != 0:
            raise Failure(f"{playbook} failed: see above")

    def quietly(self, playbook: str, **variables: str) -> None:
        self._logged(playbook, variables)

    def _logged(self, playbook: str, variables: dict[str, str]) -> None:
        with self.log.open("ab") as output:
            start = output.tell()
            done = subprocess.run(
                self._command(playbook, variables), cwd=CHECKOUT, env={**self.environment, "ANSIBLE_NOCOLOR": "1"},
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=PLAY_SECONDS, check=False,
            )  # fmt: skip
        if done.returncode != 0:
            said = self.log.read_bytes()[start:].decode("utf-8", "replace")
            raise Failure(f"{playbook}: {last_error(said)} (all of it is in {self.log})")

    def _command(self, playbook: str, variables: dict[str, str]) -> list[str]:
        words = [word for name, value in variables.items() for word in ("-e", f"{name}={value}")]
        return [str(BIN / "ansible-playbook"), *self.fleet.words, playbook, *words]


def last_error(said: str) -> str:
    """The sentence in which a playbook failed, out of all that it said."""
    errors = re.findall(r"^\[ERROR\]: (?:Task failed: )?(?:(?:Module|Action) failed: )?(.*)$", said, flags=re.MULTILINE)
    return (errors or said.strip().splitlines() or ["it said nothing"])[-1]


class Customers:
    """The clients, for as long as the context lasts; afterwards `seen` is their view.

    The ledger has one connection over IPv6, pgbench four over IPv4, and two psql sessions each way are open and idle.
    """

    def __init__(self, shop: dict[str, t.Any], folder: Path) -> None:
        address, address6 = shop["demo_address"], shop["demo_address6"]
        root = Path(shop["lab_cache"]) / "images/postgres/root"
        self.dsn = f"host={address6} user=postgres dbname=postgres"
        self.acknowledged = folder / "acknowledged"
        self.pgbench = Pgbench(root, address, folder / "pgbench", RATE)
        self.sessions = Sessions(root, [address, address6] * 2)
        self.resets = Resets(shop["lab_bridge"], shop["demo_mac"])
        self.seen: dict[str, t.Any] = {}

    def __enter__(self) -> Customers:
        self.resets.start()
        self.ledger = subprocess.Popen(self._ledger("write") + ["--one-connection"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        self.pgbench.start()
        self.sessions.start()
        return self

    def look(self, moment: str) -> None:
        """Notes which connections the database has."""
        with psycopg.connect(self.dsn, connect_timeout=30) as connection:
            rows = connection.execute(CONNECTIONS).fetchall()
        self.seen.setdefault("connections", {})[moment] = [dict(zip(("backend", "address", "port", "since"), row)) for row in rows]

    def __exit__(self, *_: t.Any) -> None:
        # The closing side may reset a connection.
        self.seen["wire"] = self.resets.stop()
        self.ledger.terminate()
        self.seen["pgbench"] = self.pgbench.stop()
        self.seen["psql"] = self.sessions.stop()
        told, _nothing = self.ledger.communicate(timeout=60)
        self.seen["ledger"] = json.loads(told) if told else {}

    def check(self) -> None:
        """Compares the commits acknowledged to the ledger's client with the shop's rows."""
        done = subprocess.run(self._ledger("check"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, timeout=120, check=False)
        if not done.stdout:
            raise Failure("the ledger could not be read from the shop: see above")
        self.seen["ledger"].update(json.loads(done.stdout))

    def _ledger(self, verb: str) -> list[str]:
        return [sys.executable, str(CLIENTS / "ledger.py"), verb, "--dsn", self.dsn, "--acknowledged", str(self.acknowledged)]


def complaints(found: dict[str, t.Any]) -> list[str]:
    """The violations."""
    ledger, beats, books = found["ledger"], found["heartbeat"], found["books"]
    sentences = lost_connections(found)
    if not ledger.get("acknowledged"):
        sentences.append(f"the ledger could not commit anything: {'; '.join(ledger.get('errors', [])) or 'it said nothing'}")
    if ledger.get("lost"):
        sentences.append(f"{len(ledger['lost'])} acknowledged commits are lost, the first of them number {ledger['lost'][0]}")
    if ledger.get("twice"):
        sentences.append(f"{len(ledger['twice'])} commits are there twice, the first of them number {ledger['twice'][0]}")
    if not found["amcheck"]["ok"]:
        sentences.append(f"pg_amcheck found damage: {found['amcheck']['said'][:1]}")
    if len(set(books["sums"])) != 1:
        sentences.append(f"pgbench's books do not agree: {books['sums']}")
    if beats["missed"] or beats["broken"]:
        sentences.append(f"{beats['missed']} heartbeats are lost and {beats['broken']} broken, so the volume is not what the container wrote")
    return sentences


def lost_connections(found: dict[str, t.Any]) -> list[str]:
    """Connections that ended, by everybody who would notice: the database, the clients, the wire."""
    ledger, load, wire = found["ledger"], found["pgbench"], found["wire"]
    before, after = found["connections"]["before"], found["connections"]["after"]
    sentences = []
    gone = [each for each in before if each not in after]
    if gone or not before:
        sentences.append(f"{len(gone)} of {len(before)} connections did not live through it" + (f", the first from port {gone[0]['port']}" if gone else ""))
    if ledger.get("lost_connections"):
        sentences.append(f"the ledger lost its connection: {'; '.join(ledger['errors'][:1])}")
    if load["errors"] or not load["ran_until_stopped"]:
        sentences.append(f"pgbench lost a connection: {'; '.join(load['errors'][:1]) or 'it ended'}")
    sentences += found["psql"]["wrong"]
    if wire["resets"]:
        sentences.append(f"{wire['resets']} resets were on the wire, the first at {wire['first'][0]}")
    return sentences


def summary(found: dict[str, t.Any]) -> list[str]:
    ledger, load, beats, connections = found["ledger"], found["pgbench"], found["heartbeat"], found["connections"]
    six = sum(":" in each["address"] for each in connections["after"])
    return [
        f"heartbeat    inside, the container stood still for {beats['gap_ms'] / 1000:.3f} s at the longest; {beats['beats']} beats, none lost",
        f"ledger       {ledger['acknowledged']} commits acknowledged, {len(ledger['lost'])} lost, {len(ledger['twice'])} twice; "
        f"longest stall {ledger['longest_stall_ms'] / 1000:.3f} s",
        f"pgbench      {load['transactions']} transactions in {load['seconds']} s, {load['failed']} failed",
        f"connections  {len(connections['before'])} open before, the same {len(connections['after'])} after, {six} of them over IPv6; no reset on the wire",
        f"books        pgbench's four sums agree over {found['books']['transactions']} transactions",
        "pg_amcheck   nothing wrong in any table or index",
    ]


def move_and_audit(plays: Plays, options: argparse.Namespace, reports: Path, stamp: str) -> None:
    shop = plays.fleet.parameters
    hosts = plays.fleet.here, plays.fleet.there
    workload = shop["demo_workload"]
    moves: list[dict[str, t.Any]] = []
    with tempfile.TemporaryDirectory(prefix="handover-demo-") as folder:
        with Customers(shop, Path(folder)) as customers:
            time.sleep(LEAD_SECONDS)
            customers.look("before")
            for number in range(options.moves):
                here, there = hosts[number % 2], hosts[(number + 1) % 2]
                session = f"{workload}-{stamp}-{number + 1}"
                asked = {
                    "handover_workload": workload,
                    "handover_destination": there,
                    "handover_hosts": "lab",
                    "handover_report_dir": str(reports),
                    "migrate_session": session,
                }
                if options.quiet:
                    plays.run(f"Move {number + 1} of {options.moves}, {here} to {there}", "playbooks/migrate.yml", **asked)
                else:
                    plays.show("playbooks/migrate.yml", **asked)
                moves.append(json.loads((reports / f"{session}.json").read_text(encoding="utf-8")))
                time.sleep(LEAD_SECONDS)
            customers.look("after")
        print()
        customers.check()
        findings = Path(folder) / "findings"
        plays.run("Audit", "demo/verify.yml", demo_at=there, demo_findings=str(findings))
        found = {**customers.seen, **json.loads(findings.read_text(encoding="utf-8"))}

    frozen = [move["frozen_ms"] for move in moves]
    record = reports / f"{workload}-{stamp}-clients.json"
    record.write_text(json.dumps({"moves": [move["session"] for move in moves], "frozen_ms": frozen, **found}, indent=2) + "\n", encoding="utf-8")
    wrong = complaints(found)
    if wrong:
        raise Failure(f"{'; '.join(wrong)} (all of it is in {record})")
    print(f"\nWhat was seen of {'the move' if len(moves) == 1 else f'{len(moves)} moves'}:\n")
    if len(moves) > 1:
        print(f"  suspended    {', '.join(f'{each / 1000:.3f}' for each in frozen)} s, as the tools saw it")
    for line in summary(found):
        print(f"  {line}")
    print(f"\nReport:       {reports / (moves[-1]['session'] + '.html')}")
    print(f"In figures:   {reports / (moves[-1]['session'] + '.json')}")
    print(f"The clients:  {record}")


@contextlib.contextmanager
def fleet(plays: Plays, keep: bool) -> t.Iterator[None]:
    """The lab with a shop in it. A fleet that was brought up goes down again."""
    found = Path(plays.fleet.parameters["lab_state"]).exists()
    try:
        plays.run("Bring two hosts up on this machine", "lab/create.yml")
        plays.run("Build the container images and load them", "lab/images.yml")
        plays.run("Open a shop on the first of them", "demo/setup.yml", demo_source=plays.fleet.here)
        yield
    finally:
        # A second Ctrl-C must not leave half of it behind.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        print()
        if keep:
            print("The fleet is up, with the shop on it: `make lab-down` takes it down.")
        elif found:
            plays.run("Remove the shop from the fleet that was found", "demo/remove.yml")
        else:
            plays.run("Take the fleet down", "lab/destroy.yml")


def main() -> int:
    parser = argparse.ArgumentParser(description="Moves a PostgreSQL container between two hosts while clients use it.")
    parser.add_argument("--moves", type=int, default=1, help="how often, there and back (%(default)s)")
    parser.add_argument("--keep", action="store_true", help="leave the fleet up, with the shop on it")
    parser.add_argument("--quiet", action="store_true", help="one line for each move")
    parser.add_argument("--fleet", type=Path, metavar="FOLDER", help="another fleet than the lab's own: its inventory.yml and parameters.yml")
    options = parser.parse_args()

    began = time.monotonic()
    stamp = time.strftime("%Y%m%dt%H%M%S", time.gmtime())
    reports = Path.cwd() / "handover-reports"
    reports.mkdir(exist_ok=True)
    plays = Plays(reports / f"demo-{stamp}.log", Fleet(options.fleet))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with fleet(plays, options.keep):
            move_and_audit(plays, options, reports, stamp)
    except Failure as failure:
        # Taking down may fail because of the earlier failure.
        first = failure.__context__ if isinstance(failure.__context__, Failure) else None
        print(f"\ndemo: {first or failure}", file=sys.stderr)
        if first:
            print(f"demo: and then {failure}", file=sys.stderr)
        return 1
    except subprocess.TimeoutExpired as late:
        print(f"\ndemo: {late.cmd[1]} did not end within {late.timeout:.0f} s; what it said is in {plays.log}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo: interrupted", file=sys.stderr)
        return 130
    print(f"\nDone in {time.monotonic() - began:.0f} s.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
