# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Both hosts, and a planted fault of vzctl's."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from moves import STATE, Hosts


@pytest.fixture(scope="module", name="hosts")
def both_hosts():
    return Hosts()


@pytest.fixture
def fault(hosts):
    """A verb of vzctl's that ends with 0 and does nothing, on a host."""

    def plant(number: int, verb: str) -> None:
        hosts.both[number].check_output(f"echo {verb} >{STATE}/FAULT")

    yield plant
    for host in hosts.both:
        host.run(f"rm -f {STATE}/FAULT")
