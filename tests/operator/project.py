# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A project of compose on two hosts, on a bridge of its own: a web server holds one connection to a database, over which it sends numbers and notes
what comes back. The engine and the order of its containers are a scenario's own."""

from __future__ import annotations

import json
import time
import typing as t
from pathlib import Path

import fleet as hosts
import yaml

IMAGE, PORT = "localhost/handover/tools:lab", 5432
CRIU = "/etc/criu/runc.conf"
SERVICES: dict[str, dict[str, t.Any]] = {
    "db": {"command": ["sh", "-c", f"nc -ll -p {PORT} -e cat & exec heartbeat -file /data/beats -every 5ms"], "volumes": ["dbdata:/data"]},
    "web": {
        "command": ["sh", "-c", f"sleep 1; i=0; (while :; do i=$$((i+1)); echo $$i; sleep 0.1; done) | nc db {PORT} >/srv/echo"],
        "volumes": ["webdata:/srv"], "depends_on": ["db"], "labels": {"of": 'a "pawn"shop'},
    },
    "worker": {"command": ["heartbeat", "-file", "/beats", "-every", "5ms"], "depends_on": ["db", "web"]},
}  # fmt: skip
VOLUMES = ("dbdata", "webdata")


class Project:
    """One on the first two hosts."""

    engine: t.ClassVar[str]
    name: t.ClassVar[str]
    joint: t.ClassVar[str]  # between the parts of a container's name

    def __init__(self, reports: Path) -> None:
        self.hosts = sorted(hosts.Fleet(reports).hosts, key=lambda host: host.name)[:2]
        self.reports = reports
        self.db, self.web, self.worker = (f"{self.name}{self.joint}{service}{self.joint}1" for service in ("db", "web", "worker"))
        self.folder, self.network = f"/root/{self.name}", f"{self.name}_default"

    @property
    def all(self) -> tuple[str, ...]:
        return self.db, self.web, self.worker

    def compose(self, words: str) -> str:
        """A command of compose's, for a host's shell."""
        raise NotImplementedError

    def write(self) -> None:
        services = {name: {"image": IMAGE, "stop_signal": "SIGKILL", **service} for name, service in SERVICES.items()}
        text = yaml.safe_dump({"services": services, "volumes": {name: {} for name in VOLUMES}})
        for host in self.hosts:
            host.run(f"mkdir -p {self.folder}; cat >{self.folder}/compose.yml <<'END'\n{text}END\n")

    def remove(self) -> None:
        for host in self.hosts:
            host.ask(f"{self.engine} volume rm --force {' '.join(f'{self.name}_{name}' for name in VOLUMES)}")
            host.ask(f"rm -rf {self.folder} /var/lib/handover/parts/*/*{self.name}*")

    def other(self, host: hosts.Host) -> hosts.Host:
        return next(each for each in self.hosts if each is not host)

    def play(self, playbook: str, *words: str, **variables: t.Any) -> tuple[int, str]:
        # The machine under the lab has one clock, and is busy.
        asked = {"handover_report_dir": str(self.reports), "handover_ignore_checks": ["clock"], **variables}
        run = hosts.Play(f"playbooks/{playbook}.yml", asked, words=words)
        return run.end(), " ".join(run.text.split())

    def move(self, there: hosts.Host, *words: str, **variables: t.Any) -> tuple[int, str]:
        return self.play("move", *words, handover_moves=[{"workload": self.name, "to": there.name}], handover_spare_memory="64M", **variables)

    def moves(self, there: hosts.Host) -> None:
        status, text = self.move(there)
        assert status == 0, text[-3000:]
        self.runs_only_on(there)
        self.goes_on(there)

    def fails_there(self, there: hosts.Host) -> str:
        """A move that fails on the destination: CRIU is told something that it does not understand."""
        there.run(f"echo planted-by-a-test >> {CRIU}")
        try:
            status, text = self.move(there)
        finally:
            there.run(f"sed -i /^planted-by-a-test$/d {CRIU}")
        assert status != 0
        return text

    def runs_only_on(self, home: hosts.Host) -> None:
        raise NotImplementedError

    def nothing_is_left_of_a_move(self) -> None:
        left = f"ls -d /var/lib/handover/sessions/{self.name}-* /var/lib/handover/parts/*/*{self.name}* 2>/dev/null || :"
        assert [host.run(left) for host in self.hosts] == ["", ""]

    def goes_on(self, home: hosts.Host) -> None:
        """No beat is lost, and the connection within the project is the one that was opened at first."""
        for name, path in ((self.db, "/data/beats"), (self.worker, "/beats")):
            beats = json.loads(home.run(f"{self.engine} exec {name} heartbeat -gaps {path}"))
            assert (beats["missed"], beats["broken"]) == (0, 0)
        before = self._echoed(home)
        time.sleep(1)
        assert self._echoed(home) > before

    def _echoed(self, home: hosts.Host) -> int:
        numbers = home.run(f"{self.engine} exec {self.web} cat /srv/echo").split()
        assert numbers == [str(number) for number in range(1, len(numbers) + 1)]
        return len(numbers)
