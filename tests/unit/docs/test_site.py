# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The site's pages before Sphinx sees them: every link leads somewhere, every page is in a list of contents, and troubleshooting has every check."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from ansible_collections.livefleet.handover.plugins.action.preflight import link
from ansible_collections.livefleet.handover.plugins.module_utils._core.site import SITE
from ansible_collections.livefleet.handover.plugins.module_utils._docker import checks as docker, live as docker_live
from ansible_collections.livefleet.handover.plugins.module_utils._kvm import findings as guest_findings
from ansible_collections.livefleet.handover.plugins.module_utils._openvz.driver import checks as openvz
from ansible_collections.livefleet.handover.plugins.module_utils._podman.preflight import examine

CHECKOUT = Path(__file__).resolve().parents[3]
if not (CHECKOUT / "docs" / "site" / "build.py").exists():
    pytest.skip("the site is built in a checkout", allow_module_level=True)
sys.path.insert(0, str(CHECKOUT / "docs" / "site"))
import build  # noqa: E402
import guest_sentences  # noqa: E402
import sentences  # noqa: E402

# Made when the site is built, beside the reference of the modules.
MADE = {"reference/pcopy", "troubleshooting"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    assert build.lay_out(folder) == []
    return folder


def test_every_page_is_in_a_list_of_contents(place):
    pages = {str(path.relative_to(place).with_suffix("")) for path in place.rglob("*.md")}
    assert pages | MADE == (build.listed(place) - {"reference/collection/*"}) | {"index"}


def test_a_new_page_is_at_the_end_of_the_front_page(tmp_path):
    (tmp_path / "index.md").write_text("```{toctree}\nold\n```\n", encoding="utf-8")
    for name in ("old", "new"):
        (tmp_path / f"{name}.md").write_text(f"# {name}\n", encoding="utf-8")
    build.add_the_rest(tmp_path)
    assert build.listed(tmp_path) == {"old", "new"}


def test_a_link_that_leads_nowhere_is_told():
    source = CHECKOUT / "docs" / "fleet.md"
    broken: list[str] = []
    where = build.pages()
    text = "[a](kvm.md) [b](../roles/migrate/README.md) [c](../Makefile) [d](nowhere.md) [e](https://example.com) [f](#here)"
    found = build.turned(text, source, where[source], where, broken)
    assert found == f"[a](kvm.md) [b](reference/roles/migrate.md) [c]({build.REPOSITORY}Makefile) [d](nowhere.md) [e](https://example.com) [f](#here)"
    assert broken == ["docs/fleet.md: nowhere.md leads nowhere"]


def test_the_readme_can_be_read_elsewhere():
    """Galaxy and a tarball's reader show it alone: each of its links is a whole address, and one into the repository leads to a file of the tree."""
    targets = [found["target"] for found in build.LINK.finditer((CHECKOUT / "README.md").read_text(encoding="utf-8"))]
    assert len(targets) >= 25 and all(target.startswith("https://") for target in targets)
    assert not [target for target in targets if target.startswith(build.REPOSITORY) and not (CHECKOUT / target[len(build.REPOSITORY) :]).is_file()]


def test_troubleshooting_has_every_check():
    """Each check of the preflight has an anchor and its sentences, names in them left out."""
    found = sentences.by_check()
    of_docker = {*docker.BASICS, *docker.CHECKS, *docker_live.BASICS, *docker_live.CHECKS}
    assert set(found) == {*examine.BASICS, *examine.CHECKS, *of_docker, *openvz.BASICS, *openvz.FIRM, *openvz.CHECKS}
    page = sentences.page()
    anchors = {f"troubleshooting.html#{name}" for name in re.findall(r"^\((check-[\w-]+)\)=$", page, flags=re.M)}
    assert {link(name) for name in found} == {SITE + anchor for anchor in anchors}
    assert "- CRIU is missing on …: install the package criu there, or use migrate\\_mode=offline" in page
    assert "{0}" not in page


def test_troubleshooting_has_every_check_of_a_guest():
    """Each has an anchor, which its refusal names, and whole sentences: the thing that is needed, and what its test says of it."""
    found = guest_sentences.by_check()
    assert set(found) == set(guest_findings.CHECKS)
    page = sentences.page()
    anchors = {f"{SITE}troubleshooting.html#{name}" for name in re.findall(r"^\((guest-[\w-]+)\)=$", page, flags=re.M)}
    assert {guest_findings.explained(name) for name in found} == anchors
    assert "- the bridge … does not exist on the destination: make it there" in page
    assert "- the destination lacks …: give it a processor that both hosts have" in page
    assert "- `devices/lease/**`: a lease of sanlock is held by its host" in page


def test_a_part_of_a_guest_without_a_row_leads_to_the_inventory():
    assert guest_findings.explained("element:devices/teleport") == f"{SITE}kvm-inventory.html"
