# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An image that a rollback has away is no missing one: nothing is formatted in its place, and absent knows of it."""

from __future__ import annotations

import subprocess
import types

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import HandoverError
from ansible_collections.livefleet.handover.plugins.module_utils._podman import guard, rollback, volume
from ansible_collections.livefleet.handover.plugins.module_utils._podman.volume_actions import VolumeActions
from ansible_collections.livefleet.handover.plugins.module_utils._podman.volume_observer import VolumeObserver


@pytest.fixture
def observer(tmp_path, monkeypatch):
    monkeypatch.setattr(VolumeObserver, "losetup", "/sbin/losetup")
    runtime = types.SimpleNamespace(find=lambda tool: None)
    return lambda state, **more: VolumeObserver(
        runtime, None, volume.Wanted("shop", state, str(tmp_path / "shop.img"), str(tmp_path / "mnt"), size=2**30, **more), (), 512
    )


@pytest.mark.parametrize("end", [rollback.HELD, rollback.ASIDE])
def test_an_image_that_is_away(observer, tmp_path, monkeypatch, end):
    away = tmp_path / ("shop.img" + end)
    away.write_text("data")
    for state in ("mounted", "present"):
        with pytest.raises(HandoverError, match="was begun and has not ended, which has it as .*" + end):
            volume.decide((one := observer(state)).wanted, one.observe())
    with pytest.raises(HandoverError, match="absent would delete .*" + end):
        volume.decide((one := observer("absent")).wanted, one.observe())
    with away.open() as taken, subprocess.Popen(["sleep", "60"], stdin=taken) as user:
        assert [each.pid for each in observer("absent", force=True).observe().openers] == [user.pid]
        user.kill()
    one = observer("absent", force=True)
    assert volume.decide(one.wanted, one.observe()).has("delete")
    monkeypatch.setattr(guard, "unmark", lambda mountpoint: None)
    VolumeActions(one, (), print).delete()
    assert not away.exists() and not one.observe().away
