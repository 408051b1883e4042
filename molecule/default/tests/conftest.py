# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs the operator's playbook, and looks at what it leaves on the hosts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import typing as t
from dataclasses import dataclass
from pathlib import Path

import jsonschema
import pytest
import testinfra

CHECKOUT = Path(__file__).resolve().parent.parent.parent.parent
sys.path.insert(0, str(CHECKOUT / "tests" / "clients"))
import processor

INVENTORY = CHECKOUT / "lab" / "inventory.yml"
SCHEMA = json.loads((CHECKOUT / "docs" / "reference" / "move-report.schema.json").read_text(encoding="utf-8"))
ANSIBLE_PLAYBOOK = Path(sys.executable).parent / "ansible-playbook"

WORKLOAD = "mover"
VOLUME = "moverdata"
NOTES = "/var/lib/containers/movernotes"

# Everything that a move of the workload makes on a host, by name. A fleet that was found may have other workloads.
FOOTPRINT = """
only() { grep -E 'mover|scenario-|/checkpoint$' | grep -v ^/var/lib/containers/storage/volumes/ | sort | xargs; }
echo "containers: $(podman ps --all --format '{{.Names}}={{.State}}' | only)"
echo "podman volumes: $(podman volume ls --format '{{.Name}}' | only)"
for folder in sessions volumes mnt; do
    echo "$folder: $(ls -A /var/lib/handover/$folder | only)"
done
echo "notes: $(ls -d /var/lib/containers/* | only)"
echo "sockets: $(find /run/handover -type s | only)"
echo "mounts: $(findmnt --list --noheadings --output TARGET | only)"
echo "loop devices: $(losetup --list --noheadings --output BACK-FILE | only)"
echo "units: $(systemctl list-units --plain --no-legend 'handover*' 'var-lib-handover*' | cut -d' ' -f1 | only)"
echo "processes: $(pgrep --list-name 'pcopy|criu|^ssh$' | cut -d' ' -f2 | sort | xargs)"
"""


@dataclass(frozen=True)
class Played:
    """What a run of the playbook came to."""

    status: int
    text: str
    report: dict[str, t.Any]


class Fleet:
    """The two hosts, and the workload that is on one of them."""

    def __init__(self, reports: Path) -> None:
        self.reports = reports
        self.hosts = {name: testinfra.get_host(f"ansible://{name}?ansible_inventory={INVENTORY}") for name in ("node1", "node2")}
        self.moves = 0
        self.processor: dict[str, float] = {}  # the share of each of its programs, when it was looked at last

    @property
    def next_session(self) -> str:
        """What the next move will be called."""
        return f"scenario-{self.moves + 1}"

    def migrate(self, *words: str, workload: str = WORKLOAD, **variables: t.Any) -> Played:
        """As an operator types it; what is None is left out."""
        session = self.next_session
        self.moves += 1
        asked = {
            "handover_workload": workload,
            "handover_hosts": "lab",
            "handover_report_dir": str(self.reports),
            "handover_secrets": "carry",
            "handover_bind_mounts": "carry",
            "migrate_session": session,
            **variables,
        }
        asked = {name: value for name, value in asked.items() if value is not None}
        done = subprocess.run(
            [str(ANSIBLE_PLAYBOOK), "livefleet.handover.migrate", "--extra-vars", json.dumps(asked), *words],
            cwd=CHECKOUT,
            env={**os.environ, "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"), "ANSIBLE_FORCE_COLOR": "0", "ANSIBLE_NOCOLOR": "1"},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False,
        )  # fmt: skip
        report = self.reports / f"{session}.json"
        return Played(done.returncode, done.stdout, json.loads(report.read_text(encoding="utf-8")) if report.exists() else {})

    def moved(self, **variables: t.Any) -> dict[str, t.Any]:
        """The report of a move that has to succeed."""
        played = self.migrate(**variables)
        assert played.status == 0, played.text[-6000:]
        jsonschema.validate(played.report, SCHEMA)
        return played.report

    def refused(self, *words: str, **variables: t.Any) -> str:
        """The sentences of a move that has to be refused or to fail."""
        played = self.migrate(*words, **variables)
        assert played.status != 0, played.text[-6000:]
        return sentences(played.text)

    def footprints(self) -> dict[str, dict[str, str]]:
        """Host → what is there of the workload."""
        return {name: dict(line.partition(": ")[::2] for line in host.check_output(FOOTPRINT).splitlines()) for name, host in self.hosts.items()}

    def running_on(self) -> list[str]:
        """The hosts on which the workload runs."""
        command = "podman ps --filter status=running --format '{{.Names}}'"
        return [name for name, host in self.hosts.items() if WORKLOAD in host.check_output(command).split()]

    def circling(self, name: str) -> list[str]:
        """Programs of the workload that use much more of a processor than when it was looked at last."""
        cgroup = self.hosts[name].check_output(f"podman inspect --format '{{{{.State.CgroupPath}}}}' {WORKLOAD}")
        before, self.processor = self.processor, json.loads(self.hosts[name].check_output(processor.command(f"/sys/fs/cgroup{cgroup}")))
        return processor.circling(before, self.processor)

    def heartbeat(self) -> dict[str, t.Any]:
        (name,) = self.running_on()
        return json.loads(self.hosts[name].check_output(f"podman exec {WORKLOAD} heartbeat -gaps /data/heartbeat"))


def sentences(text: str) -> str:
    """What Ansible said went wrong: from its mark to the place in the playbook."""
    said = re.findall(r"^\[ERROR\]: (.*?)^Origin: ", text, flags=re.MULTILINE | re.DOTALL)
    return " | ".join(" ".join(each.split()) for each in said) if said else text[-3000:]


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    return Fleet(tmp_path_factory.mktemp("reports"))
