# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A unit of systemd that starts a container of Docker's would start it beside the one that has moved: the move is refused, and says the unit."""

from __future__ import annotations

import os
import typing as t
from pathlib import Path

import fleet as hosts
import pytest
import yaml

SCENARIO = Path(__file__).resolve().parent.parent
IMAGE = yaml.safe_load((SCENARIO / "vars.yml").read_text(encoding="utf-8"))["scenario_image"]
NAME, FOLDER = "kiosk", "/srv/kiosk"
ASKED = {"handover_driver": "docker", "handover_ignore_checks": ["clock"], "handover_workload": NAME}
UNITS = {
    # As they are written by hand, and enabled by who wants them.
    "kiosk-run.service": f"[Service]\nExecStartPre=-/usr/bin/docker rm --force {NAME}\nExecStart=/usr/bin/docker run --name {NAME} {IMAGE} sleep 600\n",
    "compose@.service": "[Service]\nType=oneshot\nRemainAfterExit=yes\nWorkingDirectory=/srv/%i\nExecStart=/usr/bin/docker compose up --detach\n",
}
LABELS = {"com.docker.compose.project": NAME, "com.docker.compose.project.working_dir": FOLDER}


@pytest.fixture
def fleet() -> t.Iterator[hosts.Fleet]:
    fleet = hosts.Fleet(Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "reports")
    clean(fleet)
    yield fleet
    clean(fleet)


def clean(fleet: hosts.Fleet) -> None:
    for host in fleet.hosts:
        host.ask(f"systemctl disable kiosk-run.service compose@{NAME}.service; cd /etc/systemd/system && rm -f {' '.join(UNITS)}; systemctl daemon-reload")
        host.ask(f"docker rm --force {NAME}")


def enabled(host: hosts.Host, file: str, unit: str) -> None:
    text = UNITS[file] + "[Install]\nWantedBy=multi-user.target\n"
    host.run(f"cat >/etc/systemd/system/{file} <<'END'\n{text}END\nsystemctl enable {unit}")


def check(host: hosts.Host, there: hosts.Host) -> str:
    play = hosts.Play("playbooks/migrate.yml", {**ASKED, "handover_source": host.name, "handover_destination": there.name}, words=("--check",))
    play.end()
    return " ".join(play.text.split())


def test_a_unit_that_starts_it_is_named(fleet: hosts.Fleet) -> None:
    first, second = fleet.hosts[:2]
    labels = " ".join(f"--label {key}={value}" for key, value in LABELS.items())
    first.run(f"docker run --detach --name {NAME} --network none {labels} {IMAGE} sleep 600")
    assert f"{NAME} can move from {first.name}" in check(first, second)
    enabled(first, "kiosk-run.service", "kiosk-run.service")
    enabled(first, "compose@.service", f"compose@{NAME}.service")
    enabled(second, "kiosk-run.service", "kiosk-run.service")
    said = check(first, second)
    assert f"kiosk-run.service on {first.name} starts {NAME}" in said and f"kiosk-run.service on {second.name} starts {NAME}" in said, said[-4000:]
    assert f"compose@{NAME}.service on {first.name} has compose start the project" in said, said[-4000:]
