# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An audit that could not look passes nothing."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import subprocess
from pathlib import Path

import pytest

AUDIT = Path(__file__).resolve().parents[2] / "audit"


@pytest.fixture(scope="module")
def audit():
    loader = importlib.machinery.SourceFileLoader("handover_audit", str(AUDIT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("handover_audit", loader))
    loader.exec_module(module)
    return module


def done(status, out="", err=""):
    return subprocess.CompletedProcess([], status, out, err)


def test_govulncheck_is_understood(audit):
    assert audit.told(done(0), "there")[0] == audit.PASSED
    found, text = audit.told(done(3, "Vulnerability #1: GO-2026-1\n"), "there")
    assert (found, "GO-2026-1" in text) == (audit.FOUND, True)
    with pytest.raises(audit.NotAudited, match="no such package"):
        audit.told(done(1, err="govulncheck: no such package\n"), "there")


def test_pip_audit_is_understood(audit):
    good = {"name": "a", "version": "1", "vulns": []}
    bad = {"name": "b", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3"]}, {"id": "PYSEC-2", "fix_versions": []}]}
    unknown = {"name": "c", "skip_reason": "Dependency not found on PyPI"}
    assert audit.packages_told([good]) == (audit.PASSED, "no vulnerability in 1 packages (PyPI)")
    found, text = audit.packages_told([good, bad, unknown])
    assert found == audit.FOUND
    assert "b 2: PYSEC-1, mended in 3" in text
    assert "PYSEC-2, mended in no version yet" in text
    with pytest.raises(audit.NotAudited, match="1 of 2 packages, as c"):
        audit.packages_told([good, unknown])


def test_a_part_that_cannot_look_is_no_pass(audit, monkeypatch, capsys):
    def blind():
        raise audit.NotAudited("nothing can be reached")

    monkeypatch.setattr(audit, "audit_python", lambda: (audit.PASSED, "none"))
    monkeypatch.setattr(audit, "audit_go", blind)
    assert audit.main() == audit.UNKNOWN
    assert "go: not audited: nothing can be reached" in capsys.readouterr().out
    monkeypatch.setattr(audit, "audit_python", lambda: (audit.FOUND, "one"))
    assert audit.main() == audit.FOUND


def test_the_database_is_in_the_form_of_govulncheck(audit, tmp_path):
    entries, place = tmp_path / "osv", tmp_path / "db"
    entries.mkdir()
    for number, more in ((1, {}), (2, {"withdrawn": "2026-01-01T00:00:00Z"})):
        entry = {"id": f"GO-2026-{number}", "modified": f"2026-0{number}-01T00:00:00Z", "affected": [{"package": {"name": "stdlib"}}] * 2, **more}
        (entries / f"GO-2026-{number}.json").write_text(json.dumps(entry), encoding="utf-8")
    audit.write_database(entries, place)
    assert json.loads((place / "index" / "modules.json").read_text(encoding="utf-8")) == [
        {"path": "stdlib", "vulns": [{"id": "GO-2026-1", "modified": "2026-01-01T00:00:00Z"}]}
    ]
    assert sorted(path.name for path in (place / "ID").iterdir()) == ["GO-2026-1.json"]
    (tmp_path / "none").mkdir()
    with pytest.raises(audit.NotAudited, match="no entries"):
        audit.write_database(tmp_path / "none", tmp_path / "other")
