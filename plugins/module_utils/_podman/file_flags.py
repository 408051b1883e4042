# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Flags of files (chattr) that a copy has to carry, and those that a file system cannot have: asked of the helper, which carries them."""

from __future__ import annotations

import os
import typing as t

from .._core.pcopy import Pcopy, PcopyError

# The helper's exit status where it cannot understand its command line.
UNKNOWN_WORD = 2


def found(pcopy: Pcopy, path: str) -> list[dict[str, t.Any]]:
    """The flags in a folder or of a file without which a copy fails, each with the first path that has it."""
    return list(ask(pcopy, "flags-in", path).get("found", {}).get(path, [])) if os.path.lexists(path) else []


def missing(pcopy: Pcopy, path: str) -> list[str]:
    """Names of the flags that the file system cannot have which holds a path, or will hold it."""
    above = path
    while not os.path.isdir(above) and os.path.dirname(above) != above:
        above = os.path.dirname(above)
    return list(ask(pcopy, "flags-missing", above).get("missing", {}).get(above, []))


def ask(pcopy: Pcopy, *words: str) -> dict[str, t.Any]:
    """Its answer; empty where it is missing, or so old that it does not know the question: a check of its own says so."""
    if not os.access(pcopy.path, os.X_OK):
        return {}
    try:
        return pcopy.call("internal", *words)
    except PcopyError as exc:
        if exc.rc == UNKNOWN_WORD:
            return {}
        raise
