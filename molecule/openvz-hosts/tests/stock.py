# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts whose kernel is not OpenVZ's: container 106 is dumped and restored by CRIU there, as the stand-in for vzctl of a stock kernel does it."""

from __future__ import annotations

import contextlib
import threading
import typing as t
from pathlib import Path

CTID, TITLE = "106", "vz-stock"
STATE = "/var/lib/vzctl-stand-in"
PRIVATE = f"/var/lib/containers/vz/private/{CTID}"
BEAT = f"{PRIVATE}/var/log/beat"
CONF = f'NAME="{TITLE}"\\nVE_PRIVATE="{PRIVATE}"\\nVE_LAYOUT="simfs"\\n'
# Each of its hosts has the groups of cgroup v1 from its boot on.
FREEZER = "/run/vzctl-freezer"
MOUNT = f"mountpoint -q {FREEZER} || {{ mkdir -p {FREEZER}; mount -t cgroup -o freezer cgroup {FREEZER}; }}"
# Neither kernel has the modules of OpenVZ's. Those containers that run go on without a freezer, and are not moved meanwhile.
KERNEL = f"rm -f {STATE}/ERA; echo stock >{STATE}/KERNEL; : >{STATE}/CPT_VERSION; : >{STATE}/CPT_CAPS; {MOUNT}"
OPENVZ = f"rm -f {STATE}/ERA {STATE}/KERNEL {STATE}/CPT_VERSION {STATE}/CPT_CAPS"
UP, NONE = f"CTID {CTID} exist mounted running", f"CTID {CTID} deleted unmounted down"
MAKE = f"""mkdir -p {PRIVATE}/etc {PRIVATE}/var/log
rm -f {BEAT}
printf '{CONF}' >/etc/vz/conf/{CTID}.conf
ln -sfn ../conf/{CTID}.conf /etc/vz/names/{TITLE}
vzctl start {CTID}
"""
FORGET = f"rm -f /etc/vz/conf/{CTID}.conf* /etc/vz/names/{TITLE}; umount {FREEZER}"
REMOVE = f"vzctl stop {CTID}; vzctl umount {CTID}; vzctl destroy {CTID}; {FORGET}; {OPENVZ}"

SIGKILL_PENDS = 1 << 8


def ends(pid: str) -> bool:
    """Whether a process has its SIGKILL, and is kept from its end by its freezer alone."""
    try:
        lines = Path("/proc", pid, "status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return True
    pending = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd:", "ShdPnd:"))]
    return any(mask & SIGKILL_PENDS for mask in pending)


@contextlib.contextmanager
def thawed_when_killed(host: str, freezers: str = "/sys/fs/cgroup/freezer") -> t.Iterator[None]:
    """Thaws, from this machine, what a host has frozen, as soon as all of it has been killed."""
    over = threading.Event()

    def thaw() -> None:
        while not over.wait(0.05):
            for state in Path(freezers, host).rglob("freezer.state"):
                pids = (state.parent / "cgroup.procs").read_text(encoding="utf-8").split()
                if pids and all(ends(pid) for pid in pids):
                    state.write_text("THAWED", encoding="utf-8")

    thread = threading.Thread(target=thaw)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
