# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The code of the module that runs, as a program of the host: the same work is done later, when no controller is there.

Ansible sends a module as an archive of all that it imports. Python runs an archive that has a `__main__.py`.
"""

from __future__ import annotations

import io
import zipfile

from .runtime import HandoverError

# Of the run at hand: it names a folder that is gone afterwards.
_OF_THE_RUN = frozenset(("sitecustomize.py", "__main__.py"))

_MAIN = """\
import sys

from {0} import main

sys.exit(main(sys.argv[1:]))
"""


def sent_archive() -> str:
    """The file that this module was sent in."""
    found = getattr(globals().get("__loader__"), "archive", "")
    if not found:
        raise HandoverError("this module was not sent as an archive, so its code cannot be kept on the host: run it from a playbook")
    return found


def program(entry: str, archive: str) -> bytes:
    """The archive as a program that calls `main` of a module of it. The same code gives the same bytes."""
    kept = io.BytesIO()
    with zipfile.ZipFile(archive) as sent, zipfile.ZipFile(kept, "w") as target:
        parts = {name: sent.read(name) for name in sent.namelist() if name not in _OF_THE_RUN}
        parts["__main__.py"] = _MAIN.format(entry).encode("ascii")
        for name, content in sorted(parts.items()):
            target.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return kept.getvalue()
