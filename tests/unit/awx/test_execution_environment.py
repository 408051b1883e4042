# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""ansible-builder makes the build context of the execution environment. tests/environment builds the image, and uses it."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest
import yaml
from ansible_collections.livefleet.handover.plugins.plugin_utils._declaration import COLLECTION

pytest.importorskip("ansible_builder", reason="ansible-builder is not installed beside this ansible-core: the part `python` has it")


@pytest.mark.parametrize("downloads", [False, True], ids=["by Galaxy", "downloaded"])
def test_the_build_context_has_the_collection_and_its_needs(tmp_path, downloads):
    for name in ("execution-environment.yml", "requirements.yml"):
        shutil.copy(COLLECTION / name, tmp_path)
    galaxy = yaml.safe_load((COLLECTION / "galaxy.yml").read_text(encoding="utf-8"))
    tarball = f"livefleet-handover-{galaxy['version']}.tar.gz"
    (tmp_path / tarball).touch()
    downloaded = [f"{name.replace('.', '-')}-1.0.0.tar.gz" for name in galaxy["dependencies"]] if downloads else []
    for name in downloaded:
        (tmp_path / "collections").mkdir(exist_ok=True)
        (tmp_path / "collections" / name).touch()
    command = [sys.executable, "-m", "ansible_builder", "create", "--context", "context", "--output-filename", "Containerfile"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr

    context = tmp_path / "context"
    files = {str(path.relative_to(context)) for path in context.rglob("*") if path.is_file()}
    scripts = {file for file in files if file.startswith("_build/scripts/")}
    tarballs = {f"_build/collection/{tarball}", *(f"_build/collections/{name}" for name in downloaded)}
    assert files - scripts == {"Containerfile", "_build/requirements.yml", *tarballs}
    assert {f"_build/scripts/{name}" for name in ("assemble", "introspect.py", "entrypoint")} <= scripts
    wanted = yaml.safe_load((context / "_build" / "requirements.yml").read_text(encoding="utf-8"))["collections"]
    assert {each["name"] for each in wanted} == set(galaxy["dependencies"])

    steps = (context / "Containerfile").read_text(encoding="utf-8")
    # What was downloaded, what Galaxy has, and the collection.
    places = [steps.index(words) for words in ("/build/collections/*", "_COLLECTION_OPTS -r requirements.yml", "/build/collection/livefleet")]
    assert places == sorted(places)
    floor = yaml.safe_load((COLLECTION / "meta" / "runtime.yml").read_text(encoding="utf-8"))["requires_ansible"].removesuffix(".0")
    assert f"ansible-core{floor}" in steps


def test_the_collection_says_what_it_needs_itself():
    """ansible-builder reads these from the installed collection; no upper bounds, and no ansible-core among them."""
    meta = COLLECTION / "meta"
    named = yaml.safe_load((meta / "execution-environment.yml").read_text(encoding="utf-8"))["dependencies"]
    assert named == {"python": "meta/ee-requirements.txt", "system": "meta/ee-bindep.txt"}
    lines = [line for line in (meta / "ee-requirements.txt").read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    assert lines == [] and "openssh-client [platform:dpkg !compile]" in (meta / "ee-bindep.txt").read_text(encoding="utf-8")
