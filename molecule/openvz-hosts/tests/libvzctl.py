# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts with libvzctl: a directory container is dumped and restored by CRIU there, as the stand-in for the vzctl of libvzctl does it. As stock.py."""

from __future__ import annotations

import stock

CTID, TITLE = "5f1d3a52-7f0c-4a9e-9b1e-0c6a7a0f7d08", "vz-directory"
STATE = stock.STATE
PRIVATE = f"/var/lib/containers/vz/private/{CTID}"
BEAT = f"{PRIVATE}/fs/var/log/beat"
CONF = (
    f'VE_ROOT="/vz/root/$VEID"\\nVE_PRIVATE="{PRIVATE}"\\nUUID="{CTID}"\\nVE_TYPE="regular"\\nVEFORMAT="simfs"\\nNAME="{TITLE}"\\nHOSTNAME="dir.example.org"\\n'
)
FREEZER = stock.FREEZER
KERNEL = f"{stock.KERNEL}; echo libvzctl >{STATE}/KERNEL; echo 7 >{STATE}/ERA"
MAKE = f"""mkdir -p {PRIVATE}/fs/etc {PRIVATE}/fs/var/log {PRIVATE}/scripts {PRIVATE}/dump
rm -f {BEAT}
ln -sfn 4 {PRIVATE}/.ve.layout
printf '{CONF}' >{PRIVATE}/ve.conf
vzctl register {PRIVATE} {CTID}
vzctl start {CTID}
"""
FORGET = f"rm -rf /etc/vz/conf/{CTID}.conf* /etc/vz/names/{TITLE} {PRIVATE}; umount {FREEZER}"
REMOVE = f"vzctl stop {CTID}; vzctl umount {CTID}; vzctl destroy {CTID}; {FORGET}; {stock.OPENVZ}"
UP, NONE = f"VEID {CTID} exist mounted running", f"VEID {CTID} deleted unmounted down"
