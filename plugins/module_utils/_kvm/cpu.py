# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a host has the processor that a guest was given: libvirt's own comparison, with its own reason.

https://libvirt.org/formatdomain.html#cpu-model-and-topology says when libvirt looks at it: never with check='none', but for modes that hand
the host's processor on. Those change with the release of QEMU, too, on one and the same machine.
"""

from __future__ import annotations

import typing as t
from xml.etree import ElementTree

# Modes that give a guest the host's processor.
OF_THE_HOST = ("host-passthrough", "maximum")
# So many are named.
NAMED = 5
CURE = "give it a processor that both hosts have (`virsh domcapabilities` names them), and restart it"


def problem(libvirt: t.Any, here: t.Any, there: t.Any, root: ElementTree.Element, live: bool) -> str | None:
    """Why the destination is not to run this guest; None where it may. `here` and `there` are connections."""
    cpu, virt = root.find("cpu"), root.get("type", "")
    if cpu is None:
        return None  # QEMU's own, which is of no host
    mode = cpu.get("mode", "custom")
    kind = root.find("os/type")
    arch, machine = (None, None) if kind is None else (kind.get("arch"), kind.get("machine"))
    emulator = root.findtext("devices/emulator")
    if mode in OF_THE_HOST or (mode == "host-model" and cpu.find("model") is None):
        if not live:
            return None  # it has the destination's when it is started there
        try:
            wanted = of_the_host(here.getDomainCapabilities(emulator, arch, machine, virt))
        except libvirt.libvirtError as exc:
            return f"this host's libvirt does not say which processor it has ({exc}), and the guest has that one (mode {mode}): {CURE}"
        if wanted is None:
            return f"this host's libvirt does not say which processor it has, and the guest has that one (mode {mode}): {CURE}"
        thing = f"this host's processor, which the guest has (mode {mode})"
    elif cpu.get("check") == "none" or (not live and mode == "host-model"):
        return None
    else:
        wanted, thing = cpu, f"the processor of the guest ({cpu.findtext('model') or mode})"
    text = ElementTree.tostring(wanted, encoding="unicode")
    try:
        said = there.compareHypervisorCPU(emulator, arch, machine, virt, text, libvirt.VIR_CONNECT_COMPARE_CPU_FAIL_INCOMPATIBLE)
    except libvirt.libvirtError as exc:
        if exc.get_error_code() == libvirt.VIR_ERR_CPU_INCOMPATIBLE:
            return f"the destination lacks {thing}: {exc}: {CURE}"
        return f"the destination cannot tell whether it has {thing}: {exc}"
    if said == libvirt.VIR_CPU_COMPARE_INCOMPATIBLE:
        return f"the destination lacks {thing}: {CURE}"
    if mode not in OF_THE_HOST:
        return None
    its = of_the_host(there.getDomainCapabilities(emulator, arch, machine, virt))
    other = sorted(_words(wanted) ^ (_words(its) if its is not None else set()))
    if not other:
        return None
    names = ", ".join(other[:NAMED]) + (f" and {len(other) - NAMED} more" if len(other) > NAMED else "")
    return f"the guest has the processor that QEMU gives it (mode {mode}), and would see it change in the middle of its run ({names}): {CURE}"


def _words(cpu: ElementTree.Element) -> set[str]:
    """A processor's model and features, each by its name and not without its policy."""
    return {f"{part.get('name') or part.text} {part.get('policy', '')}".strip() for part in cpu if part.tag in ("model", "feature")}


def of_the_host(capabilities: str) -> ElementTree.Element | None:
    """The host's processor as a definition writes it, from the capabilities of its domains."""
    mode = ElementTree.fromstring(capabilities).find("cpu/mode[@name='host-model']")
    if mode is None or mode.get("supported") != "yes" or mode.find("model") is None:
        return None
    cpu = ElementTree.Element("cpu", {"mode": "custom", "match": "exact"})
    cpu.extend(part for part in mode if part.tag in ("model", "vendor", "feature"))
    return cpu
