# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""bind_mounts_info looks at real files, and asks podman for the other users of each path."""

from __future__ import annotations

import json

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import Completed, HandoverError, Runtime
from ansible_collections.livefleet.handover.plugins.module_utils._docker import recorded
from ansible_collections.livefleet.handover.plugins.module_utils._drivers import containers
from ansible_collections.livefleet.handover.plugins.modules import bind_mounts_info


@pytest.fixture(name="podman")
def a_podman(monkeypatch):
    """Containers by name, each with the sources of its bind mounts."""
    containers = {}
    state = {"there": True, "docker": False, "started": "", "dead": False, "containers": containers}

    def run(_self, argv, accept=(0,), stdin=None, timeout=None):
        if state["dead"]:
            raise HandoverError("podman ps failed: cannot connect")
        if argv[0] == "systemctl":
            return Completed(tuple(argv), 0, state["started"], "")
        if argv[1] == "ps":
            out = [{"Id": "id-" + name, "Names": [name]} for name in containers]
        else:
            named = [word[3:] for word in argv[3:]]
            out = [{"Name": name, "Mounts": [{"Type": "bind", "Source": source} for source in containers[name]]} for name in named]
        return Completed(tuple(argv), 0, json.dumps(out), "")

    monkeypatch.setattr(Runtime, "run", run)
    monkeypatch.setattr(Runtime, "find", lambda self, tool: f"/usr/bin/{tool}" if state["docker" if tool == "dockerd" else "there"] else None)
    return state


@pytest.fixture(name="ask")
def the_module(run_module, podman):
    def ask(paths, digest=(), check=False):
        asked = {"workload": "shop", "paths": [str(path) for path in paths], "digest": [str(path) for path in digest]}
        answer = run_module(bind_mounts_info.main, asked, check=check)
        assert not answer["changed"]
        return answer["paths"]

    return ask


@pytest.fixture(name="site")
def a_folder(tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").write_text("hello")
    return tmp_path / "site"


@pytest.mark.parametrize("check", [False, True])
def test_a_folder_a_file_and_a_path_that_is_not_there(ask, site, check):
    gone = site.parent / "gone" / "deeper"
    found = ask([site, site / "index.html", gone], check=check)
    folder, file, missing = (found[str(path)] for path in (site, site / "index.html", gone))
    assert (folder["kind"], folder["empty"], folder["missing"], folder["kept"]) == ("directory", False, [], False)
    assert (file["kind"], file["empty"]) == ("file", False)
    assert (missing["kind"], missing["missing"], missing["inside"]) == ("", [str(gone), str(gone.parent)], "directory")


def test_a_link_is_looked_at_where_it_leads(ask, site):
    (site.parent / "link").symlink_to(site)
    assert ask([site.parent / "link"])[str(site.parent / "link")]["real"] == str(site)


def test_what_an_earlier_move_has_put_aside_is_seen(ask, site):
    site.rename(str(site) + ".migrated")
    assert ask([site])[str(site)]["kept"]


def test_a_digest_is_made_where_it_is_asked_for_and_tells_two_contents_apart(ask, site):
    other = site.parent / "other"
    other.mkdir()
    (other / "index.html").write_text("hello")
    found = ask([site, other, site.parent], digest=[site, other])
    assert found[str(site)]["digest"] == found[str(other)]["digest"] != ""
    assert found[str(site.parent)]["digest"] == ""
    (other / "index.html").write_text("world")
    assert ask([other], digest=[other])[str(other)]["digest"] != found[str(site)]["digest"]


def test_other_containers_that_meet_the_path_are_named_and_the_workload_is_not(ask, podman, site):
    podman["containers"].update(shop=[str(site)], above=[str(site.parent)], inside=[str(site / "index.html")], beside=[str(site) + "2"])
    assert ask([site])[str(site)]["users"] == ["above", "inside"]


def test_a_host_without_podman_has_no_users(ask, podman, site):
    podman["there"] = False
    assert ask([site])[str(site)]["users"] == []


def test_a_podman_that_does_not_answer_fails_it(ask, podman, site):
    podman["dead"] = True
    with pytest.raises(Exception, match="podman ps failed: cannot connect"):
        ask([site])


def test_containers_of_dockers_share_a_path_too(run_module, podman, site, monkeypatch):
    listed = [{"Id": name, "Names": ["/" + name], "Mounts": [{"Type": "bind", "Source": str(site)}]} for name in ("shop", "web")]
    monkeypatch.setattr(containers, "SOCKET", str(site))
    monkeypatch.setattr(containers.Docker, "containers", lambda self: listed)
    podman["containers"]["shop"] = [str(site)]
    asked = {"workload": "shop", "paths": [str(site)]}
    assert run_module(bind_mounts_info.main, {**asked, "driver": "docker"})["paths"][str(site)]["users"] == ["shop", "web"]
    # Its own name is another engine's; and no question is put to Docker for podman's, since it would start the daemon.
    assert run_module(bind_mounts_info.main, asked)["paths"][str(site)]["users"] == []


@pytest.fixture(name="records")
def dockers_records(podman, monkeypatch, tmp_path):
    """Makes the record of a container in a data root; Docker is installed, and its daemon is down."""
    monkeypatch.setattr(containers.Docker, "containers", lambda self: pytest.fail("the daemon was asked"))
    monkeypatch.setattr(recorded, "SETTINGS", str(tmp_path / "daemon.json"))
    monkeypatch.setattr(recorded, "DATA_ROOT", str(tmp_path / "docker"))
    monkeypatch.setattr(recorded, "SNAP_ROOT", str(tmp_path / "snap"))
    podman["docker"] = True

    def record(name, source, root="docker"):
        place = tmp_path / root / "containers" / name
        place.mkdir(parents=True)
        mount = {"Source": str(source), "Destination": "/site", "RW": True, "Type": "bind", "Propagation": "rprivate"}
        (place / "config.v2.json").write_text(json.dumps({"ID": name, "Name": "/" + name, "MountPoints": {"/site": mount}}))
        return place / "config.v2.json"

    return record


def test_dockers_records_tell_who_shares_a_path_with_podmans(ask, podman, site, records):
    records("web", site)
    records("other", str(site) + "2")
    podman["containers"]["shop"] = [str(site)]
    assert ask([site])[str(site)]["users"] == ["web"]
    podman["docker"] = False  # its packages were removed, and nothing starts them
    assert ask([site])[str(site)]["users"] == []


@pytest.mark.parametrize("named", ["settings", "--data-root=", "--data-root ", "-g "])
def test_docker_keeps_its_records_elsewhere(ask, podman, site, records, tmp_path, named):
    elsewhere = tmp_path / "elsewhere"
    records("web", site, "elsewhere")
    if named == "settings":
        (tmp_path / "daemon.json").write_text(json.dumps({"data-root": str(elsewhere)}))
    else:
        podman["started"] = f"{{ path=/usr/sbin/dockerd ; argv[]=/usr/sbin/dockerd {named}{elsewhere} -H fd:// ; ignore_errors=no }}\n"
    assert ask([site])[str(site)]["users"] == ["web"]


def test_dockers_snap_has_records_of_its_own(ask, podman, site, records):
    podman["docker"] = False
    records("web", site, "snap")
    assert ask([site])[str(site)]["users"] == ["web"]


@pytest.mark.parametrize("content", ["{", "[]"])
def test_a_record_that_cannot_be_read_fails_it(ask, site, records, content):
    records("web", site).write_text(content)
    with pytest.raises(Exception, match=r"not known which paths Docker's containers mount.*config.v2.json.*mend it, or remove Docker"):
        ask([site])


def test_a_path_that_another_container_names_by_a_link_is_the_same(ask, podman, site):
    (site.parent / "link").symlink_to(site)
    podman["containers"].update(linked=[str(site.parent / "link")])
    assert ask([site])[str(site)]["users"] == ["linked"]
