# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whatever refuses to prepare a twin is found by the preflight, and so by the check, too."""

from __future__ import annotations

import ast
import pathlib

from ansible_collections.livefleet.handover.plugins.module_utils._core import bind_places
from ansible_collections.livefleet.handover.plugins.module_utils._podman import twin_init
from ansible_collections.livefleet.handover.plugins.module_utils._podman.preflight import examine as preflight
from ansible_collections.livefleet.handover.plugins.module_utils._podman.steps import podman_workload

# How a refusal begins → the checks that foresee it. One that nothing can foresee happens between the plan and the preparation.
FORESEEN = {
    "the image {0}": ("image_format", "space"),
    "{0} cannot be created again here": ("create_command", "create_options"),
    "podman has another volume named": ("volumes",),
    "what podman has on this host of {0} is not": (),
    "something is mounted on {0} already": ("mountpoints",),
    "{0} cannot be made on this host": ("bind_mounts_taken",),
    "{0} runs on this host already": ("already_there",),
    "{0} would not be the same here": ("engine_defaults", "files_named", "secrets", "create_options", "runtime", "namespaces"),
}
# Those of a container that is to be started or removed, which is after the cutover or behind it.
LATER = (
    "{0}, which was made for the move, cannot be removed", "{0} has moved to another host and cannot be renamed",
    "there is no container named {0} on this host", "{0} is {1} on this host, so it is not removed", "podman has removed {0}, and there is one again")


def refusals():
    """The beginnings of all sentences with which the module fails by itself."""
    for module in (podman_workload, twin_init, bind_places):
        for node in ast.walk(ast.parse(pathlib.Path(module.__file__).read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                yield [inner.value for inner in ast.walk(node.exc) if isinstance(inner, ast.Constant) and isinstance(inner.value, str)][0]


def test_every_refusal_is_foreseen():
    found = list(refusals())
    assert len(found) == len(FORESEEN) + len(LATER)
    for sentence in found:
        assert any(sentence.startswith(beginning) for beginning in (*FORESEEN, *LATER)), sentence


def test_by_checks_that_there_are():
    assert {check for checks in FORESEEN.values() for check in checks} <= set(preflight.CHECKS)
