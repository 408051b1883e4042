# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re
import sys
import time

import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.testing import patch_module_args
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import Completed, HandoverError, Runtime


@pytest.fixture
def runtime() -> Runtime:
    with patch_module_args({}):
        return Runtime(AnsibleModule(argument_spec={}), timeout=20)


def test_a_command_is_an_argument_list_in_the_c_locale(runtime: Runtime) -> None:
    code = "import os, sys; print(os.environ['LC_ALL'], sys.argv[1:])"
    assert runtime.run([sys.executable, "-c", code, "$HOME", "a b"]).stdout == "C ['$HOME', 'a b']\n"


def test_a_failure_says_the_command_and_its_last_words(runtime: Runtime) -> None:
    code = "import sys; print('out'); print('first\\nthe disk is gone', file=sys.stderr); sys.exit(3)"
    with pytest.raises(HandoverError, match="failed: the disk is gone$"):
        runtime.run([sys.executable, "-c", code])


def test_a_failure_does_not_tell_the_values_of_variables(runtime: Runtime) -> None:
    words = ["false", "create", "--env=PASSWORD=a=b c", "--env", "TOKEN=d", "--env=PLAIN", "--name=e", "f=g"]
    with pytest.raises(HandoverError, match=re.escape("false create '--env=PASSWORD=***' --env 'TOKEN=***' --env=PLAIN --name=e f=g failed")):
        runtime.run(words)


def test_an_accepted_status_is_no_failure(runtime: Runtime) -> None:
    assert runtime.run([sys.executable, "-c", "raise SystemExit(2)"], accept=(0, 2)).rc == 2


def test_text_on_standard_input_is_a_line_and_bytes_are_what_they_are(runtime: Runtime) -> None:
    assert runtime.run(["/bin/cat"], stdin="a").stdout == "a\n"
    assert runtime.run(["/bin/cat"], stdin=b"a").stdout == "a"


def test_a_silent_failure_says_its_status() -> None:
    assert Completed(("tool",), 7, "", " \n").last_words == "it ended with status 7 and said nothing"


def test_a_command_that_outlives_its_limit_is_ended(runtime: Runtime) -> None:
    started = time.monotonic()
    with pytest.raises(HandoverError, match="did not finish within 0.2 s and was ended; raise timeout"):
        runtime.run(["sleep", "30"], timeout=0.2)
    assert time.monotonic() - started < 5


def test_a_command_that_ignores_the_request_to_end_is_killed(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[Runtime.__module__], "GRACE_SECONDS", 0.2)
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(30)"
    started = time.monotonic()
    with pytest.raises(HandoverError, match="was ended"):
        runtime.run([sys.executable, "-c", code], timeout=1)
    assert time.monotonic() - started < 10


def test_the_budget_is_for_all_commands_together() -> None:
    with patch_module_args({}):
        spent = Runtime(AnsibleModule(argument_spec={}), timeout=0)
    with pytest.raises(HandoverError, match="the timeout of 0 s was used up before this command: echo hello"):
        spent.run(["echo", "hello"])


def test_a_program_that_cannot_be_started_is_named(runtime: Runtime) -> None:
    with pytest.raises(HandoverError, match="/no/such/tool could not be started: No such file or directory"):
        runtime.run(["/no/such/tool"])


def test_a_missing_tool_names_its_package(runtime: Runtime) -> None:
    with pytest.raises(HandoverError, match="mkfs.nonsense is missing on this host: install the package nonsenseprogs"):
        runtime.tool("mkfs.nonsense", "nonsenseprogs")


def test_json_is_read_and_what_is_not_json_is_named(runtime: Runtime) -> None:
    assert runtime.run_json(["echo", '{"a": 1}']) == {"a": 1}
    assert runtime.run_json(["true"]) is None
    with pytest.raises(HandoverError, match="echo hello answered something that is not JSON"):
        runtime.run_json(["echo", "hello"])


def test_waiting_ends_with_the_condition_or_with_its_time(runtime: Runtime) -> None:
    answers = iter([False, False, True])
    assert runtime.wait_for(lambda: next(answers), seconds=5, interval=0.01)
    assert not runtime.wait_for(lambda: False, seconds=0.05, interval=0.01)


def test_waiting_leaves_time_to_find_the_reason() -> None:
    with patch_module_args({}):
        runtime = Runtime(AnsibleModule(argument_spec={}), timeout=1)
    assert not runtime.wait_for(lambda: False, seconds=10)
    assert runtime.remaining() > 0.2
