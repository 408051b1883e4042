# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""podman with images, containers and settings of its own, all in one folder: this machine's stay as they are.

The machine needs no systemd, and the containers share its network. A build reaches the registries of packages as this machine does.
"""

from __future__ import annotations

import ast
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

# No more than what podman tells the process that cleans up behind a container: that one has neither the file nor this environment.
SETTINGS = """\
[containers]
default_ulimits = ["nofile={files}:{files}", "nproc={processes}:{processes}"]
log_driver = "k8s-file"
netns = "host"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
tmp_dir = "{folder}/run/libpod"
[network]
network_config_dir = "{folder}/networks"
"""
STORAGE = """\
[storage]
driver = "overlay"
graphroot = "{folder}/storage"
runroot = "{folder}/run/storage"
"""


class Store:
    """The folder may have what a killed run has left. On a file system that can carry an overlay's upper layer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.not_ours = elsewhere()
        own = {"CONTAINERS_CONF": folder / "containers.conf", "CONTAINERS_STORAGE_CONF": folder / "storage.conf", "TMPDIR": folder / "tmp"}
        self.environment = {**os.environ, **{name: str(path) for name, path in own.items()}, "BUILDAH_ISOLATION": "chroot"}

    def make(self) -> None:
        for name in ("networks", "tmp"):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "containers.conf").write_text(SETTINGS.format(folder=self.folder, **limits()), encoding="utf-8")
        (self.folder / "storage.conf").write_text(STORAGE.format(folder=self.folder), encoding="utf-8")

    def podman(self, *words: str, given: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
        """What it came to, with both outputs; nobody is at a terminal."""
        source = {"input": given} if given is not None else {"stdin": subprocess.DEVNULL}
        return subprocess.run(["podman", *words], env=self.environment, capture_output=True, timeout=900, check=False, **source)

    def ask(self, *words: str) -> str:
        """What a command says that has to succeed."""
        done = self.podman(*words)
        assert done.returncode == 0, f"podman {' '.join(words)}: {done.stdout.decode()[-4000:]}{done.stderr.decode()[-4000:]}"
        return done.stdout.decode()

    def remove(self) -> None:
        """Containers first, then their images, then what a killed podman has left mounted."""
        if (self.folder / "storage.conf").exists():
            self.podman("rm", "--all", "--force", "--time=0")
            self.podman("rmi", "--all", "--force")
        for place in reversed(self.mounts()):
            subprocess.run(["umount", "--lazy", place], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)
        for place in elsewhere() - self.not_ours:
            if place.is_dir():
                subprocess.run(["find", place, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";"], check=False)
            else:
                place.unlink()

    def mounts(self) -> list[str]:
        places = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()]
        return [place for place in places if Path(place).is_relative_to(self.folder)]

    def processes(self) -> list[str]:
        """The command lines that name the folder: conmon's, and those of the tools below podman."""
        found = []
        for each in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = each.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            found += [words] if str(self.folder) in words else []
        return found


def elsewhere() -> set[Path]:
    """What podman makes outside of its folders: its locks, and cgroups in each hierarchy."""
    root = Path("/sys/fs/cgroup")
    return {place for place in (Path("/dev/shm/libpod_lock"), *root.glob("libpod_parent"), *root.glob("*/libpod_parent")) if place.exists()}


def limits() -> dict[str, int]:
    """What containers may have. podman's own choice is more than this process may give, where root has not all of its powers."""
    wanted = {"files": (resource.RLIMIT_NOFILE, 1 << 16), "processes": (resource.RLIMIT_NPROC, 1 << 15)}
    own = {name: (resource.getrlimit(number)[1], most) for name, (number, most) in wanted.items()}
    return {name: most if hard == resource.RLIM_INFINITY else min(hard, most) for name, (hard, most) in own.items()}


def reach_packages(folder: Path) -> list[str]:
    """The words with which `podman build` lets pip reach its index as here: its settings, and the files that they name. Nothing of it gets into the image."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True).stdout
    # What the environment says goes before what a file says.
    lines = sorted(listed.splitlines(), key=lambda line: line.startswith(":env:"))
    settings = {name.rpartition(".")[2]: ast.literal_eval(value) for name, _is, value in (line.partition("=") for line in lines)}
    written = folder / "pip.conf"
    written.write_text("[global]\n" + "".join(f"{name} = {value}\n" for name, value in settings.items()), encoding="utf-8")
    places = [word for value in settings.values() for word in value.split() if word.startswith("/") and Path(word).exists()]
    return ["--network=host", f"--volume={written}:/etc/pip.conf:ro", *(f"--volume={place}:{place}:ro" for place in sorted(set(places)))]
