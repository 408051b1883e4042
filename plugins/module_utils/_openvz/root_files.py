# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The mends of an imported root file system, in its files."""

from __future__ import annotations

import fnmatch
import os
import typing as t

from .._core.below import KEPT, change_file, link, make_folders, parent_of
from .mends import Change, Interfaces, Root, needed


def mend(folder: str, root: Root, interfaces: Interfaces) -> list[dict[str, t.Any]]:
    """Carries the mends out; each with its reason and the files that it changed."""
    done = []
    for each in needed(root):
        changed = [path for pattern, change in each.files for path in _matching(folder, pattern) if change_file(folder, path, _with(change, interfaces))]
        changed += [path for path in each.masks if _mask(folder, path)]
        if changed or not (each.files or each.masks):
            done.append({"mend": each.name, "reason": each.reason, "files": changed})
    return done


def _with(change: Change, interfaces: Interfaces) -> t.Callable[[str], str]:
    return lambda text: change(text, interfaces)


def _mask(folder: str, path: str) -> bool:
    """Whether a unit is masked now that was not. One of the container's own stays as it is, and so does all behind a link."""
    make_folders(folder, path, 0o755)
    with parent_of(folder, path) as parent:
        if parent is None or os.path.basename(path) in os.listdir(parent):
            return False
    link(folder, path, os.devnull)
    return True


def _matching(folder: str, pattern: str) -> list[str]:
    above, _slash, last = pattern.rpartition("/")
    with parent_of(folder, pattern) as parent:
        names = [] if parent is None else fnmatch.filter(os.listdir(parent), last)
    return [f"{above}/{name}" for name in sorted(names) if not name.endswith(KEPT)]
