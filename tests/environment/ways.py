# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ways in which AWX has a job run in an image. Each leaves the artifacts in the job's folder; a job that fails is no failure of the way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from store import Store

RUNNER = str(Path(sys.executable).parent / "ansible-runner")


def mounted(store: Store, image: str, place: Path, playbook: str) -> None:
    """ansible-runner in the image, with the job's folder mounted."""
    done = store.podman("run", "--rm", "--user=root", f"--volume={place}:/runner", image, "ansible-runner", "run", "/runner", "-p", playbook, "--ident=7")
    assert (place / "artifacts" / "7" / "rc").exists(), done.stdout + done.stderr


def execution_node(store: Store, image: str, place: Path, playbook: str) -> None:
    """ansible-runner on a host that has podman, which starts ansible-playbook in the image."""
    isolated = ["--process-isolation", "--process-isolation-executable=podman", f"--container-image={image}", "--container-option=--user=root"]
    done = runner(store, "run", str(place), "-p", playbook, "--ident=7", *isolated)
    assert (place / "artifacts" / "7" / "rc").exists(), done.stdout + done.stderr


def container_group(store: Store, image: str, place: Path, playbook: str) -> None:
    """As in a pod: nothing is mounted, and no root. The job goes into the image as a stream, and its artifacts come out as one."""
    sent = runner(store, "transmit", str(place), "-p", playbook, "--ident=7")
    assert sent.returncode == 0, sent.stderr
    done = store.podman("run", "--rm", "--interactive", image, "ansible-runner", "worker", "--private-data-dir=/runner", given=sent.stdout)
    kept = runner(store, "process", str(place), "--ident=7", given=done.stdout)
    assert (place / "artifacts" / "7" / "status").exists(), kept.stdout + kept.stderr + done.stderr


def runner(store: Store, *words: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([RUNNER, *words], env=store.environment, input=given, capture_output=True, timeout=900, check=False)
