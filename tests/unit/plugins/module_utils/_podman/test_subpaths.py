# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import stat

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import HandoverError
from ansible_collections.livefleet.handover.plugins.module_utils._podman import subpaths

MOUNTS = [
    {"destination": "/etc/shop", "subpath": "conf/shop", "subpath_kind": "directory"},
    {"destination": "/etc/shop.conf", "subpath": "/conf/shop.conf", "subpath_kind": "file"},
]


@pytest.mark.parametrize(
    ("below", "expected"),
    [
        ("conf/shop", "directory"), ("/conf//./shop/", "directory"), ("conf/shop.conf", "file"), (".", "directory"), ("conf/gone", ""),
        ("conf/link", ""), ("conf/link/below", ""), ("conf/pipe", ""), ("../volume/conf", ""),
    ],
)  # fmt: skip
def test_what_is_at_a_place_in_a_volume(tmp_path, below, expected):
    volume = tmp_path / "volume"
    subpaths.make(str(volume), MOUNTS)
    (volume / "conf" / "shop" / "below").mkdir()
    (volume / "conf" / "link").symlink_to("shop")
    subpaths.os.mkfifo(volume / "conf" / "pipe")
    assert subpaths.kind(str(volume), below) == expected


def test_a_configuration_names_the_places_in_the_volume(tmp_path):
    written = tmp_path / "config.json"
    gone = [{"destination": each["destination"], "source": "/run/gone", "options": ["rbind"]} for each in MOUNTS]
    other = {"destination": "/proc", "source": "proc"}
    written.write_text(json.dumps({"mounts": [other, *gone], "process": {"args": ["ä"]}}), encoding="utf-8")
    written.chmod(0o640)
    subpaths.name_places(str(written), {each["destination"]: subpaths.place("/volumes/v/_data", each) for each in MOUNTS})
    found = json.loads(written.read_text(encoding="utf-8"))
    assert [each["source"] for each in found["mounts"]] == ["proc", "/volumes/v/_data/conf/shop", "/volumes/v/_data/conf/shop.conf"]
    assert found["process"] == {"args": ["ä"]}
    assert stat.S_IMODE(written.stat().st_mode) == 0o640
    with pytest.raises(HandoverError, match="has no mount on /elsewhere"):
        subpaths.name_places(str(written), {"/elsewhere": "/volumes"})
    with pytest.raises(HandoverError, match="cannot be written"):
        subpaths.name_places(str(tmp_path / "none"), {"/elsewhere": "/volumes"})
    subpaths.name_places("", {})
