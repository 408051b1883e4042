# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The container's image on the destination, and how it gets there."""

from __future__ import annotations

import typing as t

from .. import root_volume
from .plan import Check, Plan

# By a word of the manifest's type. In its own format an image keeps its ID: a conversion rewrites its configuration.
FORMATS = (("oci", "oci-archive"), ("docker.distribution.manifest.v2", "docker-archive"))


def image_present(plan: Plan) -> bool:
    """Whether the destination has the container's image, or needs none: its root is a volume."""
    if plan.known and root_volume.path_of(plan.container):
        return True
    return plan.known and any(image["id"] == plan.container["image"]["id"] for image in plan.there["host"]["podman"]["images"])


def archive_format(manifest: str) -> str:
    """The format of podman save in which an image keeps its ID; empty if there is none."""
    return next((written for word, written in FORMATS if word in manifest), "")


def archive(plan: Plan) -> dict[str, str]:
    """How the image is to be saved: its format, and by its name only where that name is free over there."""
    image = plan.container["image"]
    taken = any(image["name"] in each["names"] for each in plan.there["host"]["podman"]["images"])
    return {"format": archive_format(image["manifest"]), "reference": image["name"] if image["named"] and not taken else image["id"]}


def _image_format(plan: Plan) -> t.Iterator[str]:
    image = plan.container["image"]
    if not image_present(plan) and not archive_format(image["manifest"]):
        yield "the image {0} of {1} is written as {2}, in which podman cannot save it with its ID: bring it to {3} from its registry with podman pull".format(
            image["name"], plan.workload, image["manifest"] or "something unknown", plan.destination
        )


def missing(plan: Plan) -> list[dict[str, t.Any]]:
    """The images that the destination lacks, each once, and how each is to be saved."""
    lacking = [each for each in plan.member_plans() or [plan] if not image_present(each)]
    return [
        {"id": identifier, "name": each.container["image"]["name"], "size": each.container["image"]["size"], **archive(each)}
        for identifier, each in {each.container["image"]["id"]: each for each in lacking if each.known}.items()
    ]


CHECKS: dict[str, Check] = {
    "image_format": _image_format,
}
