# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The inventory of a guest's state, held against libvirt's own schema."""

from __future__ import annotations

import functools
import importlib.util
import os
import types
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._kvm import libvirt_schema, rows
from ansible_collections.livefleet.handover.plugins.module_utils._kvm.inventory import CARRIED, FATES, REFUSED, SAME, Inventory, Row, paths

CHECKOUT = Path(__file__).resolve().parents[5]
# Of libvirt0, which python3-libvirt needs, and so is on every machine that is set up; and of the lab's hosts, where their base image is built.
BASES = Path("/var/cache/handover-lab/bases")
# Only root may look into the lab's.
BUILT = BASES.glob("trixie-kvm-*/root/usr/share/libvirt/schemas") if os.access(BASES, os.R_OK | os.X_OK) else ()
SCHEMAS = ["/usr/share/libvirt/schemas", *sorted(map(str, BUILT))]
# Types of values that name something on a host.
HOST_BOUND = {"absFilePath", "filePath", "absDirPath", "dirPath", "deviceName"}


def load(path: Path, name: str) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.lru_cache(maxsize=None)
def schema(folder: str) -> dict[str, set[str]]:
    walked = load(Path(__file__).with_name("rng.py"), "rng").paths(f"{folder}/domain.rng")
    # What stands in <metadata> is its owner's.
    return {path: types for path, types in walked.items() if path and not path.startswith("metadata/")}


def test_a_part_is_found_in_the_schema_and_a_newer_one_is_not():
    known = sorted(schema(SCHEMAS[0]))[::20]
    asked = [*known, "devices/teleport", "devices/disk/source/@teleport", "qemu:commandline/qemu:arg/@value", "metadata"]
    assert libvirt_schema.unknown(asked, f"{SCHEMAS[0]}/domain.rng") == ["devices/disk/source/@teleport", "devices/teleport"]
    assert libvirt_schema.unknown(asked, "/nowhere/domain.rng") is None


def without_row(inventory: Inventory, folder: str) -> list[str]:
    return sorted(path for path in schema(folder) if inventory.row(path) is None)


@pytest.mark.parametrize("folder", SCHEMAS)
def test_every_part_that_libvirt_knows_has_a_row(folder):
    assert len(schema(folder)) > 2000
    assert without_row(rows.INVENTORY, folder) == []


@pytest.mark.parametrize("left_out", ["devices/tpm/@model", "os/nvram", "cpu/**", "devices/*/boot/**", "qemu:commandline/**"])
def test_a_row_that_is_missing_is_found(left_out):
    assert without_row(Inventory(row for row in rows.INVENTORY.rows if row.path != left_out), SCHEMAS[0])


@pytest.mark.parametrize("folder", SCHEMAS)
def test_nothing_that_names_a_place_on_a_host_travels_under_a_common_row(folder):
    common = [
        path
        for path, types in schema(folder).items()
        if types & HOST_BOUND and rows.INVENTORY.row(path).path.endswith("**") and rows.INVENTORY.row(path).fate == CARRIED
    ]
    assert common == []


def test_each_row_is_about_something():
    """A row that is misspelt would be about nothing."""
    used = {rows.INVENTORY.row(path) for folder in SCHEMAS for path in schema(folder)}
    newer = {"devices/tpm/backend/source/**"}  # of libvirt 10.10, where this machine's is older
    assert [row.path for row in rows.INVENTORY.rows if row not in used and row.path not in newer and len(SCHEMAS) > 1] == []


def test_rows_say_what_becomes_of_it():
    every = [*rows.INVENTORY.rows, *rows.BESIDE]
    assert [path for path, count in Counter(row.path for row in every).items() if count > 1] == []
    assert {row.fate for row in every} <= set(FATES)
    assert [row.path for row in every if not row.how] == []
    assert [row.path for row in every if row.fate == REFUSED and not row.check] == [], "each refusal has a name"


def domain(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(f"<domain type='kvm' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'><name>web1</name>{text}</domain>")


def test_paths_name_elements_attributes_and_namespaces():
    assert paths(domain("<qemu:commandline><qemu:arg value='-x'/></qemu:commandline><metadata><app:x xmlns:app='urn:x'/></metadata>")) == {
        "@type", "name", "qemu:commandline", "qemu:commandline/qemu:arg", "qemu:commandline/qemu:arg/@value", "metadata",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "mode", "found"),
    [
        ("<devices><teleport speed='9'/></devices>", "live", []),
        ("<features><acpi/></features>", "live", []),
        ("<qemu:commandline><qemu:arg value='-x'/></qemu:commandline>", "live", [("qemu_commandline", True)]),
        ("<devices><hostdev mode='subsystem' type='usb'><source><vendor id='0x1'/></source></hostdev></devices>", "live", [("hostdev", True)]),
        ("<devices><hostdev mode='subsystem' type='usb'><source><vendor id='0x1'/></source></hostdev></devices>", "offline", []),
        ("<devices><serial type='pty'><log file='/var/log/a.log'/></serial></devices>", "live", [("logs", False)]),
    ],
)
def test_what_the_rows_say_of_a_definition(text, mode, found):
    said = [(each.check, each.refuses) for each in rows.INVENTORY.findings(domain(text), mode)]
    if "teleport" in text:
        assert [check for check, refuses in said if refuses] == ["element:devices/teleport/@speed"]
        return
    assert said == found


def test_what_has_no_row_is_refused_by_its_name():
    (finding,) = rows.INVENTORY.findings(domain("<teleport/>"), "live")
    assert (finding.check, finding.refuses) == ("element:teleport", True)
    assert "it is not known what would become of <teleport>" in finding.sentence


def test_the_closest_row_decides():
    inventory = Inventory([Row("a/**", CARRIED, "all"), Row("a/*/c", SAME, "any"), Row("a/b/c", REFUSED, "this", "c")])
    assert [inventory.row(path).how for path in ("a", "a/x/d", "a/x/c", "a/b/c")] == ["all", "all", "any", "this"]
    assert inventory.row("b") is None


def test_the_page_is_made_of_the_rows():
    page = load(CHECKOUT / "tests" / "guest_inventory.py", "guest_inventory")
    assert page.PAGE.read_text(encoding="utf-8") == page.text(), "run make docs"
