# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._podman.create_command import Grammar, Identity, parse, twin
from ansible_collections.livefleet.handover.plugins.module_utils._podman.settings import settings_of

OPTIONS = ("pull", "name", "restart", "health-cmd", "health-interval", "health-retries", "health-timeout", "health-start-period", "health-on-failure")
GRAMMAR = Grammar({**dict.fromkeys(OPTIONS, True), "no-healthcheck": False}, {})
UNSAID = {"no-healthcheck": ""}
SHELL = {"Test": ["CMD-SHELL", "true"], "Interval": 30_000_000_000, "Timeout": 5_000_000_000, "Retries": 3}


@pytest.mark.parametrize(
    "policy, value",
    [({}, ""), ({"Name": "no"}, ""), ({"Name": "always", "MaximumRetryCount": 0}, "always"), ({"Name": "on-failure", "MaximumRetryCount": 3}, "on-failure:3")],
)
def test_the_restart_policy_is_the_present_one(policy, value):
    assert settings_of({"HostConfig": {"RestartPolicy": policy}}) == {"restart": value}


@pytest.mark.parametrize(
    "check, said",
    [
        (SHELL, {**UNSAID, "health-cmd": "true", "health-interval": "30000000000ns", "health-timeout": "5000000000ns", "health-retries": "3"}),
        ({"Test": ["CMD-SHELL", "[ -e /ready ]"]}, {**UNSAID, "health-cmd": "[ -e /ready ]"}),
        ({"Test": ["CMD", "curl", "a b"]}, {**UNSAID, "health-cmd": '["curl", "a b"]'}),
        # What the options cannot say stays as the image and the command have it.
        (None, {}),
        ({"Test": ["NONE"]}, {}),
        ({"Test": ["CMD", "one"]}, {}),
        ({"Test": ["CMD-SHELL", '["a", "b"]']}, {}),
        ({"Test": ["CMD-SHELL", "CMD-LINE --check"]}, {}),
        ({**SHELL, "StartInterval": 1}, {}),
    ],
)
def test_a_health_check_is_the_present_one_where_options_can_say_it(check, said):
    found = settings_of({"Config": {"Healthcheck": check}})
    assert found.pop("restart") == "" and found == said


def test_the_twin_is_made_with_them_and_not_with_those_of_the_command():
    words = ["podman", "run", "--restart=no", "--health-cmd=false", "--health-retries=9", "--health-on-failure=kill", "--health-interval=disable"]
    words += ["shop:1", "serve"]
    check = {"Test": ["CMD-SHELL", "true"], "Interval": 0, "Retries": 3}
    settings = settings_of({"HostConfig": {"RestartPolicy": {"Name": "always"}}, "Config": {"Healthcheck": check}})
    made = twin(parse(words, Grammar({"root": True}, {}), GRAMMAR), Identity(name="shop", image="shop:1", settings=settings), GRAMMAR)
    assert made == [
        "create", "--pull=never", "--name=shop", "--health-on-failure=kill", "--health-interval=disable", "--restart=always", "--health-cmd=true",
        "--health-retries=3", "shop:1", "serve",
    ]  # fmt: skip
