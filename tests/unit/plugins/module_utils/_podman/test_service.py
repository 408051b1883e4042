# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The unit of a container: what it is, what it consists of, and what keeps it from moving."""

from __future__ import annotations

import base64
import os

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import units
from ansible_collections.livefleet.handover.plugins.module_utils._podman import (
    service,
    service_files as files_of,
    service_guard as guard_of,
    service_move,
    service_pod,
)

ID = "30b517f604a0e4858a0a22563cafce96bd46de61660b9eca3c162c51d03a3570"
RUN = "/usr/bin/podman run --name shop --cidfile=/run/shop.cid --replace --rm --cgroups=split --sdnotify=conmon -d localhost/shop:1 serve --all"


def command(line):
    return "{{ path=/usr/bin/podman ; argv[]={0} ; ignore_errors=no ; pid=0 }}".format(line)


SHOWN = {
    "Id": "shop.service",
    "FragmentPath": "/run/systemd/generator/shop.service",
    "UnitFileState": "generated",
    "ActiveState": "active",
    "Slice": "system.slice",
    "Type": "notify",
    "NeedDaemonReload": "no",
    "Transient": "no",
    "ExecStart": command(RUN),
    "Requires": "sysinit.target system.slice -.mount",
}
INSPECT = {
    "Id": ID,
    "Config": {"CreateCommand": RUN.split(), "sdNotifyMode": "conmon", "Labels": {"PODMAN_SYSTEMD_UNIT": "shop.service"}},
    "HostConfig": {"AutoRemove": True},
}


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.fixture
def place(tmp_path):
    """A host's folders for quadlets and units, and a reader of them."""

    class Place:
        quadlets = (str(tmp_path / "run/quadlets"), str(tmp_path / "etc/quadlets"))
        units = (str(tmp_path / "etc/units"),)

        def quadlet(self, name, text, drop_in=""):
            path = write(tmp_path / "etc/quadlets" / name, text)
            if drop_in:
                write(tmp_path / "etc/quadlets" / (name + ".d") / "10.conf", drop_in)
            return path

        def unit(self, name, text):
            return write(tmp_path / "etc/units" / name, text)

        def read(self, **shown):
            return files_of.Reader({**SHOWN, **shown}, self.quadlets, self.units)

    return Place()


def names(reader):
    return [(os.path.basename(document["path"]), document["role"]) for document in reader.documents]


def test_the_answer_of_systemctl_is_read_with_properties_that_are_there_twice():
    assert units.parse("Type=notify\nEnvironmentFiles=/a (ignore_errors=no)\nEnvironmentFiles=/b (ignore_errors=yes)\n") == {
        "Type": "notify",
        "EnvironmentFiles": "/a (ignore_errors=no)\n/b (ignore_errors=yes)",
    }


class TestAdoption:
    @pytest.mark.parametrize(
        "shown, config, adoption",
        [
            ({}, {"sdNotifyMode": "conmon"}, "inside"),
            ({"Type": "forking", "ExecStart": command("/usr/bin/podman start shop")}, {"sdNotifyMode": "container"}, "start"),
            ({"Type": "simple", "ExecStart": command("/usr/bin/podman container start -a shop")}, {"sdNotifyMode": "container"}, "start"),
            ({"Type": "simple", "ExecStart": command("/usr/bin/podman run --rm --name start shop")}, {"sdNotifyMode": "container"}, ""),
            ({}, {"sdNotifyMode": "container"}, ""),
            ({"Type": "oneshot"}, {"sdNotifyMode": "conmon"}, ""),
        ],
    )
    def test_by_what_the_unit_does(self, shown, config, adoption):
        found, cannot = service.adoption_of({**SHOWN, **shown}, config)
        assert found == adoption and bool(cannot) == (adoption == "")

    def test_a_container_that_its_unit_makes(self):
        found = service.described(["shop.service"], SHOWN, INSPECT, "quadlet", ["data-volume.service"])
        assert {key: found[key] for key in ("made_by_unit", "cidfile", "split", "auto_remove", "active", "enabled", "id")} == {
            "made_by_unit": True, "cidfile": "/run/shop.cid", "split": True, "auto_remove": True, "active": True, "enabled": "generated", "id": ID,
        }  # fmt: skip


class TestObstacles:
    @pytest.mark.parametrize(
        "units, shown, sentence",
        [
            (["shop.service", "other.service"], {}, "is not the only unit that starts it (other.service as well)"),
            (["shop@1.service"], {}, "is an instance of a template"),
            (["shop.service"], {"NeedDaemonReload": "yes"}, "was changed since systemd read it: run `systemctl daemon-reload`"),
            (["shop.service"], {"Transient": "yes"}, "was made by systemd-run and has no file"),
            (["shop.service"], {"UnitFileState": "masked"}, "is masked: enable it or disable it"),
            (["shop.service"], {"ActiveState": "failed"}, "is failed though its container runs: start that by its unit"),
            (["shop.service"], {"TriggeredBy": "shop.timer"}, "is started by shop.timer, which would stay behind"),
            (["shop.service"], {"RequiredBy": "proxy.service multi-user.target"}, "cannot leave proxy.service, which requires it"),
            (["shop.service"], {"ConsistsOf": "worker.service"}, "cannot leave worker.service, which is a part of it"),
            (["shop.service"], {"BindsTo": "vpn.service"}, "requires vpn.service, which would stay behind"),
        ],
    )
    def test_each_in_one_sentence(self, place, units, shown, sentence):
        place.quadlet("shop.container", "[Container]\nImage=localhost/shop:1\n")
        shown = {**SHOWN, "SourcePath": place.quadlets[1] + "/shop.container", **shown}
        found = service.described(units, shown, INSPECT, "quadlet", [])
        told = list(service.obstacles(units, shown, found, True, place.read(**shown)))
        assert len(told) == 1 and told[0].startswith(sentence)

    def test_a_mount_whose_name_systemd_quotes_is_of_every_host(self, place):
        place.quadlet("shop.container", "[Container]\nImage=localhost/shop:1\n")
        quoted = r'sysinit.target "var-lib-handover-mnt-shop\\x2ddata.mount" -.mount'
        shown = {**SHOWN, "SourcePath": place.quadlets[1] + "/shop.container", "Requires": quoted, "BindsTo": '"a\\\\x2db.service"'}
        found = service.described(["shop.service"], shown, INSPECT, "quadlet", [])
        told = list(service.obstacles(["shop.service"], shown, found, True, place.read(**shown)))
        assert len(told) == 1 and told[0].startswith(r"requires a\x2db.service, which would stay behind")

    def test_none_of_an_ordinary_one(self, place):
        path = place.quadlet("shop.container", "[Container]\nImage=localhost/shop:1\nVolume=data.volume:/data\n")
        place.quadlet("data.volume", "[Volume]\n")
        shown = {**SHOWN, "SourcePath": path, "Requires": "sysinit.target data-volume.service", "WantedBy": "multi-user.target"}
        reader = place.read(**shown)
        found = service.described(["shop.service"], shown, INSPECT, reader.kind, reader.companions)
        assert [*found["cannot"], *service.obstacles(["shop.service"], shown, found, True, reader), *reader.problems] == []


POD_SHOWN = {
    **SHOWN, "Id": "front-pod.service", "Type": "forking", "PIDFile": "/run/front-pod.pid",
    "ExecStart": command("/usr/bin/podman pod start --pod-id-file=/run/front-pod.pod-id"),
    "Wants": "db.service web.service network-online.target", "BoundBy": "db.service web.service", "Requires": "sysinit.target front-network.service",
}  # fmt: skip


class TestPods:
    """A pod's quadlet with those of its members."""

    MEMBERS = [
        {"unit": name + ".service", "container": name, "in_pod": "front-pod.service", "active": name == "db", "auto_remove": name == "web"}
        for name in ("db", "web")
    ]

    def look(self, place, **shown):
        path = place.quadlet("front.pod", "[Pod]\nNetwork=front.network\n")
        place.quadlet("front.network", "[Network]\n")
        shown = {**POD_SHOWN, "SourcePath": path, **shown}
        return service_pod.described("front-pod.service", shown, place.read(**shown), self.MEMBERS, True)

    def test_its_unit_has_those_of_its_members_as_parts(self, place):
        found = self.look(place)
        assert found["cannot"] == []
        assert (found["unit"], found["kind"], found["active"], found["companions"]) == ("front-pod.service", "quadlet", True, ["front-network.service"])
        assert [os.path.basename(document["path"]) for document in found["files"]] == ["front.pod", "front.network"]
        assert [part["container"] for part in found["parts"]] == ["db", "web"]
        # One that was stopped by hand is not waited for.
        assert found["starts"] == ["front-pod.service", "db.service"]
        # So it takes over a pod that has come live.
        assert (found["adoption"], found["pid_file"], found["pod_id_file"]) == ("pod", "/run/front-pod.pid", "/run/front-pod.pod-id")
        assert found["auto_remove"], "podman would not dump the one that it removes"

    def test_members_may_need_one_another(self, place, monkeypatch):
        path = place.quadlet("web.container", "[Container]\nPod=front.pod\n")
        web = {**SHOWN, "Id": "web.service", "SourcePath": path, "Requires": "db.service", "BindsTo": "front-pod.service"}
        units = {"web.service": web, "front-pod.service": POD_SHOWN}
        monkeypatch.setattr(service, "show", lambda _runtime, unit: units[unit])
        monkeypatch.setattr(files_of, "Reader", lambda shown, reader=files_of.Reader: reader(shown, place.quadlets, place.units))
        assert service.facts(None, ["web.service"], INSPECT, True)["cannot"] == []
        web["Requires"] = "db.service vpn.service"
        (told,) = service.facts(None, ["web.service"], INSPECT, True)["cannot"]
        assert told.startswith("requires vpn.service, which would stay behind")

    @pytest.mark.parametrize(
        "shown, sentence",
        [
            ({"ActiveState": "failed"}, "is failed though members of its pod run: start them by it, with `systemctl restart front-pod.service`"),
            ({"NeedDaemonReload": "yes"}, "was changed since systemd read it"),
            ({"TriggeredBy": "front-pod.timer"}, "is started by front-pod.timer, which would stay behind"),
            ({"BoundBy": "db.service web.service job.service"}, "cannot leave job.service, which is bound to it"),
            ({"Requires": "vpn.service"}, "requires vpn.service, which would stay behind"),
            ({"Wants": "db.service"}, "does not start web.service, whose quadlet says Pod="),
        ],
    )
    def test_each_obstacle_in_one_sentence(self, place, shown, sentence):
        told = self.look(place, **shown)["cannot"]
        assert len(told) == 1 and told[0].startswith(sentence)


class TestFiles:
    def test_a_quadlet_with_all_that_it_names(self, place, tmp_path):
        variables = write(tmp_path / "shop.env", "A=1\n")
        path = place.quadlet(
            "shop.container",
            "[Container]\nVolume=data.volume:/data:Z\nNetwork=back.network:ip=192.0.2.7\nEnvironmentFile={0}\n".format(variables),
            drop_in="[Container]\nLabel=a=b\n",
        )
        place.quadlet("sub/data.volume", "[Volume]\n", drop_in="[Volume]\nLabel=x=y\n")
        place.quadlet("back.network", "[Network]\n")
        override = place.unit("shop.service.d/limits.conf", "[Service]\nMemoryMax=1G\n")
        reader = place.read(SourcePath=path, DropInPaths=override)
        assert reader.problems == [] and reader.kind == "quadlet"
        assert names(reader) == [
            ("shop.container", "unit"), ("10.conf", "drop-in"), ("shop.env", "environment"), ("back.network", "network"), ("data.volume", "volume"),
            ("limits.conf", "drop-in"),
        ]  # fmt: skip
        assert reader.companions == ["back-network.service", "data-volume.service"]

    @pytest.mark.parametrize(
        "line, sentence",
        [
            ("Image=shop.build", "has its image made by shop.build"),
            ("Volume=gone.volume:/data", "names gone.volume, and there is no such quadlet"),
            ("EnvironmentFile=./shop.env", "names ./shop.env by a path that begins at its own folder"),
            ("Mount=type=bind,source=../files,destination=/f", "names ../files by a path"),
        ],
    )
    def test_that_cannot_go_along(self, place, line, sentence):
        reader = place.read(SourcePath=place.quadlet("shop.container", "[Container]\n{0}\n".format(line)))
        assert len(reader.problems) == 1 and reader.problems[0].startswith(sentence)

    def test_a_pod_that_it_names_is_asked_about_as_a_whole(self, place):
        reader = place.read(SourcePath=place.quadlet("shop.container", "[Container]\nPod=front.pod\n"), BindsTo="front-pod.service")
        assert (reader.problems, reader.in_pod, names(reader)) == ([], "front-pod.service", [("shop.container", "unit")])
        shown = {**SHOWN, "BindsTo": "front-pod.service"}
        found = service.described(["shop.service"], shown, INSPECT, "quadlet", [])
        assert list(service.obstacles(["shop.service"], shown, found, True, reader)) == []

    def test_a_drop_in_that_other_units_have_too(self, place):
        path = place.quadlet("shop.container", "[Container]\n")
        shared = place.unit("shop-.service.d/x.conf", "[Service]\n")
        reader = place.read(SourcePath=path, DropInPaths="{0} {1}".format(shared, place.unit("service.d/all.conf", "")))
        assert [problem.split(" by ")[0] for problem in reader.problems] == ["is changed"]

    def test_what_an_unfinished_move_added_is_no_part_of_it(self, place):
        path = place.quadlet("shop.container", "[Container]\n")
        reader = place.read(SourcePath=path, DropInPaths=place.unit("shop.service.d/" + guard_of.GUARD, "[Service]\n"))
        assert names(reader) == [("shop.container", "unit")]

    def test_a_unit_that_some_generator_made(self, place):
        reader = place.read(SourcePath="/etc/init.d/shop")
        assert reader.problems == ["comes from /etc/init.d/shop, which is neither a quadlet of root's nor a unit's file: write one of these"]

    def test_a_unit_knows_its_container_by_the_id_of_this_host(self, place):
        path = place.unit("container-shop.service", "[Service]\nPIDFile=/run/overlay-containers/{0}/conmon.pid\n".format(ID))
        (document,) = place.read(Id="container-shop.service", FragmentPath=path, SourcePath="").documents
        assert files_of.content_of(document, ID, "f" * 64) == b"[Service]\nPIDFile=/run/overlay-containers/" + b"f" * 64 + b"/conmon.pid\n"

    def test_other_contents_on_the_destination_are_found_and_equal_ones_are_none(self, tmp_path):
        path = write(tmp_path / "data.volume", "[Volume]\n")
        document = {"path": path, "role": "volume", "mode": "0644", "content": base64.b64encode(b"[Volume]\n").decode()}
        assert files_of.differing([document], ID, ID) == [] and not files_of.write(document, path, ID, ID)
        write(tmp_path / "data.volume", "[Volume]\nLabel=a\n")
        assert files_of.differing([document], ID, ID) == [path]

    def test_a_volume_that_another_quadlet_names_stays_and_so_does_a_network(self, place):
        path = place.quadlet("shop.container", "[Container]\nVolume=data.volume:/data\nVolume=own.volume:/own\nNetwork=back.network\n")
        for name in ("data.volume", "own.volume", "back.network"):
            place.quadlet(name, "[X]\n")
        place.quadlet("other.container", "[Container]\nVolume=data.volume:/data\n")
        paths = files_of.to_put_aside(place.read(SourcePath=path).documents, place.quadlets)
        assert sorted(os.path.basename(each) for each in paths) == ["own.volume", "shop.container"]
        files_of.put_aside(paths)
        assert sorted(os.listdir(place.quadlets[1])) == ["back.network", "data.volume", "other.container", "own.volume.migrated", "shop.container.migrated"]

    @pytest.mark.parametrize("before, stays", [(ID, False), ("0" * 64, False), ("another", True)])
    def test_a_file_that_was_put_aside_goes_when_it_comes_back_with_whatever_id_the_container_had(self, tmp_path, before, stays):
        path = str(tmp_path / "shop.service")
        put_aside = write(tmp_path / "shop.service.migrated", f"[Service]\nPIDFile=/run/{before}/conmon.pid\n")
        content = base64.b64encode(b"[Service]\nPIDFile=/run/" + ID.encode() + b"/conmon.pid\n").decode()
        files_of.forget_aside([{"path": path, "role": "unit", "mode": "0644", "content": content}, {"path": "/never", "role": "unit", "content": ""}])
        assert os.path.exists(put_aside) is stays

    @pytest.mark.parametrize(
        "path, kind, until",
        [
            ("/etc/containers/systemd/shop.container", "quadlet", "/run/containers/systemd/shop.container"),
            ("/usr/share/containers/systemd/sub/data.volume", "quadlet", "/run/containers/systemd/data.volume"),
            ("/etc/containers/systemd/shop.container.d/10.conf", "quadlet", "/run/containers/systemd/shop.container.d/10.conf"),
            ("/etc/systemd/system/shop.service.d/10.conf", "quadlet", "/run/systemd/system/shop.service.d/10.conf"),
            ("/etc/systemd/system/container-shop.service", "unit", "/run/systemd/system/container-shop.service"),
        ],
    )
    def test_until_it_has_settled_all_is_where_a_boot_takes_it_away(self, path, kind, until):
        assert files_of.place_until_settled(path, kind) == until


class TestGuard:
    """What keeps the unit from starting the container on the other host, or twice."""

    @pytest.fixture(autouse=True)
    def _folders(self, tmp_path, monkeypatch):
        monkeypatch.setattr(guard_of, "LASTING", str(tmp_path / "etc"))
        monkeypatch.setattr(guard_of, "PASSING", str(tmp_path / "run"))

    def test_the_sources_outlives_a_boot_and_asks_the_session(self, tmp_path):
        texts = guard_of.additions("shop.service", "source", "/var/lib/handover/sessions/shop-1", live=True)
        lasting = texts[str(tmp_path / "etc/shop.service.d" / guard_of.GUARD)]
        assert "ExecCondition=/usr/local/libexec/handover/pcopy internal unit-may-start source /var/lib/handover/sessions/shop-1\n" in lasting
        passing = texts[str(tmp_path / "run/shop.service.d" / guard_of.HOLD)]
        for line in ("Restart=no", "ExecStop=", "ExecStopPost=", "KillMode=none", "RefuseManualStart=yes", "RefuseManualStop=yes"):
            assert line + "\n" in passing

    def test_offline_the_unit_stops_the_container_and_does_not_start_it_again(self, tmp_path):
        passing = guard_of.additions("shop.service", "source", "/s", live=False)[str(tmp_path / "run/shop.service.d" / guard_of.HOLD)]
        assert "Restart=no\n" in passing and "ExecStop" not in passing and "Refuse" not in passing

    def test_on_the_destination_nothing_outlives_a_boot(self, tmp_path):
        texts = guard_of.additions("shop.service", "destination", "/s", live=False, made=["/etc/shop.env"])
        assert list(texts) == [str(tmp_path / "run/shop.service.d" / guard_of.GUARD)]
        assert guard_of.add(texts) and not guard_of.add(texts)
        assert guard_of.made_for("shop.service") == ["/etc/shop.env"]

    def test_a_stand_in_has_no_command_of_the_units(self):
        text = guard_of.stand_in("shop.service", "shops.slice", "/usr/bin/sleep")
        assert text.count("Exec") == 1 and "ExecStart=/usr/bin/sleep infinity\n" in text and "Slice=shops.slice\n" in text
        assert "Restart=no\n" in text and "[Install]" not in text and "TimeoutStartSec=infinity\n" in text

    def test_a_unit_of_the_users_own_is_no_stand_in(self, tmp_path):
        write(tmp_path / "run/shop.service", "[Service]\n")
        assert guard_of.added("shop.service") == []
        write(tmp_path / "run/shop.service", guard_of.stand_in("shop.service", "system.slice", "/usr/bin/sleep"))
        assert guard_of.added("shop.service") == [str(tmp_path / "run/shop.service")]

    def test_they_go_without_a_trace(self, tmp_path):
        guard_of.add(guard_of.additions("shop.service", "source", "/s", live=True))
        guard_of.remove(guard_of.added("shop.service"))
        assert not os.path.exists(str(tmp_path / "etc/shop.service.d")) and not os.path.exists(str(tmp_path / "run/shop.service.d"))
        assert (tmp_path / "etc").is_dir()


def test_the_stand_in_is_known_by_its_words_and_its_cgroup(tmp_path):
    for pid, words, cgroup in (
        (7, b"sleep\0infinity\0", "0::/system.slice/other-shop.service\n"),
        (8, b"/usr/bin/sleep\0infinity\0", "0::/system.slice/shop.service/runtime\n"),
        (9, b"sleep\0infinity\0", "0::/system.slice/shop.service/libpod-payload-30b5\n"),
    ):
        write(tmp_path / str(pid) / "cgroup", cgroup)
        (tmp_path / str(pid) / "cmdline").write_bytes(words)
    assert service_move.sleeping("shop.service", str(tmp_path)) == 8
    assert service_move.sleeping("web.service", str(tmp_path)) == 0
