# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.modules import kvm_job_info

WRAPPER = "/usr/bin/python3 /root/.ansible/tmp/x/async_wrapper.py j552 300 /root/.ansible/tmp/x/AnsiballZ_kvm_migrate.py _"


@pytest.mark.parametrize(
    ("command", "there"),
    [
        (WRAPPER, True),
        (WRAPPER.replace("j552", "j553"), False),
        ("tail -f j552", False),
        ("", False),
    ],
    ids=["its wrapper", "another's", "a namesake", "a kernel's thread"],
)
def test_whether_a_job_is_at_work(tmp_path, command, there):
    (tmp_path / "77").mkdir()
    (tmp_path / "77" / "cmdline").write_text("".join(f"{word}\0" for word in command.split()))
    (tmp_path / "self").mkdir()
    (tmp_path / "78").mkdir()  # gone in between
    assert kvm_job_info.at_work("j552.4711", str(tmp_path)) is there
