# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import subprocess
import sys
import types
import zipfile

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import backup_log, runtime, sent_code
from ansible_collections.livefleet.handover.plugins.module_utils._drivers.copies import backup_run, backup_scheduler
from ansible_collections.livefleet.handover.plugins.module_utils._kvm.guests import DAEMONS
from ansible_collections.livefleet.handover.plugins.module_utils._podman.backup_units import backup_units
from ansible_collections.livefleet.handover.plugins.module_utils._podman.copies import backup_taker, engine
from ansible_collections.livefleet.handover.plugins.modules import backup_schedule


class Systemd:
    """The host's systemd, as far as a timer goes."""

    def __init__(self):
        self.said = []
        self.runs = False

    def run(self, argv, accept=(0,), stdin=None, timeout=None):
        tool, *words = argv
        self.said.append(" ".join(words))
        if tool.endswith("systemd-analyze"):
            return self._answer(argv, "never on monday" in words[-1], "Failed to parse calendar specification")
        if words[0] in ("enable", "restart"):
            self.runs = True
        elif words[0] == "disable":
            self.runs = False
        elif words[0] == "list-timers":
            return self._answer(argv, False, '[{"next": 1795746730000000}]')
        elif words[0].startswith("is-"):
            return self._answer(argv, not self.runs, {True: {"is-enabled": "enabled", "is-active": "active"}[words[0]], False: "no"}[self.runs])
        return self._answer(argv, False, "")

    def _answer(self, argv, failed, text):
        return runtime.Completed(tuple(argv), int(failed), text, "")


@pytest.fixture
def host(monkeypatch, tmp_path):
    systemd = Systemd()
    sent = tmp_path / "sent.zip"
    with zipfile.ZipFile(sent, "w") as archive:
        archive.writestr("of_the_module.py", "def main(words): print('ran', *words); return 3")
        archive.writestr("sitecustomize.py", "raise SystemExit('the folder of the run is gone')")
    monkeypatch.setattr(runtime.Runtime, "run", lambda self, argv, accept=(0,), stdin=None, timeout=None: systemd.run(argv, accept, stdin, timeout))
    monkeypatch.setattr(runtime.Runtime, "find", lambda self, tool: None if tool in DAEMONS else "/usr/bin/" + tool)
    monkeypatch.setattr(backup_scheduler, "sent_archive", lambda: str(sent))
    monkeypatch.setattr(backup_scheduler, "UNIT_DIRECTORY", str(tmp_path / "units"))
    monkeypatch.setattr(backup_scheduler, "SETTINGS", str(tmp_path / "schedule"))
    monkeypatch.setattr(backup_scheduler, "PROGRAM", str(tmp_path / "libexec/backup.pyz"))
    monkeypatch.setattr(backup_log, "FOLDER", str(tmp_path / "last"))
    monkeypatch.setattr(backup_taker.BackupTaker, "run", lambda self: systemd.said.append("looked, check mode {0}".format(self.module.check_mode)))
    systemd.root = tmp_path
    return systemd


WANTED = {"workload": "shop", "repository": "/srv/backups", "calendar": "daily", "keep": {"daily": 7}}


def test_the_timer_is_set_up_once_and_taken_away(host, run_module):
    first = run_module(backup_schedule.main, WANTED)
    assert (first["changed"], first["here"], first["next"]) == (True, True, "2026-11-27T02:32:10Z")
    assert host.said[:2] == ["calendar -- daily", "looked, check mode True"]
    assert [said for said in host.said if "restart" in said] == ["restart handover-backup-shop.timer"]
    settings = json.loads((host.root / "schedule/shop.json").read_text())
    assert (settings["options"]["keep"]["daily"], settings["options"]["hook_timeout"], "name" in settings["options"]) == (7, 60, False)
    assert (host.root / "schedule/shop.json").stat().st_mode & 0o777 == 0o600, "a command of it may have a password"
    again = run_module(backup_schedule.main, WANTED)
    assert (again["changed"], again["reasons"]) == (False, [])
    other = run_module(backup_schedule.main, {**WANTED, "calendar": "hourly"})
    assert other["reasons"] == ["{0}/units/handover-backup-shop.timer was another".format(host.root)]
    gone = run_module(backup_schedule.main, {"workload": "shop", "state": "absent"})
    assert (gone["changed"], gone["here"], list((host.root / "units").iterdir()), list((host.root / "schedule").iterdir())) == (True, False, [], [])
    assert not (host.root / "libexec/backup.pyz").exists()
    assert run_module(backup_schedule.main, {"workload": "shop", "state": "absent"})["changed"] is False


def test_a_repository_on_another_host_is_no_folder_to_wait_for(host, run_module):
    run_module(backup_schedule.main, {**WANTED, "repository": "backup1:/srv/backups"})
    assert "RequiresMountsFor" not in (host.root / "units/handover-backup-shop.service").read_text()


def test_check_mode_sets_up_nothing(host, run_module):
    result = run_module(backup_schedule.main, WANTED, check=True)
    assert (result["changed"], result["next"]) == (True, "")
    assert not (host.root / "units").exists() and "enable handover-backup-shop.timer" not in host.said


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"calendar": "never on monday"}, "is no time that systemd understands"),
        ({"calendar": None}, "repository and calendar are needed"),
        ({"repository": "backups"}, "is no full path"),
        ({"workload": "../shop"}, "workload"),
    ],
)
def test_refusals_come_before_anything_is_written(host, run_module, given, text):
    with pytest.raises(Exception, match=text):
        run_module(backup_schedule.main, {**WANTED, **given})
    assert not (host.root / "units").exists()


def test_what_forbids_a_backup_forbids_its_timer_but_a_container_elsewhere_does_not(host, run_module, monkeypatch):
    def refuse(error):
        def run(self):
            raise error("shop has no image volume to back up")

        monkeypatch.setattr(backup_taker.BackupTaker, "run", run)

    refuse(runtime.HandoverError)
    with pytest.raises(Exception, match="no image volume"):
        run_module(backup_schedule.main, WANTED)
    assert not (host.root / "units").exists()
    refuse(backup_taker.NotHere)
    assert run_module(backup_schedule.main, WANTED)["here"] is True


def test_the_program_is_the_code_that_was_sent(host, run_module):
    run_module(backup_schedule.main, WANTED)
    path = host.root / "libexec/backup.pyz"
    one = path.read_bytes()
    assert one == sent_code.program(backup_run.main.__module__, str(host.root / "sent.zip"))
    path.write_bytes(sent_code.program("of_the_module", str(host.root / "sent.zip")))
    ran = subprocess.run([sys.executable, str(path), "shop.json"], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (3, "ran shop.json\n"), ran.stderr
    with pytest.raises(runtime.HandoverError, match="run it from a playbook"):
        sent_code.sent_archive()


def test_a_repository_of_any_name_is_named_in_the_unit_as_it_is():
    units = backup_units("shop", "daily", '/srv/100% "safe"', ["/usr/bin/python3", "/p/$x"], 60)
    assert 'RequiresMountsFor="/srv/100%% \\"safe\\""' in units["handover-backup-shop.service"]
    assert 'ExecStart="/usr/bin/python3" "/p/$$x"\n' in units["handover-backup-shop.service"]
    assert '\nExecStopPost=-"/usr/bin/python3" "/p/$$x" let-run\n' in units["handover-backup-shop.service"]


TAKEN = {"id": "5a3e", "frozen_ms": 12.4, "volumes": [{"name": "pgdata", "how": "digests", "why": "the marks are lost", "stored": 2**21}]}


@pytest.fixture
def timer(monkeypatch, tmp_path):
    """Has a timer's program run, with this end of the backup."""
    monkeypatch.setattr(backup_log, "FOLDER", str(tmp_path / "last"))
    (tmp_path / "shop.json").write_text(json.dumps({"options": {"workload": "shop", "repository": "/srv/backups"}, "profile": "legacy"}))

    def run(ends):
        def taker(module):
            return types.SimpleNamespace(run=lambda: ends(module))

        monkeypatch.setattr(backup_run, "taker", taker)
        return backup_run.main([str(tmp_path / "shop.json")]), backup_log.BackupLog().last("shop")

    return run


def test_a_backup_of_a_timer_is_told_to_the_journal(timer, capsys):
    def ends(module):
        module.warn("a\nfolder is left out")
        backup_log.BackupLog().taken("shop", TAKEN)
        return {"backups": [{"workload": "shop", **TAKEN}], "verdicts": [{"workload": "shop", "keep": keep} for keep in (False, True)]}

    status, last = timer(ends)
    assert (status, last["stored"], last["pause_ms"], last["failed"]) == (0, 2**21, 12.4, None)
    assert capsys.readouterr().out.splitlines() == [
        "<4>a folder is left out",
        "<6>shop was backed up as 5a3e: pgdata by digests (the marks are lost); 2 MiB stored, paused for 12 ms; 1 older removed",
    ]


@pytest.mark.parametrize("error", [runtime.HandoverError("there is no room"), OSError(28, "No space left"), KeyError("x")])
def test_a_failure_is_the_units_and_stands_until_the_next_success(timer, capsys, error):
    def fails(module):
        raise error

    backup_log.BackupLog().taken("shop", TAKEN)
    status, last = timer(fails)
    assert (status, last["stored"], last["failed"] > 0) == (1, 2**21, True)
    assert capsys.readouterr().out.startswith("<3>shop was not backed up: ")
    backup_log.BackupLog().taken("shop", TAKEN)
    assert backup_log.BackupLog().last("shop")["failed"] is None


def test_on_a_host_without_the_container_nothing_fails(timer, capsys):
    def elsewhere(module):
        raise backup_taker.NotHere("shop is no container of this host")

    assert timer(elsewhere) == (0, {})
    assert capsys.readouterr().out == "<6>shop is not on this host, and no backup of it is taken here\n"


@pytest.mark.parametrize(
    ("result", "answer", "said"),
    [
        ("success", None, ""),
        ("timeout", True, "<4>shop was left by a backup that was killed, and runs on\n"),
        ("timeout", False, ""),
        ("timeout", "CRIU is still at work", "<3>shop may stand still: CRIU is still at work\n"),
    ],
)
def test_the_end_of_the_service_lets_a_container_run(timer, tmp_path, monkeypatch, capsys, result, answer, said):
    def left(_engine, name):
        assert name == "shop" and answer is not None
        if isinstance(answer, str):
            raise runtime.HandoverError(answer)
        return answer

    monkeypatch.setattr(engine.PodmanEngine, "let_left_run", left)
    monkeypatch.setattr(runtime.Runtime, "find", lambda self, tool: "/usr/bin/" + tool)
    monkeypatch.setenv("SERVICE_RESULT", result)
    assert backup_run.main([str(tmp_path / "shop.json"), "let-run"]) == int(isinstance(answer, str))
    assert capsys.readouterr().out == said
    monkeypatch.setattr(runtime.Runtime, "find", lambda self, tool: None)
    assert backup_run.main([str(tmp_path / "shop.json"), "let-run"]) == 0, "a host without podman has guests alone"
