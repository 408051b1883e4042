# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two hosts with other releases of libvirt and QEMU: machine types, definitions and ways to move that one of them does not know.

Nothing is told from a number where the destination can be asked.
"""

from __future__ import annotations

import re
import typing as t
from xml.etree import ElementTree

from .inventory import Finding, paths

# Newer libvirts write these words, which say what every libvirt means without them: path → word.
MEANT_ANYWAY = {"os/loader/@format": "raw", "os/nvram/@format": "raw", "os/nvram/@templateFormat": "raw"}

# The first libvirt that hands a method of packing pages on several connections on to QEMU.
PACKS_SINCE = 9_004_000


def telling(root: ElementTree.Element) -> set[str]:
    """The paths of a definition, without those that only say what is meant anyway."""
    return {path for path in paths(root) if path not in MEANT_ANYWAY or _words(root, path) != {MEANT_ANYWAY[path]}}


def _words(root: ElementTree.Element, path: str) -> set[str]:
    place, _at, name = path.partition("/@")
    return {element.get(name, "") for element in root.findall(place) if name in element.attrib}


# --- the definition ---


def sent(libvirt: t.Any, domain: t.Any, there: t.Any) -> tuple[str, t.Any]:
    """The definition of a guest that does not run, as the destination's libvirt takes it, and libvirt's error where it takes none.

    libvirt adds devices to every definition, and leaves them out for an older one where it is asked for the form that migrates.
    """
    plain = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE
    text = str(domain.XMLDesc(plain))
    refused = _refusal(libvirt, there, text)
    if refused is not None:
        bare = str(domain.XMLDesc(plain | libvirt.VIR_DOMAIN_XML_MIGRATABLE))
        if _refusal(libvirt, there, bare) is None:
            return bare, None
    return text, refused


def _refusal(libvirt: t.Any, there: t.Any, text: str) -> t.Any:
    """The destination's libvirt makes QEMU's command line of a definition, and starts nothing. Its error, or None."""
    try:
        there.domainXMLToNative("qemu-argv", text, 0)
    except libvirt.libvirtError as exc:
        return None if exc.get_error_code() == libvirt.VIR_ERR_NO_SUPPORT else exc
    return None


def definition(libvirt: t.Any, there: t.Any, domain: t.Any, live: bool) -> t.Iterator[Finding]:
    """A running guest takes two along: as it runs, and as it will be after its next start."""
    found = [_refusal(libvirt, there, domain.XMLDesc(libvirt.VIR_DOMAIN_XML_MIGRATABLE))] if live else []
    if domain.isPersistent():
        found.append(sent(libvirt, domain, there)[1])
    for text in dict.fromkeys(str(each) for each in found if each is not None):
        yield Finding("definition", f"the destination's libvirt does not take the definition: {text}: upgrade it there, or change the definition")


def parts(here: t.Mapping[str, t.Any] | None, there: t.Mapping[str, t.Any] | None) -> t.Iterator[Finding]:
    """Parts that this host's libvirt knows, by its schema, and the destination's does not: it would refuse the definition, or leave them out."""
    mine, its = ((side or {}).get("unknown_parts") for side in (here, there))
    for part in sorted(set(its or ()) - set(mine or ())) if mine is not None else ():
        sentence = f"the destination's libvirt does not know <{part.replace('/', '> <')}>: upgrade it there, or take that out of the definition (`virsh edit`)"
        yield Finding("definition", sentence)


# --- the machine ---


def machine(here: t.Any, there: t.Any, root: ElementTree.Element, reason: object) -> Finding:
    """The destination cannot run the guest's machine; `reason` is libvirt's."""
    kind = root.find("os/type")
    arch, name = ("", "") if kind is None else (kind.get("arch", ""), kind.get("machine", ""))
    common = _newest(name, _machines(here, arch) & _machines(there, arch))
    cure = "install the same QEMU there"
    if common:
        cure += f", or shut the guest down and give it a machine that both have, as {common} (`virsh edit`)"
    return Finding("machine", f"the destination cannot run the guest (machine {name}, {root.get('type')}): {reason}: {cure}")


def _machines(connection: t.Any, arch: str) -> set[str]:
    """The machine types of a host's QEMU."""
    root = ElementTree.fromstring(connection.getCapabilities())
    return {(each.text or "").strip() for each in root.findall(f"guest/arch[@name='{arch}']/machine")}


def _newest(name: str, among: t.Iterable[str]) -> str | None:
    """Of the same family: pc-q35-10.0 and pc-q35-7.2 are one."""
    family = re.match(r"(.*-)\d", name)
    found = {each: _numbers(each) for each in among if family and re.fullmatch(re.escape(family.group(1)) + r"[\d.]+", each)}
    return max(found, key=lambda each: found[each]) if found else None


def _numbers(name: str) -> list[int]:
    return [int(each) for each in re.findall(r"\d+", name.rpartition("-")[2])]


# --- ways to move ---


def versions(here: t.Any, there: t.Any, live: bool) -> t.Iterator[Finding]:
    """libvirt and QEMU promise a running guest the way to the same release or a newer one."""
    asked = (("libvirt", there.getLibVersion(), here.getLibVersion()), ("QEMU", there.getVersion(), here.getVersion()))
    older = " and ".join(f"{name} {written(its)} (here {written(mine)})" for name, its, mine in asked if its < mine)
    if live and older:
        yield Finding(
            "versions",
            f"the destination has an older {older}, and a running guest is promised to arrive at the same release or a newer one alone: upgrade it there, or "
            "shut the guest down and move it with kvm_migrate_mode=offline",
        )


def written(number: int) -> str:
    """A version as libvirt counts it."""
    return f"{number // 1_000_000}.{number // 1000 % 1000}.{number % 1000}"


def packs(here: t.Any, there: t.Any) -> str | None:
    """Why pages cannot be packed on several connections; None where they can."""
    for side, number in (("this host's", here.getLibVersion()), ("the destination's", there.getLibVersion())):
        if number < PACKS_SINCE:
            return f"{side} libvirt ({written(number)}) cannot have QEMU pack memory on several connections, as {written(PACKS_SINCE)} and later do"
    return None
