# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two releases of libvirt and QEMU, of which one does not know all that the other does."""

from __future__ import annotations

import types
from xml.etree import ElementTree

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._kvm import offline, releases

NO_SUPPORT, UNSUPPORTED = 3, 67


class LibvirtError(Exception):
    def __init__(self, code, text):
        super().__init__(text)
        self.code = code

    def get_error_code(self):
        return self.code


LIBVIRT = types.SimpleNamespace(
    libvirtError=LibvirtError, VIR_ERR_NO_SUPPORT=NO_SUPPORT, VIR_DOMAIN_XML_INACTIVE=2, VIR_DOMAIN_XML_SECURE=1, VIR_DOMAIN_XML_MIGRATABLE=8
)


class Side:
    """A host: its releases, its machines, and the words that its libvirt does not take."""

    def __init__(self, libvirt=11_003_000, qemu=10_000_013, machines=(), refuses=(), code=UNSUPPORTED):
        self.refuses, self.code = refuses, code
        self.getLibVersion, self.getVersion = lambda: libvirt, lambda: qemu
        named = "".join(f"<machine>{name}</machine>" for name in machines)
        self.getCapabilities = lambda: f"<capabilities><guest><arch name='x86_64'>{named}</arch></guest></capabilities>"

    def domainXMLToNative(self, _kind, text, _flags):
        for word in self.refuses:
            if word in text:
                raise LibvirtError(self.code, f"unsupported configuration: {word}")


class Domain:
    """A guest whose definition has a device that libvirt adds, but for the form that migrates, and perhaps another one for its next start."""

    def __init__(self, inactive="<sound/>", persistent=True):
        self.inactive = inactive
        self.isPersistent = lambda: persistent

    def XMLDesc(self, flags):
        added = "" if flags & LIBVIRT.VIR_DOMAIN_XML_MIGRATABLE else "<watchdog/>"
        return f"<domain>{self.inactive if flags & LIBVIRT.VIR_DOMAIN_XML_INACTIVE else ''}{added}</domain>"


def test_a_definition_is_sent_whole_where_it_is_taken():
    assert releases.sent(LIBVIRT, Domain(), Side()) == ("<domain><sound/><watchdog/></domain>", None)


def test_and_without_the_devices_that_libvirt_adds_where_it_is_not():
    assert releases.sent(LIBVIRT, Domain(), Side(refuses=["watchdog"])) == ("<domain><sound/></domain>", None)


def test_a_driver_that_cannot_be_asked_is_given_it_whole():
    text, refused = releases.sent(LIBVIRT, Domain(), Side(refuses=["watchdog"], code=NO_SUPPORT))
    assert (text, refused) == ("<domain><sound/><watchdog/></domain>", None)


@pytest.mark.parametrize(
    ("refuses", "live", "persistent", "refused"),
    [
        (["watchdog"], False, True, False),
        (["sound"], False, True, True),
        # A guest that runs takes the definition for its next start along.
        (["sound"], True, True, True),
        (["sound"], True, False, False),
        (["domain"], True, False, True),
    ],
)
def test_a_definition_that_the_destination_does_not_take_is_said(refuses, live, persistent, refused):
    found = list(releases.definition(LIBVIRT, Side(refuses=refuses), Domain(persistent=persistent), live))
    assert [each.check for each in found] == (["definition"] if refused else [])
    assert all(f"does not take the definition: unsupported configuration: {refuses[0]}: upgrade" in each.sentence for each in found)


FIRMWARE = "<domain><os><loader type='pflash' format='{0}'>/a</loader><nvram format='{0}'>/b</nvram></os></domain>"


@pytest.mark.parametrize(("word", "left"), [("raw", set()), ("qcow2", {"os/loader/@format", "os/nvram/@format"})])
def test_a_word_that_says_what_is_meant_anyway_is_not_missed(word, left):
    root = ElementTree.fromstring(FIRMWARE.format(word))
    assert releases.telling(root) == {"os", "os/loader", "os/loader/@type", "os/nvram", *left}
    without = FIRMWARE.replace(" format='{0}'", "")
    assert set(offline.left_out(FIRMWARE.format(word), without)) == left


OLD = ["pc-q35-7.1", "pc-q35-7.2", "pc-i440fx-2.1", "pc-i440fx-7.2", "q35"]
NEW = ["pc-q35-7.1", "pc-q35-7.2", "pc-q35-10.0", "pc-q35-10.0.1", "pc-i440fx-7.2", "q35", "microvm"]


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("pc-q35-10.0", "install the same QEMU there, or shut the guest down and give it a machine that both have, as pc-q35-7.2 (`virsh edit`)"),
        ("pc-i440fx-2.1", "install the same QEMU there, or shut the guest down and give it a machine that both have, as pc-i440fx-7.2 (`virsh edit`)"),
        ("microvm", "install the same QEMU there"),
    ],
)
def test_a_machine_that_the_other_qemu_does_not_know_has_a_cure(name, cure):
    root = ElementTree.fromstring(f"<domain type='kvm'><os><type arch='x86_64' machine='{name}'>hvm</type></os></domain>")
    found = releases.machine(Side(machines=NEW), Side(machines=OLD), root, "not supported")
    assert found.sentence == f"the destination cannot run the guest (machine {name}, kvm): not supported: {cure}"


def test_ten_is_newer_than_seven():
    assert releases._newest("pc-q35-11.0", ["pc-q35-7.2", "pc-q35-10.0", "pc-i440fx-12.0"]) == "pc-q35-10.0"


@pytest.mark.parametrize(
    ("here", "there", "live", "older"),
    [
        (Side(), Side(9_000_000, 7_002_022), True, "libvirt 9.0.0 (here 11.3.0) and QEMU 7.2.22 (here 10.0.13)"),
        (Side(), Side(qemu=7_002_022), True, "QEMU 7.2.22 (here 10.0.13)"),
        (Side(), Side(9_000_000, 7_002_022), False, None),
        (Side(9_000_000, 7_002_022), Side(), True, None),
    ],
)
def test_a_running_guest_does_not_go_to_an_older_release_unasked(here, there, live, older):
    sentences = [each.sentence for each in releases.versions(here, there, live)]
    assert len(sentences) == (older is not None)
    assert all(f"the destination has an older {older}, and" in each for each in sentences)


def test_pages_are_packed_where_both_can():
    assert releases.packs(Side(), Side()) is None
    assert releases.packs(Side(), Side(9_000_000)).startswith("the destination's libvirt (9.0.0) cannot have QEMU pack memory")
    assert releases.packs(Side(9_000_000), Side()).startswith("this host's libvirt (9.0.0)")
