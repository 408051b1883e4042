#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: preflight

short_description: Find the obstacles to moving a workload

version_added: 0.1.0

description:
  - Compares the results of M(livefleet.handover.workload_info) for the source and for the destination, and names everything
    that is in the way of the move, one sentence for each.
  - Looks at nothing but its arguments, and runs on the controller. Of a move that can be made it shows RV(told).

extends_documentation_fragment:
  - livefleet.handover._attributes
  - livefleet.handover._attributes.info_module

options:
  workload:
    description:
      - Name of the workload.
    type: str
    required: true
  source:
    description:
      - Name of the host that the workload is on, as messages should call it.
    type: str
    required: true
  destination:
    description:
      - Name of the host that it is to go to, as messages should call it.
    type: str
    required: true
  source_facts:
    description:
      - The result of M(livefleet.handover.workload_info) on the source.
    type: dict
    required: true
  destination_facts:
    description:
      - The result of M(livefleet.handover.workload_info) on the destination. It may be that the destination was not reached.
    type: dict
    required: true
  driver:
    description:
      - The engine that runs the workload.
    type: str
    choices: [docker, openvz, podman]
    default: podman
  mode:
    description:
      - With V(live) the memory moves too, and the workload is only paused. With V(offline) it is stopped and started; one that is stopped already stays so.
    type: str
    choices: [live, offline]
    default: live
  session:
    description:
      - The session that is to move it. Another session that has hold of the workload is in the way.
    type: str
    default: ""
  listen:
    description:
      - The destination's address at which the source is to reach it. If not given, one in a network that both are in.
    type: str
    default: ""
  tracker:
    description:
      - How the source is to track writes. With V(ebpf) by programs in its kernel. With V(hash) by reading everything and comparing
        digests, also in the pause. With V(auto) by the first, and by the other one only where the kernel refuses.
    type: str
    choices: [auto, ebpf, hash]
    default: auto
  hash_limit: {type: int, default: 0, description: Bytes that may be read to be compared in the pause. With V(0) any number.}
  auto_converge:
    description: Whether it is to be slowed down where its pause would be too long. Needs a cgroup of its own whose processor time can be limited.
    type: bool
    default: false
  lazy_pages:
    description: Whether the workload is to run on the destination before its memory is there. Needs userfaultfd there, and a cgroup of its own.
      With V(auto) only where it can, and where its pause would be longer than O(max_frozen_ms) without that.
    type: str
    choices: ["false", "true", auto]
    default: "false"
  max_frozen_ms: {type: int, default: 0, description: "Milliseconds for which the workload may stand still, for O(lazy_pages=auto). V(0) for any."}
  place_memory: {type: bool, default: false, description: Whether the workload's memory is placed beside CRIU's restore where that is possible.}
  reserve_space:
    description: Whether the destination is to take all the room that the image volumes can need, and not only as much as is in them.
    type: bool
    default: false
  bind_mounts:
    description:
      - The fate of files and folders that the container mounts by their paths. With V(carry) they are copied as plain volumes are, with V(same)
        they have to be the same on both hosts and are only read, with V(refuse) they are in the way.
    type: str
    choices: [carry, same, refuse]
    default: refuse
  source_binds:
    description: The C(paths) that M(livefleet.handover.bind_mounts_info) returned on the source.
    type: dict
    default: {}
  destination_binds:
    description:
      - The same on the destination.
    type: dict
    default: {}
  secrets:
    description:
      - What becomes of podman's secrets that the container uses. With V(same) they have to be the same on both hosts, with V(carry) those that
        the destination lacks are copied, with V(refuse) they are in the way.
    type: str
    choices: [same, carry, refuse]
    default: same
  floating_addresses:
    description:
      - Addresses of the source that are there for published ports alone, and move along with the container that publishes a port on them. Connections
        through them live on.
    type: list
    elements: str
    default: []
  beside: {type: list, elements: str, default: [], description: [Names of the containers of a project that move at the same moment.]}
  source_secrets:
    description:
      - What M(livefleet.handover.podman_secrets_info) returned on the source as C(secrets).
    type: dict
    default: {}
  destination_secrets:
    description:
      - The same on the destination, with the same key.
    type: dict
    default: {}
  asked_within_seconds:
    description:
      - Seconds in which first the destination was asked, and then the source. By so much the clocks may differ without being wrong.
      - It is for facts without C(asked_at) and C(told_at), which M(livefleet.handover.workload_info) returns. By those the clocks are compared to within
        the time of one call.
    type: float
    aliases: [asked_within]
    default: 0
  ignore:
    description:
      - Names of checks whose findings do not count, as RV(findings) gives them.
    type: list
    elements: str
    default: []
  fail:
    description:
      - Whether the task fails when something is in the way.
    type: bool
    default: true

notes:
  - An action plugin of the same name runs it on the controller, where its arguments are.

seealso:
  - module: livefleet.handover.workload_info

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Look at the source
  livefleet.handover.workload_info:
    workload: shop
  register: here

- name: Look at the destination
  livefleet.handover.workload_info:
    workload: shop
  delegate_to: node2
  register: there

- name: See whether the shop can move
  livefleet.handover.preflight:
    workload: shop
    source: "{{ inventory_hostname }}"
    destination: node2
    source_facts: "{{ here }}"
    destination_facts: "{{ there }}"
"""

RETURN = r"""
findings:
  description: The obstacles.
  returned: always
  type: list
  elements: dict
  sample:
    - check: already_there
      sentence: "node2 has a container named shop already, which is exited: remove it with `podman rm shop` there, or rename it"
ignored:
  description: The obstacles that were listed in O(ignore).
  returned: always
  type: list
  elements: dict
  sample: []
foretold:
  description: The pause, the bytes and the number of checks, one sentence each, for the end of a check.
  returned: when nothing is in the way
  type: list
  elements: str
  sample:
    - It would stand still for about 0.24 s, and longer by what it writes meanwhile; handover_trial=only measures it.
    - 412 MiB would be sent (memory 26 MiB, disks 386 MiB), which takes 4 s or more at 119.2 MiB/s.
    - 81 checks of both hosts found nothing in the way.
images:
  description:
    - The images that the destination lacks under the same ID, and how each is to be saved, in the C(format) in which it keeps its ID, and by which
      C(reference).
  returned: when nothing is in the way
  type: list
  elements: dict
  sample:
    - id: 8f0df627f72d6a2fd8960f99108e2ce6f2df8a9f33dd1418bbc74d97c48e7a76
      name: localhost/shop:1
      size: 4790000
      format: oci-archive
      reference: localhost/shop:1
floating:
  description: The addresses of O(floating_addresses) that move along, where they are on the C(source) and where they go on the C(destination).
  returned: when nothing is in the way
  type: dict
  sample:
    source: [{address: 192.0.2.50/24, interface: eno2}]
    destination: [{address: 192.0.2.50/24, interface: eno1}]
link_rate:
  description: Bytes per second of the slower of the links between the two hosts, as their kernels tell it; of a gigabit where they do not.
  returned: when nothing is in the way
  type: int
  sample: 125000000
listen:
  description: Where the destination is to listen for the source, on a port of its own choice.
  returned: success
  type: str
  sample: 10.213.0.12:0
volumes:
  description: The image volumes that move along.
  returned: success
  type: list
  elements: dict
  sample:
    - name: pgdata
      image: /var/lib/handover/volumes/pgdata.img
      device: /dev/loop1
      mountpoint: /var/lib/handover/mnt/pgdata
      fstype: ext4
      options: noatime,discard
      size: 1073741824
      allocated: 271392768
      podman_volume: pgdata
directories:
  description: The volumes that move along and are plain directories of podman's, with where they are on the source.
  returned: success
  type: list
  elements: dict
  sample: [{name: uploads, path: /var/lib/containers/storage/volumes/uploads/_data, size: 73400320, anonymous: false, shared_with: []}]
tmpfs:
  description:
    - The tmpfs of a container whose files the session carries, as the source's side of the session is told of them.
    - Of a member of several containers each has that one's name as C(member).
  returned: when nothing is in the way
  type: list
  elements: dict
  sample: [{name: "tmpfs:/scratch", path: /proc/4711/root/scratch, size: 209715200, tmpfs: /scratch, device: "0:62"}]
place_memory:
  description: Whether the memory may be placed. It needs userfaultfd on the destination, and a cgroup of its own for each container.
  returned: when nothing is in the way
  type: bool
  sample: true
lazy_pages: {returned: when nothing is in the way, type: bool, sample: false, description: Whether the memory follows when it runs on the destination.}
pause_ms:
  description: Milliseconds of the pause, as far as they can be told before anything is measured; nothing of a move that stops the workload.
  returned: when nothing is in the way
  type: int
  sample: 240
sizes:
  description: Bytes that have to be on the destination, by C(memory), C(disks), C(files) and C(images).
  returned: when nothing is in the way
  type: dict
  sample: {memory: 27262976, disks: 404750336, files: 0, images: 0}
told:
  description: State that does not move, or is made anew, one sentence each. It is no obstacle.
  returned: when the destination was reached
  type: list
  elements: str
  sample:
    - the log of shop up to now stays in the journal of node1
verdict:
  description: Whether the workload can move, in one sentence.
  returned: when the destination was reached
  type: str
  sample: shop can move from node1 to node2 (live)
twin:
  description: Everything that the move will make on the destination, the container and volumes of podman's by name, and remove again if it is undone.
  returned: when nothing is in the way
  type: dict
  sample:
    made: true
    volumes: [pgdata]
"""

import dataclasses
import typing as t

from ..module_utils._core import foretold
from ..module_utils._core.link import link_rate, listen_address
from ..module_utils._core.move import out_of_reach, verdict
from ..module_utils._core.step import discreet
from ..module_utils._drivers.examiners import EXAMINERS

LAZY_PAGES = (
    "lazy pages: from when {0} runs on {2} until the last page of its memory has come, the death of {1} or {2} is the end of what it has in memory, "
    "and while they do not reach each other it may stand still"
)

ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "workload": {"type": "str", "required": True},
    "source": {"type": "str", "required": True},
    "destination": {"type": "str", "required": True},
    "source_facts": {"type": "dict", "required": True},
    "destination_facts": {"type": "dict", "required": True},
    "driver": {"type": "str", "choices": sorted(EXAMINERS), "default": "podman"},
    "mode": {"type": "str", "choices": ["live", "offline"], "default": "live"},
    "session": {"type": "str", "default": ""},
    "listen": {"type": "str", "default": ""},
    "tracker": {"type": "str", "choices": ["auto", "ebpf", "hash"], "default": "auto"},
    "hash_limit": {"type": "int", "default": 0},
    "auto_converge": {"type": "bool", "default": False},
    "lazy_pages": {"type": "str", "choices": ["false", "true", "auto"], "default": "false"},
    "max_frozen_ms": {"type": "int", "default": 0},
    "place_memory": {"type": "bool", "default": False},
    "reserve_space": {"type": "bool", "default": False},
    "bind_mounts": {"type": "str", "choices": ["carry", "same", "refuse"], "default": "refuse"},
    "source_binds": {"type": "dict", "default": {}},
    "destination_binds": {"type": "dict", "default": {}},
    "secrets": {"type": "str", "choices": ["same", "carry", "refuse"], "default": "same", "no_log": False},
    "floating_addresses": {"type": "list", "elements": "str", "default": []},
    "beside": {"type": "list", "elements": "str", "default": []},
    "source_secrets": {"type": "dict", "default": {}, "no_log": False},
    "destination_secrets": {"type": "dict", "default": {}, "no_log": False},
    "asked_within_seconds": {"type": "float", "default": 0, "aliases": ["asked_within"]},
    "ignore": {"type": "list", "elements": "str", "default": []},
    "fail": {"type": "bool", "default": True},
}


def run(params: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The result of the module; with `msg` where it fails."""
    if params["destination_facts"].get("unreachable"):
        return {"msg": out_of_reach(params["destination"], str(params["destination_facts"].get("msg") or ""))}
    examiner = EXAMINERS[params["driver"]]
    plan = examiner.plan(
        workload=params["workload"],
        source=params["source"],
        destination=params["destination"],
        mode=params["mode"],
        here=params["source_facts"],
        there=params["destination_facts"],
        session=params["session"],
        tracker=params["tracker"],
        hash_limit=params["hash_limit"],
        auto_converge=params["auto_converge"],
        lazy_pages=params["lazy_pages"] == "true",
        place_memory=params["place_memory"],
        reserve_space=params["reserve_space"],
        bind_mounts=params["bind_mounts"],
        binds_here=params["source_binds"],
        binds_there=params["destination_binds"],
        secrets=params["secrets"],
        floating_addresses=params["floating_addresses"],
        beside=params["beside"],
        secrets_here=params["source_secrets"],
        secrets_there=params["destination_secrets"],
        asked_within=params["asked_within_seconds"],
    )
    auto = params["lazy_pages"] == "auto" and examiner.may_follow(plan)
    chosen = foretold.follows(plan, params["max_frozen_ms"], examiner.places(plan)) if auto else ""
    if chosen:
        plan = dataclasses.replace(plan, lazy_pages=True)
    unknown = examiner.unknown_names(params["ignore"])
    if unknown:
        return {"msg": "ignore: there is no check named {0}: name some of {1}".format(", ".join(unknown), ", ".join(sorted(examiner.checks)))}
    found, ignored = examiner.examine(plan, params["ignore"])
    result: dict[str, t.Any] = {
        "changed": False,
        "findings": [dataclasses.asdict(finding) for finding in found],
        "ignored": [dataclasses.asdict(finding) for finding in ignored],
    }
    if plan.lazy_pages and plan.live:
        result["warnings"] = [LAZY_PAGES.format(plan.workload, plan.source, plan.destination)]
    sentences = [finding.sentence for finding in found]
    if not found:
        address = listen_address(plan, params["listen"])
        if address is None:
            sentences.append(
                "{0} has no address {1}: name one of its own".format(plan.destination, params["listen"])
                if params["listen"]
                else "{0} has no address at which {1} could reach it: give it one".format(plan.destination, plan.source)
            )
        images, volumes, directories = examiner.images(plan), examiner.volumes(plan), examiner.directories(plan)
        rate = link_rate(plan, address or "")
        sizes, placed = foretold.parts(plan, volumes, directories, images), examiner.places(plan)
        result.update(
            images=images,
            listen=address,
            link_rate=rate,
            volumes=volumes,
            directories=directories,
            twin=examiner.twin(plan),
            floating=examiner.floating(plan),
            sizes=sizes,
            place_memory=placed,
            lazy_pages=plan.lazy_pages and plan.live,
            tmpfs=examiner.tmpfs(plan),
            pause_ms=foretold.pause_ms(plan, sizes["memory"], placed),
            foretold=foretold.lines(plan, sizes, rate, len({*examiner.checks} - {*params["ignore"]}), placed),
        )
    result.update(verdict=verdict(plan, sentences), told=[*([chosen] if chosen else []), *examiner.told(plan)])
    if sentences and params["fail"]:
        result["msg"] = (
            sentences[0]
            if len(sentences) == 1
            else "{0} things are in the way: {1}".format(
                len(sentences), "; ".join("({0}) {1}".format(number, sentence) for number, sentence in enumerate(sentences, 1))
            )
        )
    return result


def main() -> None:
    """Entry point."""
    module = discreet(
        argument_spec=ARGUMENTS,
        supports_check_mode=True,
    )
    result = run(module.params)
    if "msg" in result:
        module.fail_json(**result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
