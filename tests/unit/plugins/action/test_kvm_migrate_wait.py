# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible_collections.livefleet.handover.plugins.action import kvm_migrate_wait
from ansible_collections.livefleet.handover.plugins.action.kvm_migrate_wait import ActionModule

AT_WORK = {"finished": 0}
ARRIVED = {"finished": 1, "moved": True}
JOB = {"disk_total": 0, "ram_total": 100, "ram_remaining": 1024, "iterations": 1, "ram_rate": 0}


@pytest.fixture(name="wait")
def a_wait(monkeypatch, clock):
    """Runs the action against what Ansible says of the job and what the host says of it; the last answer of each stays."""
    monkeypatch.setattr(kvm_migrate_wait, "time", clock)

    def run(of_job, of_host=({"job": JOB, "at_work": True},), timeout=600):
        answers = {"ansible.builtin.async_status": list(of_job), "livefleet.handover.kvm_job_info": list(of_host)}
        shown = []
        action = ActionModule.__new__(ActionModule)
        asked = {"guest": "web1", "job": "j1.2", "uri": "qemu:///system", "interval": 1.0, "timeout": timeout}
        monkeypatch.setattr(kvm_migrate_wait.ActionBase, "run", lambda *args, **kwargs: {})
        monkeypatch.setattr(kvm_migrate_wait, "say", lambda text: shown.append("  " + text))
        monkeypatch.setattr(ActionModule, "validate_argument_spec", lambda self, argument_spec: (None, asked))
        monkeypatch.setattr(ActionModule, "get_shell_option", lambda self, option, default: default)

        def execute(self, module_name, module_args, task_vars):
            left = answers[module_name]
            answer = left.pop(0) if len(left) > 1 else left[0]
            if isinstance(answer, Exception):
                raise answer
            return answer

        monkeypatch.setattr(ActionModule, "_execute_module", execute)
        return action.run(task_vars={}), shown

    return run


def test_what_changes_is_shown(wait):
    result, shown = wait([AT_WORK, AT_WORK, ARRIVED])
    assert result["moved"]
    assert shown == ["  web1: pass 1, 1 KiB of memory left"]


def test_a_job_that_was_killed_is_not_waited_for(wait):
    result, _shown = wait([AT_WORK], [{"job": JOB, "at_work": True}, {"job": JOB, "at_work": False}])
    assert result["failed"]
    assert "the module that migrated web1 was killed" in result["msg"]
    assert kvm_migrate_wait.time.now < 5


def test_a_job_that_has_just_ended_was_not_killed(wait):
    result, _shown = wait([AT_WORK, ARRIVED], [{"job": None, "at_work": False}])
    assert result["moved"]


def test_a_host_that_is_gone_for_a_moment_is_waited_for(wait):
    result, _shown = wait([AT_WORK, *[AnsibleConnectionFailure("away")] * 30, ARRIVED])
    assert result["moved"]


def test_a_host_that_does_not_come_back_is_not(wait):
    with pytest.raises(AnsibleConnectionFailure, match="out of reach for 6. s; the migration goes on there"):
        wait([AT_WORK, AnsibleConnectionFailure("away")])
