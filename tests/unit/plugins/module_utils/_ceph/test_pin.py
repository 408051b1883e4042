# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import errno
import os
import typing as t
from pathlib import Path

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._ceph import pin as ceph_pin
from ansible_collections.livefleet.handover.plugins.module_utils._ceph.osd import LAYOUTS, Osd
from ansible_collections.livefleet.handover.plugins.module_utils._ceph.pin import Layout, Pin
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import HandoverError


class Idle:
    """A runtime in which nothing may be run."""

    def run(self, argv: t.Sequence[str], **_options: t.Any) -> t.NoReturn:
        raise AssertionError(f"{argv} was run")


class FullDisk:
    """A file that can be made, and not written to."""

    def __init__(self, path: str, *_mode: t.Any, **_options: t.Any) -> None:
        Path(path).touch()

    def __enter__(self) -> FullDisk:
        return self

    def __exit__(self, *_exc: object) -> None:
        pass

    def write(self, _text: str) -> t.NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_one_sentence_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceph_pin, "FOLDER", str(tmp_path))
    monkeypatch.setattr(ceph_pin, "open", FullDisk, raising=False)
    pin = Pin(t.cast(t.Any, Idle()), Osd(2, LAYOUTS[0], {"cluster": "ceph", "id": "2"}, "/var/lib/ceph/osd/ceph-2"))
    with pytest.raises(HandoverError, match=r"osd\.2\.json cannot be written: No space left on device; make room there, for osd\.2 is not pinned without it"):
        pin.begin(Layout({"/dev/loop1": [[0, 4096]]}, 4096, 0), 60, True)
    assert list(tmp_path.iterdir()) == []
