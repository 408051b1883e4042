# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.livefleet.handover.plugins.filter.session_spec import volume_steps
from ansible_collections.livefleet.handover.plugins.module_utils._podman.steps.image_volume import STEP

VOLUME = {
    "name": "data", "image": "/v/data.img", "mountpoint": "/m/data", "fstype": "ext4", "podman_volume": "data", "options": "rw,discard", "device": "/dev/loop0",
}  # fmt: skip


@pytest.mark.parametrize(
    ("options", "state", "more"),
    [("rw,discard", "mounted", {"discard": True}), ("rw,nodiscard", "mounted", {"discard": False}), ("rw,discard", "absent", {"force": True})],
)
def test_volumes_become_steps(options, state, more):
    (step,) = volume_steps([{**VOLUME, "options": options}], state)
    known = {key: VOLUME[key] for key in ("name", "image", "mountpoint", "fstype", "podman_volume")}
    assert step == {"image_volume": {**known, "state": state, **more}}
    assert not ArgumentSpecValidator(dict(STEP.arguments)).validate(step["image_volume"]).error_messages
