# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import importlib.util
import os
import re
import textwrap
from pathlib import Path

import yaml
from ansible_collections.livefleet.handover.plugins.modules import options
from ansible_collections.livefleet.handover.plugins.plugin_utils._declaration import COLLECTION

_SPEC = importlib.util.spec_from_file_location("variables_page", Path(__file__).with_name("page.py"))
page = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(page)

PAGE = COLLECTION / "docs" / "variables.md"
MODULE = COLLECTION / "plugins" / "modules" / "options.py"
WRITE = os.environ.get("HANDOVER_WRITE_DOCS")


def test_the_page_of_variables_says_what_is_declared():
    if WRITE:
        PAGE.write_text(page.page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page.page(), "run `make docs`"


def test_ansible_doc_shows_every_variable():
    if WRITE:
        text = MODULE.read_text(encoding="utf-8")
        # A fold in a word with a hyphen would be read as a space.
        wrap = textwrap.TextWrapper(140, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)
        lines = "".join("  - >-\n{0}\n".format(wrap.fill(note)) for note in page.notes())
        MODULE.write_text(re.sub(r"(?s)(asks no host\.\n).*?(\nseealso:)", lambda found: found[1] + lines + found[2], text), encoding="utf-8")
        return
    assert yaml.safe_load(options.DOCUMENTATION)["notes"][1:] == page.notes(), "run `make docs`"
