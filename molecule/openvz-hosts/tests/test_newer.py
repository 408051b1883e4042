# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A container of libvzctl's (7 and later) moves offline: it is known by a UUID, its configuration is in its private area, and vzctl registers that.

In the order of this file, after test_live.py: in the meantime both hosts are of that era. LAB_FLEET is as in molecule/openvz/tests/test_openvz.py.
"""

from __future__ import annotations

import pytest
from moves import STATE

CTID = "5f1d3a52-7f0c-4a9e-9b1e-0c6a7a0f7d07"
AREA = f"/var/lib/containers/vz/private/{CTID}"
UP, NONE = f"VEID {CTID} exist mounted running", f"VEID {CTID} deleted unmounted down"
CONF = (
    f'VE_ROOT="/vz/root/$VEID"\nVE_PRIVATE="{AREA}"\nUUID="{CTID}"\nVE_TYPE="regular"\nVEFORMAT="ploop"\nDISTRIBUTION="debian"\nNAME="vz-newer"\n'
    'HOSTNAME="newer.example.org"\n'
)
MAKE = f"""set -e
mkdir -p {AREA}/root.hdd {AREA}/scripts
ln -s 5 {AREA}/.ve.layout
echo '<Parallels_disk_image/>' >{AREA}/root.hdd/DiskDescriptor.xml
truncate --size 1M {AREA}/root.hdd/root.hds {AREA}/root.hdd/root.hds.counted
cat >{AREA}/ve.conf <<'EOF'
{CONF}EOF
vzctl register {AREA} {CTID}
vzctl start {CTID}
"""
LOOK = f"readlink /etc/vz/conf/{CTID}.conf; readlink /etc/vz/names/vz-newer; cat {AREA}/.owner; echo; ls -A /var/lib/handover/sessions /var/lib/handover/openvz"


@pytest.fixture(scope="module", name="newer")
def both_newer(hosts):
    for host in hosts.both:
        host.check_output(f"echo 7 >{STATE}/ERA; printf '#!/bin/sh\\ntest \"$1\" = getdev\\n' >/usr/local/sbin/ploop; chmod +x /usr/local/sbin/ploop")
    hosts.both[0].check_output(MAKE)
    yield hosts
    for host in hosts.both:
        host.run(f"vzctl stop {CTID}; rm -rf {AREA} /etc/vz/conf/{CTID}.conf /etc/vz/names/vz-newer /usr/local/sbin/ploop")
        host.run(f"rm -f {STATE}/{CTID}.* {STATE}/ERA")


def status(hosts):
    return [host.check_output(f"vzctl status {CTID}").strip() for host in hosts.both]


def test_a_registration_that_does_nothing_is_taken_back(newer, fault):
    fault(1, "register")
    rc, said = newer.move(handover_workload=CTID)
    assert rc != 0 and f"vzctl register {AREA} {CTID} has ended, and the container is: deleted unmounted down" in said, said
    assert status(newer) == [UP, NONE] and newer.both[1].run(f"test -e {AREA}").rc == 1


def test_it_moves_and_the_other_host_is_its_owner(newer):
    source, destination = newer.both
    before = source.check_output(f"cat {AREA}/.owner")
    rc, said = newer.move(handover_workload=CTID)
    assert rc == 0, said
    assert status(newer) == [NONE, UP]
    conf, name, owner, *left = destination.check_output(LOOK).split("\n")
    assert conf == name == f"{AREA}/ve.conf" and owner == destination.check_output("uname -n") != before
    assert not [line for line in left if line and not line.endswith(":")]
    assert source.run(f"test -e {AREA} || test -e /etc/vz/names/vz-newer").rc == 1
    last, first = (int(host.check_output(f"cat {STATE}/{CTID}.counted").split()[number]) for host, number in ((source, 1), (destination, 0)))
    assert last > 10 and first - last in (0, 1)
