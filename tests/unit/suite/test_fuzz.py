# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import importlib.machinery
import importlib.util
from pathlib import Path

import pytest

loader = importlib.machinery.SourceFileLoader("fuzz", str(Path(__file__).resolve().parents[2] / "fuzz"))
fuzz = importlib.util.module_from_spec(importlib.util.spec_from_loader("fuzz", loader))
loader.exec_module(fuzz)

WRITTEN = "    Failing input written to testdata/fuzz/FuzzRead/1\n"
RAN = "fuzz: elapsed: 30s, execs: 191642 (0/sec), new interesting: 7 (total: 56)\n"
END = "FAIL\nexit status 1\nFAIL\texample/wire\t30.110s\n"


@pytest.mark.parametrize(
    ("code", "output", "status"),
    (
        (0, RAN + "PASS\nok\n", 0),
        (1, RAN + "--- FAIL: FuzzRead (30.08s)\n    context deadline exceeded\n" + END, 0),
        (1, RAN + "--- FAIL: FuzzRead (4.08s)\n    --- FAIL: FuzzRead (0.00s)\n        read_test.go:9: wrong\n    \n" + WRITTEN + END, 1),
        (1, RAN + "--- FAIL: FuzzRead (30.08s)\n    read_test.go:9: context deadline exceeded\n" + END, 1),
        (1, RAN + "--- FAIL: FuzzRead (30.08s)\n    context deadline exceeded\n" + WRITTEN + END, 1),
        (2, "go: no such package\n", 2),
    ),
)
def test_only_what_go_does_to_itself_is_no_failure(code, output, status):
    assert fuzz.verdict(code, output) == status
