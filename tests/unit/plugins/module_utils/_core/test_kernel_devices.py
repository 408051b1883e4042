# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

from ansible_collections.livefleet.handover.plugins.module_utils._core import kernel_devices


def test_a_device_counts_by_its_number(monkeypatch, tmp_path):
    other = tmp_path / "tun"
    other.write_text("")
    monkeypatch.setattr(kernel_devices, "NUMBERS", {"/dev/null": (1, 3), "/dev/zero": (1, 3), str(other): (1, 3), "/dev/none": (1, 3)})
    assert kernel_devices.present() == ["/dev/null"]
    assert os.major(os.stat("/dev/zero").st_rdev) == 1


def test_each_has_its_module():
    assert set(kernel_devices.NUMBERS) == set(kernel_devices.MODULES)
