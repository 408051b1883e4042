# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._podman.clone import LABEL, CloneError, cloned, unclaimed
from ansible_collections.livefleet.handover.plugins.module_utils._podman.create_command import CreateCommand

VOLUMES = {"pgdata": "copy-pgdata", "/mnt/pgdata": "/mnt/copy-pgdata"}


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
        ("volume", "/mnt/pgdata/sub:/x", "/mnt/copy-pgdata/sub:/x"),  # a folder of the image volume
        ("volume", "/srv/shop:/x:O", "/srv/shop:/x:O"),  # each has a layer of its own above it
        ("mount", "type=glob,src=/etc/a*,dst=/x,ro", "type=glob,src=/etc/a*,dst=/x,ro"),
        ("network", "lan:ip=10.0.0.2,alias=db", "lan:ip=10.0.0.2"),
        ("network", "lan:alias=db", "lan"),
        ("log-opt", "max-size=1m", "max-size=1m"),
        ("cgroups", "no-conmon", "no-conmon"),
        ("label", "team=shop", "team=shop"),
    ],
)
def test_each_has_volumes_of_its_own(name, value, becomes):
    assert options((name, value)) == ((name, becomes),)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("volume", "other:/x"),
        ("volume", "/srv/shop:/x:rw"),
        ("volume", "/srv/shop:/x:O,upperdir=/srv/upper,workdir=/srv/work"),
        ("mount", "type=bind,src=/srv/shop,dst=/x"),
        ("mount", "type=bind,src=/srv/shop,dst=/x,ro=false"),
        ("mount", "type=glob,src=/srv/shop,dst=/x"),
    ],
)
def test_two_that_write_one_folder_are_refused(name, value):
    with pytest.raises(CloneError, match="(other|/srv/shop) is no part of the snapshot, and the clone would write to it, too: mount it read-only"):
        options((name, value))


def test_its_ports_and_names_are_not_the_clones():
    assert options(("publish", "80:80"), ("network-alias", "db"), ("pidfile", "/run/shop.pid"), ("memory", "1g")) == (("memory", "1g"),)
    assert options(("log-opt", "path=/var/log/shop"), ("cgroups", "split")) == ()


def test_no_other_program_takes_it_for_its_own():
    """podman-compose down would remove it with the first, and a unit would stop it."""
    claims = ["PODMAN_SYSTEMD_UNIT=shop.service", "com.docker.compose.project=shop", "io.podman.compose.project=shop", "io.containers.autoupdate=registry"]
    assert unclaimed([*claims, "team=shop", LABEL + "=older@x"]) == ("team=shop",)
    assert options(*(("label", claim) for claim in claims)) == ()
