# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import dataclasses
import pathlib
import re

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core import foretold
from ansible_collections.livefleet.handover.plugins.module_utils._core.pcopy import INTERFACE
from ansible_collections.livefleet.handover.plugins.module_utils._podman.group_facts import group_facts
from ansible_collections.livefleet.handover.plugins.module_utils._podman.network_twin import definition
from ansible_collections.livefleet.handover.plugins.module_utils._podman.preflight import examine as preflight

MIB = 2**20
GIB = 2**30

OCI, DOCKER = "application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json"

VOLUME = {
    "name": "pgdata",
    "image": "/var/lib/handover/volumes/pgdata.img",
    "device": "/dev/loop1",
    "mountpoint": "/var/lib/handover/mnt/pgdata",
    "fstype": "ext4",
    "options": "noatime,discard",
    "size": GIB,
    "allocated": GIB // 4,
}
MOUNT = {
    "type": "volume",
    "name": "pgdata",
    "source": "/var/lib/containers/storage/volumes/pgdata/_data",
    "destination": "/var/lib/postgresql",
    "directory": "/var/lib/handover/mnt/pgdata",
    "image_volume": VOLUME,
    "volume": {"driver": "local", "labels": {}, "options": {"type": "none", "o": "bind", "device": "/var/lib/handover/mnt/pgdata"}},
}
# A volume that podman keeps as a plain directory.
DIRECTORY = {
    "name": "uploads",
    "path": "/var/lib/containers/storage/volumes/uploads/_data",
    "size": 2 * GIB,
    "anonymous": False,
    "shared_with": [],
}
PLAIN = {
    "type": "volume",
    "name": "uploads",
    "source": DIRECTORY["path"],
    "destination": "/srv/uploads",
    "directory": "",
    "image_volume": None,
    "directory_volume": DIRECTORY,
    "volume": {"driver": "local", "labels": {}, "options": {}},
}
# podman lists an overlay of its own by the directories that it is made of.
OVERLAY = {
    "type": "bind", "name": "", "source": "/var/lib/containers/storage/overlay-containers/4c6b/userdata/overlay/32/merge", "destination": "/data",
    "options": ["lowerdir=/srv/x", "upperdir=/var/lib/containers/storage/overlay-containers/4c6b/userdata/overlay/32/upper"],
    "read_only": False, "kind": "directory", "directory": "", "image_volume": None, "directory_volume": None, "volume": None,
}  # fmt: skip
# The root of a container that an import has made.
ROOT = {
    "type": "rootfs", "name": "", "source": "/var/lib/handover/mnt/vz", "destination": "/", "options": [], "read_only": False, "propagation": "",
    "volume": None, "directory": "/var/lib/handover/mnt/vz", "directory_volume": None, "users": {"passwd": "", "group": ""},
    "image_volume": {
        "name": "vz", "image": "/var/lib/handover/volumes/vz.img", "device": "/dev/loop3", "mountpoint": "/var/lib/handover/mnt/vz", "fstype": "ext4",
        "options": "rw,noatime", "size": 2 * 2**30, "allocated": 2**30,
    },
}  # fmt: skip
CONTAINER = {
    "exists": True,
    "running": True,
    "held": False,
    "name": "shop",
    "state": "running",
    "auto_remove": False,
    "cannot_recreate": "",
    "dependencies": [],
    "systemd_unit": "",
    "devices": [],
    "network_mode": "bridge",
    "pid_mode": "private",
    "ipc_mode": "shareable",
    "uts_mode": "private",
    "obstacles": [],
    "image": {"id": "a" * 64, "name": "localhost/shop:1", "size": 400 * 2**20, "named": True, "manifest": OCI},
    "layer": 2**20,
    "memory": GIB // 2,
    "mounts": [MOUNT],
    "connections": {"10.213.0.60": 4},
    "networks": [
        {
            "name": "lan", "driver": "macvlan", "subnets": ["10.213.0.0/24"], "shared": True,
            "interface": "eth0", "ip": "10.213.0.60", "ip6": "", "mac": "02::60",
        }
    ],
    "ports": [{"container_port": 80, "protocol": "tcp", "host_port": "8080", "host_ip": ""}],
    "runtime": "runc",
    "cgroup": "/sys/fs/cgroup/libpod-4c6b8ac0c5c4",
    "throttle": {"cgroup": "/sys/fs/cgroup/libpod-4c6b8ac0c5c4", "why": ""},
    "seccomp_filter": True,
    "criu_configuration": "/etc/criu/runc.conf",
}
SERVICE = {"unit": "shop.service", "kind": "quadlet", "adoption": "inside", "active": True, "made_by_unit": True, "cannot": []}


def host(address, **other):
    return {
        "name": "unused",
        "arch": "x86_64",
        "kernel": "6.18.1-arch1",
        "clock": 1000.0,
        "cpu_features": ["avx", "sse2"],
        "memory_available": 4 * GIB,
        "systemd": [257],
        "kernel_devices": ["/dev/net/tun"],
        "seccomp_filter": False,
        "addresses": [{"address": address, "prefix": 24, "interface": "eth0"}],
        "interfaces": ["lo", "eth0"],
        "listening": [{"address": "0.0.0.0", "port": 22, "protocol": "tcp"}],
        "images": {"path": "/var/lib/handover/volumes", "free": 10 * GIB, "present": []},
        "sessions": {"path": "/var/lib/handover/sessions", "free": 10 * GIB, "device": 1},
        "temporary": {"path": "/var/tmp", "free": 10 * GIB, "device": 2},
        "criu": {
            "version": [4, 2, 1],
            "check": True,
            "said": "Looks good.",
            "action_script": "/usr/local/libexec/handover/criu-hook",
            "action_script_works": True,
            "ghost_limit": 2**20,
            "lazy_pages": True,
            "network_lock": {"method": "nftables", "works": True},
        },
        "pcopy": {"installed": True, "version": "0.1.0", "protocol": 1, "interface": INTERFACE, "findings": [{"name": "kernel", "ok": True, "text": "Linux"}],
                  "sessions": [], "silence": {"name": "silence", "ok": True, "text": ""}},
        "podman": {
            "installed": True,
            "version": [5, 4, 2],
            "runtime": "runc",
            "network": {"backend": "netavark", "path": "/usr/lib/podman/netavark"},
            "store": {"path": "/var/lib/containers/storage", "free": 10 * GIB},
            "containers": [{"name": "shop", "id": "1", "state": "running"}, {"name": "cache", "id": "2", "state": "running"}],
            "networks": [{"name": "lan", "driver": "macvlan", "subnets": ["10.213.0.0/24"], "shared": True, "parent": "eth0", "taken": []}],
            "images": [{"id": "a" * 64, "names": ["localhost/shop:1"]}],
            "remains": [],
            "volumes": {},
        },
        **other,
    }


class Facts:
    """Two hosts between which the shop can move, and what a test breaks of them."""

    def __init__(self):
        self.here = {"workload": copy.deepcopy(CONTAINER), "host": host("10.213.0.11"), "problems": []}
        self.there = {"workload": {"exists": False, "running": False, "held": False, "name": "shop"}, "host": host("10.213.0.12"), "problems": []}
        self.source, self.destination, self.mode, self.session = "node1", "node2", "live", "ours"
        self.workload = "shop"
        self.tracker, self.hash_limit = "auto", 0
        self.auto_converge = False
        self.lazy_pages = self.place_memory = False
        self.reserve_space = False
        self.binds = ("refuse", {}, {})
        self.secrets = ("same", {}, {})
        self.floating = []
        self.beside = []

    @property
    def shop(self):
        return self.here["workload"]

    def plan(self):
        names = ("workload", "source", "destination", "mode", "here", "there", "session", "tracker", "hash_limit", "auto_converge", "lazy_pages",
                 "reserve_space", "place_memory", "beside")  # fmt: skip
        binds = zip(("bind_mounts", "binds_here", "binds_there"), self.binds)
        secrets = zip(("secrets", "secrets_here", "secrets_there"), self.secrets)
        return preflight.Plan(**{name: getattr(self, name) for name in names}, **dict(binds), **dict(secrets), floating_addresses=self.floating)

    def sentences(self, *ignore):
        found, ignored = preflight.examine(self.plan(), ignore)
        return [(finding.check, finding.sentence) for finding in found]


@pytest.fixture
def facts():
    return Facts()


def put(path, value):
    """A fault: `put("there.host.arch", "aarch64")` breaks one fact."""

    def break_it(facts):
        root, *keys = path.split(".")
        target = getattr(facts, root)
        for key in keys[:-1]:
            target = target[int(key)] if key.isdigit() else target[key]
        last = keys[-1]
        target[int(last) if last.isdigit() else last] = value

    return break_it


def obstacles(check, detail="", size=0):
    return put("here.workload.obstacles", [{"check": check, "process": "db", "pid": 7, "detail": detail, "size": size}])


def both(*faults):
    def break_it(facts):
        for fault in faults:
            fault(facts)

    return break_it


BIND = {
    **MOUNT, "type": "bind", "name": "", "source": "/srv/files", "destination": "/files", "image_volume": None, "volume": None, "kind": "directory",
    "read_only": False, "names": 1, "replaced": False,
}  # fmt: skip
AT_PATH = {
    "kind": "directory", "real": "/srv/files", "empty": False, "size": GIB, "missing": [], "inside": "directory", "kept": False, "fstype": "ext4",
    "mounted": False, "mounts_below": [], "users": [], "digest": "d", "path": "/srv/files", "free": 1024 * GIB, "device": 99,
}  # fmt: skip
NOTHING_THERE = {**AT_PATH, "kind": "", "empty": False, "size": 0, "missing": ["/srv/files", "/srv"], "digest": ""}


def bound(asked, here=(), there=(), path="/srv/files", **mount):
    """It mounts a folder of the host, of which this is known on both."""

    def change(facts):
        facts.shop["mounts"] = [dict(BIND, source=path, **mount)]
        other = AT_PATH if asked == "same" else NOTHING_THERE
        facts.binds = (asked, {path: {**AT_PATH, "real": path, **dict(here)}}, {path: {**other, "real": path, **dict(there)}})

    return change


TOKEN = {"driver": "file", "digest": "1f", "changed": False}


def sealed(asked, here=(), there=None):
    """It uses a secret, of which this is known on both hosts; there is none where None is said."""

    def change(facts):
        facts.shop["secrets"] = ["token"]
        facts.secrets = (asked, {} if here is None else {"token": {**TOKEN, **dict(here)}}, {} if there is None else {"token": {**TOKEN, **there}})

    return change


def logs_in(folder, kind):
    """Its log is in a folder of its own, and the destination has this at that path."""

    def change(facts):
        facts.shop["log"] = {"driver": "k8s-file", "path": folder + "/c.log", "folder": folder, "size": 0}
        facts.binds = ("refuse", {folder: AT_PATH}, {folder: {**AT_PATH, "kind": kind}})

    return change


def flagged(name, carried=True):
    """A file of its plain volume has a flag, and podman's volumes on the destination can have none."""

    def change(facts):
        facts.shop["mounts"] = [{**PLAIN, "directory_volume": {**DIRECTORY, "flags": [{"name": name, "path": "/v/key", "carried": carried}]}}]
        facts.there["host"]["podman"]["store"]["flags_missing"] = ["synchronous", "immutable"]

    return change


def grouped(mode="offline", names=("db", "shop"), outsiders=(), pod=None, shared=("ipc", "net", "uts"), exits="continue", infra=None, **member):
    """It is a pod of two instead: the first has what is said."""

    def change(facts):
        one = facts.shop
        plain = {**one, "mounts": [], "networks": [], "ports": [], "pod": "f" * 64, "network_mode": "container:" + "e" * 64, "dependencies": ["e" * 64]}
        plain.update(pod="f" * 64, cgroup="/sys/fs/cgroup/" + one["name"])
        members = [{**plain, "name": name, "id": name * 32, "infra": False, **(member if name == "db" else {})} for name in names]
        infra_facts = {**plain, "name": "ffff-infra", "id": "e" * 64, "infra": True, "network_mode": "bridge", **(infra or {})}
        essence = {"SharedNamespaces": list(shared), "ExitPolicy": exits}
        pods = [{"name": "front", "id": "f" * 64, "infra": "e" * 64, "essence": essence, "create_command": ["podman", "pod", "create", "front"], **(pod or {})}]
        facts.workload, facts.mode = "front", mode
        facts.there["host"]["podman"]["containers"] = []
        facts.here["workload"] = group_facts("front", "pod", [{**infra_facts, "pod_name": "front"}, *members], pods, outsiders)
        for each in members:
            each["pod_name"] = member.get("pod_name", "front")

    return change


BRIDGE = {
    "name": "trade_default", "driver": "bridge", "subnets": ["10.89.0.0/24"], "shared": False, "parent": "", "taken": [],
    "definition": definition({"driver": "bridge", "network_interface": "podman1", "dns_enabled": True, "subnets": [{"subnet": "10.89.0.0/24"}]}),
}  # fmt: skip


def of_project(beside=("db",)):
    """The shop is of a project of podman-compose, in a pod without an infra container, and connected to its database."""

    def change(facts):
        network = {**BRIDGE, "interface": "eth0", "ip": "10.89.0.7", "ip6": "", "mac": "02::7"}
        facts.shop.update(
            wave="trade", together=["db", "shop"], requires=["db"], dependencies=["d" * 64], pod="f" * 64, pod_name="pod_trade", networks=[network],
            in_pods=[{"name": "pod_trade", "id": "f" * 64, "infra": "", "essence": {}, "create_command": []}], connections={"10.89.0.7": 3}, ports=[],
            peers=[{"address": "10.89.0.7", "port": 999, "peer": "10.89.0.9", "count": 3}],
        )  # fmt: skip
        facts.here["host"]["podman"]["networks"] = [{**BRIDGE, "taken": [{"address": "10.89.0.9", "container": "db"}]}]
        facts.beside = list(beside)
        # Without the others that is what is said, and their connections besides.
        if not beside:
            facts.shop.update(connections={}, peers=[])

    return change


def test_one_of_a_project_moves_beside_the_others(facts):
    of_project()(facts)
    assert facts.sentences() == []
    twin = preflight.twin(facts.plan())
    assert (twin["networks"], twin["pods"]) == (["trade_default"], ["pod_trade"])
    facts.there["host"]["podman"]["networks"].append(BRIDGE)
    # Others of the project have come before it.
    facts.there["host"]["podman"]["containers"] = [{"name": "db", "id": "3", "state": "created", "pod": "pod_trade", "project": "trade"}]
    assert facts.sentences() == []
    assert preflight.twin(facts.plan())["networks"] == []
    # Of one that is on its way yet: the last of them that is taken back removes the network.
    facts.there["host"]["podman"]["networks"][-1] = {**BRIDGE, "claimed": True}
    assert facts.sentences() == [] and preflight.twin(facts.plan())["networks"] == ["trade_default"]


# A pod that cannot move live, and why.
NOT_LIVE = [
    ({"running": False, "state": "exited", "names": ("db",)}, "as none of its members runs"),
    ({"infra": {"running": False}}, "as no infra container of it runs that would hold its network"),
    ({"infra": {"network_mode": "host"}}, "as its members have no network in common that is theirs alone"),
    ({"shared": ("ipc", "uts")}, "as its members have no network in common that is theirs alone"),
    ({"shared": ("ipc", "net", "pid", "uts")}, "as its members share a namespace that CRIU cannot restore them into (pid)"),
    ({"shared": ("cgroup", "net")}, "as its members share a namespace that CRIU cannot restore them into (cgroup)"),
    ({"dependencies": ["e" * 64, "shop" * 32]}, "as db has a namespace or volumes of another member, and podman readies it only beside that"),
    ({"cgroup": ""}, "as db has no cgroup of the second version of its own on node1"),
]


def test_a_pod_moves_live_with_a_member_that_is_stopped(facts):
    grouped(mode="live", running=False, state="exited", dependencies=["e" * 64, "shop" * 32])(facts)
    assert facts.sentences() == []
    assert preflight.verdict(facts.plan(), []) == "front can move from node1 to node2 (live, with db, shop)"
    assert preflight.twin(facts.plan())["restored"] is True


def test_a_pod_that_ends_with_its_members_moves_live_where_podman_can_be_told_not_to(facts):
    grouped(mode="live", exits="stop")(facts)
    assert facts.sentences() == []
    assert preflight.twin(facts.plan())["exiting"] == ["front"]
    facts.there["host"]["podman"]["sqlite"] = False
    ((name, sentence),) = facts.sentences()
    assert name == "group" and "(--exit-policy=stop), and podman on node2 keeps its book in another database than SQLite" in sentence
    facts.mode = "offline"
    assert facts.sentences() == [] and preflight.twin(facts.plan())["exiting"] == []


def test_a_member_that_requires_another_moves_live_where_podman_can_be_told_so_later(facts):
    command = ["podman", "run", "--requires", "shop", "--pod=front", facts.shop["image"]["name"]]
    grouped(mode="live", dependencies=["e" * 64, "shop" * 32], create_command=command)(facts)
    assert facts.sentences() == []
    assert preflight.twin(facts.plan())["requirements"] == {"db": ["shop"]}
    facts.there["host"]["podman"]["sqlite"] = False
    ((name, sentence),) = facts.sentences()
    assert name == "group" and "as db requires another member, and podman on node2 keeps its book in another database than SQLite" in sentence
    facts.mode = "offline"
    assert facts.sentences() == [] and preflight.twin(facts.plan())["requirements"] == {}


@pytest.mark.parametrize("missing", ["pid_file", "pod_id_file"])
def test_a_pods_unit_that_could_not_find_it_keeps_it_from_moving_live(facts, missing):
    grouped(mode="live")(facts)
    unit = {"unit": "front-pod.service", "cannot": [], "made_by_unit": True, "pid_file": "/run/front-pod.pid", "pod_id_file": "/run/front-pod.pod-id"}
    facts.here["workload"]["service"] = unit
    assert facts.sentences() == []
    unit[missing] = ""
    ((name, sentence),) = facts.sentences()
    assert name == "group" and "as its unit front-pod.service names no file by which it could find the pod that has come" in sentence


def test_what_a_member_needs_to_be_dumped_is_asked_of_it(facts):
    grouped(mode="live", runtime="crun")(facts)
    assert [name for name, _sentence in facts.sentences()] == ["runtime"]
    assert "db runs under crun" in facts.sentences()[0][1]


def test_a_pod_that_can_move(facts):
    grouped()(facts)
    assert facts.sentences() == []
    assert preflight.verdict(facts.plan(), []) == "front can move from node1 to node2 (offline, with db, shop)"
    assert preflight.twin(facts.plan())["made"] is True
    # What all of them lack is brought once.
    facts.there["host"]["podman"]["images"] = []
    assert len(preflight.missing(facts.plan())) == 1


def other_session(side, **status):
    session = {"id": "shop-20261121t000000z", "role": "source", "workload": "shop", "state": "presync", "running": True, "ended": False, "error": "", **status}
    return put("{0}.host.pcopy.sessions".format(side), [session])


def test_a_workload_that_can_move(facts):
    assert facts.sentences() == []


@pytest.mark.parametrize(
    "harmless",
    [
        other_session("there", ended=True, running=False, state="done", role="destination"), other_session("here", ended=True, running=False, state="thawed"),
        flagged("append only"), logs_in("/var/log/shop", "directory"), both(put("here.workload.mtus", {"eth0": 1400}), put("there.host.mtus", {"eth0": 1500})),
        put("here.workload.mtus", {"eth0": 9000}), put("here.host.nft", False),
        both(put("here.host.pcopy.needs", {"live": ["settings"], "lazy_pages": ["lazy"]}), put("there.host.pcopy.can", ["settings"])),
    ],
)  # fmt: skip
def test_state_that_the_destination_can_have(facts, harmless):
    harmless(facts)
    assert facts.sentences() == []


NO_BTF = [{"name": "btf", "ok": False, "text": "no BTF: boot a kernel with it"}]


@pytest.mark.parametrize("tracker", ["auto", "hash"])
def test_what_cannot_be_tracked_is_compared_if_it_is_small_enough(facts, tracker):
    facts.here["host"]["pcopy"]["findings"] = NO_BTF
    facts.tracker, facts.hash_limit = tracker, 1024 * GIB
    assert facts.sentences() == []


def test_where_memory_does_not_follow_nobody_needs_userfaultfd(facts):
    facts.there["host"]["criu"]["lazy_pages"], facts.shop["cgroup"] = False, ""
    assert facts.sentences() == []
    facts.lazy_pages, facts.mode = True, "offline"
    assert facts.sentences() == []
    facts.mode = "live"
    assert [check for check, _sentence in facts.sentences()] == ["lazy_pages", "lazy_pages"]
    facts.lazy_pages, facts.place_memory = False, True
    assert facts.sentences() == [], "CRIU carries it"


@pytest.mark.parametrize(
    "change, placed",
    [
        (lambda facts: None, True),
        (put("here.workload.memory", 15 * MIB), False),
        (put("here.workload.running", False), False),
        (put("here.workload.cgroup", ""), False),
        (put("there.host.criu.lazy_pages", False), False),
        (lambda facts: setattr(facts, "mode", "offline"), False),
        (lambda facts: setattr(facts, "lazy_pages", True), False),
        (lambda facts: setattr(facts, "place_memory", False), False),
    ],
)
def test_memory_is_placed_where_criu_can_leave_it_out(facts, change, placed):
    facts.place_memory = True
    change(facts)
    assert preflight.places(facts.plan()) == placed


def test_the_memory_follows_where_the_pause_would_be_too_long(facts):
    def chosen(max_frozen_ms):
        return foretold.follows(facts.plan(), max_frozen_ms, preflight.places(facts.plan()))

    facts.shop["memory"] = 1300 * MIB
    assert [chosen(ms) for ms in (0, 2200)] == ["", ""], "of no limit, and of one that is long enough"
    said = (
        "the memory of shop follows when it runs on node2 (lazy pages, chosen by auto): it would stand still for about {0} s otherwise, "
        "and {1} s are allowed"
    )
    assert chosen(2100) == said.format("2.20", "2.10")
    facts.place_memory = True
    assert (chosen(850), chosen(800)) == ("", said.format("0.85", "0.80"))
    facts.shop["memory"] = MIB
    assert chosen(300) == ""


@pytest.mark.parametrize("change", [
    put("here.workload.running", False), put("here.workload.cgroup", ""), put("there.host.criu.lazy_pages", False),
    lambda facts: setattr(facts, "mode", "offline"), grouped(mode="live"),
])  # fmt: skip
def test_memory_that_cannot_follow_is_not_chosen_to(facts, change):
    assert preflight.may_follow(facts.plan())
    change(facts)
    assert not preflight.may_follow(facts.plan())


@pytest.mark.parametrize("change, placed", [({}, True), ({"lazy_pages": False}, False)])
def test_the_memory_of_a_pod_is_placed(facts, change, placed):
    grouped(mode="live")(facts)
    facts.place_memory = True
    facts.there["host"]["criu"].update(change)
    assert preflight.places(facts.plan()) == placed


def test_what_is_not_to_be_slowed_down_need_not_be_able_to(facts):
    assert facts.sentences() == []
    facts.auto_converge = True
    assert facts.sentences() == []
    facts.auto_converge, facts.shop["throttle"] = False, {"cgroup": "", "why": "it has no cgroup of its own"}
    assert facts.sentences() == []
    facts.auto_converge, facts.mode = True, "offline"
    assert facts.sentences() == []
    facts.mode = "live"
    assert [check for check, _sentence in facts.sentences()] == ["auto_converge"]
    assert facts.sentences("auto_converge") == []


@pytest.mark.parametrize(("manifest", "written"), [(OCI, "oci-archive"), (DOCKER, "docker-archive")])
def test_an_image_is_saved_in_its_own_format_and_takes_no_name_from_another(facts, manifest, written):
    facts.shop["image"]["manifest"] = manifest
    facts.there["host"]["podman"]["images"] = []
    assert facts.sentences() == []
    assert preflight.archive(facts.plan()) == {"format": written, "reference": "localhost/shop:1"}
    facts.there["host"]["podman"]["images"] = [{"id": "b" * 64, "names": ["localhost/shop:1"]}]
    assert preflight.archive(facts.plan()) == {"format": written, "reference": "a" * 64}


@pytest.mark.parametrize("state", ["created", "exited", "stopped"])
def test_a_stopped_workload_can_move_as_it_is(facts, state):
    facts.mode = "offline"
    both(put("here.workload.running", False), put("here.workload.state", state))(facts)
    assert facts.sentences() == []


NARROW_BRIDGE = {"name": "lan", "driver": "bridge", "subnets": ["10.213.0.0/24"], "shared": False, "parent": "podman1", "taken": [], "mtu": 1400}
FAULTS = [
    ("workload", put("here.workload", {"exists": False, "running": False, "held": False, "name": "shop"}),
     "there is no container named shop on node1: name one of its containers (cache, shop)"),
    ("name", lambda facts: setattr(facts, "workload", "4c6b8ac0c5c4"), "4c6b8ac0c5c4 is the container shop on node1: name it shop"),
    ("same_host", lambda facts: setattr(facts, "destination", "node1"), "shop is on node1 already, and that is also the destination"),
    ("podman", put("there.host.podman.installed", False), "podman is missing on node2: install the package podman there"),
    ("held", put("here.workload.held", True), "podman on node1 does not answer about shop"),
    ("running", both(put("here.workload.running", False), put("here.workload.state", "exited")),
     "shop is exited on node1 and not running: start it there first, as there is no memory to hand over, or move it as it is with migrate_mode=offline"),
    ("running", both(put("here.workload.running", False), put("here.workload.state", "paused")),
     "shop is paused on node1 and not running: unpause it there first with `podman unpause shop`"),
    ("running", lambda facts: both(put("here.workload.running", False), put("here.workload.state", "paused"))(facts) or setattr(facts, "mode", "offline"),
     "shop is paused on node1 and not running: unpause it there first with `podman unpause shop`"),
    ("rm", put("here.workload.auto_remove", True), "shop was started with --rm"),
    ("create_command", put("here.workload.cannot_recreate", "it belongs to a pod"), "shop cannot be created again on node2: it belongs to a pod"),
    ("create_command", put("here.workload.dependencies", ["b" * 64]), "shop needs another container (bbbbbbbbbbbb), which would stay behind"),
    ("create_command", both(put("here.workload.dependencies", ["b" * 64]),
                            put("here.workload.cannot_recreate", "it depends on another container (--requires)")),
     "shop cannot be created again on node2: it depends on another container (--requires)"),
    ("namespaces", both(put("here.workload.dependencies", ["b" * 64]), put("here.workload.network_mode", "container:" + "b" * 64),
                        put("here.host.podman.containers", [{"name": "proxy", "id": "b" * 64, "state": "running"}])),
     "shop uses the network namespace of another container and not one of its own (container:proxy)"),
    ("rm", both(put("here.workload.auto_remove", True), put("here.workload.service", SERVICE), put("here.host.podman.sqlite", False)),
     "shop is started with --rm by shop.service, and podman on node1 keeps its book in another database than SQLite"),
    ("systemd_unit", put("here.workload.service", {**SERVICE, "cannot": ["is started by shop.timer, which would stay behind: disable and remove that first"]}),
     "the systemd unit shop.service of shop on node1 is started by shop.timer, which would stay behind"),
    ("systemd_unit", put("there.workload.units", ["container-shop.service"]),
     "node2 has the unit container-shop.service already, which starts a container named shop"),
    ("systemd_unit", both(put("here.workload.service", SERVICE), put("there.host.systemd", [242])),
     "systemd is 242 on node2, and 243 or later is needed to move shop"),
    ("project_units", put("here.workload.project_units", [{"unit": "shop.service", "runs": False}]),
     "the systemd unit shop.service on node1 has compose start the project of shop, and would make it again there: disable it"),
    ("unit_offline", both(put("here.workload.service", SERVICE), lambda facts: setattr(facts, "mode", "offline"),
                          put("here.workload.mounts.0", {**PLAIN, "directory_volume": {**DIRECTORY, "anonymous": True, "name": "f" * 64}})),
     "shop has a volume without a name (ffffffffffff), which its unit shop.service removes whenever it stops the container"),
    ("directories", put("here.workload.mounts.0", {**MOUNT, "image_volume": None}),
     "shop mounts the volume pgdata on /var/lib/postgresql, which is neither an image volume nor a plain volume of podman's"),
    ("directories", bound("refuse"),
     "shop mounts the directory /srv/files of node1, which would stay behind: have it copied to node2 with handover_bind_mounts=carry"),
    ("bind_mounts", bound("carry", here={"users": ["cache"]}), "shop shares the directory /srv/files on node1 with cache"),
    ("bind_mounts_same", bound("same", there={"digest": "other"}, read_only=True), "the directory /srv/files, which shop mounts, is not the same on node1 and"),
    ("bind_mounts_taken", bound("carry", there={"kind": "directory", "empty": False}), "/srv/files exists on node2 already, where the directory of shop is"),
    ("overlays", put("here.workload.mounts.0", {**PLAIN, "options": ["O", "nosuid"]}),
     "shop has an overlay over the volume uploads on /srv/uploads (the option O), and whatever it writes there is in no volume and would be lost: "
     "create it without that option"),
    ("overlays", put("here.workload.mounts.0", OVERLAY), "shop has an overlay over a folder of node1 on /data (the option O), and whatever it writes"),
    ("overlays", put("here.workload.mounts", [{**OVERLAY, "type": "image", "source": "tools:1", "options": []}, OVERLAY]),
     "shop mounts the image tools:1 on /data, and such a mount is not made again on node2: copy its files into the image of shop or into a volume"),
    ("mount_options", put("here.workload.mounts.0", {**PLAIN, "options": ["idmap=uids=0-1-10", "nosuid", "U"]}),
     "shop mounts something on /srv/uploads with idmap=uids=0-1-10, and it is not known to be the same on node2: create it without, or list the check "
     "'mount_options' in handover_ignore_checks"),
    ("directory_volumes", put("here.workload.mounts.0", {**PLAIN, "directory_volume": {**DIRECTORY, "shared_with": ["cache"]}}),
     "shop shares the volume uploads on node1 with cache, and only one of them would have it afterwards"),
    ("volumes", both(put("here.workload.mounts.0", PLAIN), put("there.host.podman.volumes", {"uploads": {}})),
     "podman on node2 has a volume named uploads already, and what is in it is never overwritten"),
    ("space", both(put("here.workload.mounts.0", PLAIN), put("there.host.podman.store.free", GIB)),
     "moving shop needs 2 GiB in /var/lib/containers/storage on node2 for its own layer, image and directory volumes, and 1 GiB are free there"),
    ("devices", put("here.workload.devices", ["/dev/kvm", "/dev/net/tun"]), "shop has devices of node1 (/dev/kvm), which cannot move"),
    ("devices", put("here.workload.devices", ["/dev/net/tun", "/dev/fuse"]),
     "shop has the device /dev/fuse, which node2 lacks: load its module there with `modprobe fuse`"),
    ("namespaces", put("here.workload.network_mode", "host"), "shop uses the network namespace of the host and not one of its own"),
    ("namespaces", put("here.workload.uts_mode", "host"), "shop uses the host name's namespace of the host"),
    ("namespaces", put("here.workload.pid_mode", "container:abc"), "shop uses the process namespace of another container"),
    ("connections", both(put("here.workload.networks.0.shared", False), put("here.workload.connections", {"10.213.0.60": 3, "192.0.2.1": 1})),
     "shop has 3 TCP connections open over the network lan, which is a bridge of node1 alone, so they would break"),
    ("begun_elsewhere", both(put("there.host.takes_over", False), put("here.workload.networks.0.driver", "bridge"),
                             put("there.host.podman.networks.0.driver", "bridge"), put("here.workload.connections", {"10.213.0.60": 1})),
     "shop has 1 TCP connection open over the network lan, and node2 calls all packets of one invalid that did not begin there, "
     "which podman's rules drop: set net.netfilter.nf_conntrack_tcp_loose=1 on node2"),
    ("begun_elsewhere", both(of_project(), put("there.host.takes_over", False)), "shop has 3 TCP connections open over the network trade_default"),
    ("io_uring", obstacles("io_uring"), "shop cannot be dumped on node1: db (pid 7) uses io_uring: set it to another way"),
    ("nested_namespaces", obstacles("nested_namespaces", "user"), "in a user namespace of its own, inside the container's: run it without one, or"),
    ("nested_namespaces", obstacles("nested_namespaces", "time"),
     "db (pid 7) is in a time namespace of its own, inside the container's: start it again by the container's init or over a login, since `podman exec`"),
    ("ghost_files", obstacles("ghost_files", "/old.log", 2**21),
     "db (pid 7) holds the deleted file /old.log open, which takes 2 MiB, and CRIU carries up to 1 MiB: have it close the file, or set ghost-limit"),
    ("databases", obstacles("databases", "/srv/wiki.db"),
     "shop has the SQLite database /srv/wiki.db open on node1 (db, pid 7), known to it by device and inode, and its inode is another on node2: put it on an"),
    ("databases", both(obstacles("databases", "/var/lib/postgresql/wiki.db"), put("there.host.loops", ["/dev/loop1"])),
     "and its device /dev/loop1 is taken on node2: have that detached there, or move it with migrate_mode=offline"),
    ("pidfds", both(obstacles("pidfds"), put("here.host.criu.version", [4, 0]), put("there.host.criu.version", [4, 0]),
                    put("here.host.kernel", "6.12.1"), put("there.host.kernel", "6.12.1")),
     "db (pid 7) holds a file descriptor of a process (a pidfd): install CRIU 4.1 or later on both hosts"),
    ("thread_pidfds", obstacles("thread_pidfds"), "db (pid 7) holds a file descriptor of a thread"),
    ("packet_pipes", obstacles("packet_pipes"), "db (pid 7) has a pipe in packet mode"),
    ("unread_input", obstacles("unread_input", "0", 2**12), "db (pid 7) has not read 4 KiB that were written to its descriptor 0 from outside"),
    ("overmounts", obstacles("overmounts", "/srv/a"), "db (pid 7) holds /srv/a open, over which something else is mounted now"),
    ("sockets", obstacles("sockets", "MPTCP"), "db (pid 7) has a socket of a kind that CRIU does not know, MPTCP"),
    ("files", obstacles("files", "/dev/fuse"), "db (pid 7) holds something open that CRIU does not know, /dev/fuse"),
    ("pressure_triggers", obstacles("pressure_triggers", "/sys/fs/cgroup/memory.pressure"),
     "db (pid 7) has a trigger on /sys/fs/cgroup/memory.pressure, and nothing tells which one, so it cannot be set again"),
    ("user_managers", obstacles("user_managers"), "db (pid 7) belongs to the systemd of one user, which CRIU does not restore"),
    ("traced", obstacles("traced", "9"), "db (pid 7) is traced by the process 9"),
    ("running", both(put("here.workload.running", False), put("here.workload.state", "removing")), "start it or stop it there first"),
    ("pod", both(put("here.workload.pod", "f" * 64), put("here.workload.dependencies", ["e" * 64]), put("here.workload.network_mode", "container:eee"),
                 put("here.workload.cannot_recreate", "it belongs to a pod"),
                 put("here.host.podman.containers", [{"name": "shop", "id": "1", "state": "running", "pod": "web"}])),
     "shop is a member of the pod web on node1, which moves as one: move it with -e handover_workload=web"),
    ("required_by", both(put("here.workload.together", ["shop", "sidecar"]), put("here.workload.network_mode", "container:eee"),
                         put("here.workload.dependencies", ["e" * 64])),
     "shop, sidecar on node1 cannot be parted (--requires, --network container:, --volumes-from, or a volume that they share): "
     "move them as one with -e handover_workload=shop+sidecar -e migrate_mode=offline"),
    ("subpaths", put("here.workload.mounts", [{**MOUNT, "subpath": "a/link", "subpath_kind": ""}]),
     "shop mounts a/link of the volume pgdata on /var/lib/postgresql, which is neither a folder nor a file there, or is reached by a symbolic link"),
    # One of a project whose containers move side by side, without the others; with them it is in nobody's way.
    ("pod", of_project(beside=[]), 'shop is a container of the project trade on node1 (db, shop), which moves as one: move all of it live with the playbook '
     'move and -e \'{"handover_moves": [{"workload": "trade", "to": "node2"}]}\', or stopped with -e handover_workload=trade -e migrate_mode=offline'),
    ("wave_pod", both(of_project(), put("there.host.podman.containers", [{"name": "cache", "id": "2", "state": "running", "pod": "pod_trade", "project": ""}])),
     "node2 has a pod named pod_trade already, with cache: remove it there, or rename it"),
    ("wave_pod", both(of_project(), put("here.workload.in_pods.0.cannot_recreate", "it has a user namespace (--userns)")),
     "the pod pod_trade cannot be made again on node2: it has a user namespace (--userns)"),
    ("wave_requires", both(of_project(), put("there.host.podman.sqlite", False)),
     "shop requires db, and podman on node2 keeps its book in another database than SQLite"),
    ("connections", both(of_project(), put("here.host.podman.networks.0.taken", [{"address": "10.89.0.9", "container": "stranger"}])),
     "shop has 3 TCP connections open over the network trade_default, which is a bridge of node1 alone"),
    ("group", both(grouped(mode="live"), put("here.workload.kind", "project"), put("here.workload.as_wave", "trade")),
     'front is a project of compose (db, shop), whose containers move live as a wave: move all of it live with the playbook move and -e '
     '\'{"handover_moves": [{"workload": "trade", "to": "node2"}]}\', or move it with -e migrate_mode=offline'),
    ("group", both(grouped(mode="live"), put("here.workload.service", {**SERVICE, "unit": "front-pod.service", "pid_file": "", "pod_id_file": ""})),
     "front is a pod (db, shop), which moves as one and is stopped for it, as its unit front-pod.service names no file by which it could find the pod that has "
     "come (PIDFile=, --pod-id-file): move it with -e migrate_mode=offline"),
    ("group_units", both(grouped(), put("here.workload.service", {**SERVICE, "unit": "front-pod.service", "cannot": ["is started by x.timer: disable it"]})),
     "the systemd unit front-pod.service of front on node1 is started by x.timer: disable it"),
    ("group", both(grouped(mode="live"), put("here.workload.kind", "together")),
     "front is several containers (db, shop), which moves as one and is stopped for it: move it with -e migrate_mode=offline"),
    ("group", grouped(mode="live", pod_name="other"), "which moves as one and is stopped for it: move it with"),
    *[("group", grouped(mode="live", **fault), f"which moves as one and is stopped for it, {why}: move it with -e migrate_mode=offline")
      for fault, why in NOT_LIVE],
    ("group", grouped(outsiders=["cron"]),
     "cron, db, shop on node1 cannot be parted, and front is only a part of them: move them as one with -e handover_workload=cron+db+shop"),
    ("group", grouped(names=()), "the pod front on node1 has no members"),
    ("group_names", both(grouped(), put("there.host.podman.containers", [{"name": "db", "id": "1", "state": "exited", "pod": ""}])),
     "node2 has containers named db already, of which front has its own"),
    ("group_names", both(grouped(), put("there.host.podman.containers", [{"name": "x", "id": "1", "state": "exited", "pod": "front"}])),
     "node2 has a pod named front already"),
    ("group_pods", grouped(pod={"cannot_recreate": "it has a user namespace (--userns)"}),
     "the pod front cannot be made again on node2: it has a user namespace (--userns): make it with podman pod create"),
    ("group_pods", both(grouped(), put("there.host.podman.catatonit", False)), "podman on node2 has no catatonit"),
    ("group_ipc", both(grouped(mode="live"), put("here.workload.common_ipc", ["semaphores of System V"])),
     "front has semaphores of System V in the IPC namespace that its members share, which CRIU does not restore: make the pod with --share=net,uts"),
    ("multicast", both(grouped(mode="live"), put("here.workload.multicast", ["eth0"])), "front has joined multicast groups on eth0, in which"),
    ("group_units", grouped(service={"unit": "db.service"}), "members of front are started by units of systemd on node1 (db.service)"),
    ("group_states", grouped(state="paused", running=False), "db of front is paused on node1: unpause it there first with `podman unpause db`"),
    ("group_states", grouped(state="stopping", running=False), "db of front is stopping on node1: start it or stop it there first"),
    ("devices", grouped(devices=["/dev/kvm"]), "db has devices of node1 (/dev/kvm), which cannot move"),
    ("locked", both(grouped(), other_session("here", workload="db")), "front is being moved already"),
    ("locked", both(grouped(), other_session("here", workload="x", members=["db"])), "front is being moved already"),
    ("conmon", put("here.workload.conmon_gone", True),
     "the conmon of shop on node1 has died, so podman neither keeps its output nor sees its end: run `podman stop shop; podman start shop` there"),
    ("secrets", sealed("same"),
     "shop uses the secret token, which podman on node2 does not have: create it there with `podman secret create token -`, or have"),
    ("secrets", sealed("refuse", there={}), "shop uses the secret token, and handover_secrets=refuse moves no container that uses one"),
    ("secrets", sealed("same", here=None, there={}), "shop uses the secret token, which podman on node1 does not have any more"),
    ("secrets", sealed("carry", here={"changed": True}), "the secret token has another value on node1 than when shop was created there"),
    ("secrets", sealed("same", there={"digest": "2f"}), "shop uses the secret token, which has another value on node2 and is never written over"),
    ("secrets", sealed("carry", there={"digest": "2f"}), "shop uses the secret token, which has another value on node2 and is never written over"),
    ("secrets", sealed("carry", here={"driver": "pass", "digest": ""}), "which the driver pass keeps for node1, and only those of the driver file are carried"),
    ("secrets", sealed("same", there={"driver": "shell", "digest": ""}),
     "the driver shell keeps for node2, and whether it is the same on node1 cannot be seen"),
    ("secrets", sealed("same", here={"driver": "pass", "digest": ""}, there={}), "the driver pass keeps for node1, and whether it is the same on node2 cannot"),
    ("init", put("here.workload.init", True), "shop was created with --init"),
    ("user_namespace", put("here.workload.userns", "auto"), "shop has a user namespace (auto), and the numbers of its users on node1 may be others on node2"),
    ("storage_driver", put("here.workload.storage_driver", "vfs"), "podman on node1 keeps containers with the storage driver vfs"),
    ("storage_driver", put("there.host.podman.store.driver", "btrfs"), "podman on node2 keeps containers with the storage driver btrfs"),
    ("own_mounts", put("here.workload.own_mounts", ["/mnt/disk (ext4)"]),
     "shop has mounted /mnt/disk (ext4) by itself, which CRIU cannot mount again on node2"),
    ("tmpfs_attributes", put("here.workload.tmpfs", [{"place": "/scratch", "size": MIB, "attributes": "…"}]),
     "the tmpfs /scratch of shop has too many files to be looked at for extended attributes"),
    ("tmpfs_attributes", both(put("here.workload.tmpfs", [{"place": "/scratch", "size": MIB, "attributes": "/a"}]), put("here.workload.cgroup", "")),
     "the tmpfs /scratch of shop has extended attributes on /a, which CRIU does not carry"),
    ("layer_watches", put("here.workload.layer_watches", [{"process": "tail", "pid": 7, "count": 1, "without_handle": 1}]),
     "tail (pid 7) in shop watches a file of the container's own layer by inotify, which CRIU finds no way to, as the kernel of node1 tells no handle"),
    ("layer_watches",
     both(put("here.workload.layer_watches", [{"process": "tail", "pid": 7, "count": 2, "without_handle": 0}]), put("here.workload.cgroup", "")),
     "tail (pid 7) in shop watches 2 files of the container's own layer by inotify, which CRIU finds no way to, as it has no cgroup of its own"),
    ("own_cgroups", both(put("here.workload.divided", True), put("here.workload.cgroup", "")), "shop has made cgroups below its own, as systemd does"),
    ("own_cgroups", both(put("here.workload.cgroup_namespace", True), put("here.workload.cgroup", "")), "shop has a cgroup namespace of its own"),
    ("huge_pages", put("here.workload.huge_pages", 4 * MIB), "shop uses 4 MiB of huge pages, and node2 has 0 B of them free"),
    ("own_network", put("here.workload.own_network", ["the interface wg0"]), "shop has made the interface wg0 in its network namespace"),
    ("own_tables", both(put("here.workload.own_tables", ["inet shop"]), put("there.host.nft", False)),
     "shop has the nftables table inet shop in its network namespace, and node2 has no program nft: install the package nftables there"),
    ("own_tables", both(put("here.workload.own_tables", ["inet shop"]), put("here.host.nft", False)),
     "shop has the nftables table inet shop in its network namespace, and node1 has no program nft: install the package nftables there"),
    ("log_folder", logs_in("/var/log/shop", ""),
     "shop has its log in the folder /var/log/shop, which is missing on node2, and podman starts nothing without it: make it there with `mkdir --parents"),
    ("log_folder", logs_in("/var/log/shop", "file"), "which is a file on node2, and podman starts nothing without it"),
    ("file_flags", flagged("immutable"), "/v/key of node1 has the flag 'immutable' (lsattr), which the file system for podman's volumes on node2 cannot have"),
    ("file_flags", flagged("encrypted", carried=False), "/v/key of node1 has the flag 'encrypted' (lsattr), and with it a read does not give all that is in"),
    ("file_flags",
     bound("carry", here={"flags": [{"name": "append only", "path": "/srv/files/log", "carried": True}]}, there={"flags_missing": ["append only"]}),
     "/srv/files/log of node1 has the flag 'append only' (lsattr), which the file system for /srv/files on node2 cannot have: take it away with chattr"),
    ("mtu", both(put("here.workload.mtus", {"eth0": 9000}), put("there.host.mtus", {"eth0": 1500})),
     "the interface eth0 of shop has an MTU of 9000, and eth0 on node2, where its network lan is, carries 1500: raise that there, or lower the MTU of shop"),
    ("mtu", both(put("here.workload.mtus", {"eth0": 9000}), put("there.host.mtus", {"ens1": 1500}), put("there.host.gateway_interface", "ens1"),
                 put("there.host.podman.networks.0.parent", "")), "and ens1 on node2, where its network lan is, carries 1500"),
    ("mtu", both(put("here.workload.mtus", {"eth0": 1500}), put("here.workload.networks.0.driver", "bridge"),
                 put("there.host.podman.networks.0", NARROW_BRIDGE),
                 put("here.workload.networks.0.shared", False), put("here.workload.connections", {})),
     "has an MTU of 1500, and the option mtu of the network on node2, where its network lan is, carries 1400"),
    ("multicast", put("here.workload.multicast", ["eth0"]), "shop has joined multicast groups on eth0, in which it would not be on node2"),
    ("sysctls", put("here.workload.sysctls", ["net.core.somaxconn=9"]),
     "shop was created with --sysctl net.core.somaxconn, a setting that the kernel of node2 does not have: load the kernel module there"),
    ("create_options", both(put("here.workload.create_options", ["name", "hosts-new"]), put("there.host.podman.create_options", ["name"])),
     "shop was created with --hosts-new, which podman create on node2 does not know: install the podman of node1 there"),
    ("files_named", put("here.workload.files", ["--security-opt seccomp=/etc/own.json"]),
     "shop was created with --security-opt seccomp=/etc/own.json, a file of node1 that node2 would read anew: put the same file there"),
    ("engine_defaults", both(put("here.host.podman.defaults", {"pids_limit": "100", "umask": '"0022"'}),
                             put("there.host.podman.defaults", {"umask": '"0022"'})),
     "gives containers other defaults on node1 than on node2 (pids_limit), so shop would not be the same there"),
    ("mountpoints", put("there.host.mountpoints", ["/", VOLUME["mountpoint"]]),
     "something is mounted on /var/lib/handover/mnt/pgdata of node2 already, where the image volume pgdata of shop is to be: unmount it"),
    ("already_there", put("there.workload", {"exists": True, "running": False, "held": False, "name": "shop", "state": "exited"}),
     "node2 has a container named shop already, which is exited: remove it with `podman rm shop` there"),
    ("already_there", put("there.host.podman.remains", ["shop"]),
     "podman's storage on node2 still has a container named shop whose removal was cut off, and podman would not make another: remove it with"),
    ("images", put("there.host.images.present", ["pgdata.img"]), "/var/lib/handover/volumes/pgdata.img exists on node2 already and is never overwritten"),
    ("image_directories", put("here.workload.mounts.0.image_volume.image", "/srv/pgdata.img"),
     "the image volume pgdata of shop is /srv/pgdata.img, outside of"),
    ("filesystems", put("here.workload.mounts.0.image_volume.fstype", "btrfs"),
     "the image volume pgdata of shop holds btrfs, and only ext4 and xfs can be handed over"),
    ("volumes", put("there.host.podman.volumes", {"pgdata": {}}), "podman on node2 has another volume named pgdata"),
    ("space", put("there.host.images.free", 100 * 2**20),
     "moving shop needs 256 MiB in /var/lib/handover/volumes on node2 for its image volumes, and 100 MiB are free there: free 220 MiB more"),
    ("space", both(put("there.host.images.free", GIB // 2), lambda facts: setattr(facts, "reserve_space", True)),
     "moving shop needs 1 GiB in /var/lib/handover/volumes on node2 for its image volumes, and 512 MiB are free there: free 576 MiB more"),
    ("space", both(put("there.host.podman.images", []), put("there.host.podman.store.free", 300 * 2**20)),
     "moving shop needs 401 MiB in /var/lib/containers/storage on node2 for its own layer, image and directory volumes, and 300 MiB are free there"),
    ("space", both(put("there.host.podman.images", []), put("here.host.sessions.free", 300 * 2**20)),
     "moving shop needs 400 MiB in /var/lib/handover/sessions on node1 for the archive of its image, and 300 MiB are free there"),
    ("space", both(put("there.host.podman.images", []), put("there.host.temporary.free", 300 * 2**20)),
     "moving shop needs 400 MiB in /var/tmp on node2 for its image, packed, and 300 MiB are free there"),
    ("space", both(put("there.host.podman.images", []), put("there.host.podman.store", {"path": "/store", "free": GIB, "device": 1}),
                   put("there.host.temporary.device", 1), put("there.host.sessions", {"path": "/s", "free": GIB, "device": 1})),
     "moving shop needs 1.2 GiB in /store on node2 for its own layer, image and directory volumes and the archive of its image and its image, packed, and"),
    ("image_format", both(put("there.host.podman.images", []), put("here.workload.image.manifest", "application/vnd.docker.distribution.manifest.v1+json")),
     "the image localhost/shop:1 of shop is written as application/vnd.docker.distribution.manifest.v1+json, in which podman cannot save it with its ID"),
    ("memory", put("there.host.memory_available", GIB), "moving it takes 1.1 GiB on node2, and 1 GiB are available there"),
    ("memory", put("here.host.memory_available", GIB // 2), "moving it takes 640 MiB on node1, and 512 MiB are available there"),
    ("networks", put("there.host.podman.networks", []), "podman on node2 has no network named lan, which shop is on: create it there with the driver macvlan"),
    ("networks", both(of_project(), put("there.host.podman.networks", [{**BRIDGE, "definition": {**BRIDGE["definition"], "dns": False}}])),
     "the network trade_default is not the same on both hosts: its name server is on on node1 and off on node2: remove it on node2, and the move makes it"),
    ("networks", both(of_project(), put("there.host.addresses.0.address", "10.89.0.77")),
     "the network trade_default cannot be made on node2: its subnet 10.89.0.0/24 holds addresses of the interface eth0 there: give trade_default another"),
    ("networks", both(of_project(), put("there.host.podman.networks", [{**BRIDGE, "name": "other"}])),
     "the network trade_default cannot be made on node2: podman's network other there has its subnet 10.89.0.0/24: give one of them another"),
    ("networks", both(put("there.host.podman.networks", []), put("here.workload.networks.0.definition", {**BRIDGE["definition"], "interface": "br9"})),
     "podman on node2 has no network named lan, which shop is on, and node2 has no interface br9 to make it on: create it there"),
    ("networks", put("there.host.podman.networks.0.driver", "bridge"), "the network lan is made by the driver macvlan on node1 and by bridge on node2"),
    ("networks", put("there.host.podman.networks.0.subnets", ["10.99.0.0/24"]), "the network lan is 10.213.0.0/24 on node1 and 10.99.0.0/24 on node2"),
    ("networks", put("there.host.podman.networks.0.shared", False),
     "the network lan leads out of node1 and is a bridge of node2 alone, where nobody outside would reach shop"),
    ("networks", put("there.host.podman.networks.0.parent", "br1"), "podman on node2 has the network lan on the interface br1, which is not there: make it"),
    ("addresses", put("there.host.addresses.0.address", "10.213.0.60"), "shop has the address 10.213.0.60, which is also an address of node2 itself"),
    ("addresses", put("there.host.podman.networks.0.taken", [{"address": "10.213.0.60", "container": "cache"}]), "which the container cache on node2 uses"),
    ("floating_addresses", lambda facts: facts.floating.append("192.0.2.50/24"), "handover_floating_addresses has 192.0.2.50/24, which is no address"),
    ("ports", put("there.host.listening", [{"address": "::", "port": 8080, "protocol": "tcp"}]),
     "shop publishes port 8080/tcp, on which something on node2 listens already"),
    ("architecture", put("there.host.arch", "aarch64"), "node1 is a x86_64 host and node2 is aarch64"),
    ("cpu", put("there.host.cpu_features", ["sse2"]), "the processor of node2 lacks avx"),
    ("runtime", put("here.workload.runtime", "crun"), "shop runs under crun, and only runc passes CRIU's hooks on"),
    ("runtime", put("there.host.podman.runtime", "crun"), "podman on node2 uses crun"),
    ("podman_version", put("there.host.podman.version", [4, 3, 1]), "podman is 5.4.2 on node1 and 4.3.1 on node2, which is older"),
    ("criu", put("there.host.criu.version", []), "CRIU is missing on node2: install the package criu there"),
    ("criu", put("here.host.criu.version", [3, 17, 1]), "CRIU is 3.17.1 on node1, and its hooks work under runc from 3.19 on"),
    ("criu", put("here.host.criu.check", False), "CRIU does not work on node1: `criu check` says: Looks good."),
    ("criu_sockets", both(put("here.host.criu.version", [4, 1, 1])), "CRIU is 4.1.1 on node1, and with its kernel 6.18.1-arch1 TCP sockets need 4.2 or later"),
    ("criu_versions", both(put("there.host.criu.version", [4, 1, 1]), put("here.host.kernel", "6.12.43"), put("there.host.kernel", "6.12.43")),
     "CRIU is 4.2.1 on node1 and 4.1.1 on node2, which may not read"),
    ("kernel", put("there.host.kernel", "6.12.43+deb13-amd64"), "the kernel is 6.18.1-arch1 on node1 and 6.12.43+deb13-amd64 on node2, which is older"),
    ("network_lock", put("here.host.criu.network_lock", {"method": "iptables", "works": False}),
     "CRIU on node1 cannot lock the network with iptables: install the package iptables there"),
    ("network_lock", put("here.host.criu.network_lock", {"method": "skip", "works": False}), "CRIU on node1 is told not to lock the network"),
    ("silence", put("there.host.pcopy.silence", {"name": "silence", "ok": False, "text": "the kernel has no nftables"}),
     "a workload's network cannot be kept silent on node2: the kernel has no nftables"),
    ("silence", put("there.host.podman.network", {"backend": "cni", "path": ""}), "podman on node2 makes its networks with cni"),
    ("seccomp", put("there.host.seccomp_filter", True), "node2 is itself a container whose system calls are filtered"),
    ("action_script", put("there.host.criu.action_script", ""), "CRIU on node2 has no action script in /etc/criu/runc.conf"),
    ("action_script", put("here.host.criu.action_script_works", False), "CRIU's action script /usr/local/libexec/handover/criu-hook is missing on node1"),
    ("action_script", put("here.workload.criu_configuration", "/etc/own.conf"), "shop has a CRIU configuration of its own (/etc/own.conf)"),
    ("pcopy", put("there.host.pcopy.installed", False), "the helper pcopy is missing on node2: apply the role livefleet.handover.pcopy to it"),
    ("pcopy", put("here.host.pcopy.interface", 0), "pcopy on node1 is older than this collection, and does not know all that is asked of it: apply the role"),
    ("pcopy", both(put("there.host.pcopy.interface", 0), put("here.host.pcopy.needs", {"live": ["settings"]}), put("there.host.pcopy.can", [])),
     "pcopy on node2 is older than this collection, and does not know all that is asked of it: apply the role"),
    ("pcopy", put("there.host.pcopy.protocol", 2), "pcopy speaks protocol 1 on node1 and 2 on node2"),
    ("pcopy", both(put("here.host.pcopy.needs", {"live": ["settings", "own-links"]}), put("there.host.pcopy.can", ["settings"])),
     "pcopy on node2 is older than on node1, and cannot take all that it would send (own-links): apply the role livefleet.handover.pcopy to both"),
    ("pcopy", both(put("here.host.pcopy.needs", {"live": [], "lazy_pages": ["lazy"]}), lambda facts: setattr(facts, "lazy_pages", True)),
     "pcopy on node2 is older than on node1, and cannot take all that it would send (lazy)"),
    ("tracker", both(put("here.host.pcopy.findings", NO_BTF), lambda facts: setattr(facts, "tracker", "ebpf")),
     "writes cannot be tracked on node1: no BTF"),
    ("tracker", both(put("here.host.pcopy.findings", NO_BTF), lambda facts: setattr(facts, "hash_limit", MIB)),
     "writes cannot be tracked on node1, so its volumes would be read whole to be compared, also in the pause: "),
    ("tracker", both(lambda facts: setattr(facts, "tracker", "hash"), lambda facts: setattr(facts, "hash_limit", MIB)),
     " and at most 1 MiB were allowed: allow more with hash_limit"),
    ("auto_converge",
     both(put("here.workload.throttle", {"cgroup": "", "why": "its cgroup /c has no cpu.max"}), lambda facts: setattr(facts, "auto_converge", True)),
     "auto-converge is not possible for shop on node1: its cgroup /c has no cpu.max: move it without migrate_auto_converge"),
    ("lazy_pages", both(put("here.workload.cgroup", ""), lambda facts: setattr(facts, "lazy_pages", True)),
     "lazy pages are not possible for shop: it has no cgroup of the second version of its own on node1: move it without migrate_lazy_pages"),
    ("lazy_pages", both(put("there.host.criu.lazy_pages", False), lambda facts: setattr(facts, "lazy_pages", True)),
     "lazy pages are not possible for shop: `criu check --feature uffd-noncoop` finds no userfaultfd on node2 that tells of what tasks do to"),
    ("systemd", put("there.host.systemd", []), "node2 does not run systemd"),
    ("systemd", put("here.host.systemd", [239]), "systemd is 239 on node1, and 240 or later is needed"),
    ("clock", put("there.host.clock", 1100.0), "the clocks of node1 and node2 are about 100 s apart"),
    ("locked", other_session("here"), "shop is being moved already, by session shop-20261121t000000z on node1, which is in the state presync"),
    ("locked", other_session("here", running=False, state="prepare", prepared_now=True, destination="node3",
                             by={"who": "alice", "on": "bastion", "since": "2026-11-21T00:00:00Z"}),
     "shop is being moved already to node3 by alice on bastion since 2026-11-21T00:00:00Z, by session shop-20261121t000000z on node1, which is in the "
     "state prepare: wait until that has ended"),
    ("locked", other_session("there", running=False, state="frozen"),
     "the session shop-20261121t000000z on node2 has left shop in the state frozen, and nothing is at work on it: playbooks/recover.yml ends it, or "
     "`pcopy session abort /var/lib/handover/sessions/shop-20261121t000000z` there"),
    ("locked", other_session("there", running=False, ended=True, state="done"),
     "shop has left node2 by session shop-20261121t000000z, and what is left of it there was not removed: run playbooks/recover.yml"),
    ("unanswered", put("there.problems", ["podman info failed: no such file"]), "node2 could not be examined in full: podman info failed"),
]  # fmt: skip


def test_a_root_that_is_a_volume_moves_without_an_image(facts):
    below = {**ROOT, "type": "bind", "source": ROOT["source"] + "/tmp", "directory": ROOT["source"] + "/tmp", "destination": "/tmp", "kind": "directory"}
    facts.shop.update(mounts=[ROOT, below], image={"id": "", "name": "", "size": 0, "named": False, "manifest": ""}, devices=["/dev/net/tun"])
    assert facts.sentences() == []
    plan = facts.plan()
    assert preflight.missing(plan) == []
    # What the engine binds elsewhere is named to the session.
    assert plan.volumes == [{**ROOT["image_volume"], "podman_volume": "", "same_device": False, "folders": ["tmp"]}]
    facts.there["host"]["mountpoints"] = [ROOT["source"]]
    assert [name for name, _sentence in facts.sentences()] == ["mountpoints"]


@pytest.mark.parametrize("check, fault, text", FAULTS, ids=["{0}-{1}".format(number, fault[0]) for number, fault in enumerate(FAULTS)])
def test_a_planted_fault_is_told_in_one_sentence(facts, check, fault, text):
    fault(facts)
    found = facts.sentences()
    assert [name for name, _sentence in found] == [check]
    assert text in found[0][1]
    assert "\n" not in found[0][1]


def test_every_check_has_a_planted_fault():
    assert {check for check, _fault, _text in FAULTS} == {*preflight.BASICS, *preflight.CHECKS}


TOLD = [
    ("bind_mounts", bound("carry"), "the directory /srv/files that shop mounts goes along, and what node1 has of it is kept there as /srv/files.migrated"),
    ("exec_sessions", put("here.workload.entered", [{"process": "sh", "pid": 9}]),
     "sh (pid 9) in shop was started by podman exec: it does not move, and ends on node1"),
    ("affinity", both(put("here.workload.pinned", [{"process": "db", "pid": 7, "processors": [1, 9]}]), put("there.host.processors", [0, 1])),
     "db (pid 7) in shop is bound to processors of node1, of which node2 does not have 9: it runs there on the others, or on all"),
    ("growth", put("there.host.images.free", GIB // 2),
     "the image volumes of shop may still take 768 MiB on node2, and 256 MiB will be free there in /var/lib/handover/volumes: its writes fail"),
    ("log", put("here.workload.log", {"driver": "k8s-file", "path": "/l/ctr.log", "size": MIB}), "the log of shop up to now (/l/ctr.log, 1 MiB) goes with the"),
    ("log", both(put("here.workload.log", {"driver": "k8s-file", "path": "/var/log/shop.log", "size": MIB}), put("here.workload.static_dir", "/l")),
     "the log of shop up to now (/var/log/shop.log, 1 MiB) stays on node1, and the one on node2 begins anew"),
    ("log", put("here.workload.log", {"driver": "journald", "path": "", "size": 0}), "the log of shop up to now stays in the journal of node1"),
    ("own_tables", put("here.workload.own_tables", ["inet shop"]),
     "the nftables table inet shop of shop goes along, and connections that shop forwards for others are new to it on node2"),
    ("place_memory", both(put("there.host.criu.lazy_pages", False), lambda facts: setattr(facts, "place_memory", True)),
     "CRIU carries the memory of shop (512 MiB), and the pause is longer by that: `criu check --feature uffd-noncoop` finds no userfaultfd on node2"),
    ("stopped", both(put("here.workload.state", "exited"), put("here.workload.exit_code", 3)),
     "shop does not run, and moves as it is: podman on node2 will call it created, and not know that it exited with exit code 3"),
    ("tmpfs", put("here.workload.tmpfs", [{"place": "/scratch", "size": MIB, "attributes": "", "device": "0:62", "inside": ""}]),
     "the tmpfs /scratch of shop holds 1 MiB, which CRIU packs in the pause: so little is not worth more"),
    ("unit_files", put("here.workload.service", SERVICE), "the unit shop.service of shop goes along, and node1 keeps the unit's files with .migrated"),
    ("unit_layer", both(put("here.workload.service", SERVICE), lambda facts: setattr(facts, "mode", "offline")),
     "shop is made anew on node2 by its unit shop.service, as at each start"),
    ("auto_update", put("here.workload.auto_update", True), "shop is updated by podman auto-update"),
    ("secrets", sealed("carry"), "the secret token that shop uses is copied to node2, and node1 keeps it: remove it there with `podman secret rm token` if"),
]


@pytest.mark.parametrize("check, state, text", TOLD, ids=["{0}-{1}".format(number, row[0]) for number, row in enumerate(TOLD)])
def test_state_that_stays_behind_is_told_and_in_no_ones_way(facts, check, state, text):
    assert preflight.told(facts.plan()) == []
    state(facts)
    assert facts.sentences() == []
    (sentence,) = preflight.told(facts.plan())
    assert text in sentence
    assert "\n" not in sentence
    assert list(preflight.TOLD[check](facts.plan())) == [sentence]


def test_all_that_is_told_is_planted():
    assert {check for check, _state, _text in TOLD} == set(preflight.TOLD)


def test_a_key_that_no_row_is_about_is_refused_until_it_is_named(facts):
    facts.shop["unaccounted"] = ["HostConfig.NewThing"]
    ((check, sentence),) = facts.sentences()
    assert check == "inventory:HostConfig.NewThing"
    assert "list 'inventory:HostConfig.NewThing' in handover_ignore_checks" in sentence
    assert facts.sentences("inventory:HostConfig.NewThing") == []
    assert facts.sentences("inventory:HostConfig.OtherThing") != []
    assert preflight.unknown_names(["inventory:HostConfig.NewThing"]) == []


def test_every_check_is_in_the_documentation():
    page = (pathlib.Path(__file__).parents[5] / "docs" / "preflight.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z_]+)`", page))
    assert {*preflight.BASICS, *preflight.CHECKS} - named == set()


def test_all_that_is_wrong_is_told_at_once(facts):
    both(put("there.host.arch", "aarch64"), put("there.host.images.free", 0), put("here.workload.auto_remove", True))(facts)
    assert {name for name, _sentence in facts.sentences()} == {"architecture", "space", "rm"}


def test_where_the_basics_are_wrong_nothing_else_is_asked(facts):
    facts.here["workload"] = {"exists": False, "running": False, "held": False, "name": "shop"}
    facts.there["host"]["arch"] = "aarch64"
    assert [name for name, _sentence in facts.sentences()] == ["workload"]


def test_an_ignored_finding_does_not_count_but_is_told(facts):
    facts.there["host"]["clock"] = 2000.0
    found, ignored = preflight.examine(facts.plan(), ["clock"])
    assert found == []
    assert [finding.check for finding in ignored] == ["clock"]


def test_the_time_that_asking_takes_is_no_difference_of_clocks(facts):
    facts.here["host"]["clock"] = 1100.0  # asked 100 s after the destination
    plan = dataclasses.replace(facts.plan(), asked_within=101.0)
    assert preflight.examine(plan) == ([], [])
    assert [found.check for found in preflight.examine(dataclasses.replace(plan, asked_within=60.0))[0]] == ["clock"]
    facts.here["host"]["clock"] = 900.0  # no waiting makes a clock go back
    assert [found.check for found in preflight.examine(dataclasses.replace(facts.plan(), asked_within=101.0))[0]] == ["clock"]


@pytest.mark.parametrize(
    ("there", "here", "says"),
    [
        # Each is the host's clock, and the controller's at both ends of the call.
        ((1000.0, 1000.0, 1001.0), (1100.0, 1100.0, 1101.0), ""),  # asked 100 s later
        ((1000.0, 1000.0, 1001.0), (1065.0, 1100.0, 1101.0), "about 35 s apart (known to within 1.0 s)"),  # the wait hides nothing
        ((1000.0, 1000.0, 1001.0), (1135.0, 1100.0, 1101.0), "about 35 s apart (known to within 1.0 s)"),
        ((1000.0, 990.0, 1010.0), (1135.0, 1090.0, 1110.0), ""),  # slow calls: it may be 15 s as well
        ((1000.0, 990.0, 1010.0), (1155.0, 1090.0, 1110.0), "about 55 s apart (known to within 20.0 s)"),
    ],
)
def test_clocks_are_compared_by_readings_of_the_controllers_clock(facts, there, here, says):
    for each, (clock, asked_at, told_at) in ((facts.there, there), (facts.here, here)):
        each["host"]["clock"] = clock
        each.update(asked_at=asked_at, told_at=told_at)
    found, _ignored = preflight.examine(dataclasses.replace(facts.plan(), asked_within=200.0))
    assert [finding.check for finding in found] == (["clock"] if says else []) and all(says in finding.sentence for finding in found)


def test_a_criu_that_crashes_at_the_name_of_a_lock_is_told(facts):
    for each in (facts.here, facts.there):
        each["host"].update(kernel="6.12.1")
        each["host"]["criu"].update(version=[4, 1, 1], network_lock={"method": "iptables", "works": True, "named": True})
    said = [sentence for _name, sentence in facts.sentences()]
    assert len(said) == 2 and all("and crashes at the line network-lock in /etc/criu/runc.conf" in sentence for sentence in said)
    facts.here["host"]["criu"]["network_lock"]["named"] = False
    facts.there["host"]["criu"]["version"] = [4, 2, 1]
    assert facts.sentences() == []


def test_the_basics_cannot_be_ignored(facts):
    facts.destination = "node1"
    assert [name for name, _sentence in facts.sentences("same_host")] == ["same_host"]
    assert preflight.unknown_names(["clock", "same_host", "colour"]) == ["same_host", "colour"]


@pytest.mark.parametrize(
    "fault",
    [
        put("there.host.criu.version", []),
        obstacles("io_uring"),
        both(put("here.workload.networks.0.shared", False), put("here.workload.connections", {"10.213.0.60": 3})),
        put("there.host.kernel", "5.4.1"),
        put("there.host.podman.network", {"backend": "cni", "path": ""}),
        put("there.host.cpu_features", []),
        put("here.workload.runtime", "crun"),
        put("there.host.memory_available", 0),
        put("there.host.criu.action_script", ""),
        put("there.host.seccomp_filter", True),
        put("here.host.pcopy.needs", {"live": ["settings"]}),
        both(put("here.workload.mtus", {"eth0": 9000}), put("there.host.mtus", {"eth0": 1500})),
    ],
)
def test_offline_needs_nothing_of_criu(facts, fault):
    facts.mode = "offline"
    fault(facts)
    assert facts.sentences() == []


def test_our_own_session_and_those_that_have_ended_are_no_obstacle(facts):
    other_session("here", id="ours")(facts)
    other_session("there", running=False, ended=True, state="thawed")(facts)
    assert facts.sentences() == []


def test_of_a_session_under_way_one_sentence_is_told_and_nothing_of_what_it_made(facts):
    other_session("here")(facts)
    other_session("there", role="destination")(facts)
    facts.there["workload"] = {"exists": True, "running": False, "held": False, "name": "shop", "state": "created"}
    assert [name for name, _sentence in facts.sentences("locked")] == ["locked"]


def test_an_older_kernel_does_not_need_the_newest_criu(facts):
    for side in (facts.here, facts.there):
        side["host"].update(kernel="6.12.43+deb13-amd64")
        side["host"]["criu"]["version"] = [4, 1, 1]
    assert facts.sentences() == []


def test_a_pidfd_is_no_obstacle_for_a_newer_criu(facts):
    obstacles("pidfds")(facts)
    assert facts.sentences() == []


def test_the_same_of_several_processes_is_told_once(facts):
    obstacles("io_uring")(facts)
    facts.shop["obstacles"] += [dict(facts.shop["obstacles"][0], process="worker", pid=8), dict(facts.shop["obstacles"][0], process="worker", pid=9)]
    ((_check, sentence),) = facts.sentences()
    assert "db (pid 7 and 2 more) uses io_uring" in sentence


def test_features_that_no_program_can_use_are_not_missed(facts):
    facts.here["host"]["cpu_features"] = ["avx", "hypervisor", "sse2", "vmx"]
    assert facts.sentences() == []


def test_a_workload_without_a_network_needs_no_silence(facts):
    facts.shop["networks"] = []
    facts.there["host"]["podman"]["network"] = {"backend": "cni", "path": ""}
    facts.here["host"]["criu"]["network_lock"] = {"method": "iptables", "works": False}
    assert facts.sentences() == []


def test_a_volume_is_counted_once_however_often_it_is_mounted(facts):
    facts.shop["mounts"].append({**MOUNT, "type": "bind", "destination": "/backup", "directory": "/var/lib/handover/mnt/pgdata/base", "name": ""})
    volumes = facts.plan().volumes
    assert [volume["podman_volume"] for volume in volumes] == ["pgdata"]


class TestLinkRate:
    def test_the_slower_link_counts(self, facts):
        facts.here["host"]["addresses"][0]["speed"], facts.there["host"]["addresses"][0]["speed"] = 10000, 2500
        assert preflight.link_rate(facts.plan(), "10.213.0.12:0") == 2500 * 125000

    def test_where_nothing_is_known_it_is_a_gigabit(self, facts):
        facts.there["host"]["addresses"][0]["speed"] = 0
        assert preflight.link_rate(facts.plan(), "10.213.0.12:0") == 125_000_000
        assert preflight.link_rate(facts.plan(), "[2001:db8::7]:0") == 125_000_000

    def test_over_ipv6(self, facts):
        facts.here["host"]["addresses"].append({"address": "2001:db8::6", "prefix": 64, "interface": "eth1", "speed": 40000})
        facts.there["host"]["addresses"].append({"address": "2001:db8::7", "prefix": 64, "interface": "eth1", "speed": 25000})
        assert preflight.link_rate(facts.plan(), "[2001:db8::7]:0") == 25000 * 125000


class TestListenAddress:
    def test_one_in_a_network_that_both_are_in(self, facts):
        facts.there["host"]["addresses"].insert(0, {"address": "192.0.2.7", "prefix": 24, "interface": "wan"})
        assert preflight.listen_address(facts.plan()) == "10.213.0.12:0"

    def test_the_first_where_they_share_none(self, facts):
        facts.there["host"]["addresses"] = [{"address": "2001:db8::7", "prefix": 64, "interface": "wan"}]
        assert preflight.listen_address(facts.plan()) == "[2001:db8::7]:0"

    def test_the_wanted_one_has_to_be_there(self, facts):
        assert preflight.listen_address(facts.plan(), "10.213.0.12") == "10.213.0.12:0"
        assert preflight.listen_address(facts.plan(), "10.213.0.99") is None


@pytest.mark.parametrize(
    ("secret", "made"), [(sealed("carry"), ["token"]), (sealed("carry", there={}), []), (sealed("same", there={}), []), (sealed("same"), [])]
)
def test_secrets_that_are_made_are_those_that_the_destination_lacks(facts, secret, made):
    secret(facts)
    assert preflight.twin(facts.plan())["secrets"] == made


def test_what_a_move_makes_is_what_the_destination_does_not_have(facts):
    facts.shop["mounts"] = [MOUNT, PLAIN, dict(MOUNT, type="bind", name="", volume=None)]
    facts.there["host"]["podman"].update(volumes={}, containers=[{"name": "cache", "id": "2", "state": "running"}])
    nothing = {"folders": [], "secrets": [], "restored": False, "exiting": [], "requirements": {}, "networks": [], "pods": []}
    assert preflight.twin(facts.plan()) == {"made": True, "volumes": ["pgdata", "uploads"], **nothing}
    facts.there["host"]["podman"].update(volumes={"uploads": {}}, containers=[{"name": "shop", "id": "1", "state": "created"}])
    assert preflight.twin(facts.plan()) == {"made": False, "volumes": ["pgdata"], **nothing}
