# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.livefleet.handover.plugins.filter.table import table


def test_rows_as_lines():
    rows = [{"name": "web1", "memory": 512, "host": None, "more": 1}, {"name": "database", "memory": 1024, "host": "node1", "more": 2}]
    assert table(rows, {"name": "Guest", "memory": "MiB", "host": "Host"}) == [
        "Guest      MiB  Host",
        "---------------------",
        "web1       512  -",
        "database  1024  node1",
    ]


def test_no_rows():
    assert table([], {"name": "Guest"}) == ["Guest", "-----"]


def test_a_row_without_a_column():
    with pytest.raises(AnsibleFilterError, match="a row has no memory: it has name"):
        table([{"name": "web1"}], {"name": "Guest", "memory": "MiB"})
