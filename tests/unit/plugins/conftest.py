# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._kvm import sides
from ansible_collections.livefleet.handover.plugins.module_utils._podman import help_texts

# Debian's python3-libvirt, which `make setup` installs: PyPI's has to be compiled.
DEBIAN = "/usr/lib/python3/dist-packages"


@pytest.fixture
def libvirt(monkeypatch):
    """libvirt's binding, whose test driver has guests that can be run, paused and removed."""
    monkeypatch.syspath_prepend(DEBIAN)
    pytest.importorskip("libvirt", reason="needs Debian's package python3-libvirt")
    return sides.load_libvirt()


@pytest.fixture(autouse=True)
def own_notes(monkeypatch, tmp_path_factory):
    """What is kept until the next boot: no test leaves an answer of its own to this machine's modules."""
    monkeypatch.setattr(help_texts, "NOTES", str(tmp_path_factory.mktemp("notes") / "handover" / "help.json"))
