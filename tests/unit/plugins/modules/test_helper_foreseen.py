# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whatever the helper refuses of a container's network and of its files' flags is found by the preflight, and so by the check, too."""

from __future__ import annotations

import pathlib
import re

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._podman.preflight import examine as preflight

HELPER = pathlib.Path(__file__).parents[4] / "helper" / "internal"
FILES = (
    *(HELPER / "ownnet" / name for name in ("ownnet.go", "entry.go", "links.go", "tables.go")), HELPER / "tree" / "flags.go",
    HELPER / "session" / "engine" / "ownnet.go", HELPER / "session" / "engine" / "settings.go", HELPER / "session" / "prepare.go",
)  # fmt: skip

# A piece of a refusal → the checks that foresee it.
FORESEEN = {
    "does not become as it is on the source: %s stays otherwise": ("own_network",),
    "which the workload has on the source, cannot be had here: make the network here": ("mtu",),
    "which the workload has on the source, cannot be had here: %w": ("own_network",),
    "it has a route by a next hop of its own": ("own_network",),
    "which the workload does not have here: have the engine make it": ("own_network",),
    "which the workload has on the source, is missing here": ("own_network", "networks"),
    "was made by iptables, whose rules are not carried": ("own_network",),
    "and this host has no program nft": ("own_tables",),
    "install the same nftables on both hosts": ("own_tables",),
    "cannot be set on this file system": ("file_flags",),
    "cannot be carried: copy what it holds to a file without it": ("file_flags",),
    "does not carry the settings and routes of the workload's network": ("pcopy",),
    "the source does not say what the workload has made in its network": ("pcopy",),
    "does not know lazy pages": ("pcopy",),
    "the container here was not made as the source's was": ("namespaces",),
    "reading the workload's network settings": ("sysctls",),
}
# Those of a host whose kernel or program fails, of a peer that lies, and of a moment that passes: no look before it can find them.
UNFORESEEABLE = (
    "each %s", "an interface came or went", "with fewer interfaces than it needs", "an entry that is none", "to try it with",
    "the interfaces: ", "nftables: ", "nft %s: ", "its flags (lsattr)", "its flags are damaged", "network namespace: ",
    "the workload's network: ", "the workload's network settings: ",
)  # fmt: skip
# Sentences of other subjects in the same files.
SAID = re.compile(r'(?:errors\.New|fmt\.Errorf)\("([^"]*)"')
NETWORK = re.compile(r"network|interface|route|nft|flags?\b|iptables|lazy pages|each %s|entry|on the source|its flag")


def refusals():
    return sorted({sentence for file in FILES for sentence in SAID.findall(file.read_text(encoding="utf-8")) if NETWORK.search(sentence)})


@pytest.mark.parametrize("sentence", refusals())
def test_every_refusal_is_foreseen_or_nobody_can(sentence):
    assert [piece for piece in (*FORESEEN, *UNFORESEEABLE) if piece in sentence], sentence


def test_by_checks_that_there_are_and_nothing_else():
    assert {check for checks in FORESEEN.values() for check in checks} <= {*preflight.CHECKS}
    text = "".join(refusals())
    assert [piece for piece in (*FORESEEN, *UNFORESEEABLE) if piece not in text] == []
