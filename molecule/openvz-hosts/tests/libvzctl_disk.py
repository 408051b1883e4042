# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts with libvzctl: a container with a ploop disk (its layout 5) is dumped and restored by CRIU there. As libvzctl.py.

Its process has the file with its lines open on the disk, which vzctl mounts by a loop device, past the page cache and every watcher of the host's files.
"""

from __future__ import annotations

import disk
import libvzctl
import stock

CTID, TITLE = "5f1d3a52-7f0c-4a9e-9b1e-0c6a7a0f7d09", "vz-newer-disk"
STATE = stock.STATE
PRIVATE = f"/var/lib/containers/vz/private/{CTID}"
ROOT = f"/vz/root/{CTID}"
BEAT = f"{ROOT}/var/log/beat"
CONF = (
    f'VE_ROOT="/vz/root/$VEID"\\nVE_PRIVATE="{PRIVATE}"\\nUUID="{CTID}"\\nVE_TYPE="regular"\\nVEFORMAT="ploop"\\nNAME="{TITLE}"\\nHOSTNAME="d.example.org"\\n'
)
KERNEL = f"{libvzctl.KERNEL}; {disk.GETDEV}"
MAKE = f"""mkdir -p {PRIVATE}/scripts {ROOT}
{disk.image(PRIVATE)}ln -sfn 5 {PRIVATE}/.ve.layout
printf '{CONF}' >{PRIVATE}/ve.conf
vzctl register {PRIVATE} {CTID}
vzctl start {CTID}
"""
FORGET = f"umount {ROOT}; rm -rf /etc/vz/conf/{CTID}.conf* /etc/vz/names/{TITLE} {PRIVATE} /usr/local/sbin/ploop; umount {libvzctl.FREEZER}"
REMOVE = f"vzctl stop {CTID}; vzctl umount {CTID}; vzctl destroy {CTID}; {FORGET}; {stock.OPENVZ}"
UP, NONE = f"VEID {CTID} exist mounted running", f"VEID {CTID} deleted unmounted down"
