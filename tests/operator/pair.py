# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A workload of a test's own that moves between the first two hosts of a scenario."""

from __future__ import annotations

import os
import typing as t
from pathlib import Path

from hosts import Hosts

QUADLETS = "/etc/containers/systemd"
Made = t.TypeVar("Made", bound="Pair")


class Pair:
    """It is made on the first host. A subclass says its name, makes it and removes it."""

    NAME: str

    def __init__(self, fleet: Hosts) -> None:
        self.fleet = fleet
        self.first, self.second = fleet.names[:2]

    @classmethod
    def on_the_fleet(cls: type[Made]) -> t.Iterator[Made]:
        """For a fixture: first what a run has left that was killed goes, and in the end all of it."""
        made = cls(Hosts(Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "reports"))
        try:
            made.remove()
            made.make()
            yield made
        finally:
            made.remove()

    def make(self) -> None:
        raise NotImplementedError

    def remove(self) -> None:
        raise NotImplementedError

    def on(self, host: str) -> t.Any:
        return self.fleet.hosts[host]

    def other(self, host: str) -> str:
        return self.second if host == self.first else self.first

    def asked(self, there: str) -> dict[str, str]:
        return {"handover_workload": self.NAME, "handover_source": self.other(there), "handover_destination": there}

    def move(self, there: str, **more: t.Any) -> tuple[int, str]:
        return self.fleet.play("migrate", **self.asked(there), **more)

    def start_quadlets(self, files: t.Mapping[str, str], unit: str) -> None:
        for name, text in files.items():
            self.on(self.first).check_output("mkdir -p %s && printf %%s %s > %s", QUADLETS, text, f"{QUADLETS}/{name}")
        self.on(self.first).check_output(f"systemctl daemon-reload && systemctl start {unit}")
