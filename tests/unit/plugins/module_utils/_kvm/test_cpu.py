# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import types
from xml.etree import ElementTree

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._kvm import cpu as guest_cpu, keep, offline


class LibvirtError(Exception):
    def __init__(self, code, text):
        super().__init__(text)
        self.code = code

    def get_error_code(self):
        return self.code


LIBVIRT = types.SimpleNamespace(
    libvirtError=LibvirtError, VIR_CONNECT_COMPARE_CPU_FAIL_INCOMPATIBLE=1, VIR_ERR_CPU_INCOMPATIBLE=91, VIR_CPU_COMPARE_INCOMPATIBLE=0
)
HOST = (
    "<domainCapabilities><cpu><mode name='host-model' supported='yes'><model fallback='forbid'>EPYC</model><vendor>AMD</vendor>"
    "<feature policy='require' name='avx512f'/></mode></cpu></domainCapabilities>"
)


class Here:
    def __init__(self, capabilities=HOST):
        self.capabilities = capabilities

    def getDomainCapabilities(self, *_words):
        return self.capabilities


class There(Here):
    """Has no avx512f."""

    def __init__(self, capabilities=HOST):
        super().__init__(capabilities)
        self.asked = []

    def compareHypervisorCPU(self, _emulator, _arch, machine, kind, text, flags):
        assert (machine, kind in ("kvm", "qemu"), flags) == ("pc-q35-9.2", True, 1)
        self.asked.append(ElementTree.fromstring(text))
        if "avx512f" in text:
            raise LibvirtError(91, "the CPU is incompatible with host CPU: Host CPU does not provide required features: avx512f")
        if "broken" in text:
            raise LibvirtError(1, "no such model")
        return 2


def guest(cpu, kind="kvm"):
    return ElementTree.fromstring(f"<domain type='{kind}'><os><type arch='x86_64' machine='pc-q35-9.2'>hvm</type></os>{cpu}</domain>")


# With children that close themselves, as nearly every guest under KVM has them.
MANY = (
    "<cpu mode='custom' match='exact' check='full'><model fallback='forbid'>EPYC</model><topology sockets='1'/><feature policy='disable' name='svm'/>"
    "<feature policy='require' name='{0}'/></cpu>"
)
LACKS = "Host CPU does not provide required features: avx512f"


@pytest.mark.parametrize(
    ("cpu", "live", "problem"),
    [
        (MANY.format("aes"), True, None),
        (MANY.format("avx512f"), True, LACKS),
        (MANY.format("avx512f"), False, LACKS),
        (MANY.format("avx512f").replace("check='full'", "check='none'"), True, None),
        ("", True, None),
        ("<cpu mode='custom'><model>broken</model></cpu>", True, "cannot tell whether it has the processor of the guest (broken): no such model"),
        ("<cpu mode='host-passthrough' check='none' migratable='on'/>", True, LACKS),
        ("<cpu mode='maximum' check='none'/>", True, LACKS),
        ("<cpu mode='host-passthrough' check='none'/>", False, None),
        ("<cpu mode='host-model' check='partial'/>", False, None),
        ("<cpu mode='host-model' check='partial'/>", True, LACKS),
    ],
)
def test_the_processor_is_compared_by_libvirt_and_with_its_reason(cpu, live, problem):
    there = There()
    said = guest_cpu.problem(LIBVIRT, Here(), there, guest(cpu), live)
    assert (said is None) if problem is None else (problem in said)


def test_all_of_the_processor_is_compared():
    there = There()
    guest_cpu.problem(LIBVIRT, Here(), there, guest(MANY.format("aes")), True)
    assert [part.tag for part in there.asked[0]] == ["model", "topology", "feature", "feature"]


def test_an_emulated_processor_is_the_emulators():
    assert LACKS in guest_cpu.problem(LIBVIRT, Here(), There(), guest(MANY.format("avx512f"), "qemu"), True)
    assert guest_cpu.problem(LIBVIRT, Here(), There(), guest(MANY.format("aes"), "qemu"), True) is None
    assert guest_cpu.problem(LIBVIRT, Here(), There(), guest("<cpu mode='custom' check='none'><model>avx512f</model></cpu>", "qemu"), True) is None


SMALL = HOST.replace("<feature policy='require' name='avx512f'/>", "<feature policy='disable' name='erms'/>")


@pytest.mark.parametrize("kind", ["kvm", "qemu"])
@pytest.mark.parametrize("mode", ["host-passthrough", "maximum"])
@pytest.mark.parametrize(
    ("there", "named"),
    [
        (SMALL, None),
        # What is not disabled any more is there all of a sudden.
        (SMALL.replace("<feature policy='disable' name='erms'/>", ""), "(erms disable)"),
        (SMALL.replace("</mode>", "<feature policy='require' name='sbpb'/></mode>"), "(sbpb require)"),
        (SMALL.replace("EPYC", "EPYC-Rome"), "(EPYC, EPYC-Rome)"),
        ("<domainCapabilities/>", "(EPYC, erms disable)"),
    ],
)
def test_a_running_guest_does_not_see_its_processor_change(kind, mode, there, named):
    cpu = guest(f"<cpu mode='{mode}' check='none'/>", kind)
    said = guest_cpu.problem(LIBVIRT, Here(SMALL), There(there), cpu, True)
    assert (said is None) if named is None else (f"would see it change in the middle of its run {named}: give it a processor" in said)
    assert guest_cpu.problem(LIBVIRT, Here(SMALL), There(there), cpu, False) is None


@pytest.mark.parametrize(
    "capabilities", ["<domainCapabilities/>", "<domainCapabilities><cpu><mode name='host-model' supported='no'/></cpu></domainCapabilities>"]
)
def test_a_host_that_does_not_say_what_it_has_is_not_trusted(capabilities):
    said = guest_cpu.problem(LIBVIRT, Here(capabilities), There(), guest("<cpu mode='host-passthrough'/>"), True)
    assert "does not say which processor it has" in said


def test_what_a_libvirt_leaves_out_of_a_definition_is_seen():
    sent = "<domain type='kvm'><name>a</name><features><acpi/><new state='on'/></features><devices><disk><address bus='1'/></disk></devices></domain>"
    assert offline.left_out(sent, sent) == []
    assert offline.left_out(sent, sent.replace("<new state='on'/>", "")) == ["features/new", "features/new/@state"]
    assert offline.left_out(sent, sent.replace("<address bus='1'/>", "")) == [], "addresses are each libvirt's own"


def test_a_note_is_read_as_it_was_written(tmp_path):
    folder = str(tmp_path / "notes")
    kept = keep.Kept(autostart=True, persistent=False, media=((True, "<disk/>"),))
    keep.note("u-1", kept, folder)
    assert keep.noted("u-1", folder) == kept
    keep.forget("u-1", folder)
    assert keep.noted("u-1", folder) is None
    (tmp_path / "notes" / "u-2").write_text("{")
    assert keep.noted("u-2", folder) is None


def test_a_guest_without_a_definition_gets_none():
    planned = ["VIR_MIGRATE_LIVE", "VIR_MIGRATE_PERSIST_DEST", "VIR_MIGRATE_UNDEFINE_SOURCE"]
    assert keep.flags(planned, keep.Kept(persistent=False)) == ["VIR_MIGRATE_LIVE"]
    assert keep.flags(planned, keep.Kept()) == planned
