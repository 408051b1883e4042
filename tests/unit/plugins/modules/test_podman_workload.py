# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import json
import os

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import loop, runtime
from ansible_collections.livefleet.handover.plugins.module_utils._podman import essence as _essence, workload
from ansible_collections.livefleet.handover.plugins.module_utils._podman.podman import Podman
from ansible_collections.livefleet.handover.plugins.modules import podman_workload

IMAGE = "301275b6ca85" + "0" * 52
HELP = """\
      --name string                              Assign a name
      --network stringArray                      Connect a container to a network
  -v, --volume stringArray                       Bind mount a volume
  -d, --detach                                   Run container in background
"""


def inspect_of(identifier, **other):
    static = "/var/lib/containers/storage/overlay-containers/{0}/userdata".format(identifier)
    return {
        "Id": identifier, "Name": "shop", "Path": "serve", "Args": [], "Image": IMAGE, "ImageName": "localhost/shop:1", "OCIRuntime": "runc",
        "StaticDir": static,
        "State": {"Status": "created", "Running": False, "Pid": 0}, "GraphDriver": {"Data": {"UpperDir": "/upper/" + identifier}},
        "Mounts": [{"Type": "volume", "Name": "shop", "Source": "/x/" + identifier, "Destination": "/data", "Options": ["rbind"], "RW": True,
                    "Propagation": "rprivate"}],
        "Config": {"Hostname": "h", "User": "", "Env": ["A=1"], "CreateCommand": ["podman", "run", "-d", "-v", "shop:/data", "localhost/shop:1", "serve"]},
        "HostConfig": {"NetworkMode": "none", "IpcMode": "shareable", "ShmSize": 65536000, "UTSMode": "private"}, "NetworkSettings": {"Networks": {}}, **other,
    }  # fmt: skip


def source():
    facts = workload.facts_of(inspect_of("111"), ())
    facts["essence"] = _essence.essence(inspect_of("111"))
    facts["mounts"][0].update(
        directory="/var/lib/handover/mnt/shop",
        image_volume={"name": "shop", "image": "/var/lib/handover/volumes/shop.img", "mountpoint": "/var/lib/handover/mnt/shop"},
        volume={"driver": "local", "labels": {"team": "web"}, "options": {"type": "none", "o": "bind", "device": "/var/lib/handover/mnt/shop"}},
    )
    return facts


def attachment(name):
    return {"name": name, "ip": "10.213.0.100", "ip6": "", "mac": "", "interface": ""}


class Host:
    """A host with a podman, which notes what is asked of it."""

    def __init__(self):
        self.containers = {}  # name → inspect
        self.volumes = {}
        self.images = [{"Id": IMAGE, "Names": ["localhost/shop:1"]}]
        self.commands = []
        self.next_twin = inspect_of("222")
        self.failing = ()
        self.networks = []
        self.units = []
        self.external = []  # what the storage has, and podman does not list

    def run(self, argv, accept=(0,), stdin=None, timeout=None):
        words = [str(word) for word in argv]
        answer = self.answer([word.rpartition("/")[2] if index == 0 else word for index, word in enumerate(words)])
        return _runtime_completed(words, answer)

    def answer(self, words):
        tool, *rest = words
        if rest[-1:] == ["--help"]:
            return HELP if len(rest) > 1 else "      --log-level string   Log\n"
        if rest[:2] == ["ps", "--all"]:
            listed = [{"Id": each["Id"], "Names": [name], "State": each["State"]["Status"]} for name, each in self.containers.items()]
            return json.dumps(listed + (self.external if "--external" in rest else []))
        if rest[:2] == ["container", "inspect"]:
            return json.dumps([each for each in self.containers.values() if each["Id"] == rest[2] or each["Name"] == rest[2]])
        if rest[:2] == ["volume", "ls"]:
            return json.dumps([{"Name": name, "Options": options} for name, options in self.volumes.items()])
        if rest[:2] == ["image", "ls"]:
            return json.dumps(self.images)
        if rest[:2] in (["network", "ls"], ["network", "inspect"]):
            return json.dumps(self.networks)
        if rest[:1] == ["list-units"]:
            return "\n".join(name + " loaded active" for name in self.units)
        self.commands.append(" ".join(words))
        if any(part in self.commands[-1] for part in self.failing):
            raise runtime.HandoverError("{0} failed: as the test wants it".format(self.commands[-1]))
        if rest[0] == "create":
            self.containers["shop"] = self.next_twin
        elif rest[0] == "rm":
            self.containers.pop("shop", None)
        elif rest[:2] == ["volume", "create"]:
            self.volumes[rest[-1]] = dict(word[len("--opt=") :].split("=", 1) for word in rest if word.startswith("--opt="))
        elif rest[:2] == ["volume", "rm"]:
            del self.volumes[rest[-1]]
        return ""


def _runtime_completed(words, answer):
    return runtime.Completed(tuple(words), 0, answer, "")


@pytest.fixture
def host(monkeypatch):
    fake = Host()
    monkeypatch.setattr(runtime.Runtime, "run", fake.run)
    monkeypatch.setattr(runtime.Runtime, "find", lambda self, tool: "/usr/bin/" + tool)
    monkeypatch.setattr(loop, "read_mounts", lambda *args: [])
    monkeypatch.setattr(os, "makedirs", lambda *args, **kwargs: None)
    monkeypatch.setattr(os, "rmdir", lambda *args, **kwargs: None)
    return fake


@pytest.fixture
def module(run_module):
    def run(state, check=False, **params):
        return run_module(podman_workload.main, {"name": "shop", "state": state, **params}, check=check)

    return run


class TestPrepared:
    def test_the_twin_is_made_and_never_run(self, host, module):
        result = module("prepared", source=source())
        assert result["changed"]
        assert result["reasons"] == ["podman has no volume named shop", "there is no container named shop"]
        assert result["volumes"] == ["shop"]
        assert result["workload"]["upper_dir"] == "/upper/222"
        assert host.commands == [
            "podman volume create --driver=local --opt=device=/var/lib/handover/mnt/shop --opt=o=bind --opt=type=none --label=team=web shop",
            "podman create --pull=never --name=shop --hostname=h --volume=shop:/data localhost/shop:1 serve",
            # What podman copies into a new volume from the image lands in a tmpfs that goes again.
            "mount -t tmpfs -o mode=0755 handover /var/lib/handover/mnt/shop",
            "env LC_HANDOVER_PREPARES=shop /usr/bin/podman init shop",
            "podman container cleanup shop",
            "umount --lazy /var/lib/handover/mnt/shop",
            "mount -t tmpfs -o nosuid,nodev,noexec,mode=1777,size=65536000 shm /var/lib/containers/storage/overlay-containers/222/userdata/shm",
        ]

    @pytest.mark.parametrize(
        "shared, interface",
        [
            ({"driver": "macvlan", "network_interface": "eth1"}, "eth1"),
            ({"driver": "macvlan"}, "handover0"),
            ({"driver": "bridge", "options": {"mode": "unmanaged"}, "network_interface": "br0"}, "br0"),
        ],
    )
    def test_its_addresses_are_not_seen_outside_while_the_source_uses_them(self, host, module, shared, interface):
        host.networks = [{"name": "lan", **shared}, {"name": "podman", "driver": "bridge"}]
        module("prepared", source=dict(source(), networks=[attachment("lan"), attachment("podman")]))
        begin = host.commands.index("ip netns delete handover-shop")
        assert host.commands[begin : begin + 8] == [
            "ip netns delete handover-shop",
            "ip netns add handover-shop",
            "ip -n handover-shop link add {0} type bridge".format(interface),
            "ip -n handover-shop link set {0} up".format(interface),
            "ip -n handover-shop route replace default dev {0}".format(interface),
            "nsenter --net=/run/netns/handover-shop /usr/bin/env LC_HANDOVER_PREPARES=shop /usr/bin/podman init shop",
            "nsenter --net=/run/netns/handover-shop /usr/bin/podman container cleanup shop",
            "ip netns delete handover-shop",
        ]

    def test_networks_inside_of_the_host_are_in_nobodys_way(self, host, module):
        host.networks = [{"name": "podman", "driver": "bridge", "network_interface": "podman0"}]
        module("prepared", source=dict(source(), networks=[attachment("podman")]))
        assert not any("netns" in command for command in host.commands)

    def test_what_is_made_is_what_was_written_down(self, host, module):
        assert module("prepared", source=source(), planned={"made": True, "volumes": ["shop"]})["changed"]
        # Once more, by a run that found it: it does not take it for its own.
        assert not module("prepared", source=source(), planned={"made": False, "volumes": []})["changed"]

    @pytest.mark.parametrize(
        ("there", "planned", "named"),
        [
            (["shop"], {"made": True, "volumes": ["shop"]}, "of shop is not"),
            ([], {"made": False, "volumes": ["shop"]}, "of shop is not"),
            ([], {"made": True, "volumes": []}, "of shop is not"),
            ([], {"made": True, "volumes": ["shop", "cache"]}, "of cache is not"),
        ],
    )
    def test_where_something_has_changed_since_it_was_planned_nothing_is_made(self, host, module, there, planned, named):
        host.containers.update((name, host.next_twin) for name in there)
        with pytest.raises(Exception, match=named + " what was there when the move was planned"):
            module("prepared", source=source(), planned=planned)
        assert host.commands == []

    def test_a_twin_that_is_there_already_is_left_alone(self, host, module):
        module("prepared", source=source())
        host.commands.clear()
        result = module("prepared", source=source())
        assert not result["changed"]
        assert host.commands == []

    def test_check_mode_touches_nothing(self, host, module):
        result = module("prepared", source=source(), check=True)
        assert result["changed"]
        assert host.commands == []
        assert result["command"][0] == "create"

    def test_an_image_of_another_name_goes_by_its_id(self, host, module):
        host.images[0]["Names"] = ["localhost/other:1"]
        assert IMAGE in module("prepared", source=source())["command"]

    def test_a_missing_image_is_told_before_anything_is_made(self, host, module):
        host.images.clear()
        with pytest.raises(Exception, match=r"the image localhost/shop:1 \(301275b6ca85\) is not on this host"):
            module("prepared", source=source())
        assert host.commands == []

    def test_a_volume_of_the_same_name_and_other_options(self, host, module):
        host.volumes["shop"] = {}
        with pytest.raises(Exception, match="podman has another volume named shop on this host"):
            module("prepared", source=source())
        assert host.commands == []

    def test_a_twin_that_is_not_the_same_is_removed_and_the_field_is_named(self, host, module):
        host.next_twin = copy.deepcopy(host.next_twin)
        host.next_twin["Config"]["User"] = "33"
        with pytest.raises(Exception, match='shop would not be the same here: Config.User is "" on the source and "33" on this host'):
            module("prepared", source=source())
        assert host.containers == {}
        assert host.volumes == {}

    def test_a_container_of_that_name_that_runs_is_never_taken_for_a_twin(self, host, module):
        host.containers["shop"] = inspect_of("333", State={"Status": "running", "Running": True, "Pid": 7})
        with pytest.raises(Exception, match="shop runs on this host already: it must not run twice"):
            module("prepared", source=source())
        assert "shop" in host.containers

    @pytest.mark.parametrize("step", ["podman create", "podman init", "container cleanup", "size=65536000"])
    def test_what_was_half_made_goes_again(self, host, module, step):
        host.failing = (step,)
        with pytest.raises(Exception, match="as the test wants it"):
            module("prepared", source=source())
        assert host.containers == {}
        assert host.volumes == {}
        assert host.commands.count("mount -t tmpfs -o mode=0755 handover /var/lib/handover/mnt/shop") == host.commands.count(
            "umount --lazy /var/lib/handover/mnt/shop"
        )

    def test_a_mount_in_the_way(self, host, module, monkeypatch):
        mount = loop.Mount(device="7:9", mountpoint="/var/lib/handover/mnt/shop", fstype="ext4", source="/dev/loop9")
        monkeypatch.setattr(loop, "read_mounts", lambda *args: [mount])
        with pytest.raises(Exception, match="something is mounted on /var/lib/handover/mnt/shop already"):
            module("prepared", source=source())
        assert host.containers == {}


class TestStarted:
    def test_one_that_a_boot_has_ended_runs_again(self, host, module):
        host.containers["shop"] = inspect_of("111", State={"Status": "exited", "Running": False, "Pid": 0})
        assert module("started")["reasons"] == ["shop is exited"]
        assert host.commands == ["podman start 111"]

    def test_one_that_runs_is_left_alone(self, host, module):
        host.containers["shop"] = inspect_of("111", State={"Status": "running", "Running": True, "Pid": 7})
        assert not module("started")["changed"]
        assert host.commands == []

    def test_check_mode_starts_nothing(self, host, module):
        host.containers["shop"] = inspect_of("111")
        assert module("started", check=True)["changed"]
        assert host.commands == []

    def test_one_that_is_not_there(self, host, module):
        with pytest.raises(Exception, match="there is no container named shop on this host, so it cannot be started"):
            module("started")


class TestAbsent:
    def test_a_stopped_container_and_its_volumes_go(self, host, module):
        host.containers["shop"] = inspect_of("111", State={"Status": "exited", "Running": False})
        host.volumes.update(shop={}, other={})
        result = module("absent", volumes=["shop", "never-there"])
        assert result["reasons"] == ["there is a container named shop, which is exited", "podman has a volume named shop"]
        assert host.commands == ["podman rm --ignore 111", "podman volume rm shop"]
        assert "other" in host.volumes

    def test_nothing_there_is_no_change(self, host, module):
        assert not module("absent")["changed"]

    @pytest.mark.parametrize("state", ["running", "paused"])
    def test_a_container_that_runs_is_not_removed(self, host, module, state):
        host.containers["shop"] = inspect_of("111", State={"Status": state, "Running": True})
        with pytest.raises(Exception, match="shop is {0} on this host, so it is not removed".format(state)):
            module("absent")
        assert host.commands == []

    def test_unless_that_is_asked_for(self, host, module):
        host.containers["shop"] = inspect_of("111", State={"Status": "running", "Running": True})
        module("absent", running="kill")
        assert host.commands == ["podman rm --ignore --force --time=0 111"]

    def test_check_mode_touches_nothing(self, host, module):
        host.containers["shop"] = inspect_of("111", State={"Status": "exited", "Running": False})
        host.external = [{"Id": "999", "Names": ["shop"], "Command": ["storage"], "State": "storage"}]
        assert module("absent", check=True)["changed"]
        assert host.commands == []

    def test_what_a_removal_that_was_cut_off_has_left(self, host, module):
        host.external = [{"Id": "999", "Names": [name], "Command": ["storage"], "State": "storage"} for name in ("shop", "other")]
        result = module("absent")
        assert result["reasons"] == ["a removal of shop was cut off, and podman's storage still has it"]
        assert host.commands == ["podman rm --force --ignore 999"]

    def test_a_working_container_of_buildah_stays(self, host, module):
        host.external = [{"Id": "999", "Names": ["shop"], "Command": ["buildah"], "State": "buildah"}]
        assert not module("absent")["changed"]
        assert host.commands == []


@pytest.mark.parametrize(
    ("place", "root"),
    [
        ("/srv/store/overlay-containers/222/userdata", "/srv/store"),
        ("/srv/store/vfs-containers/222/userdata", "asked"),
        ("/srv/store/overlay-containers/111/userdata", "asked"),
        ("/srv/store/overlay-containers/222/userdata/more", "asked"),
        ("/overlay-containers/222/userdata", "asked"),
        ("", "asked"),
    ],
)
def test_the_store_is_known_by_the_place_of_a_container_and_podman_is_asked_otherwise(monkeypatch, place, root):
    monkeypatch.setattr(Podman, "root", lambda self: "asked")
    inspect = {"Id": "222", "StaticDir": place, "GraphDriver": {"Name": "overlay"}}
    assert Podman(None).root_of(inspect) == root
