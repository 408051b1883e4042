# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""ceph_osd_boot, against a folder of units. What systemd makes of them molecule/ceph sees."""

from __future__ import annotations

import json
import subprocess
import typing as t
from pathlib import Path

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._ceph import boot as ceph_boot, object_map, osd as ceph_osd
from ansible_collections.livefleet.handover.plugins.module_utils._core import pcopy, runtime as _runtime
from ansible_collections.livefleet.handover.plugins.modules import ceph_osd_boot

Boot = t.Callable[..., dict[str, t.Any]]


class Host:
    """One with one OSD, and what is done there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "ceph-2"
        self.home.mkdir()
        self.commands: list[list[str]] = []
        self.deployed("packaged")
        self.has("bluestore")

    def deployed(self, deployment: str) -> None:
        layout = next(layout for layout in ceph_osd.LAYOUTS if layout.deployment == deployment)
        self.osd = ceph_osd.Osd(2, layout, {"id": "2", "cluster": "ceph", "fsid": "f"}, str(self.home))

    def has(self, store: str) -> None:
        (self.home / "type").write_text(store + "\n")

    def run(self, argv: list[str]) -> None:
        self.commands.append(argv)

    @property
    def unit(self) -> Path:
        return self.folder / "units" / "handover-boot-osd.2.service"

    @property
    def drop_in(self) -> Path:
        return self.folder / "units" / "ceph-osd@2.service.d" / "handover-boot.conf"

    @property
    def pieces(self) -> Path:
        return self.folder / "units" / "handover-boot-osd.2.json"

    @property
    def mark(self) -> Path:
        return self.folder / "run" / "osd.2.has-booted"


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Host:
    found = Host(tmp_path)
    monkeypatch.setattr(ceph_osd_boot, "find_osd", lambda runtime, number: found.osd)
    monkeypatch.setattr(ceph_osd.Osd, "pid", lambda self: None)
    monkeypatch.setattr(_runtime.Runtime, "run", lambda self, argv, **options: found.run(argv))
    monkeypatch.setattr(_runtime.Runtime, "find", lambda self, tool: "/usr/bin/" + tool)
    monkeypatch.setattr(pcopy.Pcopy, "check_installed", lambda self: None)
    monkeypatch.setattr(ceph_boot, "FOLDER", str(tmp_path / "run"))
    monkeypatch.setattr(ceph_boot, "UNITS", str(tmp_path / "units"))
    return found


@pytest.fixture
def boot(run_module: t.Any, host: Host) -> Boot:
    def run(state: str = "present", check: bool = False, **params: t.Any) -> dict[str, t.Any]:
        return run_module(ceph_osd_boot.main, {"osd": 2, "state": state, **params}, check=check)

    return run


def test_written_once_and_taken_away_whole(boot: Boot, host: Host) -> None:
    written = boot()
    assert written["changed"] and written["files"] == [str(host.unit), str(host.drop_in)]
    assert "ExecStartPre=-+/usr/bin/systemctl start handover-boot-osd.2.service\n" in host.drop_in.read_text()
    assert host.mark.exists()
    assert host.commands == [["/usr/bin/systemctl", "daemon-reload"]]
    assert not boot()["changed"]
    assert boot(seconds=7)["files"] == [str(host.unit), str(host.drop_in)]

    assert boot("absent")["changed"]
    # What it holds since the boot is let go of while systemd still knows it.
    assert [command[1:] for command in host.commands[-3:]] == [["stop", host.unit.name], ["daemon-reload"], ["reset-failed", host.unit.name]]
    assert not boot("absent")["changed"]
    assert not list((host.folder / "units").rglob("*")) and not host.mark.exists()


def test_without_the_helper_nothing_is_written(boot: Boot, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    runtime = t.cast(t.Any, None)
    monkeypatch.setattr(pcopy.Pcopy, "path", str(host.folder / "pcopy"))
    with pytest.raises(Exception, match="the helper .*/pcopy is missing: apply the role livefleet.handover.pcopy to this host"):
        ceph_boot.Boot(runtime, host.osd).files(30, [])


def test_a_bluestore_is_held_until_the_osd_has_its_devices_open(boot: Boot, host: Host) -> None:
    boot(seconds=7)
    text = host.unit.read_text()
    assert "Type=notify\n" in text and "RemainAfterExit=yes" in text
    assert f"cache pin --seconds=600 --ready-within-seconds=7 --read --osd {host.home} /usr/bin/ceph-bluestore-tool\n" in text
    assert f"ConditionPathExists=!{host.mark}\n" in text


def test_the_files_of_a_filestore_are_looked_for_when_the_host_boots(boot: Boot, host: Host) -> None:
    host.has("filestore")
    boot(paths=["current/omap"])
    (line,) = [line for line in host.unit.read_text().splitlines() if line.startswith("ExecStart=")]
    assert line.startswith(f"ExecStart=/usr/bin/find {host.home}/current/omap -type f -exec ")
    assert line.endswith(f"pages --read --seconds=30 --ranges={host.pieces} '{{}}' +")


def test_of_an_object_map_is_read_what_a_start_reads(boot: Boot, host: Host) -> None:
    """The logs of placement groups where they lie, the end of each table, and whole what is no such table. What comes later is not named, and read whole."""
    host.has("filestore")
    folder = host.home / "current" / "omap"
    folder.mkdir(parents=True)
    mib = 1 << 20
    other = b"_USER_0000000000000023_USER_\0key-00112233445566778899"
    log = b"_USER_0000000000000023_USER_\x000000000034.00000000000000034698"
    duplicate = b"_USER_0000000000000023_USER_\0dup_0000000034.00000000000000034698"
    with (folder / "000313.sst").open("wb") as table:
        # The one at 5 MiB begins in one piece and ends in the next.
        for offset, key in ((0, other), (2 * mib + 17, log), (3 * mib, duplicate), (5 * mib - 40, log), (6 * mib, other), (9 * mib - 100, other)):
            table.seek(offset)
            table.write(key)
    # LevelDB compresses its tables.
    (folder / "000007.ldb").write_bytes(bytes(3 * mib))
    (folder / "000014.log").write_bytes(b"w" * 100)
    (folder / "LOCK").touch()
    boot()
    size = 9 * mib - 100 + len(other)
    assert json.loads(host.pieces.read_text()) == {
        f"{folder}/000313.sst": [[2 * mib, 3 * mib], [7 * mib, size - 7 * mib]],
        f"{folder}/000007.ldb": [[0, 3 * mib]],
        f"{folder}/000014.log": [[0, 100]],
    }
    # Asked again, it looks again, and has changed nothing.
    (folder / "000007.ldb").unlink()
    assert not boot()["changed"]
    assert f"{folder}/000007.ldb" not in json.loads(host.pieces.read_text())
    boot("absent")
    assert not host.pieces.exists()


def test_a_table_that_goes_while_it_is_looked_for(boot: Boot, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.has("filestore")
    folder = host.home / "current" / "omap"
    folder.mkdir(parents=True)
    (folder / "000014.log").write_bytes(b"w")
    monkeypatch.setattr(object_map.os, "listdir", lambda path: ["000013.sst", "000014.log"])
    assert object_map.read_first(str(host.home)) == {f"{folder}/000014.log": [[0, 1]]}


def test_a_disk_that_cannot_be_read_is_said_before_the_reboot(boot: Boot, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(home: str) -> None:
        raise OSError(5, "Input/output error")

    host.has("filestore")
    monkeypatch.setattr(ceph_boot, "read_first", fail)
    with pytest.raises(Exception, match="the object map of osd.2 cannot be read: Input/output error; look at its disk before this host is rebooted"):
        boot()
    assert not host.unit.exists() and not host.pieces.exists()


def test_a_large_object_map_is_not_looked_through(boot: Boot, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.has("filestore")
    monkeypatch.setattr(ceph_boot, "object_map_size", lambda osd: ceph_boot.LOOK_LIMIT + 1)
    monkeypatch.setattr(ceph_boot, "read_first", lambda home: pytest.fail("looked"))
    boot()
    assert json.loads(host.pieces.read_text()) == {}


def test_systemd_understands_the_unit(boot: Boot, host: Host) -> None:
    for store in ("bluestore", "filestore"):
        host.has(store)
        boot()
        text = host.unit.read_text()
        # The programs need not be here.
        host.unit.write_text("".join(line if not line.startswith("ExecStart=") else "ExecStart=/bin/true '{}' +\n" for line in text.splitlines(keepends=True)))
        said = subprocess.run(["systemd-analyze", "verify", "--man=no", str(host.unit)], capture_output=True, text=True, check=False)
        assert "handover-boot" not in said.stderr, said.stderr


def test_check_mode_writes_nothing(boot: Boot, host: Host) -> None:
    assert boot(check=True)["changed"]
    assert not host.unit.exists() and not host.mark.exists() and host.commands == []


@pytest.mark.parametrize(
    ("deployment", "store", "seconds", "says"),
    [
        ("cephadm", "bluestore", 30, "runs in a container (cephadm)"),
        ("packaged", "kstore", 30, "has a store of the kind kstore"),
        ("packaged", "", 30, "its disk is not there"),
        ("packaged", "bluestore", 0, "seconds: 0 is no time"),
    ],
)
def test_what_cannot_be_is_refused(boot: Boot, host: Host, deployment: str, store: str, seconds: int, says: str) -> None:
    host.deployed(deployment)
    host.has(store)
    with pytest.raises(Exception) as refused:
        boot(seconds=seconds)
    assert says in str(refused.value)
    assert not host.unit.exists()


def test_a_full_disk_leaves_nothing(boot: Boot, host: Host) -> None:
    (host.folder / "units").mkdir()
    host.drop_in.parent.write_text("a file where the folder should be")
    with pytest.raises(Exception) as refused:
        boot()
    assert "nothing is read ahead for osd.2 at boot without it" in str(refused.value)
    assert not host.unit.exists() and not host.mark.exists()
