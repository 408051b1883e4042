# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The image, built by podman as docs/awx.md says, and two booted hosts with a workload. A fleet that was found is left up.

Another fleet than the lab's own is used if LAB_FLEET names a folder with its inventory.yml and parameters.yml.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import job
import scene
from store import Store, elsewhere, reach_packages


def pytest_sessionstart() -> None:
    """A run that is told to end cleans up as well, and is not to be told twice."""
    signal.signal(signal.SIGTERM, end)


def end(number: int, _frame: t.Any) -> None:
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


@pytest.fixture(scope="session")
def store() -> t.Iterator[Store]:
    assert os.geteuid() == 0, "podman and the hosts of the lab need root: run this with sudo"
    found = Store(scene.PLACE)
    found.remove()
    found.make()
    try:
        yield found
    finally:
        found.remove()
        left = [*found.mounts(), *found.processes(), *map(str, elsewhere() - found.not_ours), *([str(found.folder)] if found.folder.exists() else [])]
        assert not left, f"podman has left {left}"


@pytest.fixture(scope="session")
def context(store: Store) -> Path:
    """The folder in which the page's commands are typed."""
    folder = store.folder / "checkout"
    scene.fill(folder)
    return folder


@pytest.fixture(scope="session")
def base(store: Store) -> str:
    """A base image of Debian's packages alone."""
    scene.play("lab/roots.yml", {"lab_roots": ["debian13-python"]})
    store.ask("load", "--input", f"{scene.parameters()['lab_cache']}/images/debian13-python/image.tar")
    return scene.BASE


@pytest.fixture(scope="session")
def build(store: Store, context: Path, base: str) -> t.Callable[..., subprocess.CompletedProcess[str]]:
    """Types a command of docs/awx.md, with the base image's name, and with what this machine needs to reach the registries of packages."""
    needed = reach_packages(store.folder)

    def type_(words: list[str]) -> subprocess.CompletedProcess[str]:
        typed = [word.replace(scene.PLACEHOLDER, base) for word in words]
        if typed[:2] == ["ansible-builder", "build"]:
            typed += ["--verbosity=3", f"--extra-build-cli-args={shlex.join(needed)}"]
        elif typed[:2] == ["podman", "build"]:
            typed[2:2] = needed
        environment = {**store.environment, "PATH": f"{scene.BIN}:{os.environ['PATH']}"}
        return subprocess.run(typed, cwd=context, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=1800, check=False)  # fmt: skip

    return type_


@pytest.fixture(scope="session")
def image(build: t.Callable[..., subprocess.CompletedProcess[str]]) -> str:
    done = build(scene.documented("ansible-builder", "build"))
    assert done.returncode == 0, done.stdout[-8000:]
    return "localhost/handover-ee:latest"


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[scene.Fleet]:
    """A scenario's own plays bring the hosts up, and take down what they brought up."""
    place = {"MOLECULE_EPHEMERAL_DIRECTORY": str(tmp_path_factory.mktemp("fleet"))}
    try:
        scene.play("molecule/default/create.yml", {}, **place)
        yield scene.fleet()
    finally:
        scene.play("molecule/default/destroy.yml", {}, **place)


@pytest.fixture(scope="session")
def run(store: Store, image: str, fleet: scene.Fleet) -> t.Callable[..., job.Done]:
    """Has a job run in the image, in one of the ways of AWX. The first host keeps the reports."""
    number = iter(range(1, 100))

    def run_(way: t.Callable[..., None], playbook: str, survey: dict[str, t.Any], *words: str) -> job.Done:
        place = store.folder / "jobs" / str(next(number))
        template = {"handover_report_host": next(iter(fleet.hosts)), "handover_report_dir": scene.REPORTS}
        job.lay_out(place, fleet.key, fleet.hosts, survey, template if survey else {}, *words)
        shutil.copy(HERE / "prepare.yml", place / "project")
        way(store, image, place, playbook)
        return job.read(place / "artifacts" / "7")

    return run_


@pytest.fixture(scope="session")
def workload(fleet: scene.Fleet) -> t.Iterator[str]:
    try:
        scene.play(str(HERE / "workload.yml"), scene.NAMES)
        yield scene.WORKLOAD
    finally:
        scene.play(str(HERE / "remove.yml"), scene.NAMES)
