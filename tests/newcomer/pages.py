# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The pages that a newcomer reads: their blocks, and the words in their sentences."""

from __future__ import annotations

import re
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"(?ms)^```(\S*)\n(.*?)^```")


class Page:
    """One page. What is not on it, or is there twice, fails the test that asks for it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.text = (CHECKOUT / name).read_text(encoding="utf-8")

    def block(self, language: str, beginning: str) -> str:
        """The block of this language whose first line that is no comment begins so."""
        found = [text for kind, text in BLOCK.findall(self.text) if kind == language and first_line(text).startswith(beginning)]
        assert len(found) == 1, f"{self.name}: {len(found)} blocks of {language} begin with {beginning}"
        return found[0]

    def lines(self, language: str, beginning: str) -> list[str]:
        """Those of such a block, without comments."""
        return [line for line in (each.partition("#")[0].strip() for each in self.block(language, beginning).splitlines()) if line]

    def words(self, pattern: str) -> str:
        """What stands between backticks in a sentence, and matches this from its beginning."""
        found = {text for text in re.findall(r"`([^`\n]+)`", BLOCK.sub("", self.text)) if re.match(pattern, text)}
        assert len(found) == 1, f"{self.name}: {sorted(found)} match {pattern}"
        return found.pop()


def first_line(block: str) -> str:
    return next((line for line in block.splitlines() if line and not line.startswith("#")), "")
