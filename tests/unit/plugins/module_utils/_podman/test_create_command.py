# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._podman.create_command import (
    Attachment,
    CommandError,
    Grammar,
    Identity,
    Port,
    carried_options,
    files,
    parse,
    twin,
    unsupported,
)

# The shape in which podman prints its options: letters, values, choices, options without a text.
PODMAN = Grammar.from_help("""\
Options:
      --cgroup-manager string       Cgroup manager to use ("cgroupfs"|"systemd") (default "cgroupfs")
  -c, --connection string           Connection to use
      --log-level string            Log messages above specified level
  -r, --remote                      Access remote Podman service
      --root string                 Path to the graph root directory
  -v, --version                     version for podman
""")
COMMON = """\
Options:
      --add-host strings                         Add a custom host-to-IP mapping (host:ip) (default [])
  -a, --attach strings                           Attach to STDIN, STDOUT or STDERR
      --cap-drop strings                         Drop capabilities from the container
      --cidfile string                           Write the container ID to the file
      --entrypoint string                        Overwrite the default ENTRYPOINT of the image
  -e, --env stringArray                          Set environment variables in container
      --env-file stringArray                     Read in a file of environment variables
      --env-host                                 Use all current host environment variables in container
      --health-cmd string                        set a healthcheck command for the container
      --help
  -h, --hostname string                          Set container hostname
      --http-proxy                               Set proxy environment variables
      --init                                     Run an init binary inside the container
  -i, --interactive                              Make STDIN available to the contained process
      --ip string                                Specify a static IPv4 address for the container
  -l, --label stringArray                        Set metadata on container
      --mac-address string                       Container MAC address
  -m, --memory <number>[<unit>]                  Memory limit
      --name string                              Assign a name to the container
      --network stringArray                      Connect a container to a network
      --network-alias strings                    Add network-scoped alias for the container
      --pod string                               Run container in an existing pod
      --privileged                               Give extended privileges to container
  -p, --publish strings                          Publish a container's port
  -P, --publish-all                              Publish all exposed ports
      --pull string                              Pull image policy
      --replace                                  If a container with the same name exists, replace it
      --requires strings                         Add one or more requirement containers
      --restart string                           Restart policy
      --rm                                       Remove container after exit
      --rootfs                                   The first argument is not an image but the rootfs
  -t, --tty                                      Allocate a pseudo-TTY for container
  -u, --user string                              Username or UID
      --uts string                               UTS namespace to use
  -v, --volume stringArray                       Bind mount a volume into the container
      --volumes-from stringArray                 Mount volumes from the specified container(s)
  -w, --workdir string                           Working directory inside the container
"""
CREATE = Grammar.from_help(COMMON + "      --init-ctr string                          Make this a pod init container.\n")
RUN = Grammar.from_help(COMMON + """\
  -d, --detach                                   Run container in background and print container ID
      --detach-keys [a-Z]                        Override the key sequence for detaching a container
      --passwd                                   add entries to /etc/passwd and /etc/group (default true)
      --preserve-fd uints                        Pass a file descriptor into the container (default [])
      --preserve-fds uint                        Pass a number of additional file descriptors
      --rmi                                      Remove image unless used by other containers, implies --rm
      --sig-proxy                                Proxy received signals to the process (default true)
""")
BOTH = RUN | CREATE
WEB = Identity(name="web", image="localhost/web:1", hostname="5a3e7d04f11b")


def read(*words):
    return parse(["podman", *words], PODMAN, BOTH)


def made(*words, identity=WEB):
    return twin(read(*words), identity, CREATE)


def pinned(*rest):
    return ["create", "--pull=never", "--name=web", "--hostname=5a3e7d04f11b", *rest]


class TestGrammar:
    def test_it_tells_flags_from_options_with_a_value(self):
        assert RUN.options["detach"] is False
        assert RUN.options["detach-keys"] is True
        assert RUN.options["memory"] is True
        assert RUN.options["help"] is False
        assert RUN.letters["d"] == "detach"

    def test_a_text_without_options_is_refused(self):
        with pytest.raises(CommandError, match="no option was found"):
            Grammar.from_help("Error: unknown command\n")


class TestParse:
    def test_words_after_the_image_are_the_workloads_own(self):
        parsed = read("run", "-d", "--name", "web", "localhost/web:1", "serve", "-d", "--name", "other")
        assert parsed.image == "localhost/web:1"
        assert parsed.arguments == ("serve", "-d", "--name", "other")

    def test_a_global_option_may_stand_behind_the_verb(self):
        parsed = parse(["podman", "run", "--cgroup-manager", "systemd", "--name", "web", "image", "--log-level"], PODMAN, RUN)
        assert parsed.global_options == (("cgroup-manager", "systemd"),)
        assert parsed.options == (("name", "web"),)
        assert parsed.arguments == ("--log-level",)

    def test_global_options_stand_before_the_verb(self):
        parsed = read("--log-level", "debug", "--cgroup-manager=systemd", "container", "run", "-d", "i")
        assert parsed.global_options == (("log-level", "debug"), ("cgroup-manager", "systemd"))
        assert parsed.image == "i"

    @pytest.mark.parametrize(
        "words, options",
        [
            (["-dit", "i"], [("detach", None), ("interactive", None), ("tty", None)]),
            (["-itv", "a:/b", "i"], [("interactive", None), ("tty", None), ("volume", "a:/b")]),
            (["-va:/b", "i"], [("volume", "a:/b")]),
            (["-v=a:/b", "i"], [("volume", "a:/b")]),
            (["-d=false", "i"], [("detach", "false")]),
            (["--detach=true", "i"], [("detach", "true")]),
            (["--label", "--rm", "i"], [("label", "--rm")]),
            (["-e", "-d", "i"], [("env", "-d")]),
            (["--env=A=b=c", "i"], [("env", "A=b=c")]),
            (["--net", "lan", "i"], [("network", "lan")]),
            (["--health-cmd", "", "i"], [("health-cmd", "")]),
            (["--rm", "--", "i"], [("rm", None)]),
        ],
    )
    def test_options_in_every_spelling(self, words, options):
        parsed = read("run", *words)
        assert list(parsed.options) == options
        assert parsed.image == "i"

    @pytest.mark.parametrize(
        "words, text",
        [
            ([], "podman run or podman create"),
            (["run", "-d"], "no image is named"),
            (["run", "--name"], "--name has no value"),
            (["run", "--colour", "red", "i"], "does not know the option --colour"),
            (["run", "-dZ", "i"], "does not know the option -Z in '-dZ'"),
            (["kube", "play", "x.yml"], "was made by 'podman kube'"),
        ],
    )
    def test_what_cannot_be_read_is_named(self, words, text):
        with pytest.raises(CommandError, match=text):
            read(*words)

    def test_a_container_that_the_api_made(self):
        with pytest.raises(CommandError, match="made through the API"):
            parse([], PODMAN, BOTH)


class TestTwin:
    def test_what_says_how_to_run_is_left_out(self):
        words = ["run", "-dit", "--sig-proxy=false", "--detach-keys", "ctrl-x", "--preserve-fds=2", "--passwd=false", "--replace", "--cidfile", "/run/id"]
        assert made(*words, "localhost/web:1", "-d") == pinned("--interactive", "--tty", "localhost/web:1", "-d")

    def test_every_other_option_stays_as_it_was(self):
        words = ["create", "--cap-drop", "ALL", "-m", "1g", "-u", "33", "-v", "data:/srv:Z", "-v", "logs:/log", "--init", "--restart=always", "-w/srv"]
        assert made(*words, "localhost/web:1") == pinned(
            "--cap-drop=ALL", "--memory=1g", "--user=33", "--volume=data:/srv:Z", "--volume=logs:/log", "--init", "--restart=always", "--workdir=/srv",
            "localhost/web:1",
        )  # fmt: skip

    def test_a_value_that_looks_like_an_option_stays_a_value(self):
        assert made("run", "--label", "--rm", "i") == pinned("--label=--rm", "localhost/web:1")

    def test_the_name_is_the_containers_and_not_the_commands(self):
        assert "--name=web" in made("run", "--name", "renamed-since", "i")

    def test_the_hosts_own_name_is_not_pinned(self):
        identity = Identity(name="web", image="i", hostname=None)
        assert not any(word.startswith("--hostname") for word in made("run", "--uts=host", "i", identity=identity))

    def test_addresses_are_pinned_where_podman_chose_them(self):
        identity = Identity("web", "i", "h", (Attachment("lan", ("10.0.0.9", "fd00::9"), "02:00:00:00:00:09", "eth0"),))
        command = made("run", "--network", "lan", "i", identity=identity)
        assert "--network=lan:ip=10.0.0.9,ip=fd00::9,mac=02:00:00:00:00:09,interface_name=eth0" in command

    def test_addresses_given_by_options_of_their_own_are_not_given_twice(self):
        identity = Identity("web", "i", "h", (Attachment("lan", ("10.0.0.9",), "02:00:00:00:00:09"),))
        command = made("run", "--network", "lan", "--ip", "10.0.0.9", "--mac-address", "02:00:00:00:00:09", "i", identity=identity)
        assert [word for word in command if "10.0.0.9" in word] == ["--network=lan:ip=10.0.0.9,mac=02:00:00:00:00:09"]
        assert not any(word.startswith(("--ip", "--mac")) for word in command)

    def test_what_else_was_said_of_a_network_stays(self):
        identity = Identity("web", "i", "h", (Attachment("a", ("10.0.0.9",)), Attachment("b", ("10.1.0.9",), interface="eth1")))
        command = made("run", "--network", "a:ip=10.0.0.1,alias=db", "--network=b", "i", identity=identity)
        assert [word for word in command if word.startswith("--network")] == ["--network=a:ip=10.0.0.9,alias=db", "--network=b:ip=10.1.0.9,interface_name=eth1"]

    def test_the_default_network_is_named(self):
        identity = Identity("web", "i", "h", (Attachment("podman", ("10.88.0.2",), "02:00:00:00:00:02"),))
        assert "--network=podman:ip=10.88.0.2,mac=02:00:00:00:00:02" in made("run", "i", identity=identity)

    def test_without_a_network_it_stays_without(self):
        assert made("run", "--network=none", "i") == pinned("--network=none", "localhost/web:1")

    def test_ports_that_podman_chose_are_pinned(self):
        identity = Identity("web", "i", "h", ports=(Port(80, "tcp", "41234"), Port(53, "udp", "53", "10.0.0.1"), Port(443, "tcp", "443", "::1")))
        command = made("run", "-P", "-p", "80", "i", identity=identity)
        assert [word for word in command if word.startswith("--publish")] == [
            "--publish=41234:80/tcp",
            "--publish=10.0.0.1:53:53/udp",
            "--publish=[::1]:443:443/tcp",
        ]

    def test_values_from_a_file_or_the_environment_are_written_out(self):
        identity = Identity("web", "i", "h", environment=("PATH=/bin", "container=podman", "A=1", "TOKEN=x y", "HOSTNAME=h"))
        command = made("run", "-e", "A=1", "-e", "TOKEN", "--env-file", "/root/env", "i", identity=identity)
        assert [word for word in command if word.startswith("--env")] == ["--env=A=1", "--env=PATH=/bin", "--env=TOKEN=x y"]

    def test_a_proxy_of_the_source_is_not_taken_from_the_destination(self):
        identity = Identity("web", "i", "h", environment=("https_proxy=http://p:3128",))
        command = made("run", "i", identity=identity)
        assert "--env=https_proxy=http://p:3128" in command
        assert "--http-proxy=false" in command

    def test_made_from_a_twin_it_is_the_same_again(self):
        identity = Identity(
            "web", "localhost/web:1", "h", (Attachment("lan", ("10.0.0.9",), "02:00:00:00:00:09", "eth0"),), (Port(80, "tcp", "8080"),), ("A=1",)
        )
        first = made("run", "-d", "--rm=false", "-p", "80", "--network", "lan:alias=x", "-e", "A=1", "localhost/web:1", "serve", identity=identity)
        assert made(*first, identity=identity) == first

    def test_an_anonymous_volume_has_the_name_that_podman_gave_it(self):
        identity = Identity("web", "i", "h", volumes={"/data": "4c6b8ac0", "/of/the/image": "5a3e7d04"})
        command = made("run", "-v", "/data", "-v", "named:/named", "i", "serve", "-v", "/data", identity=identity)
        volumes = [word for word in command if word.startswith("--volume")]
        assert volumes == ["--volume=4c6b8ac0:/data", "--volume=named:/named", "--volume=5a3e7d04:/of/the/image"]
        assert command[-3:] == ["serve", "-v", "/data"]

    def test_an_option_that_the_destination_does_not_know(self):
        old = Grammar({name: value for name, value in CREATE.options.items() if name != "health-cmd"}, CREATE.letters)
        with pytest.raises(CommandError, match="does not know the option --health-cmd: install the podman of the source here"):
            twin(read("run", "--health-cmd", "true", "i"), WEB, old)


@pytest.mark.parametrize(
    "words, reason",
    [
        (["run", "--pod", "p", "i"], "belongs to a pod"),
        (["run", "--volumes-from", "other", "i"], "depends on another container"),
        (["run", "--requires=other", "i"], "depends on another container"),
        (["run", "--rootfs", "/srv/root"], "from a directory and not from an image"),
        (["--root", "/srv/storage", "run", "i"], "lies in another storage"),
        (["run", "--rootfs=false", "i"], None),
        (["run", "-d", "i"], None),
    ],
)
def test_what_cannot_be_made_elsewhere(words, reason):
    found = unsupported(read(*words))
    assert found is None if reason is None else reason in found


@pytest.mark.parametrize(
    ("path", "moves"), [("/srv/root", True), ("/srv/root/", True), ("/srv/root:O", False), ("/srv/root:idmap", False), ("/srv/other", False), ("root", False)]
)
def test_a_root_that_is_a_volume_is_made_elsewhere(path, moves):
    parsed = read("create", "--name", "web", "--rootfs", path, "/sbin/init")
    assert (unsupported(parsed, root="/srv/root") is None) is moves
    command = twin(parsed, dataclasses.replace(WEB, image="/srv/root"), CREATE)
    assert "--rootfs" in command and command[-2:] == ["/srv/root", "/sbin/init"]


class TestFiles:
    HELP = RUN | Grammar.from_help(
        "      --label-file stringArray\n      --security-opt stringArray\n      --init-path string\n      --label stringArray\n      --name string\n"
    )

    def test_files_that_the_twin_would_read_anew(self):
        words = ["podman", "run", "--security-opt", "seccomp=/own.json", "--security-opt=seccomp=unconfined", "--init-path", "/sbin/tiny", "image"]
        assert files(parse(words, PODMAN, self.HELP)) == ["--init-path=/sbin/tiny", "--security-opt seccomp=/own.json"]

    def test_labels_of_a_file_are_written_out(self):
        parsed = parse(["podman", "run", "--name", "web", "--label-file", "/root/labels", "image"], PODMAN, self.HELP)
        written = twin(parsed, dataclasses.replace(WEB, labels=("a=1", "b=2")), self.HELP)
        assert [word for word in written if "label" in word] == ["--label=a=1", "--label=b=2"]
        assert carried_options(parsed) == []
