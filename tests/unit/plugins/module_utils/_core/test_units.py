# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Units as they are written for containers, and those of them that start the one that is meant."""

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import units
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import Completed

NAME, IDENTIFIER = "shop", "5a3e7d04f11b"
LABELS = {
    "com.docker.compose.project": "shop",
    "com.docker.compose.project.working_dir": "/srv/shop",
    "com.docker.compose.project.config_files": "/srv/shop/compose.yml,/srv/shop/more.yml",
}


def written(folder, name, *lines):
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("[Service]\n" + "".join(line + "\n" for line in lines))


def folders(tmp_path):
    return [str(tmp_path), str(tmp_path / "nowhere")]


@pytest.mark.parametrize(
    ("engine", "line", "found"),
    [
        ("podman", "ExecStart=/usr/bin/podman start shop", True),
        ("podman", "ExecStart=/usr/bin/podman start 5a3e7d04f11b", True),
        ("podman", "ExecStart=/usr/bin/podman run \\\n    --name=shop image", True),
        ("podman", "ExecStart=/usr/bin/podman start shop2", False),
        ("podman", "ExecStart=/usr/bin/podman start web-shop", False),
        ("podman", "ExecStop=/usr/bin/podman stop shop", False),
        ("podman", "ExecStart=/usr/bin/docker start shop", False),
        ("docker", "ExecStart=/usr/bin/serve start shop", False),
        ("docker", "ExecStart=-/usr/bin/docker start -a shop", True),
        ("docker", "ExecStart=/usr/bin/docker run --rm --name shop localhost/shop:1", True),
        ("docker", "ExecStart=/bin/sh -c 'exec docker run --name=shop image'", True),
        ("docker", "ExecStart=/usr/bin/docker run --name %N image", True),
        ("docker", "ExecStart=/usr/bin/docker run --name %n image", False),  # that is shop.service
        ("docker", "ExecStart=/usr/bin/docker run --name web --volume /srv/shop:/data shop:latest", False),
        ("docker", "ExecStart=/usr/bin/docker compose -f /srv/shop/compose.yml run shop", False),  # of_project knows that
    ],
)
def test_a_unit_that_starts_the_container(tmp_path, engine, line, found):
    written(tmp_path, "shop.service", line)
    assert units.units_of(engine, NAME, IDENTIFIER, folders(tmp_path)) == (["shop.service"] if found else [])


def test_an_instance_of_a_template_by_who_wants_it(tmp_path):
    written(tmp_path, "docker@.service", "ExecStart=/usr/bin/docker start -a %i")
    written(tmp_path / "multi-user.target.wants", "docker@shop.service")
    written(tmp_path / "multi-user.target.wants", "docker@web.service")
    assert units.units_of("docker", NAME, IDENTIFIER, folders(tmp_path)) == ["docker@shop.service"]


def test_a_drop_in_has_a_command_too(tmp_path):
    written(tmp_path, "web.service", "ExecStart=/usr/bin/serve")
    written(tmp_path / "web.service.d", "more.conf", "ExecStartPost=/usr/bin/docker start shop")
    assert units.units_of("docker", NAME, IDENTIFIER, folders(tmp_path)) == ["web.service"]


def test_a_file_that_another_folder_overrides(tmp_path):
    written(tmp_path / "etc", "shop.service", "ExecStart=/usr/bin/serve")
    written(tmp_path / "lib", "shop.service", "ExecStart=/usr/bin/docker start shop")
    assert units.units_of("docker", NAME, IDENTIFIER, [str(tmp_path / "etc"), str(tmp_path / "lib")]) == []


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (("WorkingDirectory=/srv/shop", "ExecStart=/usr/bin/docker compose up -d --remove-orphans"), True),
        (("WorkingDirectory=/srv/shop/", "ExecStart=/usr/local/bin/docker-compose up"), True),
        (("ExecStart=/usr/bin/docker compose -f /srv/shop/compose.yml up",), True),
        (("ExecStart=/usr/bin/podman-compose --project-name shop up -d",), True),
        (("ExecStart=/usr/bin/docker compose -p shop start",), True),
        (("Environment=COMPOSE_PROJECT_NAME=shop", "ExecStart=/usr/bin/docker compose up -d"), True),
        (("WorkingDirectory=/srv/shop2", "ExecStart=/usr/bin/docker compose up -d"), False),
        (("WorkingDirectory=/srv/shop/admin", "ExecStart=/usr/bin/docker compose up -d"), False),
        (("ExecStart=/usr/bin/docker compose -p shop-test up -d",), False),
        (("WorkingDirectory=/srv/shop", "ExecStart=/usr/bin/docker compose logs -f"), False),
        (("WorkingDirectory=/srv/shop", "ExecStart=/usr/bin/serve up"), False),
    ],
)
def test_a_unit_that_starts_the_project(tmp_path, lines, found):
    written(tmp_path, "site.service", *lines)
    assert units.of_project(LABELS, folders(tmp_path)) == (["site.service"] if found else [])
    assert units.of_project({}, folders(tmp_path)) == []


def test_an_instance_whose_folder_has_its_name(tmp_path):
    written(tmp_path, "compose@.service", "WorkingDirectory=/srv/%i", "ExecStart=/usr/bin/docker compose up -d")
    written(tmp_path / "multi-user.target.wants", "compose@shop.service")
    assert units.of_project(LABELS, folders(tmp_path)) == ["compose@shop.service"]


class Systemd:
    """Its answer of one unit."""

    def __init__(self, said):
        self.said = said

    def tool(self, name, _package):
        return name

    def run(self, *_words, **_more):
        return Completed((), 0, self.said, "")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("ActiveState=active\nSubState=exited\nUnitFileState=enabled\n", [False]),
        ("ActiveState=active\nSubState=running\nUnitFileState=disabled\n", [True]),
        ("ActiveState=active\nSubState=exited\nUnitFileState=disabled\n", []),
        ("ActiveState=inactive\nSubState=dead\nUnitFileState=disabled\n", []),
        ("ActiveState=failed\nSubState=failed\nUnitFileState=enabled\n", [False]),
    ],
)
def test_a_unit_that_will_start_the_project_again(monkeypatch, said, expected):
    monkeypatch.setattr(units, "of_project", lambda _labels: ["site.service"])
    assert [each["runs"] for each in units.project_units(Systemd(said), LABELS)] == expected


def test_a_unit_of_which_there_is_only_a_label(tmp_path):
    written(tmp_path, "podman-compose@.service")
    assert units.unit_exists("podman-compose@shop.service", folders(tmp_path))
    assert not units.unit_exists("shop.service", folders(tmp_path))
