# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.livefleet.handover.plugins.filter.vz_update_plan import offered, older, running_containers, vz_update_plan

RHEL5, OLD, NEW = "2.6.18-028stab101.1", "2.6.32-042stab059.7", "2.6.32-042stab061.2"
TOOLS = "vzctl 3.0.30.2-1 x86_64\nploop 1.4-1 x86_64\nploop-lib 1.4-1 x86_64\nvzquota 3.0.12-1 x86_64\ngpg-pubkey a7a1d4b6-43281558 (none)\n"
TOOLS_OFFERED = "\nvzctl.x86_64    4.0-1    openvz-utils\nploop.x86_64    1.5-1    openvz-utils\nploop-lib.x86_64    1.5-1    openvz-utils\n"
REMOVE_OLD = {"do": "yum", "words": ["remove", f"vzkernel-{OLD}.x86_64"]}
UPDATE = {"do": "yum", "words": ["update"]}


def kernels(*versions):
    return "".join(f"vzkernel {version} x86_64\n" for version in versions)


def steps(*given):
    plan = vz_update_plan(*given)
    assert all(each["reason"] for each in plan["steps"])
    return [{key: value for key, value in each.items() if key != "reason"} for each in plan["steps"]]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (OLD, NEW),
        ("2.6.32-042stab061.1", NEW),
        ("2.6.32-042stab9.1", "2.6.32-042stab10.1"),
        (RHEL5, OLD),
        (NEW, "3.10.0-1160.90.1.vz7.200.7"),
        ("2.6.18-028stab101.1ent", "2.6.32"),
        ("1.4", "1.10"),
    ],
)
def test_versions_in_rpms_order(one, other):
    found = [older(*pair) for pair in ((one, other), (other, one), (one, one))]
    assert found == [True, False, False]


def test_before_rhel6_ploop_goes_and_vzctl_comes_in_one_transaction():
    rpms = TOOLS + "ovzkernel 2.6.18-028stab101.1 x86_64\n"
    shell = {"do": "shell", "gone": ["ploop", "ploop-lib"], "lines": ["remove ploop ploop-lib", "update vzctl", "run"]}
    assert steps(RHEL5 + "\r\n", rpms, TOOLS_OFFERED) == [shell]
    assert steps(RHEL5, rpms, TOOLS_OFFERED + "vzquota.x86_64 3.1-1 openvz-utils\n") == [shell, UPDATE]
    assert steps(RHEL5, "vzctl 4.0-1 x86_64\n", "") == []
    assert steps(RHEL5, "vzctl 4.0-1 x86_64\nploop-lib 1.4-1 x86_64\n", "") == [{"do": "shell", "gone": ["ploop-lib"], "lines": ["remove ploop-lib", "run"]}]
    with pytest.raises(AnsibleFilterError, match="yum offers no vzctl 4.0"):
        steps(RHEL5, rpms, "ploop.x86_64 1.5-1 openvz-utils\n")


def test_an_old_kernel_that_runs_is_replaced_before_the_tools():
    offers = TOOLS_OFFERED + f"vzkernel.x86_64 {NEW} openvz-kernel-rhel6\n"
    assert steps(OLD, TOOLS + kernels(OLD), offers) == [{"do": "yum", "words": ["update", "vzkernel"]}, {"do": "reboot"}, REMOVE_OLD, UPDATE]
    # It is installed, and was not booted.
    assert steps(OLD, TOOLS + kernels(OLD, NEW), TOOLS_OFFERED) == [{"do": "reboot"}, REMOVE_OLD, UPDATE]
    with pytest.raises(AnsibleFilterError, match="yum offers no vzkernel, where 2.6.32-042stab061.1 is needed"):
        steps(OLD, TOOLS + kernels(OLD), TOOLS_OFFERED)
    with pytest.raises(AnsibleFilterError, match="yum offers vzkernel 2.6.32-042stab060.9, where"):
        steps(OLD, TOOLS + kernels(OLD), "vzkernel.x86_64 2.6.32-042stab060.9 openvz-kernel-rhel6\n")


def test_old_kernels_that_are_only_installed_go():
    assert steps(NEW, TOOLS + kernels(OLD, NEW), TOOLS_OFFERED) == [REMOVE_OLD, UPDATE]
    assert steps(NEW, TOOLS + kernels(OLD, NEW), "") == [REMOVE_OLD]
    assert steps(NEW, TOOLS + kernels(NEW), TOOLS_OFFERED) == [UPDATE]
    assert steps(NEW, TOOLS + kernels(NEW), "") == []


def test_later_systems_are_updated_as_a_whole():
    assert steps("3.10.0-1160.90.1.vz7.200.7", "", "vzkernel.x86_64 3.10.0-1160.105.1.vz7.214.3 os\n") == [UPDATE]


@pytest.mark.parametrize("kernel", ["6.1.0-13-amd64", "2.6.32-754.el6.x86_64", ""])
def test_another_kernel_is_refused(kernel):
    with pytest.raises(AnsibleFilterError, match="is no kernel of OpenVZ's"):
        vz_update_plan(kernel, "", "")


VEINFO = "        101     2    23        10.0.0.101\n        0     2    99\n"


def test_a_reboot_under_containers_is_a_problem_that_is_named():
    given = (OLD, TOOLS + kernels(OLD, NEW), TOOLS_OFFERED, VEINFO)
    assert running_containers(VEINFO + "         12 2 23\n") == ["12", "101"]
    assert "the host has to be rebooted: 101. Move them away" in vz_update_plan(*given)["problem"]
    assert vz_update_plan(*given[:-1])["problem"] == ""
    assert vz_update_plan(NEW, TOOLS + kernels(OLD, NEW), TOOLS_OFFERED, VEINFO)["problem"] == ""


def test_the_plan_for_people_has_a_reason_for_each_step():
    lines = vz_update_plan(OLD, TOOLS + kernels(OLD), TOOLS_OFFERED + f"vzkernel.x86_64 {NEW} openvz-kernel-rhel6\n")["lines"]
    assert lines[0] == f"kernel {OLD}: 4 steps"
    assert lines[1:3] == [
        "1. yum update vzkernel",
        f"   because the kernel comes before the tools: ploop's packages conflict with vzkernel < 2.6.32-042stab061.1, and {OLD} is running",
    ]
    assert lines[3::2] == ["2. reboot", f"3. yum remove vzkernel-{OLD}.x86_64", "4. yum update"]
    assert vz_update_plan(NEW, kernels(NEW), "")["lines"] == [f"kernel {NEW}: nothing to do"]


def test_the_list_of_updates_as_yum_prints_it():
    text = (
        "\r\nploop.x86_64      1.5-1        openvz-utils\r\n"
        "a-package-with-a-long-name.noarch\r\n                  2:1.0-1      base\r\n"
        "ploop.i686 1.4-9 openvz-utils\r\nObsoleting Packages\r\nvzctl.x86_64 4.0-1 openvz-utils\r\n"
    )
    assert offered(text) == {"ploop": "1.5-1", "a-package-with-a-long-name": "1.0-1"}


def test_a_database_that_answers_something_else():
    with pytest.raises(AnsibleFilterError, match="the package database says 'error: rpmdb is open elsewhere'"):
        vz_update_plan(NEW, "error: rpmdb is open elsewhere\n", "")
