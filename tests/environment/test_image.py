# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""podman builds the execution environment on an image of Debian 13 as docs/awx.md says, and the image has what a job needs."""

from __future__ import annotations

import hashlib
import json
import re
import shutil

import pytest
import scene
import yaml

CHECKOUT = scene.CHECKOUT
COLLECTION = "/usr/share/ansible/collections/ansible_collections/livefleet/handover"
GALAXY = yaml.safe_load((CHECKOUT / "galaxy.yml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def say(store, image):
    """What a command in a container of the image says, as the image's own user."""
    return lambda *words: store.ask("run", "--rm", image, *words)


def test_it_has_ansible_and_the_runner(say):
    found = re.search(r"ansible-playbook \[core (\d+)\.(\d+)", say("ansible-playbook", "--version"))
    assert (int(found[1]), int(found[2])) >= (2, 18)
    assert re.match(r"2\.\d+", say("ansible-runner", "--version"))


def test_it_has_the_collection_and_those_that_it_needs(say):
    listed = json.loads(say("ansible-galaxy", "collection", "list", "--format", "json"))["/usr/share/ansible/collections/ansible_collections"]
    assert listed["livefleet.handover"]["version"] == GALAXY["version"]
    assert set(listed) == {"livefleet.handover", *GALAXY["dependencies"]}


def test_it_knows_the_modules_the_roles_and_the_playbooks(say):
    assert "LIVEFLEET.HANDOVER.PREFLIGHT" in say("ansible-doc", "livefleet.handover.preflight").upper()
    assert "migrate_destination" in say("ansible-doc", "-t", "role", "livefleet.handover.migrate")
    say("ansible-playbook", "-i", "localhost,", "--syntax-check", "livefleet.handover.migrate")


def test_it_has_the_helpers_whole(say):
    said = say("sh", "-c", f"cd {COLLECTION}/roles/pcopy/files && sha256sum --check SHA256SUMS && sha256sum pcopy-linux-*")
    for path in sorted((CHECKOUT / "roles" / "pcopy" / "files").glob("pcopy-linux-*")):
        assert f"{path.name}: OK" in said and hashlib.sha256(path.read_bytes()).hexdigest() in said


def test_it_has_ssh_which_the_base_image_lacks(store, base, say):
    """meta/ee-bindep.txt names it, and the package manager of the base image has installed it."""
    assert store.podman("run", "--rm", base, "sh", "-c", "command -v ssh").returncode != 0
    say("ls", "/usr/bin/ssh", "/usr/bin/ssh-agent", "/usr/bin/ssh-add")


def test_it_keeps_nothing_of_its_making(store, image, say):
    """Neither the builder's folders nor apt's lists, nor this machine's settings of pip and its proxies."""
    assert say("sh", "-c", "ls -d /build /output 2>/dev/null; ls -A /var/lib/apt/lists; cat /etc/pip.conf 2>/dev/null || true").split() == []
    about = json.loads(store.ask("image", "inspect", image))[0]
    assert about["Config"]["Labels"]["ansible-execution-environment"] == "true"
    assert {each.partition("=")[0] for each in about["Config"]["Env"]} == {"PATH", "PIP_BREAK_SYSTEM_PACKAGES"}


def test_another_tool_builds_it_from_the_context(store, image, build, context):
    """The other lines of the page. The same steps are the same image."""
    shutil.rmtree(context / "context")
    before = store.ask("image", "inspect", "--format", "{{.Id}}", image)
    for words in (scene.documented("ansible-builder", "create"), scene.documented("podman", "build")):
        done = build(words)
        assert done.returncode == 0, done.stdout[-8000:]
    assert store.ask("image", "inspect", "--format", "{{.Id}}", image) == before


def test_two_versions_of_the_collection_are_refused(store, image, context, tmp_path):
    """By the step that installs it, which finds all that lies in the context."""
    (tarball,) = context.glob("livefleet-handover-*.tar.gz")
    shutil.copy(tarball, tmp_path)
    scene.renumber(tarball, "0.0.9", tmp_path / "livefleet-handover-0.0.9.tar.gz")
    (step,) = yaml.safe_load((CHECKOUT / "execution-environment.yml").read_text(encoding="utf-8"))["additional_build_steps"]["append_galaxy"]
    script = f"rm -r {COLLECTION} && {step.removeprefix('RUN ')}"
    done = store.podman("run", "--rm", "--user=root", f"--volume={tmp_path}:/build/collection:ro", image, "sh", "-c", script)
    assert done.returncode != 0 and b"Failed to resolve the requested dependencies map" in done.stderr + done.stdout, done
