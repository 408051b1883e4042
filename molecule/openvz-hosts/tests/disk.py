# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Container 105, with a plain ploop disk that the stand-in for vzctl mounts: its process writes a line into the file system on it each tenth of a second."""

from __future__ import annotations

from moves import STATE

CTID = "105"
PRIVATE = f"/var/lib/containers/vz/private/{CTID}"
ROOT = f"/vz/root/{CTID}"
BEAT = f"{ROOT}/var/log/beat"
GUID = "{5fbaabe3-6958-40ff-92a7-860e329aab41}"
SIZE = 48 << 20
DESCRIPTOR = f"""<?xml version="1.0"?>
<Parallels_disk_image Version="1.0">
  <Disk_Parameters><Disk_size>{SIZE >> 9}</Disk_size><Cylinders>1</Cylinders><Heads>16</Heads><Sectors>63</Sectors><Padding>0</Padding></Disk_Parameters>
  <StorageData><Storage><Start>0</Start><End>{SIZE >> 9}</End><Blocksize>2048</Blocksize>
    <Image><GUID>{GUID}</GUID><Type>Plain</Type><File>root.hds</File></Image>
  </Storage></StorageData>
  <Snapshots><TopGUID>{GUID}</TopGUID><Shot><GUID>{GUID}</GUID><ParentGUID>{{00000000-0000-0000-0000-000000000000}}</ParentGUID></Shot></Snapshots>
</Parallels_disk_image>
"""
# Both hosts' ploop would give it a device, as far as one asks.
GETDEV = "printf '#!/bin/sh\\ntest \"$1\" = getdev && echo /dev/ploop12345\\n' >/usr/local/sbin/ploop; chmod +x /usr/local/sbin/ploop"


def image(private: str) -> str:
    """Makes a plain image with a file system in a private area."""
    return f"""mkdir -p {private}/root.hdd
cat >{private}/root.hdd/DiskDescriptor.xml <<'EOF'
{DESCRIPTOR}EOF
truncate --size {SIZE} {private}/root.hdd/root.hds
mkfs.ext4 -q -F -E offset=1048576 {private}/root.hdd/root.hds {(SIZE >> 10) - 1024}k
"""


MAKE = f"""set -e
mkdir -p {ROOT}
{image(PRIVATE)}cat >/etc/vz/conf/{CTID}.conf <<'EOF'
ONBOOT="yes"
NAME="vz-disk"
HOSTNAME="disk.example.org"
VE_PRIVATE="{PRIVATE}"
VE_LAYOUT="ploop"
OSTEMPLATE="debian-12-x86_64"
EOF
ln -sfn ../conf/{CTID}.conf /etc/vz/names/vz-disk
vzctl start {CTID}
"""
REMOVE = f"""vzctl --skiplock stop {CTID}; umount {ROOT}
rm -rf {PRIVATE} /etc/vz/conf/{CTID}.conf* /etc/vz/names/vz-disk {STATE}/{CTID}.* /usr/local/sbin/ploop"""
