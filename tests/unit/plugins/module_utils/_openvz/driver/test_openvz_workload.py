# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""openvz_workload and the look of workload_info on a host in a folder."""

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import Runtime
from ansible_collections.livefleet.handover.plugins.module_utils._openvz.driver import facts, gate, look, workload
from ansible_collections.livefleet.handover.plugins.modules import openvz_workload


@pytest.fixture
def host(openvz_host, monkeypatch):
    monkeypatch.setenv("PATH", f"{openvz_host.root}/bin:/usr/bin:/bin:/usr/sbin:/sbin")
    monkeypatch.setattr(look, "SCRIPT", openvz_host.moved(look.SCRIPT))
    monkeypatch.setattr(
        facts, "USUAL", {name: host_path if name.startswith("VE_") else openvz_host.moved(host_path) for name, host_path in facts.USUAL.items()}
    )
    for module, name in ((look, "FOLDER"), (look, "DEFAULTS"), (workload, "FOLDER"), (workload, "DEFAULTS"), (workload, "NAMES"), (workload, "STAGED")):
        monkeypatch.setattr(module, name, openvz_host.moved(getattr(module, name)))
    for name in ("SCRIPT", "OWN", "TURN"):
        monkeypatch.setattr(gate, name, openvz_host.moved(getattr(gate, name)))
    return openvz_host


@pytest.fixture
def seen(host, run_module):
    """The look at a container of this host."""

    def see(word="101"):
        found = []

        class Module:
            params = {"timeout": 30}

        def main():
            from ansible.module_utils.basic import AnsibleModule

            module = AnsibleModule({"name": {"type": "str"}})
            asked = look.Look(Runtime(module, 30), word)
            found.append((*asked.whole(), asked.brief(), asked.problems))
            module.exit_json()

        run_module(main, {"name": word})
        return found[0]

    return see


@pytest.fixture
def call(run_module):
    def run(check=False, **params):
        try:
            return run_module(openvz_workload.main, {"name": "101", **params}, check=check)
        except Exception as failed:
            return failed.result

    return run


def on_source(host, seen, *scripts):
    """What workload_info says on the source, whose container then is on this host no more."""
    host.have(*scripts)
    found = seen()[0]
    for path in [*host.conf.glob("101.*")]:
        path.unlink()
    host.call("rm", "-r", host.root / "vz")
    return found


def test_a_container_and_its_host(host, seen):
    private = host.have("101.mount")
    facts, offer, brief, problems = seen()
    assert problems == [] and brief["state"] == facts["state"] == "stopped" and brief["exists"] and not brief["running"]
    assert (facts["id"], facts["title"], facts["layout"], facts["private"]) == ("101", "shop", "simfs", str(private))
    assert facts["fstype"] and not facts["linked"] and facts["unaccounted"] == [] and list(facts["scripts"]) == ["101.mount"]
    assert facts["mounts"][0]["directory_volume"]["path"] == str(private) and facts["size"] > 0
    assert offer["installed"] and offer["version"] == [4, 11, 1] and offer["store"]["path"] == str(private) and offer["private_exists"]
    assert offer["lock"] == "" and offer["containers"] == offer["taken"] == []


def test_the_session_is_told_of_a_ploop_disk(host, seen):
    private = host.have()
    assert "ploop" not in seen()[0]["mounts"][0]["directory_volume"]
    (private / "etc/hostname").unlink()
    (private / "etc").rmdir()
    (private / "root.hdd").mkdir()
    (private / "root.hdd" / "DiskDescriptor.xml").write_text("<Parallels_disk_image/>", encoding="utf-8")
    found = seen()[0]
    assert found["layout"] == "ploop" and found["mounts"][0]["directory_volume"]["ploop"] == "root.hdd" and found["root"] == f"{host.root}/vz/root/101"


@pytest.mark.parametrize("content", [b'NAME="\xe9"\n', b'NAME="a"\r\n'])
def test_a_file_that_would_not_be_the_same_is_named(host, seen, content):
    host.have("101.mount")
    assert seen()[0]["unreadable"] == []
    (host.conf / "101.mount").write_bytes(content)
    assert seen()[0]["unreadable"] == ["101.mount"]


def test_the_others_of_a_host(host, seen):
    host.have()
    (host.conf / "7.conf").write_text('NAME="bank"\nIP_ADDRESS="192.0.2.7/24"\n', encoding="utf-8")
    (host.conf / "ve-basic.conf-sample").write_text('IP_ADDRESS="192.0.2.8"\n', encoding="utf-8")
    facts, offer, brief, _problems = seen("102")
    assert not facts["exists"] and not brief["exists"] and not offer["private_exists"]
    assert {each["id"]: each["name"] for each in offer["containers"]} == {"101": "shop", "7": "bank"}
    assert offer["taken"] == [{"address": "192.0.2.7", "container": "7"}]


def test_a_lock_is_one_while_its_process_lives(host, seen, tmp_path):
    host.have()
    (host.root / "etc/vz/vz.conf").open("a", encoding="utf-8").write(f"LOCKDIR={tmp_path}\n")
    (tmp_path / "101.lck").write_text("1\n", encoding="utf-8")
    assert seen()[1]["lock"] == "1"
    (tmp_path / "101.lck").write_text("999999999\n", encoding="utf-8")
    assert seen()[1]["lock"] == ""


def test_a_dump_that_would_be_left_behind_is_seen(host, seen, tmp_path):
    host.have()
    (host.root / "etc/vz/vz.conf").open("a", encoding="utf-8").write(f"DUMPDIR={tmp_path}\n")
    (tmp_path / "Dump.101").write_text("memory", encoding="utf-8")
    assert seen()[0]["dump"] == str(tmp_path / "Dump.101")


def test_a_twin_is_laid_ready_and_is_no_container(host, seen, call):
    source = on_source(host, seen, "101.mount")
    assert call(check=True, state="prepared", source=source)["changed"] and not host.staged.exists()
    done = call(state="prepared", source=source)
    assert done["reasons"] == [f"{host.root}/vz/private/101 is not there", "there is no container 101 that waits for its start"]
    assert done["workload"]["bundle"] == "/run/handover/openvz/101"
    assert done["workload"]["mounts"][0]["source"] == f"{host.root}/vz/private/101"
    assert host.status() == "CTID 101 deleted unmounted down" and not (host.conf / "101.mount").exists()
    assert not call(state="prepared", source=source)["changed"]
    # The files come, and it starts.
    for folder in ("etc", "var/log"):
        (host.root / "vz/private/101" / folder).mkdir(parents=True)
    assert call(state="started")["changed"] and host.status() == "CTID 101 exist mounted running"
    assert not call(state="started")["changed"]
    assert "101 is running on this host, so it is not removed" in call(state="absent", volumes=["private"])["msg"]
    host.turn("stop", "101", "")
    assert call(state="absent", volumes=["private"])["changed"]
    assert host.status() == "CTID 101 deleted unmounted down" and not (host.root / "vz/private/101").exists()
    assert not list((host.root / "etc/vz/names").iterdir())


def test_a_move_that_is_taken_back_leaves_nothing(host, seen, call):
    source = on_source(host, seen, "101.mount")
    call(state="prepared", source=source)
    (host.root / "vz/private/101/etc").mkdir()
    assert call(state="absent", volumes=["private"])["reasons"] == ["101 was laid ready for a move"]
    assert not (host.root / "vz/private/101").exists() and not (host.staged / "101").exists()
    assert not call(state="absent", volumes=["private"])["changed"]


@pytest.mark.parametrize("made", ["vz/private/101", "etc/vz/conf/101.conf"])
def test_what_somebody_else_has_made_is_neither_taken_nor_removed(host, seen, call, made):
    source = on_source(host, seen)
    path = host.root / made
    if path.suffix:
        path.write_text('NAME="other"\n', encoding="utf-8")
    else:
        (path / "etc").mkdir(parents=True)
    assert "and was not when the move was planned" in call(state="prepared", source=source)["msg"]
    # The undo of such a move asks for its removal.
    done = call(state="absent", volumes=["private"])
    assert path.exists() and ("no move has stopped it here" in done["msg"] if path.suffix else not done["changed"])


def test_the_source_s_files_stay_if_that_is_asked_for(host, call):
    private = host.have("101.mount")
    host.turn("stopped", "101")
    assert call(state="absent")["changed"] and not (host.staged / "101.left").exists()
    assert private.is_dir() and host.status() == "CTID 101 deleted unmounted down"
    assert sorted(path.name for path in host.conf.iterdir()) == ["101.conf.migrated", "101.mount.migrated", "vps.premount"]


def test_one_that_has_come_home_is_not_removed(host, call):
    private = host.have()
    host.turn("stopped", "101")
    host.turn("stays", "101")
    assert "no move has stopped it here" in call(state="absent", volumes=["private"])["msg"] and private.is_dir()


def test_a_container_that_was_not_destroyed_is_told(host, call):
    host.have()
    host.turn("stopped", "101")
    (host.state / "FAULT").write_text("destroy", encoding="utf-8")
    assert "`vzctl destroy 101` has ended, and 101 is still on this host" in call(state="absent", volumes=["private"])["msg"]


def test_a_note_of_which_nothing_was_written_is_none(host, seen, call):
    source = on_source(host, seen)
    (host.staged / "101" / "conf").mkdir(parents=True)
    assert call(state="prepared", source=source)["changed"]


def test_one_of_libvzctl_s_is_laid_ready_as_its_place_alone(host, newer_area, seen, call):
    (newer_area / ".owner").write_text("node2", encoding="utf-8")
    host.call(host.root / "bin" / "vzctl", "register", newer_area, "101")
    source, offer = seen()[:2]
    assert source["newer"] and source["inside"] and source["unreadable"] == [] and offer["version"] == [7, 0, 280]
    # The source's copy goes, and the files come from elsewhere.
    host.call("cp", "-a", newer_area, host.root / "came")
    (host.staged).mkdir()
    (host.staged / "101.left").write_text("", encoding="utf-8")
    assert call(state="absent")["changed"] and newer_area.is_dir() and host.status() == "VEID 101 deleted unmounted down"
    host.call("rm", "-r", newer_area)
    assert call(state="prepared", source=source)["changed"] and not list((host.staged / "101" / "conf").iterdir())
    assert not call(state="prepared", source=source)["changed"]
    host.call("cp", "-aT", host.root / "came", newer_area)
    assert call(state="started")["changed"] and host.status() == "VEID 101 exist mounted running"
    host.turn("stop", "101", "")
    assert call(state="absent", volumes=["private"])["changed"]
    assert host.status() == "VEID 101 deleted unmounted down" and not newer_area.exists()


def test_a_directory_container_of_libvzctl_s_is_seen_with_its_scripts(host, newer_area, seen):
    for folder in ("fs", "scripts"):
        (newer_area / folder).mkdir()
    (newer_area / "etc").rename(newer_area / "fs/etc")
    (newer_area / "scripts/start").write_text("#!/bin/sh\n", encoding="utf-8")
    (newer_area / ".owner").write_text("node2", encoding="utf-8")
    defaults = host.root / "etc/vz/vz.conf"
    defaults.write_text(defaults.read_text(encoding="utf-8") + 'RESTORE_EXTRA_OPT="--no-default-config"\n', encoding="utf-8")
    host.call(host.root / "bin" / "vzctl", "register", newer_area, "101")
    source, offer, _brief, problems = seen()
    assert (source["layout"], source["own_scripts"], source["newer"], problems) == ("directory", ["scripts.start"], True, [])
    assert (offer["way"], offer["restore_options"]) == ("libvzctl", "--no-default-config")


def test_a_virtual_machine_is_told_from_nothing(host, seen):
    (host.state / "MACHINES").write_text("vm1", encoding="utf-8")
    assert seen("vm1")[0]["machine"] and not seen("vm2")[0]["machine"]


def test_the_twin_of_a_live_move_has_a_place_for_its_dump(host, seen, call):
    source = on_source(host, seen)
    done = call(state="prepared", source=source, planned={"dump": True})
    dump = host.root / "dump" / "handover.101"
    assert done["workload"]["dump"] == str(dump) and dump.is_dir() and (host.staged / "101" / "dump").read_text(encoding="utf-8") == f"{dump}\n"
    assert call(state="absent", volumes=["private"])["changed"] and not dump.exists() and not (host.staged / "101").exists()


def test_one_that_a_move_holds_is_seen_and_ended(host, seen, call):
    host.have()
    host.turn("home", "101")
    dump = host.root / "dump" / "handover.101"
    assert seen()[2]["state"] == "running"
    host.turn("suspend", "101", dump)
    facts, _offer, brief, _problems = seen()
    assert facts["state"] == brief["state"] == "paused" and not facts["running"] and not brief["running"]
    # Its session has settled, and could not end it here.
    assert call(check=True, state="absent", volumes=["private"])["changed"] and host.status() == "CTID 101 exist mounted running"
    assert "101 is held for a move" in call(state="absent", volumes=["private"])["reasons"]
    assert host.status() == "CTID 101 deleted unmounted down" and not dump.exists()
