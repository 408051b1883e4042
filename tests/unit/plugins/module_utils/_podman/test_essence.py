# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import json
import pathlib

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._podman import essence

RECORDED = pathlib.Path(__file__).parent / "recorded"

# What podman 5.4 says of a container with one volume on a macvlan network, without what is not looked at.
INSPECT = {
    "Id": "5a3e7d04f11b",
    "Name": "shop",
    "Path": "sh",
    "Args": ["-c", "serve"],
    "State": {"Status": "running", "Running": True, "Paused": False, "Pid": 388},
    "Image": "301275b6ca85",
    "ImageName": "localhost/shop:1",
    "OCIRuntime": "/usr/bin/runc",
    "StaticDir": "/var/lib/containers/storage/overlay-containers/5a3e7d04f11b/userdata",
    "GraphDriver": {"Name": "overlay", "Data": {"UpperDir": "/var/lib/containers/storage/overlay/aa6f/diff"}},
    "EffectiveCaps": ["CAP_KILL", "CAP_CHOWN"],
    "BoundingCaps": ["CAP_KILL", "CAP_CHOWN"],
    "Mounts": [
        {"Type": "volume", "Name": "shop", "Source": "/var/lib/containers/storage/volumes/shop/_data", "Destination": "/data", "Driver": "local",
         "Mode": "", "Options": ["nosuid", "nodev", "rbind"], "RW": True, "Propagation": "rprivate"},
    ],
    "Dependencies": [],
    "NetworkSettings": {"Networks": {"lan": {"IPAddress": "10.77.0.50", "GlobalIPv6Address": "", "MacAddress": "02:00:0a:4d:00:32"}}},
    "Config": {
        "Hostname": "5a3e7d04f11b",
        "User": "",
        "Env": ["PATH=/bin", "A=1"],
        "Cmd": ["sh", "-c", "serve"],
        "Entrypoint": None,
        "Labels": None,
        "Annotations": {"io.container.manager": "libpod", "com.example.team": "web"},
        "StopSignal": "SIGTERM",
        "CreateCommand": ["podman", "run", "-d", "--name", "shop", "localhost/shop:1"],
    },
    "HostConfig": {
        "AutoRemove": False, "NetworkMode": "bridge", "IpcMode": "shareable", "PidMode": "private", "UTSMode": "private", "Privileged": False,
        "ShmSize": 65536000,
        "PortBindings": {"80/tcp": [{"HostIp": "0.0.0.0", "HostPort": "8080"}], "53/udp": [{"HostIp": "10.0.0.1", "HostPort": "53"}]},
        "Devices": [], "CapAdd": [],
        "Ulimits": [{"Name": "RLIMIT_NPROC", "Soft": 96365, "Hard": 96365}],
    },
}  # fmt: skip


def recorded(version):
    """What that podman said of containers that were made by the same commands on both."""
    return {container["Name"]: container for container in json.loads((RECORDED / "podman-{0}-inspect.json".format(version)).read_text())}


def changed(path, value):
    inspect = copy.deepcopy(INSPECT)
    target = inspect
    *keys, last = path.split(".")
    for key in keys:
        target = target[key]
    target[last] = value
    return inspect


class TestEssence:
    def difference(self, path, value):
        return essence.first_difference(essence.essence(INSPECT), essence.essence(changed(path, value)))

    def test_a_twin_has_other_ids_and_directories_and_is_the_same(self):
        twin = copy.deepcopy(INSPECT)
        twin.update(Id="192fae605600", StaticDir="/elsewhere", State={"Status": "created", "Running": False})
        twin["GraphDriver"]["Data"]["UpperDir"] = "/elsewhere/diff"
        twin["Mounts"][0]["Source"] = "/elsewhere/_data"
        twin["Mounts"][0]["Options"].reverse()
        twin["EffectiveCaps"].reverse()
        twin["Config"]["CreateCommand"] = ["podman", "create", "--name=shop", "localhost/shop:1"]
        twin["Config"]["Annotations"]["io.container.manager"] = "other"
        twin["HostConfig"]["Ulimits"] = []
        assert essence.first_difference(essence.essence(INSPECT), essence.essence(twin)) is None

    @pytest.mark.parametrize(
        ("here", "there", "same"),
        [
            (["A=1"], ["A=1", "HOME=/root", "HOSTNAME=5a3e7d04f11b"], True),
            (["A=1"], ["A=1", "B=2"], False),
            (["A=1", "HOME=/srv"], ["A=1", "HOME=/root"], False),
            (["A=1", "HOME=/srv"], ["A=1"], False),
        ],
    )
    def test_one_that_never_ran_lacks_what_podman_adds(self, here, there, same):
        essences = [essence.essence(changed("Config.Env", env)) for env in (here, there)]
        assert (essence.first_difference(*essences) is None) == same

    def test_the_first_field_that_differs_is_named(self):
        assert self.difference("Image", "ffff") == ("Image", "301275b6ca85", "ffff")
        assert self.difference("Config.User", "33")[0] == "Config.User"
        assert self.difference("Config.Env", ["PATH=/bin"])[0] == "Config.Env"
        assert self.difference("HostConfig.CapAdd", ["CAP_SYS_ADMIN"])[0] == "HostConfig.CapAdd"
        assert self.difference("EffectiveCaps", [])[0] == "EffectiveCaps"
        assert self.difference("Config.Annotations", {"com.example.team": "ops"})[0] == "Config.Annotations"
        assert self.difference("Mounts", [])[0] == "Mounts"
        assert self.difference("NetworkSettings.Networks", {})[0] == "Networks"
        assert self.difference("HostConfig.PortBindings", {})[0] == "HostConfig.PortBindings"

    def test_podman_lists_the_bindings_of_a_port_in_any_order(self):
        one, other = {"HostIp": "192.0.2.50", "HostPort": "80"}, {"HostIp": "2001:db8::50", "HostPort": "80"}
        first, second = (changed("HostConfig.PortBindings", {"80/tcp": bindings}) for bindings in ([one, other], [other, one]))
        assert essence.first_difference(essence.essence(first), essence.essence(second)) is None

    def test_the_place_in_a_volume_matters_and_is_not_named_where_there_is_none(self):
        first, second = (essence.essence(changed("Mounts", [{**INSPECT["Mounts"][0], "SubPath": below}])) for below in ("", "a/b"))
        assert essence.first_difference(first, second)[0] == "Mounts"
        assert "subpath" not in first["Mounts"][0]

    def test_where_a_bind_comes_from_matters(self):
        bind = {**INSPECT["Mounts"][0], "Type": "bind", "Name": "", "Source": "/srv/a"}
        first, second = changed("Mounts", [bind]), changed("Mounts", [{**bind, "Source": "/srv/b"}])
        assert essence.first_difference(essence.essence(first), essence.essence(second))[0] == "Mounts"

    @pytest.mark.parametrize(("option", "same"), [("exec", True), ("noexec", False)])
    def test_a_volume_of_the_image_is_the_same_when_it_is_named(self, option, same):
        mount = {**INSPECT["Mounts"][0], "Options": ["nodev", "nosuid", "rbind"]}
        first, second = changed("Mounts", [{**mount, "Options": [*mount["Options"], option]}]), changed("Mounts", [mount])
        assert (essence.first_difference(essence.essence(first), essence.essence(second)) is None) == same

    def test_an_entrypoint_as_podman_4_writes_it(self):
        four, five = changed("Config.Entrypoint", "/bin/sh -c"), changed("Config.Entrypoint", ["/bin/sh", "-c"])
        assert essence.first_difference(essence.essence(four), essence.essence(five)) is None

    @pytest.mark.parametrize("name", ["plain", "full", "notifying", "stdinopen", "reload"])
    def test_podman_4_and_podman_5_say_the_same_of_the_same_container(self, name):
        """Both were made by one command; their host names were drawn, and an anonymous volume and a second health check are on one only."""
        four, five = (recorded(version)[name] for version in ("4.3", "5.4"))
        for container in (four, five):
            container["Image"] = "301275b6ca85"
            container["Mounts"] = [mount for mount in container["Mounts"] if mount["Destination"] != "/anonymous"]
            container["Config"]["Hostname"] = name
            container["Config"]["Env"] = [word for word in container["Config"]["Env"] if not word.startswith("HOSTNAME=")]
            container["Config"].pop("StartupHealthCheck", None)
        assert essence.first_difference(essence.essence(four), essence.essence(five)) is None

    @pytest.mark.parametrize(
        ("field", "here", "there", "same"),
        [
            ("Config.StopSignal", 15, "SIGTERM", True),
            ("Config.StopSignal", 37, "SIGRTMIN+3", True),
            ("Config.StopSignal", 15, "SIGKILL", False),
            ("Config.Env", ["container_uuid=5a3e"], ["container_uuid=192f"], True),
            ("Config.Env", ["TOKEN=a"], ["TOKEN=b"], False),
            ("Config.Secrets", [{"Name": "token", "ID": "1", "Mode": 292}], [{"Name": "token", "ID": "2", "Mode": 292}], True),
            ("Config.Secrets", [{"Name": "token", "ID": "1", "Mode": 292}], [{"Name": "token", "ID": "2", "Mode": 256}], False),
            ("Config.Secrets", [{"Name": "token", "ID": "1"}], [{"Name": "key", "ID": "1"}], False),
            ("HostConfig.IpcMode", "shareable", "private", True),
            ("HostConfig.IpcMode", "shareable", "host", False),
            ("HostConfig.RestartPolicy", {"Name": "", "MaximumRetryCount": 0}, {"Name": "no", "MaximumRetryCount": 0}, True),
            ("HostConfig.RestartPolicy", {"Name": "always", "MaximumRetryCount": 0}, {"Name": "no", "MaximumRetryCount": 0}, False),
            ("HostConfig.Tmpfs", {"/run": "size=1m"}, {}, False),
        ],
    )
    def test_other_words_for_the_same_are_no_difference(self, field, here, there, same):
        pair = [essence.essence(changed(field, value)) for value in (here, there)]
        assert (essence.first_difference(*pair) is None) == same


@pytest.mark.parametrize(("service", "removed"), [({}, True), ({"made_by_unit": False}, True), ({"made_by_unit": True}, False)])
def test_podman_does_not_remove_a_twin_that_a_unit_makes_anew(service, removed):
    facts = {"essence": {"Name": "web", "HostConfig.AutoRemove": True}, "service": service}
    assert essence.of_twin(facts) == {"Name": "web", "HostConfig.AutoRemove": removed}
    assert facts["essence"]["HostConfig.AutoRemove"] is True
