#!/usr/bin/env python
# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Builds the documentation as a site: `make site`. The pages stay where they are; they are laid out, linked and checked here.

1. The pages of docs/ and the roles' README files are copied to one place. A link to another page leads to it, one to a file of the tree to the repository,
   and one to nothing fails.
2. The reference is made: modules and filters by antsibull-docs, the helper's commands by their own help.
3. Sphinx builds the site. A warning is an error: an anchor that is missing, or a page that no contents lists.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

# It lies beside this file, in no package: Python finds it only after this line.
sys.path.insert(0, str(Path(__file__).resolve().parent))
import sentences  # noqa: E402

CHECKOUT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
BESIDE = Path(sys.executable).parent
REPOSITORY = "https://github.com/livefleet/handover/blob/main/"
LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
IMAGE = re.compile(r"!\[[^\]]*\]\((?P<target>[^)\s]+)\)")
FENCE = re.compile(r"(```.*?```|`[^`\n]*`)", re.S)
HELPER = CHECKOUT / "roles" / "pcopy" / "files" / "pcopy-linux-amd64"


def pages() -> dict[Path, Path]:
    """The page of the tree → its place in the site."""
    found = {path: path.relative_to(CHECKOUT / "docs") for path in (CHECKOUT / "docs").rglob("*.md") if HERE not in path.parents}
    # The site has a front page of its own.
    found[CHECKOUT / "docs" / "index.md"] = Path("index-by-question.md")
    found.update({path: Path("reference") / "roles" / f"{path.parent.name}.md" for path in (CHECKOUT / "roles").glob("*/README.md")})
    found.update({CHECKOUT / name: Path("project") / name.lower() for name in ("CONTRIBUTING.md", "SECURITY.md")})
    return found


def lay_out(place: Path) -> list[str]:
    """Copies every page with its links turned; the sentences on links that lead nowhere."""
    broken: list[str] = []
    where = pages()
    for source, target in where.items():
        text = "".join(
            part if part.startswith("`") else turned(part, source, target, where, broken) for part in FENCE.split(source.read_text(encoding="utf-8"))
        )
        (place / target).parent.mkdir(parents=True, exist_ok=True)
        (place / target).write_text(text, encoding="utf-8")
        for image in IMAGE.finditer(text):
            picture = source.parent / image["target"]
            if picture.is_file():
                shutil.copyfile(picture, place / target.parent / image["target"])
    for path in HERE.rglob("*.md"):
        (place / path.relative_to(HERE)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place / path.relative_to(HERE))
    shutil.copyfile(HERE / "conf.py", place / "conf.py")
    shutil.copytree(HERE / "static", place / "static")
    add_the_rest(place)
    return broken


def listed(place: Path) -> set[str]:
    """The pages that a list of contents names."""
    found = set()
    for path in place.rglob("*.md"):
        for block in re.findall(r"```\{toctree\}\n(.*?)```", path.read_text(encoding="utf-8"), flags=re.S):
            for entry in (line for line in block.splitlines() if line and not line.startswith(":")):
                here = path.parent.relative_to(place)
                found |= {str(each.relative_to(place).with_suffix("")) for each in (place / here).glob(entry + ".md")} or {str(here / entry)}
    return found


def add_the_rest(place: Path) -> None:
    """A new page that no list of contents names yet is at the end of the front page."""
    rest = sorted({str(path.relative_to(place).with_suffix("")) for path in place.rglob("*.md")} - listed(place) - {"index"})
    if rest:
        with (place / "index.md").open("a", encoding="utf-8") as index:
            index.write("\n".join(["", "```{toctree}", ":caption: More", ":maxdepth: 1", "", *rest, "```", ""]))


def turned(text: str, source: Path, target: Path, where: dict[Path, Path], broken: list[str]) -> str:
    def turn(link: re.Match[str]) -> str:
        address, _hash, anchor = link["target"].partition("#")
        if not address or re.match(r"[a-z]+:", address):
            return link[0]
        there = (source.parent / address).resolve()
        anchor = f"#{anchor}" if anchor else ""
        if there in where:
            return f"[{link['text']}]({os.path.relpath(where[there], target.parent)}{anchor})"
        if there.exists() and CHECKOUT in there.parents:
            return f"[{link['text']}]({REPOSITORY}{there.relative_to(CHECKOUT)}{anchor})"
        broken.append(f"{source.relative_to(CHECKOUT)}: {link['target']} leads nowhere")
        return link[0]

    return LINK.sub(turn, text)


def add_modules(place: Path) -> None:
    """The pages of the modules, filters, lookups and roles, by antsibull-docs."""
    with tempfile.TemporaryDirectory() as folder:
        collection = Path(folder) / "ansible_collections" / "livefleet"
        collection.mkdir(parents=True)
        (collection / "handover").symlink_to(CHECKOUT)
        target = place / "reference" / "collection"
        target.mkdir(parents=True)
        target.chmod(0o755)
        command = [BESIDE / "antsibull-docs", "collection", "--use-current", "--squash-hierarchy", "--fail-on-error", "--no-indexes",
                   "--dest-dir", target, "livefleet.handover"]  # fmt: skip
        done = subprocess.run(command, env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": folder, "PATH": f"{BESIDE}:{os.environ['PATH']}"},
                              capture_output=True, text=True, check=False)  # fmt: skip
        if done.returncode != 0:
            sys.exit(f"site: antsibull-docs failed: {done.stdout}{done.stderr}")


def add_commands(place: Path) -> None:
    """Every command of the helper with its own help. Without a helper the page says where it is."""
    lines = ["# Commands of pcopy\n"]
    if HELPER.exists():
        for words in commands([]):
            lines += [f"## {' '.join(['pcopy', *words])}\n", "```text", asked(words).rstrip(), "```\n"]
    else:
        lines.append("`pcopy --help` shows them. `make helper` before `make site` puts them here.\n")
    (place / "reference" / "pcopy.md").write_text("\n".join(lines), encoding="utf-8")


def add_troubleshooting(place: Path) -> None:
    (place / "troubleshooting.md").write_text(sentences.page(), encoding="utf-8")


def asked(words: list[str]) -> str:
    return subprocess.run([HELPER, *words, "--help"], capture_output=True, text=True, check=True).stdout


def commands(words: list[str]) -> list[list[str]]:
    """A command, and those below it."""
    listed = re.search(r"(?ms)^Available Commands:\n(.*?)(^\S|\Z)", asked(words))
    below = re.findall(r"^  (\S+)", listed[1], flags=re.M) if listed else []
    return [words, *(each for name in below if name not in ("help", "completion") for each in commands([*words, name]))]


def main() -> int:
    arguments = [word for word in sys.argv[1:] if word != "--links"]
    target = Path(arguments[0]) if arguments else CHECKOUT / ".cache" / "site"
    with tempfile.TemporaryDirectory(prefix="handover-site-") as folder:
        place = Path(folder)
        broken = lay_out(place)
        if broken:
            print("\n".join(broken), file=sys.stderr)
            return 1
        add_modules(place)
        add_commands(place)
        add_troubleshooting(place)
        sphinx = [BESIDE / "sphinx-build", "-W", "--keep-going", "-q"]
        built = subprocess.run([*sphinx, "-b", "html", place, target], check=False).returncode
        if built == 0 and "--links" in sys.argv:
            return subprocess.run([*sphinx, "-b", "linkcheck", place, target / "links"], check=False).returncode
        return built


if __name__ == "__main__":
    sys.exit(main())
