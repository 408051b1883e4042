# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The names of these tests, their two hosts, and the folder that the image is built from."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import typing as t
from pathlib import Path

import yaml

CHECKOUT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
OTHER = os.environ.get("LAB_FLEET", "")
INVENTORY = Path(OTHER) / "inventory.yml" if OTHER else CHECKOUT / "lab" / "inventory.yml"

WORKLOAD, VOLUME, REPORTS = "writer", "writerdata", "/var/lib/handover-environment-reports"
NAMES = {"environment_workload": WORKLOAD, "environment_volume": VOLUME, "environment_reports": REPORTS}
# One folder for all that podman makes: on a disk, and gone after each run.
PLACE = Path("/var/lib/handover-environment")
# The base image's name on the page, and here.
PLACEHOLDER, BASE = "registry.example.com/debian-python:13", "localhost/handover/debian13-python:lab"
DEPENDENCIES = ("ansible.posix", "community.general", "containers.podman")


class Fleet(t.NamedTuple):
    """Two hosts, as the user of a controller describes them."""

    hosts: dict[str, dict[str, str]]
    key: Path
    ssh_config: Path

    def ask(self, host: str, command: str) -> str:
        done = subprocess.run(["ssh", "-F", str(self.ssh_config), host, command], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{host}: {command}: {done.stdout}{done.stderr}"
        return done.stdout


def fleet() -> Fleet:
    lab = yaml.safe_load(INVENTORY.read_text(encoding="utf-8"))["lab_hosts"]["children"]["lab"]["hosts"]
    state = Path(parameters()["lab_state"])
    hosts = {name: {"ansible_host": about["ansible_host"]} for name, about in list(lab.items())[:2]}
    return Fleet(hosts, state / "fleet" / "id_ed25519", state / "ssh_config")


def parameters() -> dict[str, t.Any]:
    """The lab's, and where another fleet differs from it."""
    files = [CHECKOUT / "lab/group_vars/all/parameters.yml", *([Path(OTHER) / "parameters.yml"] if OTHER else [])]
    return {name: value for file in files for name, value in yaml.safe_load(file.read_text(encoding="utf-8")).items()}


def play(playbook: str, variables: dict[str, t.Any], **environment: str) -> None:
    """A playbook of this checkout, on the fleet."""
    more = [f"--extra-vars=@{file}" for file in (CHECKOUT / "lab/group_vars/all/parameters.yml", f"{OTHER}/parameters.yml")] if OTHER else []
    command = [str(BIN / "ansible-playbook"), f"--inventory={INVENTORY}", *more, playbook, "--extra-vars", json.dumps(variables)]
    done = subprocess.run(command, cwd=CHECKOUT, env={**os.environ, "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1", **environment},
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=900, check=False)  # fmt: skip
    assert done.returncode == 0, f"{playbook}: {done.stdout[-4000:]}{done.stderr[-2000:]}"


def documented(*begin: str) -> list[str]:
    """The command of docs/awx.md that begins with these words, as its words."""
    blocks = re.findall(r"```sh\n(.*?)```", (CHECKOUT / "docs" / "awx.md").read_text(encoding="utf-8"), flags=re.S)
    lines = [shlex.split(line, comments=True) for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    (found,) = [words for words in lines if tuple(words[: len(begin)]) == begin]
    return found


def fill(folder: Path) -> None:
    """As docs/awx.md has it: the definition, the collection as a release has it, and the collections that it needs, for no Galaxy is asked."""
    (folder / "collections").mkdir(parents=True)
    for name in ("execution-environment.yml", "requirements.yml"):
        shutil.copy(CHECKOUT / name, folder)
    loader = importlib.machinery.SourceFileLoader("handover_artifact", str(CHECKOUT / "tests" / "artifact"))
    artifact = importlib.util.module_from_spec(importlib.util.spec_from_loader("handover_artifact", loader))
    loader.exec_module(artifact)
    artifact.build(folder)
    for name in DEPENDENCIES:
        pack(name, folder / "collections")


def pack(name: str, target: Path) -> None:
    """A tarball of a collection that the package `ansible` has: it is there without the tests of its makers, so its list of files is made anew."""
    found = next((BIN.parent / "lib").glob("python3*/site-packages/ansible_collections")) / name.replace(".", "/")
    tree = target.parent / "packed" / name
    shutil.copytree(found, tree, ignore=shutil.ignore_patterns("__pycache__", "MANIFEST.json", "FILES.json"))
    about = json.loads((found / "MANIFEST.json").read_text(encoding="utf-8"))["collection_info"]
    kept = {key: value for key, value in about.items() if value}
    # A collection names its licence in one way, or in the other.
    kept.pop("license" if "license_file" in kept else "license_file", None)
    (tree / "galaxy.yml").write_text(yaml.safe_dump(kept), encoding="utf-8")
    done = subprocess.run([BIN / "ansible-galaxy", "collection", "build", "--output-path", str(target), str(tree)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def renumber(tarball: Path, version: str, target: Path) -> None:
    """The same collection under another version."""
    with tarfile.open(tarball) as source, tarfile.open(target, "w:gz") as made:
        for member in source.getmembers():
            content = source.extractfile(member).read() if member.isfile() else b""
            if member.name == "MANIFEST.json":
                about = json.loads(content)
                about["collection_info"]["version"] = version
                content = json.dumps(about).encode()
                member.size = len(content)
            made.addfile(member, io.BytesIO(content))
