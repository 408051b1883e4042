# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re
import typing as t

from ansible.errors import AnsibleFilterError

# ploop's packages conflict with kernels before this one, and its library with those that run it.
OLDEST = "2.6.32-042stab061.1"
PLOOP = ("ploop", "ploop-lib")
REASONS = {
    "swap": "ploop is for RHEL6-based kernels alone, and the old vzctl demands it: the one goes and the other is updated in one transaction",
    "drop": "ploop is for RHEL6-based kernels alone, and vzctl since 4.0 does without it",
    "kernel": "the kernel comes before the tools: ploop's packages conflict with vzkernel < " + OLDEST + ", and {running} is running",
    "reboot": "the new kernel has to run before the old ones can go",
    "remove": "ploop's packages conflict with vzkernel < " + OLDEST + ", also where that kernel is only installed",
    "update": "nothing that is installed conflicts with the rest any more",
}


def segments(text: str) -> list[tuple[int, t.Any]]:
    """The parts of a version as rpm compares them: a number is newer than a word."""
    return [(1, int(part)) if part.isdigit() else (0, part) for part in re.findall(r"[0-9]+|[A-Za-z]+", text)]


def older(one: str, other: str) -> bool:
    """Whether version-release `one` is older than `other`, by rpm's order."""
    (a, _dash, a_release), (b, _dash_too, b_release) = one.partition("-"), other.partition("-")
    return (segments(a), segments(a_release)) < (segments(b), segments(b_release))


def packages(text: str) -> list[dict[str, str]]:
    """The lines of `rpm -qa --queryformat '%{NAME} %{VERSION}-%{RELEASE} %{ARCH}\\n'`."""
    found = []
    for line in text.splitlines():
        words = line.split()
        if words:
            if len(words) != 3:
                raise AnsibleFilterError("vz_update: the package database says {0!r}, which is no name, version and architecture".format(line))
            found.append(dict(zip(("name", "version", "arch"), words)))
    return found


def offered(text: str) -> dict[str, str]:
    """Package → the newest version, by the output of `yum -q check-update`. Lines behind a heading are replacements and no updates."""
    found: dict[str, str] = {}
    # A name too long for its column has the rest of its line below it.
    for line in re.sub(r"\r?\n[ \t]+", " ", text).splitlines():
        if line.startswith("Obsoleting Packages"):
            break
        words = line.split()
        if len(words) == 3 and "." in words[0]:
            name, version = words[0].rpartition(".")[0], words[1].rpartition(":")[2]
            if name not in found or older(found[name], version):
                found[name] = version
    return found


def running_containers(text: str) -> list[str]:
    """The containers of /proc/vz/veinfo. The first column is the id; 0 is the host itself."""
    return sorted({line.split()[0] for line in text.splitlines() if line.split()} - {"0"}, key=lambda each: (len(each), each))


def step(do: str, why: str, **more: t.Any) -> dict[str, t.Any]:
    return {"do": do, "reason": REASONS[why].format(**more.pop("said", {})), **more}


def rhel5(installed: list[dict[str, str]], updates: dict[str, str]) -> list[dict[str, t.Any]]:
    """Kernels before RHEL6's: ploop goes."""
    versions = {each["name"]: each["version"] for each in installed}
    gone = [name for name in PLOOP if name in versions]
    steps = []
    if gone and older(versions.get("vzctl", "4.0"), "4.0"):
        if older(updates.get("vzctl", "0"), "4.0"):
            raise AnsibleFilterError(
                "vz_update: vzctl {0} demands ploop, which is not for this kernel, and yum offers no vzctl 4.0: add the repository of OpenVZ's tools".format(
                    versions["vzctl"]
                )
            )
        steps.append(step("shell", "swap", gone=gone, lines=["remove " + " ".join(gone), "update vzctl", "run"]))
    elif gone:
        steps.append(step("shell", "drop", gone=gone, lines=["remove " + " ".join(gone), "run"]))
    done = {*gone, *(["vzctl"] if len(steps) and "update vzctl" in steps[0]["lines"] else [])}
    if set(updates) - done:
        steps.append(step("yum", "update", words=["update"]))
    return steps


def rhel6(running: str, installed: list[dict[str, str]], updates: dict[str, str]) -> list[dict[str, t.Any]]:
    """RHEL6-based kernels: a new one runs, then the old ones go, then the rest is updated."""
    kernels = [each for each in installed if each["name"] == "vzkernel"]
    old = [each for each in kernels if older(each["version"], OLDEST)]
    steps = []
    if older(running, OLDEST):
        if len(old) == len(kernels):
            newest = updates.get("vzkernel", "")
            if not newest or older(newest, OLDEST):
                raise AnsibleFilterError(
                    "vz_update: {0} is running, and yum offers {1}, where {2} is needed: add the repository of OpenVZ's kernels".format(
                        running, "vzkernel " + newest if newest else "no vzkernel", OLDEST
                    )
                )
            steps.append(step("yum", "kernel", words=["update", "vzkernel"], said={"running": running}))
        steps.append(step("reboot", "reboot"))
    if old:
        steps.append(step("yum", "remove", words=["remove", *("vzkernel-{version}.{arch}".format(**each) for each in old)]))
    if set(updates) - {"vzkernel"} or (updates and not steps):
        steps.append(step("yum", "update", words=["update"]))
    return steps


def vz_update_plan(kernel: str, rpms: str, updates: str, veinfo: str = "") -> dict[str, t.Any]:
    """The steps of an update, each with its reason; the running containers in the way of a reboot are named."""
    running, installed, new = kernel.strip(), packages(rpms), offered(updates)
    if "stab" not in running and ".vz" not in running:
        raise AnsibleFilterError("vz_update: {0} is running, which is no kernel of OpenVZ's: name hosts that run one".format(running or "no kernel"))
    if older(running, "2.6.32"):
        steps = rhel5(installed, new)
    elif older(running, "3"):
        steps = rhel6(running, installed, new)
    else:
        steps = [step("yum", "update", words=["update"])] if new else []
    containers = running_containers(veinfo)
    problem = ""
    if containers and any(each["do"] == "reboot" for each in steps):
        problem = (
            "containers run here, and the host has to be rebooted: {0}. Move them away first (vz_update_empty), or accept that they stop "
            "(vz_update_stop_containers)"
        ).format(", ".join(containers))
    return {"steps": steps, "containers": containers, "problem": problem, "lines": lines_of(steps, running)}


def lines_of(steps: list[dict[str, t.Any]], running: str) -> list[str]:
    """The plan for people."""
    lines = ["kernel {0}: {1}".format(running, "{0} steps".format(len(steps)) if steps else "nothing to do")]
    for number, each in enumerate(steps, 1):
        said = {"shell": "yum shell: " + "; ".join(each.get("lines", [])), "yum": "yum " + " ".join(each.get("words", [])), "reboot": "reboot"}[each["do"]]
        lines += ["{0}. {1}".format(number, said), "   because {0}".format(each["reason"])]
    return lines


class FilterModule:
    """The update of an OpenVZ host."""

    def filters(self) -> dict[str, t.Callable]:
        """Name → filter."""
        return {"vz_update_plan": vz_update_plan}
