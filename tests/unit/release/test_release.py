# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A release, from the files of this tree and with stand-ins for the helpers: the same bytes twice, and an artifact that can be installed.

`make release` itself builds the helpers anew, which takes minutes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(CHECKOUT / "release"))
import debian  # noqa: E402

import release  # noqa: E402

MOMENT = 1767225600
BESIDE = Path(sys.executable).parent
GO = shutil.which("go", path=f"{os.environ['PATH']}:/usr/local/go/bin")
VERSION = next(line.partition(" ")[2] for line in (CHECKOUT / "galaxy.yml").read_text(encoding="utf-8").splitlines() if line.startswith("version: "))

needs_the_checkout = pytest.mark.skipif(not (CHECKOUT / ".git").exists(), reason="a release is built from a checkout")


def program(name, *more):
    """A program that a release needs: beside this Python, or where `make release-tools` puts it."""
    found = shutil.which(name, path=os.pathsep.join(map(str, (BESIDE, release.TOOLS, os.environ["PATH"], *more))))
    return found or pytest.skip(f"{name} is not installed")


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """The tracked files as they are, and stand-ins for the helpers."""
    place = tmp_path_factory.mktemp("tree")
    for name in subprocess.run(["git", "ls-files", "-z"], cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout.split("\0"):
        # Of the helper only what says which modules are in it.
        if name and (CHECKOUT / name).exists() and not (name.startswith(("docs/benchmarks/", "lab/", "molecule/")) or name.endswith("_test.go")):
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(CHECKOUT / name, place / name, follow_symlinks=False)
    files = place / "roles" / "pcopy" / "files"
    for architecture in release.ARCHITECTURES:
        (files / f"pcopy-linux-{architecture}").write_bytes(b"#!/bin/sh\n")
        (files / f"pcopy-linux-{architecture}").chmod(0o755)
    release.write_sums(files, [f"pcopy-linux-{architecture}" for architecture in release.ARCHITECTURES])
    with tarfile.open(files / "pcopy-share.tar", "w") as share:
        share.add(files / "netavark", "man/man1/pcopy.1")
    return place


@pytest.fixture(scope="module")
def built(tree, tmp_path_factory):
    """Built twice, from two copies of the tree that were written at different times."""
    if not GO or not shutil.which("dpkg-deb") or not (BESIDE / "ansible-galaxy").exists():
        pytest.skip("a release needs Go, dpkg-deb and ansible-galaxy")
    made = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{BESIDE}:{Path(GO).parent}:{os.environ['PATH']}")
        for turn in ("first", "second"):
            target = tmp_path_factory.mktemp(turn)
            copy = target / "tree"
            shutil.copytree(tree, copy, symlinks=True)
            for path in copy.rglob("*"):
                os.utime(path, (MOMENT + len(made), MOMENT + len(made)), follow_symlinks=False)
            made.append((target, release.assemble(copy, VERSION, "c0ffee", MOMENT, target)))
            shutil.rmtree(copy)
    return made


def digests(folder, names):
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}


@needs_the_checkout
def test_the_same_commit_gives_the_same_bytes(built):
    (first, names), (second, again) = built
    assert names == again and len(names) == 5
    assert digests(first, names) == digests(second, again)


@needs_the_checkout
def test_the_tarball_has_what_a_controller_needs(built):
    folder, _names = built[0]
    with tarfile.open(folder / f"livefleet-handover-{VERSION}.tar.gz") as archive:
        members = {member.name: member for member in archive.getmembers()}
        source = archive.extractfile("roles/pcopy/files/licences/SOURCE.txt").read().decode()
    assert {f"roles/pcopy/files/pcopy-linux-{each}" for each in release.ARCHITECTURES} | {"roles/pcopy/files/SHA256SUMS"} <= set(members)
    assert {"LICENSE", "README.md", "awx/surveys/migrate.yml", "playbooks/migrate.yml"} <= set(members)
    assert not [name for name in members if name.startswith(("helper/", "lab/", "molecule/", ".git", "release/", "tests/"))]
    assert {member.mtime for member in members.values()} == {MOMENT} and {member.uid for member in members.values()} == {0}
    assert members["roles/pcopy/files/pcopy-linux-amd64"].mode == 0o755
    assert "c0ffee" in source and f"make release VERSION={VERSION}" in source


@needs_the_checkout
def test_every_module_of_the_helper_has_its_licence(built):
    """As many as the helper's own list of modules has, the runtime's own left out."""
    folder, _names = built[0]
    with tarfile.open(folder / f"livefleet-handover-{VERSION}.tar.gz") as archive:
        texts = [name for name in archive.getnames() if name.startswith("roles/pcopy/files/licences/")]
    for module in ("github.com/cilium/ebpf", "github.com/klauspost/compress", "kernel.org/pub/linux/libs/security/libcap/cap"):
        assert [name for name in texts if f"/licences/{module}/" in name], module
    listed = subprocess.run([GO, "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}", "./cmd/pcopy"], cwd=CHECKOUT / "helper",
                            env={**os.environ, "CGO_ENABLED": "0"}, capture_output=True, text=True, check=True)  # fmt: skip
    for module in set(listed.stdout.split()):
        assert [name for name in texts if f"/licences/{module}/" in name], f"{module} is in the helper, and its licence is not in the tarball"


@needs_the_checkout
def test_the_artifact_is_installed_without_a_network(built, tmp_path):
    """Into an empty path, and ansible-doc reads every module from there."""
    folder, _names = built[0]
    environment = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": str(tmp_path),
        "ANSIBLE_HOME": str(tmp_path / "home"),
        "ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg"),
    }
    (tmp_path / "ansible.cfg").touch()
    tarball = folder / f"livefleet-handover-{VERSION}.tar.gz"
    install = [BESIDE / "ansible-galaxy", "collection", "install", "--offline", "--no-deps", "-p", tmp_path, tarball]
    done = subprocess.run(install, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "was installed successfully" in done.stdout, done.stdout + done.stderr
    installed = tmp_path / "ansible_collections" / "livefleet" / "handover"
    assert (installed / "roles" / "pcopy" / "files" / "pcopy-linux-amd64").stat().st_mode & 0o100
    modules = [path.stem for path in (installed / "plugins" / "modules").glob("*.py")]
    assert len(modules) >= 39
    done = subprocess.run([BESIDE / "ansible-doc", "--json", *(f"livefleet.handover.{name}" for name in modules)],
                          env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    documented = json.loads(done.stdout)
    assert set(documented) == {f"livefleet.handover.{name}" for name in modules}
    assert all(str(installed) in each["doc"]["filename"] for each in documented.values())


@needs_the_checkout
def test_the_debian_packages_have_the_program(built):
    folder, _names = built[0]
    for architecture in release.ARCHITECTURES:
        package = folder / f"handover-pcopy_{VERSION}_{architecture}.deb"
        fields = subprocess.run(["dpkg-deb", "--field", package], capture_output=True, text=True, check=True).stdout
        assert f"Version: {VERSION}\n" in fields and f"Architecture: {architecture}\n" in fields
        listed = subprocess.run(["dpkg-deb", "--contents", package], capture_output=True, text=True, check=True).stdout
        assert "-rwxr-xr-x root/root" in next(line for line in listed.splitlines() if line.endswith(debian.BINARY))
        assert "./usr/share/man/man1/pcopy.1" in listed and "./usr/share/doc/handover-pcopy/licences/SOURCE.txt" in listed


@pytest.mark.parametrize("version, galaxy, changes, sentence", [
    ("1.0", "version: 1.0.0\n", "", "is no version"),
    ("1.0.0", "version: 0.9.0\n", "releases:\n  1.0.0:\n", "galaxy.yml of this commit is not at 1.0.0"),
    ("1.0.0", "version: 1.0.0\n", "releases: {}\n", "the changelog has no 1.0.0"),
])  # fmt: skip
def test_a_commit_that_is_not_this_version_is_refused(tmp_path, version, galaxy, changes, sentence):
    (tmp_path / "changelogs").mkdir()
    (tmp_path / "galaxy.yml").write_text(galaxy, encoding="utf-8")
    (tmp_path / "changelogs" / "changelog.yaml").write_text(changes, encoding="utf-8")
    with pytest.raises(release.Refused, match=sentence):
        release.must_be_ready(version, tmp_path)


def test_a_commit_that_is_this_version_is_taken(tmp_path):
    fragments = tmp_path / "changelogs" / "fragments"
    fragments.mkdir(parents=True)
    (tmp_path / "galaxy.yml").write_text("version: 1.0.0\n", encoding="utf-8")
    (tmp_path / "changelogs" / "changelog.yaml").write_text("releases:\n  1.0.0:\n    changes: {}\n", encoding="utf-8")
    release.must_be_ready("1.0.0", tmp_path)
    (fragments / "later.yml").write_text("bugfixes: [one]\n", encoding="utf-8")
    with pytest.raises(release.Refused, match="the changelog lacks later.yml in changelogs/fragments"):
        release.must_be_ready("1.0.0", tmp_path)


@needs_the_checkout
def test_the_go_of_a_release_is_named(tmp_path):
    assert release.toolchain(CHECKOUT).startswith("go1.")
    (tmp_path / "helper").mkdir()
    (tmp_path / "helper" / "go.mod").write_text("module helper\n\ngo 1.25.0\n", encoding="utf-8")
    with pytest.raises(release.Refused, match="helper/go.mod names no toolchain"):
        release.toolchain(tmp_path)


def test_the_list_of_modules_is_that_of_the_binary(tmp_path, monkeypatch):
    """From the helper that `make helper` has built: its version, the time of the commit, and every module that it requires."""
    monkeypatch.setenv("PATH", f"{Path(program('cyclonedx-gomod')).parent}:{os.environ['PATH']}:/usr/local/go/bin")
    binary = CHECKOUT / "roles" / "pcopy" / "files" / "pcopy-linux-amd64"
    if not binary.exists():
        pytest.skip("`make helper` has not run")
    found = json.loads((tmp_path / release.write_sbom(binary, "1.0.0", MOMENT, tmp_path)).read_text(encoding="utf-8"))
    assert found["bomFormat"] == "CycloneDX" and found["metadata"]["timestamp"] == "2026-01-01T00:00:00Z"
    assert found["metadata"]["component"]["version"] == "1.0.0"
    modules = {each["name"]: each for each in found["components"]}
    assert {"github.com/cilium/ebpf", "github.com/klauspost/compress", "golang.org/x/sys"} <= set(modules)
    assert all(each["hashes"] and each["version"] for name, each in modules.items() if name != "std")


def test_a_signature_is_checked(tmp_path, monkeypatch):
    """A key is made, the sums are signed, and a changed sum is refused."""
    minisign = program("minisign")
    monkeypatch.setenv("PATH", f"{Path(minisign).parent}:{os.environ['PATH']}")
    made = subprocess.run([minisign, "-G", "-W", "-p", tmp_path / "key.pub", "-s", tmp_path / "key"], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    (tmp_path / "pcopy").write_text("program", encoding="utf-8")
    sums = release.write_sums(tmp_path, ["pcopy"])
    release.sign(sums, str(tmp_path / "key"))
    check = [minisign, "-V", "-p", tmp_path / "key.pub", "-m", sums]
    assert subprocess.run(check, capture_output=True, check=False).returncode == 0
    sums.write_text(sums.read_text(encoding="utf-8").replace("a", "b"), encoding="utf-8")
    assert subprocess.run(check, capture_output=True, check=False).returncode != 0
    with pytest.raises(release.Refused, match="there is no secret key"):
        release.sign(sums, str(tmp_path / "missing"))


def test_the_helper_for_the_other_processor_starts():
    """The one that `make helper` has built, under qemu."""
    emulator = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    binary = CHECKOUT / "roles" / "pcopy" / "files" / "pcopy-linux-arm64"
    if not emulator or not binary.exists():
        pytest.skip("qemu-user-static is not installed: `make setup` installs it" if not emulator else "`make helper` has not run")
    done = subprocess.run([emulator, binary, "version", "--json"], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["arch"] == "arm64" and json.loads(done.stdout)["version"] == VERSION
