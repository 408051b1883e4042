# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import types

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible_collections.livefleet.handover.plugins.action import controller_files
from ansible_collections.livefleet.handover.plugins.action.controller_files import ActionModule


@pytest.fixture
def write(monkeypatch):
    def run(directory, files, check_mode=False, required=True, host=None):
        action = ActionModule.__new__(ActionModule)
        action._task = types.SimpleNamespace(check_mode=check_mode, delegate_to=host)
        monkeypatch.setattr(controller_files.ActionBase, "run", lambda *args, **kwargs: {})
        arguments = {"directory": str(directory), "files": files, "required": required, "on_host": bool(host)}
        monkeypatch.setattr(ActionModule, "validate_argument_spec", lambda self, argument_spec: (None, arguments))
        return action.run(task_vars={})

    return run


def test_files_are_written_once(tmp_path, write):
    folder = tmp_path / "a" / "reports"
    assert write(folder, {"shop.json": "{}\n"}, check_mode=True)["changed"]
    assert not folder.exists()
    assert write(folder, {"shop.json": "{}\n", "shop.html": "<p>"}) == {
        "changed": True, "written": True, "paths": [str(folder / "shop.json"), str(folder / "shop.html")],
        "reasons": ["shop.json is new, or holds something else", "shop.html is new, or holds something else"],
    }  # fmt: skip
    assert sorted(path.name for path in folder.iterdir()) == ["shop.html", "shop.json"]
    assert (folder / "shop.json").read_text(encoding="utf-8") == "{}\n"
    assert (folder / "shop.json").stat().st_mode & 0o777 == 0o644
    assert not write(folder, {"shop.json": "{}\n"})["changed"]
    assert write(folder, {"shop.json": "{ }\n"})["changed"]


def test_what_cannot_be_written_is_told_in_a_sentence(tmp_path, write):
    (tmp_path / "file").write_text("", encoding="utf-8")
    result = write(tmp_path / "file", {"shop.json": "{}"})
    assert result["failed"]
    assert result["msg"] == "{0}: Not a directory: name a directory that can be written to".format(tmp_path / "file" / "shop.json")


def test_a_report_that_cannot_be_written_is_a_warning(tmp_path, write, monkeypatch):
    said = []
    monkeypatch.setattr(controller_files.display, "warning", said.append)
    (tmp_path / "file").write_text("", encoding="utf-8")
    result = write(tmp_path / "file", {"shop.json": "{}"}, required=False)
    assert result == {"changed": False, "written": False, "paths": [], "reasons": []}
    assert said == ["the report was not written: {0}: Not a directory: name a directory that can be written to".format(tmp_path / "file" / "shop.json")]


def test_files_that_a_host_keeps(write, monkeypatch):
    """Each by the host's own copy, in a directory that is made; their paths name the host."""
    done = []
    monkeypatch.setattr(ActionModule, "_execute_module", lambda self, module_name, module_args, task_vars: done.append(module_args["path"]) or {})
    monkeypatch.setattr(ActionModule, "_copy", lambda self, path, text, task_vars: done.append(path) or True)
    result = write("/srv/reports", {"shop.html": "<p>"}, host="archive")
    assert result["paths"] == ["archive:/srv/reports/shop.html"] and done == ["/srv/reports", "/srv/reports/shop.html"]


@pytest.mark.parametrize("answer", [{"failed": True, "msg": "no space left"}, AnsibleConnectionFailure("no route to archive")])
def test_a_host_that_keeps_nothing_is_a_warning(write, monkeypatch, answer):
    said = []
    monkeypatch.setattr(controller_files.display, "warning", said.append)

    def execute(self, module_name, module_args, task_vars):
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(ActionModule, "_execute_module", execute)
    result = write("/srv/reports", {"shop.html": "<p>"}, host="archive", required=False)
    assert result == {"changed": False, "written": False, "paths": [], "reasons": []}
    assert len(said) == 1 and said[0].startswith("the report was not written: ") and ("no space left" in said[0] or "no route to archive" in said[0])
    assert write("/srv/reports", {"shop.html": "<p>"}, host="archive")["failed"]
