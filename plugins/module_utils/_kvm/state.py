# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of a guest beside its disks: variables of its firmware, and the state of its emulated TPM.

QEMU's migration takes them along. A guest that does not run has them copied, and held against their digests before the source lets go.
"""

from __future__ import annotations

import typing as t
from xml.etree import ElementTree

from .inventory import Finding

# Where libvirt has the TPMs of system guests, a folder for each by its UUID.
TPM_FOLDER = "/var/lib/libvirt/swtpm"


# And the memory of guests that were saved, by their names: it is resumed at the next start of any guest of that name.
SAVE_FOLDER = "/var/lib/libvirt/qemu/save"


def saved(guest: str) -> str:
    return f"{SAVE_FOLDER}/{guest}.save"


def files(root: ElementTree.Element) -> list[tuple[str, str]]:
    """Its kind (nvram or tpm), and its place."""
    found = []
    nvram = root.find("os/nvram")
    if nvram is not None:
        source = nvram.find("source")
        path = (nvram.text or "").strip() or ("" if source is None else source.get("file", ""))
        if path:
            found.append(("nvram", path))
    backend = root.find("devices/tpm/backend")
    if backend is not None and backend.get("type") == "emulator":
        source = backend.find("source")
        path = "" if source is None else source.get("path", "")
        found.append(("tpm", path or f"{TPM_FOLDER}/{root.findtext('uuid')}"))
    return found


def mark(path: str, guest: str) -> str:
    """Lies beside a file on the destination from before it is made until all is done."""
    return f"{path}.{guest}.arriving"


NAMES = {"nvram": "the firmware's variables", "tpm": "the state of the TPM"}


def findings(root: ElementTree.Element, guest: str, seen_here: t.Mapping[str, t.Any] | None, seen_there: t.Mapping[str, t.Any] | None) -> list[Finding]:
    """Existing files on the destination are not written over, except an earlier attempt's."""
    found = []
    if seen_there is not None and seen_there["places"].get(saved(guest), {}).get("exists"):
        found.append(
            Finding(
                "managed_save",
                f"the destination has the memory of an earlier {guest} ({saved(guest)}), and would resume it over a newer disk: move that file away there",
            )
        )
    for what, path in files(root):
        if seen_here is None or seen_there is None:
            found.append(Finding(what, f"{NAMES[what]} of the guest ({path}) have to travel, and nobody has looked: run the role kvm_migrate"))
            continue
        here, there = seen_here["trees"].get(path), seen_there["trees"].get(path)
        marked = seen_there["places"].get(mark(path, guest), {}).get("exists")
        if there and there != here and not marked:
            found.append(
                Finding(what, f"{path} is on the destination already, and {NAMES[what]} would be written over it: move it away there, if nothing needs it")
            )
    return found


def all_of(root: ElementTree.Element, guest: str) -> list[dict[str, str]]:
    """Files beside the disks, and their marks."""
    return [{"what": what, "path": path, "mark": mark(path, guest)} for what, path in files(root)]


def travelling(
    root: ElementTree.Element, guest: str, seen_here: t.Mapping[str, t.Any] | None, seen_there: t.Mapping[str, t.Any] | None
) -> list[dict[str, str]]:
    """The files that travel. A guest that was never started has none yet, and on storage that both hosts mount they stay where they are."""
    if seen_here is None or seen_there is None:
        return []

    def travels(path: str, its_mark: str) -> bool:
        here, there = seen_here["trees"].get(path), seen_there["trees"].get(path)
        return bool(here) and (here != there or bool(seen_there["places"].get(its_mark, {}).get("exists")))

    return [each for each in all_of(root, guest) if travels(each["path"], each["mark"])]
