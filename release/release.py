#!/usr/bin/env python
# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Builds a release from a commit: `make release VERSION=1.0.0`. The same commit gives the same bytes.

    dist/VERSION/livefleet-handover-VERSION.tar.gz     the collection, with the helpers and the licences of their modules
    dist/VERSION/pcopy-linux-{amd64,arm64}             the helpers alone
    dist/VERSION/handover-pcopy_VERSION_ARCH.deb       the helpers as Debian packages
    dist/VERSION/pcopy-VERSION.cdx.json                the list of all modules in them, CycloneDX
    dist/VERSION/SHA256SUMS, SHA256SUMS.minisig        the checksums, and their signature if KEY names a secret key

Everything is built from the commit, and nothing from the working tree: a file that was not committed is in no release.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import debian  # noqa: E402

CHECKOUT = Path(__file__).resolve().parent.parent
TOOLS = CHECKOUT / ".cache" / "tools"
ARCHITECTURES = ("amd64", "arm64")
VERSION = re.compile(r"\d+\.\d+\.\d+(-[0-9a-z.]+)?")
REPOSITORY = "https://github.com/livefleet/handover"
LICENCE = re.compile(r"(LICEN[CS]E|COPYING|NOTICE|PATENTS)([._-].*)?", re.IGNORECASE)
SOURCE = """\
The helper pcopy in this collection was built from the commit {commit} of {repository}, version {version}.

`make release VERSION={version}` in that commit builds the same bytes. The licences of the Go modules in it are in this folder, one folder a module. The
version of each is in helper/go.mod of that commit, and the Go module proxy has its source.
"""


class Refused(Exception):
    """The release cannot be built; the text says why, and the way out."""


def run(*command: str, cwd: Path = CHECKOUT, **environment: str) -> str:
    done = subprocess.run(command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Refused(f"{' '.join(command[:3])} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def must_be_ready(version: str, tree: Path) -> None:
    """The commit has to say that it is this version, in every place that does."""
    if not VERSION.fullmatch(version):
        raise Refused(f"'{version}' is no version: write it as in 1.0.0")
    galaxy = (tree / "galaxy.yml").read_text(encoding="utf-8")
    if not re.search(rf"^version: {re.escape(version)}$", galaxy, flags=re.M):
        raise Refused(f"galaxy.yml of this commit is not at {version}: run `make release-prepare VERSION={version}`, and commit the result")
    changes = (tree / "changelogs" / "changelog.yaml").read_text(encoding="utf-8")
    if not re.search(rf"^  '?{re.escape(version)}'?:$", changes, flags=re.M):
        raise Refused(f"the changelog has no {version}: run `make release-prepare VERSION={version}`, and commit the result")
    left = sorted(path.name for path in (tree / "changelogs" / "fragments").glob("*.y*ml"))
    if left:
        raise Refused(f"the changelog lacks {', '.join(left)} in changelogs/fragments: run `make release-prepare VERSION={version}`, and commit the result")


def export(commit: str, target: Path) -> None:
    """The files of the commit."""
    packed = subprocess.run(["git", "archive", commit], cwd=CHECKOUT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(target)


def toolchain(tree: Path) -> str:
    """The Go that releases are built with. Another one, also a newer, would give other bytes."""
    found = re.search(r"^toolchain (go\d\S*)$", (tree / "helper" / "go.mod").read_text(encoding="utf-8"), flags=re.M)
    if not found:
        raise Refused("helper/go.mod names no toolchain: name the newest Go, as in `toolchain go1.26.10`")
    return found[1]


def build_helpers(tree: Path, version: str) -> None:
    """With the Makefile of the commit; it needs neither root nor the lab."""
    run("make", "helper", cwd=tree, PATH=f"{os.environ['PATH']}:/usr/local/go/bin", GOFLAGS="-buildvcs=false", GOTOOLCHAIN=toolchain(tree))


def add_licences(tree: Path, commit: str, version: str) -> list[str]:
    """The licence texts of every Go module in the helper, and the way to the source; the modules."""
    asked = "{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Dir}}{{end}}{{end}}"
    listed = run("go", "list", "-deps", "-f", asked, "./cmd/pcopy", cwd=tree / "helper", GOOS="linux", GOARCH="amd64", CGO_ENABLED="0")
    modules = dict(line.split("\t") for line in sorted(set(listed.split("\n"))) if line.strip())
    place = tree / "roles" / "pcopy" / "files" / "licences"
    for module, folder in modules.items():
        texts = [path for path in sorted(Path(folder).iterdir()) if path.is_file() and LICENCE.fullmatch(path.name)]
        if not texts:
            raise Refused(f"the module {module} has no licence text in {folder}: look for it, and name it in LICENCE of release/release.py")
        (place / module).mkdir(parents=True)
        for text in texts:
            shutil.copyfile(text, place / module / text.name)
    (place / "SOURCE.txt").write_text(SOURCE.format(commit=commit, repository=REPOSITORY, version=version), encoding="utf-8")
    return list(modules)


def build_collection(tree: Path, version: str, moment: int, target: Path) -> Path:
    """ansible-galaxy's tarball, packed again in one order, with fixed times, owners and modes."""
    with tempfile.TemporaryDirectory() as folder:
        run("ansible-galaxy", "collection", "build", "--force", "--output-path", folder, cwd=tree)
        made = Path(folder) / f"livefleet-handover-{version}.tar.gz"
        packed = target / made.name
        # Each member once and in the order of the archive: to go back in a compressed one is to read it from its beginning.
        with tarfile.open(made) as source:
            members = [(member, source.extractfile(member).read() if member.isfile() else b"") for member in source]
        lists = in_one_order(*(content for name in ("FILES.json", "MANIFEST.json") for member, content in members if member.name == name))
        with packed.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, 0) as out, tarfile.open(fileobj=out, mode="w") as copy:
            for member, content in sorted(members, key=lambda each: each[0].name):
                content = lists.get(member.name, content)
                member.mtime, member.uid, member.gid, member.uname, member.gname = moment, 0, 0, "", ""
                member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
                member.size, member.pax_headers = len(content), {}
                copy.addfile(member, io.BytesIO(content))
    return packed


def in_one_order(files: bytes, manifest: bytes) -> dict[str, bytes]:
    """The list of the files, which has the order of the disk, sorted; and the manifest, which has its checksum."""
    listed, named = json.loads(files), json.loads(manifest)
    listed["files"].sort(key=lambda each: each["name"])
    sorted_files = json.dumps(listed, indent=True).encode()
    named["file_manifest_file"]["chksum_sha256"] = hashlib.sha256(sorted_files).hexdigest()
    return {"FILES.json": sorted_files, "MANIFEST.json": json.dumps(named, indent=True).encode()}


def write_sums(folder: Path, names: list[str]) -> Path:
    lines = [f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in sorted(names)]
    (folder / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")
    return folder / "SHA256SUMS"


def sign(sums: Path, key: str) -> None:
    """By minisign, with a secret key that never comes near the tree."""
    if not Path(key).is_file():
        raise Refused(f"there is no secret key {key}: KEY names it, and docs/releasing.md says how it is made")
    run(tool("minisign"), "-S", "-s", key, "-m", str(sums), "-t", f"handover {sums.parent.name}")


def tool(name: str) -> str:
    found = shutil.which(name, path=f"{TOOLS}:{os.environ['PATH']}")
    if not found:
        raise Refused(f"{name} is missing: `make release-tools` builds it")
    return found


def write_sbom(binary: Path, version: str, moment: int, target: Path) -> str:
    """All modules that the helper was built from, by the helper's own record of them, with their hashes and licences; the name of the file."""
    made = target / f"pcopy-{version}.cdx.json"
    run(tool("cyclonedx-gomod"), "bin", "-json", "-licenses", "-noserial", "-version", version, "-output", str(made), str(binary))
    found = json.loads(made.read_text(encoding="utf-8"))
    # The time of the commit, and not that of the build.
    found["metadata"]["timestamp"] = debian.iso(moment)
    made.write_text(json.dumps(found, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return made.name


def assemble(tree: Path, version: str, commit: str, moment: int, target: Path, key: str = "") -> list[str]:
    """Everything that follows from the helpers in the tree; the names of the files."""
    add_licences(tree, commit, version)
    binaries = tree / "roles" / "pcopy" / "files"
    names = [f"pcopy-linux-{architecture}" for architecture in ARCHITECTURES]
    if key:
        # The role checks the same signature.
        sign(binaries / "SHA256SUMS", key)
    for name in names:
        shutil.copyfile(binaries / name, target / name)
        (target / name).chmod(0o755)
    names.append(build_collection(tree, version, moment, target).name)
    names += [debian.package(binaries, version, architecture, moment, target).name for architecture in ARCHITECTURES]
    return names


def release(version: str, key: str, target: Path) -> None:
    commit = run("git", "rev-parse", "HEAD").strip()
    moment = int(run("git", "show", "-s", "--format=%ct", "HEAD"))
    if run("git", "status", "--porcelain", "--untracked-files=no").strip():
        raise Refused("the working tree has changes that are in no commit: commit them, or put them aside")
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="handover-release-") as folder:
        tree = Path(folder)
        export(commit, tree)
        must_be_ready(version, tree)
        build_helpers(tree, version)
        names = assemble(tree, version, commit, moment, target, key)
        names.append(write_sbom(target / "pcopy-linux-amd64", version, moment, target))
        sums = write_sums(target, names)
    if key:
        sign(sums, key)
    else:
        print("release: SHA256SUMS is not signed: KEY=FILE names the secret key", file=sys.stderr)
    print(sums.read_text(encoding="utf-8"), end="")


def main() -> int:
    parser = argparse.ArgumentParser(description="Builds a release from the commit that is checked out.")
    parser.add_argument("version")
    parser.add_argument("--key", default="", help="minisign's secret key")
    parser.add_argument("--target", type=Path, help="the folder for the files")
    asked = parser.parse_args()
    try:
        release(asked.version, asked.key, asked.target or CHECKOUT / "dist" / asked.version)
    except Refused as why:
        print(f"release: {why}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
