# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pages of real files and of a real block device."""

from __future__ import annotations

import os
import subprocess
import typing as t
from pathlib import Path

import pytest

Run = t.Callable[..., dict[str, t.Any]]

PAGES = 64
SIZE = PAGES * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def vmtouch(run_module: t.Callable) -> Run:
    from ansible_collections.livefleet.handover.plugins.modules import vmtouch as module

    def run(*paths: object, check: bool = False, diff: bool = False, **params: t.Any) -> dict[str, t.Any]:
        return run_module(module.main, {"paths": [str(path) for path in paths], "reserve": "0", **params}, check=check, diff=diff)

    return run


@pytest.fixture
def file(host: Path) -> Path:
    path = host / "table.sst"
    path.write_bytes(os.urandom(SIZE))
    os.sync()
    return path


@pytest.fixture
def device(file: Path) -> str:
    return subprocess.run(["losetup", "--find", "--show", str(file)], check=True, capture_output=True, text=True).stdout.strip()


def whole(vmtouch: Run, *paths: object) -> dict[str, t.Any]:
    """What the touch said after which all pages were resident. A kernel may take any page back at any moment, also a fresh one of a machine with memory to
    spare (DAMON's reclaim takes whole regions), so that a page or two may be missing: what is touched again has them."""
    for _attempt in range(5):
        touched = vmtouch(*paths, state="touched")
        if touched["resident"] == PAGES:
            break
    return touched


def test_files_are_evicted_and_read_again(vmtouch: Run, file: Path) -> None:
    vmtouch(file, state="evicted")
    assert vmtouch(file, state="queried")["resident"] == 0
    touched = vmtouch(file.parent / "*.sst", state="touched")
    assert touched["changed"] and touched["reasons"] == [f"{PAGES} of {PAGES} pages are not resident"]
    assert (touched["resident_before"], touched["resident"], touched["pages"], touched["files"], touched["size"]) == (0, PAGES, PAGES, 1, SIZE)
    assert not vmtouch(file, state="touched")["changed"]


def test_check_mode_reads_nothing_and_the_difference_is_in_pages(vmtouch: Run, file: Path) -> None:
    vmtouch(file, state="evicted")
    would = vmtouch(file, state="touched", check=True, diff=True)
    assert would["changed"] and would["diff"] == {"before": {"resident": 0}, "after": {"resident": PAGES}}
    assert vmtouch(file, state="queried")["resident"] == 0


def test_a_directory_means_each_file_below_it_once(vmtouch: Run, file: Path) -> None:
    (file.parent / "omap").mkdir()
    (file.parent / "omap" / "again.sst").hardlink_to(file)
    (file.parent / "omap" / "away").symlink_to("/bin")
    (file.parent / "omap" / "CURRENT").write_text("MANIFEST")
    assert vmtouch(file.parent, state="queried")["files"] == 2


def test_a_device_that_nobody_has_open_cannot_be_touched(vmtouch: Run, device: str) -> None:
    with pytest.raises(Exception, match=f"the pages of {device} were thrown away again, since nobody has it open: use state=locked"):
        vmtouch(device)


def test_a_device_that_somebody_has_open_keeps_its_pages(vmtouch: Run, device: str) -> None:
    with open(device, "rb"):
        assert whole(vmtouch, device)["resident"] == PAGES
        assert vmtouch(device, state="evicted")["resident"] == 0
        assert whole(vmtouch, device)["resident"] == PAGES
    assert vmtouch(device, state="queried")["resident"] == 0


def test_more_than_the_limit_is_refused_before_anything_is_read(vmtouch: Run, file: Path) -> None:
    vmtouch(file, state="evicted")
    with pytest.raises(Exception, match="what is to be in memory is 256 KiB, more than the limit of 128 KiB: raise the limit, or name less"):
        vmtouch(file, limit="128K")
    assert vmtouch(file, state="queried")["resident"] == 0


def test_more_than_the_memory_that_is_available_is_refused(vmtouch: Run, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ansible_collections.livefleet.handover.plugins.module_utils._core import memory

    monkeypatch.setattr(memory, "memory_available", lambda: 2**20)
    assert vmtouch(file, reserve="768K")["pages"] == PAGES
    refused = "is 256 KiB, and this host has 1 MiB of memory available, of which 769 KiB are to stay free: free memory, or name less"
    with pytest.raises(Exception, match=refused):
        vmtouch(file, reserve="769K")


def test_a_pattern_may_match_nothing_and_a_path_may_not(vmtouch: Run, host: Path) -> None:
    assert vmtouch(host / "*.ldb") | {"seconds": 0, "diff": 0, "warnings": 0} == {
        "changed": False, "reasons": [], "files": 0, "size": 0, "pages": 0, "resident_before": 0, "resident": 0, "seconds": 0, "diff": 0, "warnings": 0,
        "invocation": {"module_args": {"paths": [f"{host}/*.ldb"], "reserve": "0", "state": "touched", "name": None, "seconds": 3600, "limit": None,
                                       "timeout": 600}},
    }  # fmt: skip
    with pytest.raises(Exception, match="/none does not exist on this host: name files, directories or block devices that are there, or a pattern"):
        vmtouch(host / "none")
