# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import typing as t

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

display = Display()


class ActionModule(ActionBase):
    """Writes files on the controller, in the process that is there already."""

    TRANSFERS_FILES = False
    _VALID_ARGS = frozenset(("directory", "files", "required"))
    _requires_connection = False

    def run(self, tmp: t.Any = None, task_vars: t.Optional[t.Dict[str, t.Any]] = None) -> t.Dict[str, t.Any]:
        super().run(tmp, task_vars)
        _validation, asked = self.validate_argument_spec(
            argument_spec={
                "directory": {"type": "str", "required": True},
                "files": {"type": "dict", "required": True},
                "required": {"type": "bool", "default": True},
            }
        )
        directory = os.path.expanduser(asked["directory"])
        try:
            changed = [name for name, text in asked["files"].items() if self._write(os.path.join(directory, name), str(text))]
        except OSError as exc:
            told = "{0}: {1}: name a directory that can be written to".format(exc.filename or directory, exc.strerror or exc)
            if asked["required"]:
                return dict(failed=True, msg=told)
            display.warning("the report was not written: {0}".format(told))
            return {"changed": False, "written": False, "reasons": []}
        return {"changed": bool(changed), "written": True, "reasons": ["{0} is new, or holds something else".format(name) for name in changed]}

    def _write(self, path: str, text: str) -> bool:
        """Whole or not at all; False where it is so already."""
        try:
            with open(path, encoding="utf-8") as there:
                if there.read() == text:
                    return False
        except FileNotFoundError:
            pass
        if self._task.check_mode:
            return True
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        unfinished = path + ".new"
        with open(unfinished, "w", encoding="utf-8") as target:
            target.write(text)
        os.chmod(unfinished, 0o644)
        os.replace(unfinished, path)
        return True
