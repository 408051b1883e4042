# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.testing import patch_module_args
from ansible_collections.livefleet.handover.plugins.module_utils._core.pcopy import INTERFACE, Pcopy, PcopyError
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import HandoverError, Runtime


@pytest.fixture
def helper(tmp_path: Path) -> t.Callable[[str], Pcopy]:
    """A helper that is a shell script with this body."""

    def make(body: str) -> Pcopy:
        path = tmp_path / "pcopy"
        path.write_text("#!/bin/sh\n" + body)
        path.chmod(0o755)
        with patch_module_args({}):
            return Pcopy(Runtime(AnsibleModule(argument_spec={}), timeout=20), str(path))

    return make


def test_the_result_is_the_last_object(helper: t.Callable[[str], Pcopy]) -> None:
    pcopy = helper("""echo '{"event": "pass"}'; echo '{"event": "done",'; echo ' "arguments": "'"$*"'"}'\n""")
    assert pcopy.call("status", "--json") == {"event": "done", "arguments": "status --json"}
    assert [answer["event"] for answer in pcopy.events("status")] == ["pass", "done"]


def test_the_version_is_asked_for_as_json(helper: t.Callable[[str], Pcopy]) -> None:
    assert helper("""echo '{"arguments": "'"$*"'"}'\n""").version() == {"arguments": "version --json"}


def test_input_goes_to_the_helper(helper: t.Callable[[str], Pcopy]) -> None:
    assert helper("cat\n").call("plan", stdin='{"volume": "shop"}') == {"volume": "shop"}


def test_a_failure_is_the_helpers_own_last_sentence(helper: t.Callable[[str], Pcopy]) -> None:
    pcopy = helper("""echo '{"event": "pass"}'; echo '{"event": "br'; echo 'pcopy: warning' >&2; echo 'pcopy: tracker: /dev/loop4: refused' >&2; exit 1\n""")
    with pytest.raises(PcopyError, match="^pcopy: tracker: /dev/loop4: refused$") as caught:
        pcopy.call("send")
    assert caught.value.rc == 1
    assert caught.value.answers == ({"event": "pass"},)


def test_a_field_that_the_helper_does_not_know_names_the_role(helper: t.Callable[[str], Pcopy]) -> None:
    with pytest.raises(PcopyError, match='unknown field "new": the installed helper is older than the collection; apply the role livefleet.handover.pcopy'):
        helper("echo 'pcopy: session: /s/spec.json: json: unknown field \"new\"' >&2; exit 1").call("session", "send")


def test_the_collection_asks_of_the_helper_what_the_helper_says_it_knows() -> None:
    source = Path(__file__).parents[5] / "helper" / "internal" / "session" / "record" / "interface.go"
    if not source.exists():
        pytest.skip("the helper's source is in a checkout")
    assert f"const Interface = {INTERFACE}\n" in source.read_text(encoding="utf-8")


def test_a_silent_failure_says_the_command_and_the_status(helper: t.Callable[[str], Pcopy]) -> None:
    with pytest.raises(PcopyError, match="^pcopy send ended with status 3 and said nothing$"):
        helper("exit 3\n").call("send", "--spec", "secret")


def test_a_helper_that_was_killed_says_so(helper: t.Callable[[str], Pcopy]) -> None:
    with pytest.raises(PcopyError, match="^pcopy send was ended by signal 9$"):
        helper("kill -9 $$\n").call("send")


def test_no_answer_is_an_error(helper: t.Callable[[str], Pcopy]) -> None:
    with pytest.raises(HandoverError, match="pcopy status answered nothing where JSON was expected"):
        helper("exit 0\n").call("status")


@pytest.mark.parametrize("answer", ["hello", "[1, 2]", '{"cut": '])
def test_an_answer_that_is_not_json_points_at_the_version(helper: t.Callable[[str], Pcopy], answer: str) -> None:
    with pytest.raises(HandoverError, match="not JSON .*another version; apply the role livefleet.handover.pcopy"):
        helper(f"echo '{answer}'\n").call("status")


def test_a_missing_helper_names_the_role(helper: t.Callable[[str], Pcopy]) -> None:
    pcopy = helper("")
    Path(pcopy.path).unlink()
    with pytest.raises(HandoverError, match="pcopy is missing: apply the role livefleet.handover.pcopy to this host"):
        pcopy.version()


def test_a_helper_without_permission_names_the_role(helper: t.Callable[[str], Pcopy]) -> None:
    pcopy = helper("")
    Path(pcopy.path).chmod(0o644)
    with pytest.raises(HandoverError, match="pcopy is not executable: apply the role livefleet.handover.pcopy"):
        pcopy.version()
