# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whose loop device is it? Mount namespaces stand in for hosts, with real loop devices on files that were unlinked."""

import os
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent.parent / "lab" / "module_utils"))
import lab_machine

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="loop devices and mounts need root")

# A host has a folder of its own as /var/lib/handover. It says what its device is, and lives until its standard input ends.
HOST = """
mount -t tmpfs none /var/lib && mkdir /var/lib/handover && mount --bind "$1" /var/lib/handover && cd /var/lib/handover
truncate --size=1M unlinked.img && losetup --find --show /var/lib/handover/unlinked.img && rm unlinked.img && echo ready
read -r _
"""


@pytest.fixture(name="host")
def a_host(tmp_path):
    """Its folder, its device and its process."""
    folder = tmp_path / "hosts" / "alive"
    (folder / "handover").mkdir(parents=True)
    process = subprocess.Popen(
        ["unshare", "--mount", "--propagation=private", "sh", "-c", HOST, "sh", str(folder / "handover")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    device = process.stdout.readline().strip()
    assert process.stdout.readline() == "ready\n"
    try:
        yield folder, device, process
    finally:
        process.communicate()
        subprocess.run(["losetup", "--detach", device], check=False, capture_output=True)


def devices(folder, **how):
    return [loop.device for loop in lab_machine.loops(str(folder), **how)]


def test_what_another_host_has_unlinked_is_left_to_it(host, tmp_path):
    folder, device, process = host
    other = tmp_path / "hosts" / "other"
    other.mkdir()
    assert device not in devices(other)
    # While it lives it cannot be told from another's.
    assert device in devices(folder, alive=True)
    process.communicate()
    assert device in devices(folder)
