# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._podman.anonymous_volumes import pinned


@pytest.mark.parametrize(
    ("given", "volumes", "wanted"),
    [
        ([("volume", "/data")], {"/data": "a1"}, [("volume", "a1:/data")]),
        # podman tells the place without the slash at its end.
        ([("volume", "/data/")], {"/data": "a1"}, [("volume", "a1:/data/")]),
        ([("mount", "type=volume,destination=/data,ro=true")], {"/data": "a1"}, [("mount", "type=volume,destination=/data,ro=true,source=a1")]),
        ([("mount", "type=volume,dst=/data,src=")], {"/data": "a1"}, [("mount", "type=volume,dst=/data,source=a1")]),
        ([("mount", "target=/data")], {"/data": "a1"}, [("mount", "target=/data,source=a1")]),
        # Only the image's VOLUME speaks of it.
        ([("env", "A=1")], {"/b": "b2", "/a": "a1"}, [("env", "A=1"), ("volume", "a1:/a"), ("volume", "b2:/b")]),
        # All others stay as they are.
        ([("volume", "pg:/data"), ("volume", "/srv:/srv:ro"), ("mount", "type=bind,src=/x,dst=/x"), ("mount", "type=tmpfs,dst=/t")], {}, None),
        ([("mount", "type=tmpfs,destination=/data")], {"/data": "a1"}, [("mount", "type=tmpfs,destination=/data"), ("volume", "a1:/data")]),
        ([("mount", "type=volume,src=pg,dst=/data"), ("volume", "/data2")], {}, None),
    ],
)
def test_an_anonymous_volume_is_named(given, volumes, wanted):
    assert pinned(given, volumes) == (given if wanted is None else wanted)


def test_named_once_it_stays_as_it_is():
    first = pinned([("volume", "/data")], {"/data": "a1", "/image": "b2"})
    assert pinned(first, {}) == first
