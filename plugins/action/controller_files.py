# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import posixpath
import typing as t

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

display = Display()


class NotWritten(Exception):
    """A file is not there, for the reason that the text gives."""


class ActionModule(ActionBase):
    """Writes files on the controller, in the process that is there already, or on the host that keeps them."""

    # True would connect to the host before it is known that it keeps the files.
    TRANSFERS_FILES = False
    _VALID_ARGS = frozenset(("directory", "files", "required", "on_host"))
    _requires_connection = False

    def run(self, tmp: t.Any = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        _validation, asked = self.validate_argument_spec(
            argument_spec={
                "directory": {"type": "str", "required": True},
                "files": {"type": "dict", "required": True},
                "required": {"type": "bool", "default": True},
                "on_host": {"type": "bool", "default": False},
            }
        )
        return self.put(asked["directory"], asked["files"], asked["required"], asked["on_host"], task_vars)

    def put(self, directory: str, texts: t.Mapping[str, t.Any], required: bool, on_host: bool, task_vars: t.Any) -> dict[str, t.Any]:
        """Writes them, and answers as the module does."""
        directory = directory if on_host else os.path.expanduser(directory)
        files = {name: str(text) for name, text in texts.items()}
        try:
            changed = self._there(directory, files, task_vars) if on_host else self._here(directory, files)
        except NotWritten as exc:
            if required:
                return dict(failed=True, msg=str(exc))
            display.warning("the report was not written: {0}".format(exc))
            return {"changed": False, "written": False, "paths": [], "reasons": []}
        host = self._task.delegate_to or (task_vars or {}).get("inventory_hostname", "") if on_host else ""
        return {
            "changed": bool(changed),
            "written": True,
            "paths": [(host + ":" if host else "") + posixpath.join(directory, name) for name in files],
            "reasons": ["{0} is new, or holds something else".format(name) for name in changed],
        }

    def _here(self, directory: str, files: t.Mapping[str, str]) -> list[str]:
        """On the controller; the names of those that have changed."""
        try:
            return [name for name, text in files.items() if self._write(os.path.join(directory, name), text)]
        except OSError as exc:
            raise NotWritten("{0}: {1}: name a directory that can be written to".format(exc.filename or directory, exc.strerror or exc)) from exc

    def _write(self, path: str, text: str) -> bool:
        """Whole or not at all; False where it is so already."""
        try:
            with open(path, encoding="utf-8") as there:
                if there.read() == text:
                    return False
        except (FileNotFoundError, UnicodeDecodeError):
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

    def _there(self, directory: str, files: t.Mapping[str, str], task_vars: t.Any) -> list[str]:
        """On the task's host, or on the one that it is delegated to."""
        try:
            made = self._execute_module(
                module_name="ansible.builtin.file", module_args={"path": directory, "state": "directory", "mode": "0755"}, task_vars=task_vars
            )
            self._must("the directory " + directory, made)
            return [name for name, text in files.items() if self._copy(posixpath.join(directory, name), text, task_vars)]
        except AnsibleError as exc:
            raise NotWritten("{0}: {1}".format(directory, exc)) from exc

    def _copy(self, path: str, text: str, task_vars: t.Any) -> bool:
        task = self._task.copy()
        task.args = {"content": text, "dest": path, "mode": "0644"}
        shared = self._shared_loader_obj
        copy = shared.action_loader.get(
            "ansible.builtin.copy", task=task, connection=self._connection, play_context=self._play_context,
            loader=self._loader, templar=self._templar, shared_loader_obj=shared,
        )  # fmt: skip
        return bool(self._must(path, copy.run(task_vars=task_vars)).get("changed"))

    def _must(self, thing: str, result: dict[str, t.Any]) -> dict[str, t.Any]:
        if result.get("failed") or result.get("unreachable"):
            raise NotWritten("{0}: {1}: name a directory that can be written to".format(thing, str(result.get("msg") or "no answer").rstrip(".")))
        return result
