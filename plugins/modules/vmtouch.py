#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: vmtouch

short_description: Have files in the page cache, keep them there, or throw them out

version_added: 0.1.0

description:
  - Reads files, directories and block devices into the page cache, locks them there for a time, evicts them, or tells how much of them is there.
  - A program that is about to start then finds these pages in memory, which it would have read from the disk, here and there and slowly.
  - The size of the files is compared with the memory that is available, and with a limit, before anything is read.

extends_documentation_fragment:
  - livefleet.handover._attributes

attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details:
      - Shows the pages that are resident.
  idempotent:
    support: partial
    details:
      - The kernel may give pages up at any time that are not locked; they are read again then.

options:
  paths:
    description:
      - Files, directories and block devices, or patterns for them as in C(/srv/ceph/osd/ceph-7/current/omap/*.ldb).
      - A pattern that matches nothing is no error, a path that does not exist is.
      - The patterns are looked at when the module runs. Files that appear later are not read.
      - Not needed with O(state=unlocked).
    type: list
    elements: str
    default: []
  state:
    description:
      - With V(touched) all pages are resident when the module returns. The kernel may give them up later.
      - With V(locked) they are resident until they are unlocked, or O(seconds) have passed. A systemd unit named after O(name) holds them.
        Files that were locked under this name before are let go of first, if they are others.
      - With V(unlocked) the pages that were locked under this name are released; they stay resident as long as the kernel likes.
      - With V(evicted) none of the pages is resident, except for those that are locked, mapped or not yet written.
      - V(queried) only looks.
    type: str
    choices: [touched, locked, unlocked, evicted, queried]
    default: touched
  name:
    description:
      - Name for the locked pages, up to 64 letters, digits and C(_ . -). The unit is C(handover-vmtouch-<name>.service).
      - Required with O(state=locked) and O(state=unlocked).
    type: str
  seconds:
    description:
      - After this time the locked pages are released, even if the play has died.
    type: int
    default: 3600
  limit:
    description:
      - The most that may be read, as in V(4G). Refused if there is more.
    type: str
  reserve:
    description:
      - Memory that has to stay available, as in V(512M). Refused if the pages would leave less.
    type: str
    default: 256M
  timeout:
    description:
      - Seconds that the whole module may take.
    type: int
    default: 600

requirements:
  - vmtouch on the host
  - systemd on the host, for O(state=locked) and O(state=unlocked)

notes:
  - The pages of a block device live as long as a process has the device open. To touch one that no process has open is refused; locking opens it.

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Keep the object map of an OSD in memory for ten minutes
  livefleet.handover.vmtouch:
    paths:
      - /var/lib/ceph/osd/ceph-7/current/omap/*.sst
      - /var/lib/ceph/osd/ceph-7/current/omap/*.ldb
      - /var/lib/ceph/osd/ceph-7/current/meta
    state: locked
    name: osd.7
    seconds: 600
    limit: 4G

- name: Let go of it
  livefleet.handover.vmtouch:
    state: unlocked
    name: osd.7

- name: See how much of a database is in memory
  livefleet.handover.vmtouch:
    paths: [/var/lib/postgresql]
    state: queried
  register: cached
"""

RETURN = r"""
reasons:
  description: Why something was changed, or in check mode would be.
  returned: success
  type: list
  elements: str
  sample:
    - 5120 of 26624 pages are not resident
files:
  description: How many files were meant.
  returned: success
  type: int
  sample: 31
size:
  description: Their size in bytes, in whole pages.
  returned: success
  type: int
  sample: 109051904
pages:
  description: Their size in pages.
  returned: success
  type: int
  sample: 26624
resident_before:
  description: Pages that were resident before.
  returned: success
  type: int
  sample: 21504
resident:
  description: Pages that are resident now.
  returned: success
  type: int
  sample: 26624
seconds:
  description: How long the reading, locking or evicting took.
  returned: success
  type: float
  sample: 0.93
unit:
  description: The systemd unit that holds the locked pages.
  returned: with O(state=locked) and O(state=unlocked)
  type: str
  sample: handover-vmtouch-osd.7.service
"""

import os
import re
import tempfile
import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._core import vmtouch
from ..module_utils._core.memory import check_room
from ..module_utils._core.runtime import HandoverError, Runtime
from ..module_utils._core.sizes import parse_size
from ..module_utils._core.transient_unit import TransientUnit

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
# The pages locked under a name are written down beside it: systemd forgets a unit that has ended.
_LISTS = "/run/handover-vmtouch"


class Vmtouch:
    """Some files, and their pages."""

    def __init__(self, module: AnsibleModule) -> None:
        self.params = module.params
        self.check_mode = module.check_mode
        self.runtime = Runtime(module, module.params["timeout"])
        self.limit = self._size("limit")
        self.reserve = self._size("reserve") or 0
        name = module.params["name"]
        if name is not None and not _NAME.fullmatch(name):
            raise HandoverError(f"name: '{name}' is not a name: use up to 64 letters, digits and _ . -, beginning with a letter or digit")
        self.unit = TransientUnit(self.runtime, f"handover-vmtouch-{name}")
        self.reasons: list[str] = []

    def _size(self, option: str) -> int | None:
        text = self.params[option]
        try:
            return None if text is None else parse_size(text)
        except ValueError as exc:
            raise HandoverError(f"{option}: {exc}") from exc

    def run(self) -> dict[str, t.Any]:
        """Looks, acts, and looks again."""
        state = self.params["state"]
        selection = vmtouch.select(self.params["paths"])
        if state in ("touched", "locked"):
            check_room("what is to be in memory", selection.size, self.limit, self.reserve)
        before, pages = self._pages(selection)
        began = time.monotonic()
        getattr(self, "_" + state)(selection, before, pages)
        seconds = time.monotonic() - began
        acted = self.reasons and not self.check_mode and state != "unlocked"
        after = self._pages(selection)[0] if acted else before
        expected = {"touched": pages, "locked": pages, "evicted": 0}.get(state, before) if self.reasons else before
        result = {
            "changed": bool(self.reasons),
            "reasons": self.reasons,
            "files": selection.files + len(selection.devices),
            "size": selection.size,
            "pages": pages,
            "resident_before": before,
            "resident": after,
            "seconds": round(seconds, 3),
            "diff": {"before": {"resident": before}, "after": {"resident": after if acted else expected}},
        }
        if state in ("locked", "unlocked"):
            result["unit"] = self.unit.service
        return result

    def _queried(self, selection: vmtouch.Selection, resident: int, pages: int) -> None:
        """Nothing but the look that was taken already."""

    def _touched(self, selection: vmtouch.Selection, resident: int, pages: int) -> None:
        if resident == pages:
            return
        self.reasons.append(f"{pages - resident} of {pages} pages are not resident")
        if self.check_mode:
            return
        self._call(selection, "-t")
        for device in selection.devices:
            if not self._pages(vmtouch.select([device]))[0]:
                raise HandoverError(f"the pages of {device} were thrown away again, since nobody has it open: use state=locked, which keeps it open")

    def _evicted(self, selection: vmtouch.Selection, resident: int, pages: int) -> None:
        if not resident:
            return
        self.reasons.append(f"{resident} of {pages} pages are resident")
        if not self.check_mode:
            self._call(selection, "-e")

    def _locked(self, selection: vmtouch.Selection, resident: int, pages: int) -> None:
        if self.unit.running():
            if self._written() == selection.paths:
                return
            self.reasons.append(f"{self.unit.service} holds other files")
        else:
            self.reasons.append(f"{self.unit.service} does not run")
        if self.check_mode or not selection.paths:
            return
        self.unit.stop()
        self._write(selection.paths)
        argv = [self._tool(), "-q", "-d", "-l", "-w", "-f", "-0", "-b", self._list]
        self.unit.start(argv, f"Pages kept in memory: {self.params['name']}", "forking", self.params["seconds"])

    def _unlocked(self, selection: vmtouch.Selection, resident: int, pages: int) -> None:
        if self.unit.running():
            self.reasons.append(f"{self.unit.service} runs")
            if not self.check_mode:
                self.unit.stop()
        if os.path.exists(self._list) and not self.check_mode:
            os.unlink(self._list)

    @property
    def _list(self) -> str:
        return os.path.join(_LISTS, self.params["name"])

    def _write(self, paths: t.Sequence[str]) -> None:
        os.makedirs(_LISTS, mode=0o700, exist_ok=True)
        with open(self._list, "wb") as target:
            target.write(b"".join(os.fsencode(path) + b"\0" for path in paths))

    def _written(self) -> tuple[str, ...]:
        try:
            with open(self._list, "rb") as source:
                return tuple(os.fsdecode(path) for path in source.read().split(b"\0")[:-1])
        except FileNotFoundError:
            return ()

    def _pages(self, selection: vmtouch.Selection) -> tuple[int, int]:
        """Pages that are resident, and all of them."""
        if not selection.paths:
            return 0, 0
        return vmtouch.parse_pages(self._call(selection))

    def _call(self, selection: vmtouch.Selection, *options: str) -> str:
        with tempfile.NamedTemporaryFile(prefix="vmtouch-") as names:
            names.write(b"".join(os.fsencode(path) + b"\0" for path in selection.paths))
            names.flush()
            return self.runtime.run([self._tool(), *options, "-f", "-0", "-b", names.name]).stdout

    def _tool(self) -> str:
        return self.runtime.tool("vmtouch", "vmtouch")


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "paths": {"type": "list", "elements": "str", "default": []},
            "state": {"type": "str", "choices": ["touched", "locked", "unlocked", "evicted", "queried"], "default": "touched"},
            "name": {"type": "str"},
            "seconds": {"type": "int", "default": 3600},
            "limit": {"type": "str"},
            "reserve": {"type": "str", "default": "256M"},
            "timeout": {"type": "int", "default": 600},
        },
        required_if=[("state", "locked", ["name"]), ("state", "unlocked", ["name"])],
        supports_check_mode=True,
    )
    try:
        module.exit_json(**Vmtouch(module).run())
    except HandoverError as exc:
        module.fail_json(msg=str(exc))


if __name__ == "__main__":
    main()
