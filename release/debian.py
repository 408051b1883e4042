# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The helper as a Debian package, for fleets whose programs come from packages alone. dpkg-deb builds it, and SOURCE_DATE_EPOCH fixes its times."""

from __future__ import annotations

import datetime
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

# The role makes a link to it where the collection's modules and units look.
BINARY = "usr/libexec/handover/pcopy"
CONTROL = """\
Package: handover-pcopy
Version: {version}
Architecture: {architecture}
Section: admin
Priority: optional
Maintainer: The Handover maintainers <handover@livefleet.invalid>
Installed-Size: {size}
Recommends: podman, criu
Homepage: https://github.com/livefleet/handover
Description: moves running workloads between hosts
 The helper of the Ansible collection livefleet.handover. The role pcopy of that
 collection configures it: with pcopy_from=package it installs no program itself.
"""
COPYRIGHT = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: handover
Source: https://github.com/livefleet/handover

Files: *
Copyright: 2026 the Handover maintainers
License: GPL-3.0-or-later
 On Debian systems, the text of this licence is in /usr/share/common-licenses/GPL-3.
 The licences of the Go modules in the program are beside this file.
"""


def iso(moment: int) -> str:
    return datetime.datetime.fromtimestamp(moment, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def package(files: Path, version: str, architecture: str, moment: int, target: Path) -> Path:
    """A package from the role's files: the program, its man pages, its completion, the licences."""
    made = target / f"handover-pcopy_{version}_{architecture}.deb"
    with tempfile.TemporaryDirectory(prefix="handover-deb-") as folder:
        root = Path(folder)
        put(files / f"pcopy-linux-{architecture}", root / BINARY, 0o755)
        with tarfile.open(files / "pcopy-share.tar") as share:
            share.extractall(root / "usr" / "share")
        documents = root / "usr" / "share" / "doc" / "handover-pcopy"
        for path in sorted((files / "licences").rglob("*")):
            if path.is_file():
                put(path, documents / "licences" / path.relative_to(files / "licences"), 0o644)
        (documents / "copyright").write_text(COPYRIGHT, encoding="utf-8")
        size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file()) // 1024
        (root / "DEBIAN").mkdir()
        # A version of a Debian package sorts a tilde before everything: 1.0.0~rc.1 comes before 1.0.0.
        control = CONTROL.format(version=version.replace("-", "~", 1), architecture=architecture, size=size)
        (root / "DEBIAN" / "control").write_text(control, encoding="utf-8")
        for path in [root, *root.rglob("*")]:
            path.chmod(0o755 if path.is_dir() or path == root / BINARY else 0o644)
            os.utime(path, (moment, moment))
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(moment)}
        subprocess.run(["dpkg-deb", "--root-owner-group", "-Zgzip", "--build", str(root), str(made)], env=environment, check=True, capture_output=True)
    return made


def put(source: Path, target: Path, mode: int) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(mode)
