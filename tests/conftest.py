# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Makes the collection importable from a plain checkout, and runs its modules inside the test process.

Under `ansible-test units` the collection has its place already, and nothing is set up twice.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import shutil
import sys
import tempfile
import types
import typing as t
from pathlib import Path

import pytest
from ansible.module_utils import basic
from ansible.module_utils.common import warnings as module_warnings
from ansible.utils.collection_loader._collection_finder import _AnsibleCollectionFinder

try:
    from ansible.module_utils.testing import patch_module_args
except ImportError:

    @contextlib.contextmanager
    def patch_module_args(arguments: dict[str, t.Any]) -> t.Iterator[None]:
        """What ansible-core 2.18 lacks: a module's arguments, in the place where it looks for them."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(basic, "_ANSIBLE_ARGS", json.dumps({"ANSIBLE_MODULE_ARGS": arguments}).encode())
            yield

    sys.modules["ansible.module_utils.testing"] = types.ModuleType("ansible.module_utils.testing")
    sys.modules["ansible.module_utils.testing"].patch_module_args = patch_module_args  # the tests' own imports


CHECKOUT = Path(__file__).resolve().parent.parent


def _make_importable() -> None:
    tree = Path(tempfile.mkdtemp(prefix="handover-collections-"))
    atexit.register(shutil.rmtree, tree, ignore_errors=True)
    namespace = tree / "ansible_collections" / "livefleet"
    namespace.mkdir(parents=True)
    (namespace / "handover").symlink_to(CHECKOUT)
    _AnsibleCollectionFinder(paths=[str(tree)])._install()


if not any(isinstance(finder, _AnsibleCollectionFinder) for finder in sys.meta_path):
    _make_importable()


class ModuleFailed(Exception):
    """A module ended with fail_json; the text is its message."""

    def __init__(self, result: dict[str, t.Any]) -> None:
        super().__init__(result["msg"])
        self.result = result


@pytest.fixture
def run_module(capsys: pytest.CaptureFixture[str]) -> t.Callable[..., dict[str, t.Any]]:
    """Runs a module's main() and returns its result; `check` and `diff` are the modes of the same name."""

    def run(main: t.Callable[[], None], params: dict[str, t.Any], check: bool = False, diff: bool = False) -> dict[str, t.Any]:
        arguments = dict(params, _ansible_check_mode=check, _ansible_diff=diff)
        capsys.readouterr()
        # A module's process ends with the module; here its warnings would be told again by the next one.
        module_warnings._global_warnings.clear()
        with patch_module_args(arguments), pytest.raises(SystemExit):
            main()
        result = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
        if result.get("failed"):
            raise ModuleFailed(result)
        # ansible-core 2.19 and later hand warnings to the controller as objects.
        result["warnings"] = [warning if isinstance(warning, str) else warning["event"]["msg"] for warning in result.get("warnings", [])]
        return result

    return run
