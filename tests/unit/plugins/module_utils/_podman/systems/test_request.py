# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.livefleet.handover.plugins.module_utils._podman.systems.request import ARGUMENTS, faults

CHECKOUT = Path(__file__).resolve().parents[6]
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl admin@example.org"
LAN = {"name": "lan", "ip": "192.0.2.20", "mac": "02:00:00:00:00:20"}
BOX = {"name": "box", "image": "localhost/debian:13", "networks": [LAN], "volumes": [{"name": "data", "path": "/srv", "size": "1G"}]}


def asked(**other):
    """A request with all defaults, as the module has it."""
    found = ArgumentSpecValidator(ARGUMENTS).validate({**BOX, **other})
    assert not found.error_messages
    return found.validated_parameters


def test_nothing_is_wrong_with_what_is_right():
    limits = {"memory": "1G", "cpus": 0.5, "pids_limit": -1}
    assert faults([asked(**limits, environment={"A": "1"}, capabilities=["NET_ADMIN"], authorized_keys=[KEY, f'from="a" {KEY}'])]) == []
    assert faults([asked(networks=[], volumes=[], hostname="box.example.org")]) == []
    assert faults([asked(state="absent", force=True, remove_volumes=True, image=None)]) == []


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"name": "-box"}, "'-box' is no name of podman's"),
        ({"image": None}, "box has no image: name one in `image`"),
        ({"hostname": "a_b"}, "'a_b' is no host name"),
        ({"networks": [{"name": "lan"}]}, "network lan: it has no address, and podman would choose another at each start"),
        ({"networks": [{"name": "lan", "ip": "192.0.2.20/24"}]}, "'192.0.2.20/24' is no address of IP version 4: write it without a prefix in `ip`"),
        ({"networks": [{"name": "lan", "ip6": "192.0.2.20"}]}, "'192.0.2.20' is no address of IP version 6"),
        ({"networks": [{**LAN, "mac": "03:00:00:00:00:20"}]}, "'03:00:00:00:00:20' is no hardware address of one interface"),
        ({"networks": [{**LAN, "interface": "a/b"}]}, "'a/b' is no name of an interface"),
        ({"volumes": [{"name": "data", "path": "srv"}]}, "'srv' is no plain path"),
        ({"volumes": [{"name": "data", "path": "/srv/../etc"}]}, "'/srv/../etc' is no plain path"),
        ({"volumes": [{"name": "data", "path": "/run/data"}]}, "/run/data is mounted by podman or the init at each start"),
        ({"volumes": [{"name": "data", "path": "/root"}]}, "/root would hide files of the system that are set up here"),
        ({"volumes": [{"name": "data", "path": "/etc"}]}, "/etc would hide files of the system"),
        ({"volumes": [{"name": "d a", "path": "/srv"}]}, "'d a' is no name of a volume"),
        ({"volumes": [{"name": "data", "path": "/srv", "size": "1GB"}]}, "'1GB' is ambiguous"),
        ({"memory": "much"}, "'much' is not a size"),
        ({"memory": "16M"}, "no whole system comes up in 16M of memory: give it 32M at least"),
        ({"cpus": 0}, "cpus is 0: give a number from 0.01 on"),
        ({"pids_limit": 3}, "no whole system comes up with 3 processes"),
        ({"stop_timeout": 0}, "its services would be killed at each stop"),
        ({"environment": {"1": "a"}}, "'1' is no name of a variable"),
        ({"environment": {"A": "a\nb"}}, "the variable A is no text of one line"),
        ({"capabilities": ["net admin"]}, "'net admin' is no capability"),
        ({"capabilities": ["CAP_SYS_ADMIN"]}, "the capability CAP_SYS_ADMIN reaches its host"),
        ({"authorized_keys": [KEY, "/root/.ssh/id.pub"]}, "number 2 of authorized_keys is no public key of ssh"),
        ({"authorized_keys": [KEY + "\n" + KEY]}, "number 1 of authorized_keys is no public key of ssh"),
        ({"remove_volumes": True}, "remove_volumes goes with state=absent alone"),
        ({"state": "absent"}, "with state=absent the whole system in it is lost: say so with force=true"),
    ],
)  # fmt: skip
def test_each_fault_has_its_sentence(given, sentence):
    found = faults([asked(**given)])
    assert len(found) == 1 and sentence in found[0], found


def test_two_of_one_kind_are_refused():
    other = asked(name="other", networks=[{**LAN, "ip": "192.0.2.20", "mac": LAN["mac"]}])
    assert faults([asked(), other]) == [
        "the volume data is asked for more than once (box, other): only one can have it",
        "the address 192.0.2.20 is asked for more than once (box, other): only one can have it",
        "the hardware address 02:00:00:00:00:20 is asked for more than once (box, other): only one can have it",
    ]
    assert faults([asked(), asked(state="absent", force=True)]) == ["the container box is asked for more than once: only one can have it"]


def test_the_role_takes_what_the_module_takes():
    role = yaml.safe_load((CHECKOUT / "roles/system_container/meta/argument_specs.yml").read_text(encoding="utf-8"))
    declared = role["argument_specs"]["main"]["options"]["system_container_containers"]["options"]
    assert shape(declared) == shape(ARGUMENTS)


def shape(options):
    keys = ("type", "required", "choices", "default", "elements")
    return {name: {**{key: of[key] for key in keys if key in of}, "options": shape(of.get("options", {}))} for name, of in options.items()}
