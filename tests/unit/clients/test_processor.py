# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A process that turns in a circle is told from one that waits."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import typing as t
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "clients"))
import processor


@contextlib.contextmanager
def running(folder: Path) -> t.Iterator[dict[str, int]]:
    """One that turns in a circle, one that waits and one that has ended, in a folder as the kernel shows a cgroup."""
    begun = {"sleep": subprocess.Popen(["sleep", "1000"]), "yes": subprocess.Popen(["yes"], stdout=subprocess.DEVNULL), "true": subprocess.Popen(["true"])}
    begun["true"].wait()
    try:
        (folder / "below").mkdir()
        (folder / "cgroup.procs").write_text(f"{begun['sleep'].pid}\n{begun['true'].pid}\n", encoding="ascii")
        (folder / "below" / "cgroup.procs").write_text(f"{begun['yes'].pid}\n", encoding="ascii")
        yield {name: process.pid for name, process in begun.items()}
    finally:
        for process in begun.values():
            process.kill()
            process.wait()


def test_a_share_is_of_one_second(tmp_path: Path) -> None:
    with running(tmp_path):
        found = processor.shares(str(tmp_path))
        by_command = json.loads(subprocess.run(["sh", "-c", processor.command(str(tmp_path))], check=True, stdout=subprocess.PIPE, text=True).stdout)
    for each in (found, by_command):
        assert set(each) == {"sleep", "yes"}
        assert each["sleep"] == 0.0 < each["yes"], each


def test_a_name_with_brackets_and_blanks(tmp_path: Path) -> None:
    program = tmp_path / "a (b) c"
    program.symlink_to("/bin/sleep")
    process = subprocess.Popen([str(program), "1000"])
    try:
        (tmp_path / "cgroup.procs").write_text(f"{process.pid}\n", encoding="ascii")
        assert set(processor.used(str(tmp_path))) == {(process.pid, "a (b) c")}
    finally:
        process.kill()
        process.wait()


def test_only_what_uses_much_more_than_before_turns_in_a_circle() -> None:
    before = {"systemd": 0.0, "postgres": 0.5, "beats": 0.1}
    assert processor.circling(before, {"systemd": 0.02, "postgres": 0.7, "beats": 0.3, "new": 0.1}) == []
    assert processor.circling(before, {"systemd": 0.5, "postgres": 1.0, "beats": 0.3, "new": 0.9}) == ["new", "postgres", "systemd"]
