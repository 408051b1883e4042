# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.plugin_utils import _people


@pytest.mark.parametrize("callback, beside", [
    ("default", False), ("ansible.builtin.default", False), ("community.general.yaml", False), ("awx_display", False), (None, False),
    ("json", True), ("ansible.posix.json", True), ("ansible.posix.jsonl", True), ("community.general.logstash", True),
])  # fmt: skip
def test_what_a_program_reads_has_no_lines_for_people_in_it(monkeypatch, callback, beside):
    shown = []
    monkeypatch.setattr(_people.display, "display", lambda text, stderr: shown.append((text, stderr)))
    monkeypatch.setattr(_people.constants, "DEFAULT_STDOUT_CALLBACK", callback, raising=False)
    _people.say("shop has moved. ")
    assert shown == [("  shop has moved.", beside)]
