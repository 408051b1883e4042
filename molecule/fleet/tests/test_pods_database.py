# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A pod of PostgreSQL and a worker moves live under load, there and back: no transaction fails, no commit is lost, and no table is damaged.

PostgreSQL has shared memory of System V, so the members have no IPC namespace in common. The load comes from outside of both hosts (pgbench, and a ledger
over one connection), and from the other member.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import typing as t
from pathlib import Path

import pytest
from hosts import CHECKOUT, Hosts

sys.path.insert(0, str(CHECKOUT / "tests" / "clients"))

from pgbench import Pgbench

POD, DB, WORKER, VOLUME = "books", "books-db", "books-worker", "books-data"
TOOLS, POSTGRES = "localhost/handover/tools:lab", "localhost/handover/postgres:lab"
ROOT = Path(os.environ.get("LAB_CACHE", "/var/cache/handover-lab")) / "images" / "postgres" / "root"
PSQL = "psql --no-psqlrc --no-align --tuples-only --quiet --host=127.0.0.1 --username=postgres postgres"
# Over one connection: what was acknowledged is in the file.
WORK = f'n=0; while :; do n=$((n+1)); echo "insert into work values ($n) returning n;"; sleep 0.02; done | {PSQL} --set=ON_ERROR_STOP=1 >/done'
# Each transaction adds one amount to three tables and notes it in a fourth.
SUMS = """select array[(select sum(abalance) from pgbench_accounts), (select sum(tbalance) from pgbench_tellers),
(select sum(bbalance) from pgbench_branches), (select coalesce(sum(delta), 0) from pgbench_history)]"""
SETTLE_SECONDS, RATE = 3, 100


class Books:
    """The pod, and its clients outside of both hosts."""

    def __init__(self, fleet: Hosts, folder: Path) -> None:
        self.fleet = fleet
        self.names = fleet.names[:2]
        self.acknowledged = folder / "acknowledged"
        self.folder = folder
        self.pgbench: Pgbench | None = None
        self.ledger: subprocess.Popen[str] | None = None
        self.address = ""

    def volume(self, host: str, state: str) -> None:
        how = {"size": "1G"} if state == "mounted" else {"force": True}
        self.fleet.module(host, "image_volume", name=VOLUME, state=state, podman_volume=VOLUME, **how)

    def on(self, name: str, *words: str) -> str:
        return str(self.fleet.hosts[name].check_output(shlex.join(words)))

    def make(self) -> None:
        first = self.names[0]
        self.volume(first, "mounted")
        self.on(
            first, "podman", "pod", "create", f"--name={POD}", "--network=lan", "--share=net,uts", f"--infra-image={TOOLS}", "--infra-command=sleep 1000000"
        )
        more = ("-c", "shared_buffers=64MB")
        self.on(first, "podman", "run", "--detach", f"--name={DB}", f"--pod={POD}", f"--volume={VOLUME}:/var/lib/postgresql", POSTGRES, *more)
        ready = f"podman exec {DB} pg_isready --host=127.0.0.1 --username=postgres"
        self.fleet.hosts[first].check_output(f"for try in $(seq 60); do {ready} && exit; sleep 1; done; exit 1")
        self.on(first, "podman", "exec", DB, "pgbench", "--initialize", "--quiet", "--scale=3", "--host=127.0.0.1", "--username=postgres", "postgres")
        self.ask(first, "create table work (n bigint not null)")
        worker = ("--entrypoint=sh", POSTGRES, "-c", WORK)
        self.on(first, "podman", "run", "--detach", f"--name={WORKER}", f"--pod={POD}", "--stop-signal=9", *worker)
        infra = self.on(first, "podman", "pod", "inspect", "--format={{.InfraContainerID}}", POD).strip()
        self.address = json.loads(self.on(first, "podman", "inspect", infra))[0]["NetworkSettings"]["Networks"]["lan"]["IPAddress"]

    def remove(self) -> None:
        for client in (self.pgbench and self.pgbench.process, self.ledger):
            if client and client.poll() is None:
                client.kill()
        for name in self.names:
            self.fleet.hosts[name].run(f"podman pod rm --force --time=0 --ignore {POD}; podman volume rm {VOLUME}")
            self.volume(name, "absent")

    def ask(self, host: str, query: str) -> str:
        return self.on(host, "podman", "exec", DB, *PSQL.split(), f"--command={query}")

    def home(self) -> str:
        listed = {name: self.on(name, "podman", "ps", "--all", "--format={{.Names}} {{.State}}").splitlines() for name in self.names}
        found = {name: {line for line in lines if line.startswith("books-")} for name, lines in listed.items()}
        (home,) = [name for name, members in found.items() if members]
        assert found[home] == {f"{DB} running", f"{WORKER} running"}
        return home

    def keep(self, verb: str) -> list[str]:
        client = str(CHECKOUT / "tests" / "clients" / "ledger.py")
        return [sys.executable, client, verb, "--dsn", f"host={self.address} user=postgres dbname=postgres", "--acknowledged", str(self.acknowledged)]

    def load(self) -> None:
        self.pgbench = Pgbench(ROOT, self.address, self.folder / "pgbench", RATE)
        self.pgbench.start()
        self.ledger = subprocess.Popen([*self.keep("write"), "--one-connection"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        time.sleep(SETTLE_SECONDS)

    def unload(self) -> tuple[dict[str, t.Any], dict[str, t.Any]]:
        assert self.pgbench is not None and self.ledger is not None
        self.ledger.send_signal(signal.SIGTERM)
        kept = json.loads(self.ledger.communicate(timeout=60)[0])
        done = subprocess.run(self.keep("check"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, timeout=120, check=False)
        return self.pgbench.stop(), {**kept, **json.loads(done.stdout)}

    def the_worker_lost_nothing(self, home: str) -> None:
        """What was acknowledged to the other member is in the table, once and in its order; and it goes on."""
        before = self.on(home, "podman", "exec", WORKER, "cat", "/done").split()
        time.sleep(1)
        done = self.on(home, "podman", "exec", WORKER, "cat", "/done").split()
        assert len(done) > len(before), "the connection between the members stands still"
        assert done == [str(number) for number in range(1, len(done) + 1)]
        count, distinct, last = map(int, self.ask(home, "select count(*), count(distinct n), max(n) from work").split("|"))
        assert (count, distinct) == (last, last)
        assert last >= len(done)


@pytest.fixture
def books() -> t.Iterator[Books]:
    with tempfile.TemporaryDirectory(prefix="handover-books-") as folder:
        made = Books(Hosts(Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "reports"), Path(folder))
        try:
            made.remove()  # what a run has left that was killed
            made.make()
            yield made
        finally:
            made.remove()


def test_a_database_and_its_worker_move_under_load(books: Books) -> None:
    books.load()
    for _each in range(2):
        here = books.home()
        (there,) = set(books.names) - {here}
        status, text = books.fleet.play("migrate", handover_workload=POD, handover_source=here, handover_destination=there)
        assert status == 0, text[-4000:]
        assert books.home() == there
        books.the_worker_lost_nothing(there)
        time.sleep(SETTLE_SECONDS)
    load, kept = books.unload()
    assert load["ran_until_stopped"] and (load["failed"], load["errors"]) == (0, []) and load["transactions"] > RATE, load
    assert (kept["lost"], kept["twice"], kept["lost_connections"]) == ([], [], 0) and kept["acknowledged"] > RATE, kept
    home = books.home()
    sums = books.ask(home, SUMS).strip("{}").split(",")
    assert len(set(sums)) == 1, f"the books do not balance: {sums}"
    check = ["pg_amcheck", "--all", "--install-missing", "--heapallindexed", "--host=127.0.0.1", "--username=postgres"]
    assert books.on(home, "podman", "exec", DB, *check) == ""
