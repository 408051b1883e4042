# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All that is in the way of a guest's move, but for its disks: the inventory's rows, what the destination lacks, what libvirt keeps beside it.

The same for a check and for a move, and before anything is made.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass
from xml.etree import ElementTree

from .._core import site
from .._core.runtime import HandoverError
from . import check as guest_check, cpu, needs as guest_needs, releases, state as guest_state
from .inventory import ELEMENT, OFFLINE, Finding
from .rows import BESIDE, INVENTORY
from .rows_devices import CHARACTER

# Checks that no row names: those of the disks, and of the versions of both sides.
FURTHER = ("disks", "inside_snapshots", "machine", "memory", "networks", "pools", "storage", "cpu", "versions", "definition", "cdrom")
CHECKS = tuple(sorted({*FURTHER, *(row.check for row in (*INVENTORY.rows, *BESIDE) if row.check)}))
# Memory that would be resumed over a newer disk is no matter of taste.
ALWAYS_HEEDED = ("managed_save", "disks")
HEEDED_CURES = {"disks": "each refusal names its own way out, as kvm_migrate_shared_disks"}


@dataclass(frozen=True)
class Looks:
    """The look at both hosts; None where there was none."""

    here: t.Mapping[str, t.Any] | None = None
    there: t.Mapping[str, t.Any] | None = None
    cdrom: str = "refuse"


@dataclass(frozen=True)
class Examined:
    """The result."""

    findings: list[Finding]
    brought: list[dict[str, str]]  # media that are to be copied
    state: list[dict[str, str]]  # files beside the disks


def unknown(ignore: t.Iterable[str]) -> str | None:
    """A name in `ignore` that no check has, and the nearest that one has."""
    import difflib

    for name in sorted(ignore):
        if name in ALWAYS_HEEDED:
            return f"kvm_migrate_ignore names {name}, which is never ignored: {HEEDED_CURES.get(name) or next(row.how for row in BESIDE if row.check == name)}"
        if name not in CHECKS and not name.startswith(ELEMENT):
            near = difflib.get_close_matches(name, CHECKS, 1)
            return (
                f"kvm_migrate_ignore names {name}, and there is no such check: {f'did you mean {near[0]}' if near else 'the checks are ' + ', '.join(CHECKS)}"
            )
    return None


def definitions(libvirt: t.Any, domain: t.Any) -> list[ElementTree.Element]:
    """As it runs, and as it will be after its next start."""
    texts = [domain.XMLDesc(libvirt.VIR_DOMAIN_XML_MIGRATABLE if domain.isActive() else 0)]
    if domain.isActive() and domain.isPersistent():
        texts.append(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
    return [ElementTree.fromstring(text) for text in texts]


def examine(libvirt: t.Any, here: t.Any, there: t.Any, domain: t.Any, mode: str, looks: Looks) -> Examined:
    """`here` and `there` are connections, `domain` is the guest on the source."""
    roots = definitions(libvirt, domain)
    live = mode != OFFLINE
    found: list[Finding] = []
    capabilities = None
    try:
        kind = roots[0].find("os/type")
        arch, machine = (None, None) if kind is None else (kind.get("arch"), kind.get("machine"))
        capabilities = ElementTree.fromstring(there.getDomainCapabilities(roots[0].findtext("devices/emulator"), arch, machine, roots[0].get("type")))
    except libvirt.libvirtError as exc:
        found.append(releases.machine(here, there, roots[0], exc))
    sides = guest_check.Sides(libvirt, there, live, looks.cdrom, looks.here, looks.there, capabilities)
    for root in roots:
        rows = INVENTORY.findings(root, mode)
        refused = {each.check for each in rows if each.refuses}
        found += rows
        found += written(root)
        # One sentence a cause: a part that may not travel at all need not be looked for.
        found += [each for each in guest_check.findings(guest_needs.needs(root, names=root is roots[-1]), sides) if each.check not in refused]
    # One sentence a cause: of a machine that it cannot run it takes no definition, and has no processor.
    processor = cpu.problem(libvirt, here, there, roots[0], live) if capabilities is not None else None
    found += [Finding("cpu", processor)] if processor else []
    found += guest_state.findings(roots[0], domain.name(), looks.here, looks.there)
    found += releases.versions(here, there, live)
    found += releases.definition(libvirt, there, domain, live) if capabilities is not None else []
    found += releases.parts(looks.here, looks.there)
    found += _beside(libvirt, domain)
    found += _hooks(looks)
    return Examined(
        list(dict.fromkeys(found)),
        [{"what": "medium", "path": path, "mark": ""} for path in dict.fromkeys(sides.brought)],
        guest_state.travelling(roots[0], domain.name(), looks.here, looks.there),
    )


def written(root: ElementTree.Element) -> t.Iterator[Finding]:
    """Files that a port of the guest writes into: QEMU begins them anew over there. A console may be the same port as a serial one."""
    said: set[str] = set()
    for device in root.findall("devices/*"):
        path = next((source.get("path") or "" for source in device.findall("source")), "")
        if device.tag in CHARACTER and device.get("type") == "file" and path and path not in said:
            said.add(path)
            sentence = f"devices/{device.tag}/source/@path: {path} begins empty on the destination: what is in it so far stays on the source"
            yield Finding("logs", sentence, False)


def _beside(libvirt: t.Any, domain: t.Any) -> t.Iterator[Finding]:
    """The records that libvirt keeps beside the definition."""
    cures = {row.check: row.how for row in BESIDE}
    if _asked(libvirt, lambda: domain.hasManagedSaveImage(0)):
        yield Finding(
            "managed_save", f"the guest's memory is saved on this host (managed save), and its disk goes on without it elsewhere: {cures['managed_save']}"
        )
    count = _asked(libvirt, lambda: domain.snapshotNum(0))
    if count:
        yield Finding("snapshots", f"the guest has {count} snapshots: {cures['snapshots']}")
    checkpoints = _asked(libvirt, lambda: domain.listAllCheckpoints(0))
    if checkpoints:
        yield Finding("checkpoints", f"the guest has {len(checkpoints)} checkpoints of its backups: {cures['checkpoints']}")
    job = _asked(libvirt, lambda: domain.jobInfo()[0]) if domain.isActive() else None
    if job not in (None, libvirt.VIR_DOMAIN_JOB_NONE):
        yield Finding("job", f"libvirt is at work on the guest: {cures['job']}")


def _asked(libvirt: t.Any, call: t.Callable[[], t.Any]) -> t.Any:
    """An answer, or None of a driver that has no such thing."""
    try:
        return call()
    except libvirt.libvirtError as exc:
        if exc.get_error_code() in (libvirt.VIR_ERR_NO_SUPPORT, libvirt.VIR_ERR_CONFIG_UNSUPPORTED):
            return None
        raise


def _hooks(looks: Looks) -> t.Iterator[Finding]:
    if looks.here is None or looks.there is None:
        return
    here, there = looks.here["hooks"], looks.there["hooks"]
    for name in sorted(here):
        if here[name] and here[name] != there.get(name):
            yield Finding("hooks", f"libvirt's hook {name} of this host is {'another one' if name in there else 'not'} on the destination", refuses=False)


def refusal(found: t.Iterable[Finding], guest: str, ignore: t.Container[str]) -> str | None:
    """One text for all that is in the way; None where nothing is."""
    refused = list(dict.fromkeys((each.sentence, each.check) for each in found if each.refuses and each.check not in ignore))
    if not refused:
        return None
    checks = ",".join(dict.fromkeys(check for _sentence, check in refused if check not in ALWAYS_HEEDED))
    sentences = [sentence for sentence, _check in refused]
    listed = sentences[0] if len(sentences) == 1 else "; ".join(f"({number}) {sentence}" for number, sentence in enumerate(sentences, 1))
    links = " ".join(dict.fromkeys(explained(check) for _sentence, check in refused))
    return f"{guest} cannot be moved: {listed}" + (f". To move it all the same: kvm_migrate_ignore={checks}" if checks else "") + f". Explained: {links}"


def explained(check: str) -> str:
    """The part of the site on a check. A part of the definition that has no row is no check."""
    return site.page("kvm-inventory.html" if check.startswith(ELEMENT) else site.section("troubleshooting.html", "guest", check))


def check(found: t.Iterable[Finding], guest: str, ignore: t.Container[str]) -> list[str]:
    """Raises HandoverError for obstacles, and returns the remarks."""
    found = list(found)
    text = refusal(found, guest, ignore)
    if text:
        raise HandoverError(text)
    return list(dict.fromkeys(each.sentence for each in found if not each.refuses))


def wanted(libvirt: t.Any, domain: t.Any) -> dict[str, list[str]]:
    """The things to look at on both hosts for a guest."""
    asked: dict[str, set[str]] = {"places": {guest_state.saved(domain.name())}, "files": set(), "trees": set(), "parts": set()}
    roots = definitions(libvirt, domain)
    asked["parts"].update(releases.telling(roots[-1]))
    for root in roots:
        for key, named in guest_needs.wanted(guest_needs.needs(root)).items():
            asked[key].update(named)
        for _what, path in guest_state.files(root):
            asked["trees"].add(path)
            asked["places"].add(guest_state.mark(path, domain.name()))
    return {key: sorted(paths) for key, paths in asked.items()}


def beside(domain: t.Any) -> list[dict[str, str]]:
    """Files beside the disks."""
    return guest_state.all_of(ElementTree.fromstring(domain.XMLDesc(0)), domain.name())


def eject(libvirt: t.Any, domain: t.Any) -> list[tuple[bool, str]]:
    """Takes the media out of the drives, as the guest runs and as it is defined. Returns the drives as they were, and which of both they are of."""
    before = []
    for running, text in _drives(libvirt, domain):
        for disk in ElementTree.fromstring(text).findall("devices/disk"):
            if disk.get("device") not in guest_needs.MEDIA or disk.find("source") is None:
                continue
            before.append((running, ElementTree.tostring(disk, encoding="unicode")))
            for part in ("source", "backingStore"):
                for element in disk.findall(part):
                    disk.remove(element)
            domain.updateDeviceFlags(ElementTree.tostring(disk, encoding="unicode"), _scope(libvirt, running) | libvirt.VIR_DOMAIN_DEVICE_MODIFY_FORCE)
    return before


def insert(libvirt: t.Any, domain: t.Any, drives: t.Iterable[tuple[bool, str]]) -> None:
    """Puts the media back, where the guest has stayed."""
    for running, text in drives:
        if domain.isActive() or not running:
            domain.updateDeviceFlags(text, _scope(libvirt, running))


def _scope(libvirt: t.Any, running: bool) -> int:
    return int(libvirt.VIR_DOMAIN_AFFECT_LIVE if running else libvirt.VIR_DOMAIN_AFFECT_CONFIG)


def _drives(libvirt: t.Any, domain: t.Any) -> list[tuple[bool, str]]:
    found = [(True, domain.XMLDesc(0))] if domain.isActive() else []
    if domain.isPersistent():
        found.append((False, domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)))
    return found
