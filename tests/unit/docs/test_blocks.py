# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every block of the pages says what it is, and each command in one is tried without a host.

| a line that begins with | is tried by |
|---|---|
| ansible-playbook | the door of that playbook: it is there, and takes these variables |
| make | make itself, which only says what it would do |
| pcopy | helper/cmd/pcopy/pages_test.go, by the parser of the program |

The README's lines of installation are run whole (tests/unit/release/test_newcomer.py). A block with any other program has a comment above it that says where
its commands run, or why no test can run them: `<!-- tried in FILE -->`, `<!-- not tried: REASON -->`.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
from ansible.parsing.splitter import parse_kv
from ansible_collections.livefleet.handover.plugins.plugin_utils import _declaration, _door

CHECKOUT = Path(__file__).resolve().parents[3]
if not (CHECKOUT / ".git").exists():
    pytest.skip("the pages are those of a checkout", allow_module_level=True)

# A picture or an output is `text`; a list of contents is Sphinx's.
LANGUAGES = {"sh", "text", "yaml", "ini", "{toctree}"}
BLOCK = re.compile(r"(?ms)^(?P<indent> *)```(?P<language>\S*)\n(?P<text>.*?)^(?P=indent)```")
INLINE = re.compile(r"`(ansible-playbook livefleet[^`\n]+)`")
MARK = re.compile(r"<!-- (?:tried in (?P<file>\S+)|not tried: (?P<why>[^>]+)) -->\s*\Z")
COLLECTION = "livefleet.handover."
TRIED = {"ansible-playbook", "make", "pcopy", "export"}
# The words of ansible-playbook that have one of their own behind them.
WITH_VALUE = {"-i", "-l", "--limit", "-e", "--extra-vars"}


def pages() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z", "*.md"], cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout.split("\0")
    return [CHECKOUT / name for name in listed if name and (CHECKOUT / name).exists()]


TEXTS = {str(page.relative_to(CHECKOUT)): page.read_text(encoding="utf-8") for page in pages()}
BLOCKS = [(name, block) for name, text in TEXTS.items() for block in BLOCK.finditer(text)]


def of(language: str) -> list[tuple[str, str]]:
    return [(name, block["text"]) for name, block in BLOCKS if block["language"] == language]


def commands(text: str) -> list[list[str]]:
    """The words of each command of a block; what a shell does with them is left out."""
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        while words and re.match(r"[A-Z_]+=", words[0]):
            del words[0]
        found += [words] if words else []
    return found


PLAYED = [(name, words) for name, text in of("sh") for words in commands(text) if words[0] == "ansible-playbook"]
# One in a sentence may leave out what the sentence says.
PLAYED += [(name, [*shlex.split(found), "…"]) for name, text in TEXTS.items() for found in INLINE.findall(text)]


def test_every_block_says_what_it_is() -> None:
    assert len(BLOCKS) >= 70
    assert not [f"{name}: {block['language']}: {block['text'][:60]}" for name, block in BLOCKS if block["language"] not in LANGUAGES]


def test_every_command_is_tried_or_marked() -> None:
    unmarked = []
    for name, block in BLOCKS:
        others = [words[0] for words in commands(block["text"]) if words[0] not in TRIED] if block["language"] == "sh" else []
        mark = MARK.search(TEXTS[name][: block.start()])
        if others and not mark:
            unmarked.append(f"{name}: {', '.join(others)}: put <!-- tried in FILE --> or <!-- not tried: REASON --> above the block")
        elif mark and mark["file"] and not (CHECKOUT / mark["file"]).exists():
            unmarked.append(f"{name}: {mark['file']} is not there")
    assert not unmarked


@pytest.mark.parametrize("name, words", PLAYED, ids=[f"{name}-{' '.join(words)[:90]}" for name, words in PLAYED])
def test_a_playbook_takes_what_the_page_gives_it(name: str, words: list[str]) -> None:
    rest = iter(words[1:])
    playbook, given = "", {}
    for word in rest:
        if word in WITH_VALUE:
            value = next(rest)
            given.update(variables(name, value) if word in ("-e", "--extra-vars") else {})
        elif word.startswith(COLLECTION):
            playbook = word[len(COLLECTION) :]
        else:
            assert word in ("--check", "…"), f"a word that this test does not know: {word}"
    if playbook not in _declaration.playbooks():  # its role takes the variables
        assert (CHECKOUT / "playbooks" / f"{playbook}.yml").exists() and set(given) <= set(_declaration.of_role(playbook))
        return
    left_out = [each for each, value in given.items() if value == "…"]
    found = _door.ask(_declaration.of_playbook(playbook), {each: value for each, value in given.items() if each not in left_out}, strict=True)
    assert not [problem for problem in found.problems if not ("…" in words and " is missing (" in problem)]


def variables(page: str, value: str) -> dict[str, object]:
    """What stands behind -e: a mapping, words with =, or a file that the page shows."""
    if value.startswith("{"):
        return dict(yaml.safe_load(value))
    if not value.startswith("@"):
        found = parse_kv(value)
        assert "_raw_params" not in found, f"Ansible takes {found['_raw_params']} for a word of its own: quote the value within the quotes"
        return found
    shown = {}
    for other in (page, "docs/awx.md"):
        for block in BLOCK.finditer(TEXTS[other]):
            before = TEXTS[other][: block.start()].strip().splitlines()[-1:]
            if block["language"] == "yaml" and before and f"`{value[1:]}`" in before[0]:
                shown = yaml.safe_load(block["text"])
    assert shown, f"{page} does not show {value[1:]}"
    return shown


def test_make_knows_each_target() -> None:
    typed = sorted({tuple(words[1:]) for _name, text in of("sh") for words in commands(text) if words[0] == "make"})
    assert len(typed) >= 15
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
    failed = {}
    for words in typed:
        done = subprocess.run(["make", "--dry-run", *words], cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            failed[words] = done.stderr
    assert not failed


def test_a_play_of_the_pages_uses_roles_as_they_are() -> None:
    """Each role that a play names is there, and takes its variables."""
    named = 0
    for name, text in of("yaml"):
        found = yaml.safe_load(text)
        for play in found if isinstance(found, list) else []:
            for entry in play.get("roles", []):
                role = entry if isinstance(entry, str) else entry["role"]
                assert role.startswith(COLLECTION), f"{name}: {role}"
                given = {} if isinstance(entry, str) else {**entry, **entry.get("vars", {})}
                declared = _declaration.of_role(role[len(COLLECTION) :])
                assert set(given) - {"role", "vars"} <= set(declared), f"{name}: {role}"
                assert {each for each, spec in declared.items() if spec.get("required")} <= set(given), f"{name}: {role}"
                named += 1
    assert named >= 8
