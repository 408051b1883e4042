# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A move where one host's helper is of another version: both sides agree, or refuse in one sentence before anything is touched."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.pcopy import HELPER, INTERFACE
from controller import CHECKOUT, ask, start, where, words
from readme import HERE, README, THERE

sys.path.insert(0, str(CHECKOUT / "tests" / "versions"))
import builds

WORKLOAD = "ledger"
# Everything that a move would make on a host, but for the helper's own folders.
MADE = "find /var/lib/handover /run/handover -mindepth 2 | sort; podman ps --all --format '{{.Names}}'; podman volume ls --quiet; podman images --quiet"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("helpers")


@pytest.fixture(scope="module")
def move(readme) -> t.Iterator[t.Callable[..., str]]:
    """Types the README's line for a move of a container that runs on the first host."""
    start(HERE, WORKLOAD, 51)
    line = README.lines("sh", "ansible-playbook livefleet.handover.migrate")[1].replace("shop", WORKLOAD)

    def type_(there: str, status: int = 0) -> str:
        return readme.type(re.sub("handover_destination=[^ ]+", f"handover_destination={there}", line), status)

    return type_


@pytest.fixture
def install() -> t.Iterator[t.Callable[[str, Path], dict[str, t.Any]]]:
    """Puts another helper in a host's place, and takes it away again; says how it answers."""
    changed = []

    def install_(host: str, program: Path) -> dict[str, t.Any]:
        ask(host, f"mv {HELPER} {HELPER}.kept")
        changed.append(host)
        ask(host, f"cat >{HELPER} && chmod 0755 {HELPER}", program.read_bytes())
        return json.loads(ask(host, f"{HELPER} version --json"))

    yield install_
    for host in changed:
        ask(host, f"mv {HELPER}.kept {HELPER}")


def refused(move: t.Callable[..., str], sentence: str) -> None:
    before, written = {host: ask(host, MADE) for host in (HERE, THERE)}, words(HERE, WORKLOAD)
    said = move(THERE, status=2)
    faults = re.findall(r"^\[ERROR\]: (.*?)^Origin: ", said, flags=re.MULTILINE | re.DOTALL)
    assert {re.sub("^((Task|Action) failed: )*", "", " ".join(each.split())) for each in faults} == {sentence}, said
    assert where(WORKLOAD, HERE, THERE) == [HERE] and words(HERE, WORKLOAD) > written
    assert {host: ask(host, MADE) for host in (HERE, THERE)} == before


@pytest.fixture(scope="module")
def older(place) -> Path:
    """Of the history, unless that one knows all that is asked of it."""
    found = builds.build_older(place)
    if found and json.loads(subprocess.run([found, "version", "--json"], check=True, capture_output=True).stdout).get("interface", 0) < INTERFACE:
        return found
    return builds.build_numbered(place, "before", builds.INTERFACE, INTERFACE - 1)


@pytest.fixture(scope="module")
def of_the_future(place) -> Path:
    return builds.build_numbered(place, "future", builds.WIRE, 9)


@pytest.mark.parametrize("host", [HERE, THERE])
def test_one_of_an_older_interface_is_refused(move, install, older, host):
    assert install(host, older).get("interface", 0) < INTERFACE
    refused(move, f"pcopy on {host} is older than this collection, and does not know all that is asked of it: apply the role livefleet.handover.pcopy to it")


@pytest.mark.parametrize("host", [HERE, THERE])
def test_one_without_a_common_format_is_refused(move, install, of_the_future, host):
    spoken = {HERE: 1, THERE: 1, host: 9}
    assert install(host, of_the_future)["protocol"] == 9
    refused(move, f"pcopy speaks protocol {spoken[HERE]} on {HERE} and {spoken[THERE]} on {THERE}: apply the role livefleet.handover.pcopy to both")


def test_one_of_a_newer_interface_is_agreed_with(move, install, place):
    """As the destination, and on the way back as the source."""
    assert install(THERE, builds.build_numbered(place, "newer", builds.INTERFACE, INTERFACE + 1))["interface"] == INTERFACE + 1
    for here, there in ((HERE, THERE), (THERE, HERE)):
        written = words(here, WORKLOAD)
        assert f"{WORKLOAD} has moved from {here} to {there} (live)." in move(there)
        assert where(WORKLOAD, HERE, THERE) == [there] and words(there, WORKLOAD) > written
