# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A Ceph cluster on two hosts, restarted by the operator's playbook and looked at from its own command and from its hosts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import pytest
import yaml

CHECKOUT = Path(__file__).resolve().parent.parent.parent.parent
# The scenario of another release has these tests too, and says in its own vars.yml what differs.
SCENARIOS = [CHECKOUT / "molecule" / "ceph", Path(os.environ["MOLECULE_SCENARIO_DIRECTORY"])]
os.environ["FAULTS_INVENTORY"] = str(CHECKOUT / "lab" / "ceph" / "inventory.yml")
os.environ["FAULTS_PARAMETERS"] = str(CHECKOUT / "lab" / "ceph" / "parameters.yml")
# A play is stopped at the headline of a task. Where skipped hosts are not shown, that comes when the task is over.
os.environ["ANSIBLE_DISPLAY_SKIPPED_HOSTS"] = "true"
sys.path.insert(0, str(CHECKOUT / "tests" / "faults"))

import fleet as hosts

VARIABLES = {name: value for folder in SCENARIOS for name, value in yaml.safe_load((folder / "vars.yml").read_text(encoding="utf-8")).items()}
PLAYBOOK = "playbooks/ceph_restart_osds.yml"
ADMIN = VARIABLES["ceph_osd_restart_admin_host"]
# Where each OSD is, as lab/ceph/vars.yml has it.
HOST_OF = {0: "ceph1", 1: "ceph1", 2: "ceph2", 3: "ceph2"}
RECORD = "livefleet.handover/ceph_osd_restart"
# What a restart sets by default, and somebody else does not in the lab.
OPTIONS = ("paxos_propose_interval", "mgr/balancer/active", "bluestore_default_buffered_write")
# What each OSD is run by. Those that a test takes: of each kind the one with a device for its database.
DEPLOYMENTS = dict(enumerate(VARIABLES.get("ceph_deployments", ["packaged"] * len(HOST_OF))))
ONE_OF_EACH = list({DEPLOYMENTS[osd]: osd for osd in (1, 2)}.values())
FSID = yaml.safe_load((CHECKOUT / "lab" / "ceph" / "vars.yml").read_text(encoding="utf-8"))["ceph_fsid"]

# What a restart makes on a host, and takes away again.
FOOTPRINT = """
echo "units: $(systemctl list-units --all --plain --no-legend 'handover-*' | cut -d' ' -f1 | grep -v ^handover-recover | xargs)"
echo "leases: $(ls /etc/systemd/system | grep -e ^handover-noout -e ^handover-option | xargs)"
no="-not -name handover-noout* -not -name handover-option* -not -name handover-recover*"
echo "drop-ins: $(set -f; find /run/systemd/system /etc/systemd/system -name 'handover-*' $no | xargs)"
echo "lists: $(find /run/handover-ceph /run/handover-vmtouch -type f 2>/dev/null | xargs)"
echo "watches: $(ls /run/handover-ceph-watch.* 2>/dev/null | xargs)"
echo "processes: $(pgrep --list-name 'pcopy|vmtouch' | cut -d' ' -f2 | sort | xargs)"
echo "niceness: $(for daemon in $(pgrep -x ceph-osd); do ps -L -o ni= -p $daemon; done | grep -vw 0 | sort | uniq -c | xargs)"
"""


class Cluster:
    """The cluster of the scenario."""

    def __init__(self, reports: Path) -> None:
        self.reports = reports
        self.hosts = {host.name: host for host in hosts.Fleet(reports).hosts}

    def begin(self, host: str = "", osds: t.Sequence[int] = (), stop_at: str = "", watched: bool = False, **variables: t.Any) -> hosts.Play:
        """A restart, as an operator types it; where nobody looks at the report, without one, which takes less time."""
        asked = {"ceph_hosts": "lab", "handover_report_dir": str(self.reports) if watched else "none", **VARIABLES}
        asked |= {**({"ceph_osd_restart_osds": list(osds)} if osds else {}), **variables}
        return hosts.Play(PLAYBOOK, asked, stop_at, words=["--limit", host] if host else [])

    def restarted(self, host: str = "", osds: t.Sequence[int] = (), **variables: t.Any) -> str:
        """What a restart said that has to succeed."""
        play = self.begin(host, osds, **variables)
        assert play.end() == 0, play.text[-6000:]
        return play.text

    def ceph(self, *words: str) -> t.Any:
        """The answer of one of the cluster's commands."""
        return json.loads(self.hosts[ADMIN].run(f"ceph --connect-timeout=20 {' '.join(words)} --format=json"))

    def up_from(self) -> dict[int, int]:
        return up_from(self.ceph("osd dump"))

    def flags(self) -> dict[str, list[str]]:
        """Flags of the cluster, and of each OSD that has one: those that somebody sets, not those that say how full it is; and options a restart sets."""
        said = self.ceph("osd dump")
        own = {f"osd.{osd['osd']}": sorted({"noup", "nodown", "noin", "noout"} & set(osd["state"])) for osd in said["osds"]}
        own["options"] = sorted(f"{option['name']}={option['value']}" for option in self.ceph("config dump") if option["name"] in OPTIONS)
        return {"cluster": sorted(set(said["flags_set"]) - {"nearfull", "full"}), **{name: flags for name, flags in own.items() if flags}}

    def under_way(self) -> bool:
        """Whether the monitors remember a run that was not brought to its end."""
        return self.hosts[ADMIN].ask(f"ceph config-key exists {RECORD}").returncode == 0

    def is_well(self) -> bool:
        said = self.ceph("status")
        states = [entry["state_name"] for entry in said["pgmap"].get("pgs_by_state", [])]
        ill = [check for check, detail in said["health"].get("checks", {}).items() if not detail.get("muted")]
        return said["osdmap"]["num_up_osds"] == len(HOST_OF) and states == ["active+clean"] and not ill

    def gets_well(self) -> None:
        # Asking costs the machine more than waiting.
        hosts.until("the cluster is healthy", lambda: self.is_well() or time.sleep(2), 150)

    def left_over(self) -> dict[str, dict[str, str]]:
        """Host → what is there that should not be."""
        found = {}
        for name, host in self.hosts.items():
            lines = dict(line.partition(": ")[::2] for line in host.run(FOOTPRINT).splitlines())
            found[name] = {what: value for what, value in lines.items() if value.strip()}
        return {name: remains for name, remains in found.items() if remains}

    def module(self, host: str, name: str, /, **arguments: t.Any) -> dict[str, t.Any]:
        """What one of the collection's modules answers there."""
        command = [hosts.BIN / "ansible", f"--inventory={hosts.INVENTORY}", host, f"--module-name=livefleet.handover.{name}", "--args", json.dumps(arguments)]
        environment = {**hosts.ANSIBLE, "ANSIBLE_CALLBACK_RESULT_FORMAT": "json"}
        said = subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, timeout=180, check=False).stdout
        return json.loads(said[said.index("{") :])


def up_from(dump: t.Mapping[str, t.Any]) -> dict[int, int]:
    """When each OSD came up, in epochs of the map."""
    return {osd["osd"]: osd["up_from"] for osd in dump["osds"]}


def unit_of(osd: int) -> str:
    return f"ceph-{FSID}@osd.{osd}" if DEPLOYMENTS[osd] == "cephadm" else f"ceph-osd@{osd}"


def home_of(osd: int) -> str:
    return f"/var/lib/ceph/{FSID}/osd.{osd}" if DEPLOYMENTS[osd] == "cephadm" else f"/var/lib/ceph/osd/ceph-{osd}"


def reads(said: str, osd: int) -> int:
    """How often an OSD read from its disks while it was away, as the play tells it."""
    found = re.search(rf"osd\.{osd} was away for .*? s and read (\d+) times", said)
    assert found, said[-4000:]
    return int(found[1])


def last_record(reports: Path, host: str) -> Path:
    """What the last restart of OSDs of a host has left on the controller; the page is beside it."""
    return max(reports.glob(f"ceph-{host}-*.json"))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    return Cluster(tmp_path_factory.mktemp("reports"))


@pytest.fixture(scope="session")
def before() -> dict[int, int]:
    """When each OSD had come up before the playbook of the scenario ran."""
    return up_from(json.loads((Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "before.json").read_text(encoding="utf-8")))


@pytest.fixture(autouse=True)
def alone(cluster: Cluster) -> t.Iterator[None]:
    """A test that has failed leaves no run behind that the next one would be refused for."""
    yield
    cluster.hosts[ADMIN].ask(f"ceph --connect-timeout=20 config-key rm {RECORD}")
