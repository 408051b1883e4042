# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Docker's own record of its networks tells whether a subnet was given, or drawn."""

from __future__ import annotations

from ansible_collections.livefleet.handover.plugins.module_utils._docker import recorded

GIVEN, DRAWN, BOTH, GONE = ("a" * 64, "b" * 64, "c" * 64, "d" * 64)


def page(identifier, name, four, six=None):
    """A network in libnetwork's form, as a page of the database has it between others."""
    pool = r'[{{\"PreferredPool\":\"{0}\",\"SubPool\":\"\",\"Gateway\":\"\",\"AuxAddresses\":null}}]'
    rest = "" if six is None else r',"ipamV6Config":"{0}","ipamV6Info":"[]"'.format(pool.format(six))
    head = '{{"addrSpace":"LocalDefault","generic":{{"a":{{}}}},"id":"{0}","inDelete":false,"ipamType":"default"'.format(identifier)
    return head + r',"ipamV4Config":"{0}","ipamV4Info":"[]"{1},"labels":{{}},"name":"{2}","networkType":"bridge"}}'.format(pool.format(four), rest, name)


def test_a_drawn_subnet_is_told_by_the_version_of_ip(tmp_path):
    path = tmp_path / recorded.NETWORKS
    path.parent.mkdir(parents=True)
    pages = [page(GIVEN, "given", "10.98.0.0/24"), page(DRAWN, "drawn", ""), page(BOTH, "both", "", "fd98::/64"), page(GIVEN, "given", "10.98.0.0/24", "")]
    path.write_bytes(b"\xff\0" + "".join(pages[:3]).encode() + b"\0\xfe")
    known = {"given": GIVEN, "drawn": DRAWN, "both": BOTH, "gone": GONE}
    assert recorded.drawn_subnets(str(tmp_path), known) == {"drawn": ["4"], "both": ["4"]}
    path.write_text(pages[3])
    assert recorded.drawn_subnets(str(tmp_path), known) == {"given": ["6"]}


def test_where_there_is_no_record_nothing_is_said(tmp_path):
    assert recorded.drawn_subnets(str(tmp_path), {"given": GIVEN}) == {}
