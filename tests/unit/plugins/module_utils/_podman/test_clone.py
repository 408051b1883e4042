# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._podman.clone import CloneError, cloned
from ansible_collections.livefleet.handover.plugins.module_utils._podman.create_command import CreateCommand

VOLUMES = {"pgdata": "copy-pgdata"}


def options(*given):
    return cloned(CreateCommand(tuple(given), "localhost/shop:1", ("serve",)), VOLUMES).options


@pytest.mark.parametrize(
    ("name", "value", "becomes"),
    [
        ("volume", "pgdata:/data", "copy-pgdata:/data"),
        ("volume", "pgdata:/data:Z,noexec", "copy-pgdata:/data:Z,noexec"),
        ("volume", "/etc/shop:/etc/shop:ro", "/etc/shop:/etc/shop:ro"),
        ("volume", "/scratch", "/scratch"),  # each container has one of its own
        ("mount", "type=volume,source=pgdata,destination=/data", "type=volume,source=copy-pgdata,destination=/data"),
        ("mount", "src=pgdata,dst=/data", "src=copy-pgdata,dst=/data"),
        ("mount", "type=bind,source=/etc/shop,target=/etc/shop,ro", "type=bind,source=/etc/shop,target=/etc/shop,ro"),
        ("mount", "type=tmpfs,destination=/tmp", "type=tmpfs,destination=/tmp"),
        ("env", "pgdata:/data", "pgdata:/data"),
    ],
)
def test_each_has_volumes_of_its_own(name, value, becomes):
    assert options((name, value)) == ((name, becomes),)


@pytest.mark.parametrize(
    ("name", "value"),
    [("volume", "other:/x"), ("volume", "/srv/shop:/x:rw"), ("mount", "type=bind,src=/srv/shop,dst=/x"), ("mount", "type=bind,src=/srv/shop,dst=/x,ro=false")],
)
def test_two_that_write_one_folder_are_refused(name, value):
    with pytest.raises(CloneError, match="(other|/srv/shop) is no part of the snapshot, and the clone would write to it, too: mount it read-only"):
        options((name, value))


def test_its_ports_and_names_are_not_the_clones():
    assert options(("publish", "80:80"), ("network-alias", "db"), ("memory", "1g")) == (("memory", "1g"),)
