# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""show_lines shows its lines to people, and keeps them out of the output that a program reads."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleError
from ansible_collections.livefleet.handover.plugins.action import show_lines
from ansible_collections.livefleet.handover.plugins.plugin_utils import _people


@pytest.fixture(name="shown")
def the_display(monkeypatch):
    shown = []
    monkeypatch.setattr(_people.display, "display", lambda text, stderr=False: shown.append((text, stderr)))
    return shown


@pytest.mark.parametrize(("callback", "stderr"), [("default", False), ("ansible.posix.json", True), ("community.general.yaml", False), ("junit", True)])
def test_each_line_is_shown_once_and_where_people_look(action, shown, monkeypatch, callback, stderr):
    monkeypatch.setattr(_people.constants, "DEFAULT_STDOUT_CALLBACK", callback)
    assert action(show_lines, {"lines": ["copy    1.2 s", ""]}) == {"changed": False}
    assert shown == [("  copy    1.2 s", stderr), ("", stderr)]


def test_lines_are_needed(action, shown):
    with pytest.raises(AnsibleError, match="missing required arguments: lines"):
        action(show_lines, {})
    assert shown == []
