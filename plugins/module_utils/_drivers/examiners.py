# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The conditions before a move, by the driver that runs the workload."""

from __future__ import annotations

import typing as t

from .._core import bind_checks, floating, tmpfs_checks
from .._core.move import Facts, Finding, Move
from .._docker import checks as docker, told as docker_told
from .._openvz.driver import checks as openvz, told as openvz_told
from .._podman.preflight import examine as podman
from . import docker_live


class Examiner(t.NamedTuple):
    """The questions about a move of one driver's."""

    plan: t.Callable[..., t.Any]
    checks: t.Iterable[str]
    unknown_names: t.Callable[[t.Iterable[str]], list[str]]
    examine: t.Callable[[t.Any, t.Container[str]], tuple[list[Finding], list[Finding]]]
    images: t.Callable[[t.Any], list[dict[str, t.Any]]]
    volumes: t.Callable[[t.Any], list[Facts]]
    directories: t.Callable[[t.Any], list[Facts]]
    twin: t.Callable[[t.Any], dict[str, t.Any]]
    told: t.Callable[[t.Any], list[str]]
    floating: t.Callable[[t.Any], dict[str, list[dict[str, t.Any]]]] = lambda _move: {"source": [], "destination": []}
    places: t.Callable[[t.Any], bool] = lambda _move: False
    may_follow: t.Callable[[t.Any], bool] = lambda _move: False
    tmpfs: t.Callable[[t.Any], list[dict[str, t.Any]]] = lambda _move: []


_MOVE = frozenset(Move.__dataclass_fields__)


def _move(**asked: t.Any) -> Move:
    """A move whose engine has no concern with the rest of what is asked for."""
    return Move(**{name: value for name, value in asked.items() if name in _MOVE})


EXAMINERS: t.Mapping[str, Examiner] = {
    "docker": Examiner(
        plan=_move,
        checks={**docker.CHECKS, **docker_live.CHECKS},
        unknown_names=lambda ignore: docker.unknown_names(ignore, docker_live.CHECKS),
        examine=lambda move, ignore: docker.examine(move, ignore, docker_live.CHECKS),
        images=docker.images,
        volumes=lambda _move: [],
        directories=lambda move: [*move.directories, *bind_checks.directories(move)],
        twin=docker.twin,
        told=lambda move: [*docker_told.told(move), *docker_live.told(move)],
        floating=floating.places,
        tmpfs=tmpfs_checks.carried,
    ),
    "openvz": Examiner(
        plan=_move,
        checks=openvz.CHECKS,
        unknown_names=openvz.unknown_names,
        examine=openvz.examine,
        images=lambda _move: [],
        volumes=lambda _move: [],
        directories=lambda move: move.directories,
        twin=openvz.twin,
        told=openvz_told.told,
    ),
    "podman": Examiner(
        plan=podman.Plan,
        checks=podman.CHECKS,
        unknown_names=podman.unknown_names,
        examine=podman.examine,
        images=podman.missing,
        volumes=lambda plan: plan.volumes,
        directories=podman.directories,
        twin=podman.twin,
        told=podman.told,
        floating=podman.floating_places,
        places=podman.places,
        may_follow=podman.may_follow,
        tmpfs=podman.tmpfs_carried,
    ),
}
