#!/usr/bin/env python
# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Makes the disk of a ploop container out of a folder: `ploop_disk.py FOLDER ROOT.HDD`.

The lower layer is written by QEMU's parallels driver. The upper one has the clusters that changed when /etc/of-the-upper-layer was added, and is written
here from the format's description. So a reader that takes one layer alone has wrong bytes.
"""

import binascii
import shutil
import struct
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

MIB = 1 << 20
SECTOR = 512
CLUSTER = MIB
LINUX = uuid.UUID("0fc63daf-8483-4772-8e79-3d69d8477de4")
LOWER, UPPER = "{5fbaabe3-6958-40ff-92a7-860e329aab40}", "{5fbaabe3-6958-40ff-92a7-860e329aab41}"
NOBODY = "{00000000-0000-0000-0000-000000000000}"
DESCRIPTOR = """<?xml version="1.0"?>
<Parallels_disk_image Version="1.0">
  <Disk_Parameters><Disk_size>{sectors}</Disk_size><Cylinders>1</Cylinders><Heads>16</Heads><Sectors>63</Sectors><Padding>0</Padding></Disk_Parameters>
  <StorageData><Storage><Start>0</Start><End>{sectors}</End><Blocksize>{blocksize}</Blocksize>
    <Image><GUID>{lower}</GUID><Type>Compressed</Type><File>root.hds</File></Image>
    <Image><GUID>{upper}</GUID><Type>Compressed</Type><File>root.hds.1</File></Image>
  </Storage></StorageData>
  <Snapshots><TopGUID>{upper}</TopGUID>
    <Shot><GUID>{lower}</GUID><ParentGUID>{nobody}</ParentGUID></Shot>
    <Shot><GUID>{upper}</GUID><ParentGUID>{lower}</ParentGUID></Shot>
  </Snapshots>
</Parallels_disk_image>
"""


def run(*argv: object) -> None:
    subprocess.run([str(word) for word in argv], check=True, stdout=subprocess.DEVNULL)


def partition_table(disk: Path) -> None:
    """A GUID partition table with one partition, from the first MiB to the last, as ploop makes it."""
    size = disk.stat().st_size
    entry = struct.pack("<16s16sQQQ72s", LINUX.bytes_le, uuid.uuid4().bytes_le, MIB // SECTOR, size // SECTOR - MIB // SECTOR - 1, 0, b"")
    entries = entry.ljust(128 * 128, b"\0")
    fields = [b"EFI PART", 0x10000, 92, 0, 0, 1, size // SECTOR - 1, 34, size // SECTOR - 34, uuid.uuid4().bytes_le, 2, 128, 128, binascii.crc32(entries)]
    layout = "<8sIIIIQQQQ16sQIII"
    fields[3] = binascii.crc32(struct.pack(layout, *fields))
    with open(disk, "r+b") as file:
        file.seek(SECTOR)
        file.write(struct.pack(layout, *fields).ljust(SECTOR, b"\0") + entries)


def changed_clusters(before: Path, after: Path) -> dict:
    """Number → bytes of the clusters that are not the same."""
    found = {}
    with open(before, "rb") as old, open(after, "rb") as new:
        for number in range(after.stat().st_size // CLUSTER):
            was, now = old.read(CLUSTER), new.read(CLUSTER)
            if was != now:
                found[number] = now
    return found


def write_delta(path: Path, sectors: int, clusters: dict) -> None:
    """A layer of version 2: a header, the table with a cluster's place in clusters, and the clusters."""
    entries = -(-sectors * SECTOR // CLUSTER)
    first = -(-(64 + 4 * entries) // CLUSTER)
    table = [0] * entries
    for place, number in enumerate(sorted(clusters), first):
        table[number] = place
    header = struct.pack("<16sIIIIIQIIIQ", b"WithouFreSpacExt", 2, 16, 1024, CLUSTER // SECTOR, entries, sectors, 0, first * CLUSTER // SECTOR, 0, 0)
    with open(path, "wb") as file:
        file.write((header + struct.pack(f"<{entries}I", *table)).ljust(first * CLUSTER, b"\0"))
        for number in sorted(clusters):
            file.write(clusters[number])


def main(folder: Path, image: Path, size: int = 1 << 30) -> None:
    image.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=image.parent) as place:
        part, disk, newer, marker = (Path(place, name) for name in ("part", "disk", "newer", "marker"))
        for path, length in ((part, size - 2 * MIB), (disk, size)):
            with open(path, "wb") as file:
                file.truncate(length)
        # As the kernel of that time could read it.
        run("mkfs.ext4", "-q", "-F", "-O", "^metadata_csum,^64bit", "-d", folder, part)
        partition_table(disk)
        run("dd", f"if={part}", f"of={disk}", "bs=1M", "seek=1", "conv=notrunc,sparse", "status=none")
        marker.write_text("both layers were read\n", encoding="utf-8")
        run("debugfs", "-w", "-R", f"write {marker} etc/of-the-upper-layer", part)
        shutil.copyfile(disk, newer)
        run("dd", f"if={part}", f"of={newer}", "bs=1M", "seek=1", "conv=notrunc", "status=none")
        run("qemu-img", "convert", "-O", "parallels", "-o", f"cluster_size={CLUSTER}", disk, image / "root.hds")
        clusters = changed_clusters(disk, newer)
        if not clusters:
            raise SystemExit("ploop_disk: the upper layer is empty: debugfs has written nothing")
        write_delta(image / "root.hds.1", size // SECTOR, clusters)
    text = DESCRIPTOR.format(sectors=size // SECTOR, blocksize=CLUSTER // SECTOR, lower=LOWER, upper=UPPER, nobody=NOBODY)
    (image / "DiskDescriptor.xml").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
