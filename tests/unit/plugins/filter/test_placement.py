# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.livefleet.handover.plugins.filter.placement import asked_for, placement
from ansible_collections.livefleet.handover.plugins.filter.plan import plan_lines, plan_outcome

GIB = 2**30


def answer(*names, sessions=(), maintenance=None, memory=8, **labels):
    """What host_info returns of a host with these containers; one in capitals is stopped."""
    return {
        "memory": memory * GIB, "disk": 100 * GIB, "maintenance": maintenance, "sessions": list(sessions),
        "workloads": [
            {
                "name": name.lower(), "running": name.islower(), "state": "running" if name.islower() else "exited",
                "labels": labels.get(name, {}), "memory": GIB, "disk": GIB,
            } for name in names
        ],
    }  # fmt: skip


def session(state, workload="shop", destination="node2"):
    return {"id": workload + "-1", "role": "source", "workload": workload, "state": state, "running": True, "ended": False, "destination": destination}


def goes(plan):
    assert not plan["problems"]
    return {move["workload"]: (move["source"], move["destination"]) for move in plan["moves"]}


def steps(plan):
    """Each step's part and workloads; the first name of a step is nobody's, and is left out."""
    names = iter(plan["steps"])
    found = [[next(names) for _each in range(size)] for size in plan["sizes"]]
    assert next(names, None) is None
    for number, (always, *members) in enumerate(found, 1):
        assert (always["name"], always["of"], always["part"]) == ("step-{0}-of-{1}".format(number, len(found)), "localhost", "")
        assert {each["number"] for each in [always, *members]} == {number}
    return [(members[0]["part"], [each["move"]["workload"] for each in members]) for _always, *members in found]


def problems(answers, **options):
    return placement(answers, **options)["problems"]


def test_a_playbook_s_variables_make_the_same_plan():
    answers = {"node1": answer("shop"), "node2": answer(), "node3": answer()}
    asked = {"moves": None, "empty": ["node1"], "destinations": [], "needs": {"shop": ["ssd"]}, "apart": {}, "wave": {}, "serial": 8, "parallel_steps": 0,
             "spare_memory": 256 << 20, "spare_disk": 1 << 30, "mode": "live", "hosts": "all"}  # fmt: skip
    assert goes(asked_for(answers, asked, {"node3": ["ssd"]}, "-1")) == {"shop": ("node1", "node3")}


def test_a_host_is_emptied_also_of_what_does_not_run():
    answers = {"node1": answer("shop", "web", "OLD"), "node2": answer(), "node3": answer()}
    plan = placement(answers, empty=["node1"], parallel_steps=3, stamp="-20261121t041500z")
    assert goes(plan) == {"old": ("node1", "node2"), "shop": ("node1", "node3"), "web": ("node1", "node2")}
    assert steps(plan) == [("begin", ["old", "shop", "web"]), ("finish", ["old", "shop", "web"])]
    assert [move["running"] for move in plan["moves"]] == [False, True, True]
    assert plan["moves"][1]["session"] == "shop-20261121t041500z"
    assert plan["moves"][1]["name"] == "shop@node1"
    assert plan["moves"][1]["together"] == []


def test_what_does_not_run_is_of_no_wave():
    plan = placement({"node1": answer("shop", "db", "OLD"), "node2": answer()}, empty=["node1"], waves={"all": ["shop", "db", "old"]})
    assert {move["workload"]: move["together"] for move in plan["moves"]} == {"db": ["db", "shop"], "shop": ["db", "shop"], "old": []}


def test_what_is_on_its_way_here_is_waited_for():
    arriving = dict(session("presync", destination="node1"), role="destination")
    answers = {"node1": answer("SHOP", sessions=[arriving]), "node2": answer("shop"), "node3": answer()}
    assert problems(answers, empty=["node1"]) == ["shop is on its way to node1, by session shop-1: wait until that has ended"]


def test_a_container_that_is_held_does_not_become_a_stopped_one():
    answers = {"node1": answer("SHOP", sessions=[session("presync")]), "node2": answer(), "node3": answer()}
    answers["node1"]["workloads"][0]["state"] = "stopping"
    assert placement(answers, empty=["node1"])["moves"][0]["running"]


def test_what_was_moved_by_the_run_before_is_not_planned_again():
    before = {"node1": answer("web"), "node2": answer("shop"), "node3": answer()}
    assert goes(placement(before, empty=["node1"])) == {"web": ("node1", "node3")}
    assert placement(before, moves=[{"workload": "shop", "to": "node2"}])["done"] == [{"workload": "shop", "source": "node2"}]


def test_a_move_that_was_not_brought_to_its_end_goes_on_to_the_same_host():
    # The source has let go of it; the destination has the room, the name and the labels taken already, and may be under maintenance by now.
    answers = {"node1": answer("SHOP", sessions=[session("released")]), "node2": answer("shop", maintenance={"reason": "disks"}), "node3": answer()}
    assert goes(placement(answers, empty=["node1"])) == {"shop": ("node1", "node2")}
    assert goes(placement(answers, moves=[{"workload": "shop", "to": "node2"}])) == {"shop": ("node1", "node2")}
    answers["node1"] = answer(sessions=[session("done")])
    assert goes(placement(answers, empty=["node1"])) == {"shop": ("node1", "node2")}


def test_a_move_that_was_interrupted_while_it_copied_goes_on():
    interrupted = dict(session("presync"), ended=False)
    answers = {"node1": answer("shop", sessions=[interrupted]), "node2": answer("SHOP", maintenance={"reason": "disks"}), "node3": answer()}
    plan = placement(answers, empty=["node1"], waves={"all": ["shop"]}, stamp="-2")
    assert goes(plan) == {"shop": ("node1", "node2")}
    assert plan["moves"][0]["session"] == "shop-1"
    assert plan["moves"][0]["together"] == ["shop-1"]


def test_a_session_that_ended_otherwise_is_no_move():
    answers = {"node1": answer("shop", sessions=[dict(session("thawed"), ended=True)]), "node2": answer(maintenance={"reason": "x"}), "node3": answer()}
    assert goes(placement(answers, empty=["node1"])) == {
        "shop": ("node1", "node3")
    }


def test_labels_of_containers_count():
    answers = {
        "node1": answer("db", "web", db={"handover.needs": "ssd"}, web={"handover.apart": "web, front", "handover.wave": "shop"}),
        "node2": answer("web9", web9={"handover.apart": "front"}),
        "node3": answer(),
    }
    plan = placement(answers, empty=["node1"], labels={"node2": ["ssd"]})
    assert goes(plan) == {"db": ("node1", "node2"), "web": ("node1", "node3")}
    assert [move["wave"] for move in plan["moves"]] == ["", "shop"]


def test_a_wave_knows_its_sessions():
    plan = placement({"node1": answer("db", "web", "x"), "node2": answer()}, empty=["node1"], waves={"shop": ["db", "web"]}, serial=2, stamp="-1")
    assert steps(plan) == [("begin", ["db", "web"]), ("finish", ["db", "web"]), ("begin", ["x"]), ("finish", ["x"])]
    assert [(move["workload"], move["together"]) for move in plan["moves"]] == [("db", ["db-1", "web-1"]), ("web", ["db-1", "web-1"]), ("x", [])]


def test_the_link_has_something_to_carry_while_others_are_prepared_and_cut_over():
    plan = placement({"node1": answer("a", "b", "c", "d", "e"), "node2": answer()}, empty=["node1"], serial=4, parallel_steps=2)
    assert steps(plan) == [
        ("begin", ["a", "b"]), ("begin", ["c", "d"]), ("finish", ["a", "b"]), ("begin", ["e"]), ("finish", ["c", "d"]), ("finish", ["e"]),
    ]  # fmt: skip
    parts = {step["name"]: step["after"] for step in plan["steps"]}
    assert (parts["a@node1.begin"], parts["a@node1.finish"]) == ("", "a@node1.begin")


def test_those_of_a_wave_that_part_are_not_beside_each_other():
    answers = {"node1": answer("db", "web", "queue"), "node2": answer(), "node3": answer()}
    to = {"db": "node2", "web": "node2", "queue": "node3"}
    plan = placement(answers, moves=[{"workload": name, "to": there} for name, there in to.items()], waves={"shop": list(to)}, serial=3)
    assert {move["workload"]: move["beside"] for move in plan["moves"]} == {"db": ["web"], "web": ["db"], "queue": []}


def test_a_wave_does_its_steps_as_one_however_few_do_one_at_once():
    answers = {"node1": answer("db", "web", "queue", "x"), "node2": answer()}
    plan = placement(answers, empty=["node1"], waves={"shop": ["db", "web", "queue"]}, serial=4, parallel_steps=1)
    assert steps(plan) == [("begin", ["db", "queue", "web"]), ("begin", ["x"]), ("finish", ["db", "queue", "web"]), ("finish", ["x"])]


def test_as_many_do_a_step_at_once_as_there_are_processors(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _process: {0, 1, 2})
    plan = placement({"node1": answer("a", "b", "c", "d"), "node2": answer()}, empty=["node1"])
    assert [len(names) for _part, names in steps(plan)] == [3, 1, 3, 1]


def test_maintenance():
    answers = {"node1": answer("shop"), "node2": answer(maintenance={"reason": "new disks"})}
    assert problems(answers, empty=["node1"]) == ["there is no host for shop: node2: it is under maintenance (new disks)"]


def test_hosts_that_do_not_answer():
    silent = {"unreachable": True, "msg": "Task failed\nssh: connect to host node2 port 22: No route to host"}
    why = "it could not be asked (ssh: connect to host node2 port 22: No route to host)"
    assert problems({"node1": answer("shop"), "node2": silent}, empty=["node1"]) == ["there is no host for shop: node2: " + why]
    assert problems({"node1": answer(), "node2": silent}, empty=["node2"]) == ["node2 did not tell what runs on it: " + why]
    said = problems({"node1": answer(), "node2": silent}, moves=[{"workload": "shop"}])
    assert said == ["there is no container or guest named shop on node1 (node2: {0})".format(why)]


def test_where_it_is_has_to_be_plain():
    answers = {"node1": answer("shop"), "node2": answer("shop"), "node3": answer()}
    assert problems(answers, moves=[{"workload": "shop"}]) == ["shop is on node1 and node2: say which of them is meant with `from`"]
    assert goes(placement(answers, moves=[{"workload": "shop", "from": "node2", "to": "node3"}])) == {"shop": ("node2", "node3")}
    answers["node2"] = answer("SHOP")
    assert goes(placement(answers, moves=[{"workload": "shop"}])) == {"shop": ("node1", "node3")}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"serial": 0}, "handover_serial is '0': write how many workloads go side by side, at least 1"),
        ({"parallel_steps": "all"}, "handover_parallel_steps is 'all': write for how many of them at once a step is done, at least 0"),
        ({"spare_disk": "1 GB"}, "handover_spare_disk: '1 GB' is ambiguous: write 1G for powers of 1024"),
        ({"destinations": ["node7"]}, "node7 is not among the hosts that were asked: look further with handover_hosts"),
        ({"moves": ["shop"]}, "handover_moves: entry 1 names no workload: write {workload: NAME, to: HOST}, where `to` and `from` may be left out"),
    ],
)
def test_what_cannot_be_meant(options, sentence):
    assert problems({"node1": answer("shop"), "node2": answer()}, **{"empty": ["node1"], **options}) == [sentence]


def test_an_option_that_is_none():
    with pytest.raises(AnsibleFilterError, match="there is no option spare"):
        placement({}, spare="1G")


def test_a_plan_as_a_table():
    plan = placement({"node1": answer("shop", "OLD"), "node2": answer()}, empty=["node1"])
    assert plan_lines(plan) == [
        "Workload  From   To     Memory  Disk   Batch  Wave",
        "-" * 50,
        "old       node1  node2  1 GiB   1 GiB      1  -",
        "shop      node1  node2  1 GiB   1 GiB      1  -",
        "old does not run, and will not run there either.",
    ]
    assert plan_lines(placement({"node1": answer()}, empty=["node1"])) == ["There is nothing to move."]


def test_what_became_of_it():
    plan = placement({"node1": answer("a", "b", "c", "d", "e"), "node2": answer()}, empty=["node1"])
    begun = {"__handover_has_begun": True}
    ended = {**begun, "__handover_has_ended": True}
    known = {step["name"]: {} for step in plan["steps"]} | {
        "a@node1.begin": ended, "a@node1.finish": {**ended, "__migrate_cutover": {"status": {"frozen_ms": 412.0}}},
        "b@node1.begin": {**begun, "__handover_why": "node2 has no room"},
        "c@node1.begin": begun,
        "d@node1.begin": ended, "d@node1.finish": {**begun, "__handover_why": "its dump failed"},
    }  # fmt: skip
    outcome = plan_outcome(plan, known)
    assert outcome["failed"] == ["b", "c", "d", "e"]
    assert outcome["sentence"] == (
        "4 of 5 were not moved: b: node2 has no room; c: its host did not answer any more: run the same again when it does; "
        "d: its dump failed; e: not begun, since others had failed"
    )
    assert [line.split() for line in outcome["lines"]][2] == ["a", "node1", "node2", "moved", "0.41", "s"]
    # A dry run looks, and does not finish what it has not begun.
    assert plan_outcome(plan, {name: ended if name.endswith(".begin") else {} for name in known}, True)["failed"] == []
    dry = plan_outcome(plan, {**known, "a@node1.begin": ended}, True)
    assert dry["lines"][:2] == ["a can move from node1 to node2.", "b cannot move from node1 to node2: node2 has no room."]
    named = plan_outcome(plan, {**known, "b@node1.begin": {**begun, "__handover_why": "b has a terminal"}}, True)
    assert named["sentence"].startswith("3 of 5 cannot move: b has a terminal; c: its host did not answer any more")


def with_guests(host, *names, kinds=("container", "guest"), storage="copy", state="running", sessions=()):
    """The same of a host that has guests, too."""
    guests = [
        {
            "name": name, "kind": "guest", "running": state == "running", "state": state, "labels": {}, "memory": GIB, "disk": GIB,
            "storage": storage, "disks": ["vda"] if storage == "copy" else [],
        } for name in names
    ]  # fmt: skip
    return {**host, "kinds": list(kinds), "workloads": [*host["workloads"], *guests], "sessions": [*host["sessions"], *sessions]}


def begun(state):
    return {**session(state, workload="vm1"), "id": "vm1", "kind": "guest", "storage": "copy", "disks": ["vda"]}


def test_guests_and_containers_alike():
    plan = placement({"node1": with_guests(answer("shop"), "vm1"), "node2": with_guests(answer())}, empty=["node1"])
    assert goes(plan) == {"shop": ("node1", "node2"), "vm1": ("node1", "node2")}
    assert [(move["workload"], move["kind"], move["storage"], move["disks"]) for move in plan["moves"]] == [
        ("shop", "container", "", []),
        ("vm1", "guest", "copy", ["vda"]),
    ]


def test_a_guest_goes_where_libvirt_is():
    answers = {"node1": with_guests(answer(), "vm1"), "node2": answer(memory=64), "node3": with_guests(answer())}
    assert goes(placement(answers, empty=["node1"])) == {"vm1": ("node1", "node3")}
    del answers["node3"]
    assert problems(answers, empty=["node1"]) == ["there is no host for vm1: node2: it has no libvirt"]


@pytest.mark.parametrize(("state", "running"), [("running", True), ("paused", True), ("shut off", False)])
def test_a_guest_that_is_off_moves_as_it_is(state, running):
    plan = placement({"node1": with_guests(answer(), "vm1", state=state), "node2": with_guests(answer())}, empty=["node1"])
    assert [move["running"] for move in plan["moves"]] == [running]


@pytest.mark.parametrize("there", [True, False])
def test_a_guests_move_that_was_begun_is_brought_to_its_end(there):
    """Where it was to go, whatever has come between; also if its host has it no more."""
    source = with_guests(answer(), *["vm1"] * there, sessions=[begun("presync" if there else "in_doubt")])
    plan = placement({"node1": source, "node2": with_guests(answer(memory=0)), "node3": with_guests(answer())}, empty=["node1"])
    assert goes(plan) == {"vm1": ("node1", "node2")}
    assert [(move["kind"], move["storage"], move["running"]) for move in plan["moves"]] == [("guest", "copy", True)]


def test_two_of_one_name_on_a_host_cannot_be_told_apart():
    answers = {"node1": with_guests(answer("vm1"), "vm1"), "node2": with_guests(answer())}
    assert problems(answers, empty=["node1"]) == ["node1 has a container and a guest that are both named vm1: rename one of them"]


def of_docker(host, *names, runs=True, **more):
    """The same of a host that has containers of Docker's, too."""
    row = {"kind": "docker", "running": True, "state": "running", "labels": {}, "memory": GIB, "disk": GIB, **more}
    return {**host, "kinds": ["container", "docker"] if runs else ["container"], "workloads": [*host["workloads"], *[{"name": name, **row} for name in names]]}


def test_dockers_containers_move_beside_podmans_by_their_own_driver():
    answers = {"node1": of_docker(answer("shop"), "web"), "node2": answer(memory=64), "node3": of_docker(answer(memory=4))}
    plan = placement(answers, empty=["node1"])
    assert goes(plan) == {"shop": ("node1", "node2"), "web": ("node1", "node3")}
    assert [(move["workload"], move["kind"], move["driver"]) for move in plan["moves"]] == [("shop", "container", "podman"), ("web", "docker", "docker")]
    assert {part for part, _names in steps(plan)} == {"begin", "finish"}
    del answers["node3"]
    assert problems(answers, empty=["node1"]) == ["there is no host for web: node2: it has no Docker"]


def test_a_move_of_dockers_that_was_begun_is_brought_to_its_end_by_its_driver():
    begun = {**session("released", workload="web"), "kind": "docker"}
    plan = placement({"node1": of_docker(answer(sessions=[begun])), "node2": of_docker(answer())}, empty=["node1"])
    assert [(move["workload"], move["driver"], move["session"]) for move in plan["moves"]] == [("web", "docker", "web-1")]


@pytest.mark.parametrize("options", [{"empty": ["node1"]}, {"moves": [{"workload": "web"}]}], ids=["drain", "move"])
def test_a_host_is_not_called_empty_where_docker_does_not_tell(options):
    why = "Docker does not run there"
    answers = {"node1": of_docker(answer(), "web", runs=False, running=False, state="", untold=why), "node2": of_docker(answer())}
    assert problems(answers, **options) == ["it is not known whether web runs on node1: Docker does not run there"]


@pytest.mark.parametrize("options", [{"empty": ["node1"]}, {"moves": [{"workload": "web"}]}], ids=["drain", "move"])
def test_a_container_of_each_engine_and_one_name_cannot_be_told_apart(options):
    answers = {"node1": of_docker(answer("web"), "web"), "node2": of_docker(answer())}
    assert problems(answers, **options) == ["node1 has a container and a container of Docker's that are both named web: rename one of them"]


def test_a_project_goes_as_one_wave_by_its_name():
    answers = {"node1": of_docker(answer(), "shop-db-1", "shop-web-1", project="shop"), "node2": of_docker(answer()), "node3": of_docker(answer())}
    plan = placement(answers, moves=[{"workload": "shop", "to": "node2"}], stamp="-s", parallel_steps=1)
    assert goes(plan) == {"shop-db-1": ("node1", "node2"), "shop-web-1": ("node1", "node2")}
    assert {move["workload"]: move["together"] for move in plan["moves"]} == dict.fromkeys(["shop-db-1", "shop-web-1"], ["shop-db-1-s", "shop-web-1-s"])
    # What the two have with each other stays within a host.
    assert {move["workload"]: move["beside"] for move in plan["moves"]} == {"shop-db-1": ["shop-web-1"], "shop-web-1": ["shop-db-1"]}
    # Where it has arrived by half, the other half follows.
    answers["node2"] = of_docker(answer(), "shop-web-1", project="shop")
    answers["node1"] = of_docker(answer(), "shop-db-1", project="shop")
    plan = placement(answers, moves=[{"workload": "shop", "to": "node2"}])
    assert goes(plan) == {"shop-db-1": ("node1", "node2")}
    assert plan["done"] == [{"workload": "shop-web-1", "source": "node2"}]


def bridged(host, *names, project="shop", on=("shop_default",), **more):
    return of_docker(host, *names, project=project, bridges=list(on), **more)


def test_a_host_is_emptied_of_those_on_one_bridge_of_a_project_as_a_wave():
    node1 = bridged(bridged(of_docker(answer(), "alone", project="shop", bridges=[]), "db", on=["back"]), "web", on=["front", "back"])
    node1 = bridged(bridged(node1, "cache", on=["front"]), "other", project="till", on=["back"])
    answers = {"node1": node1, "node2": of_docker(answer(memory=7)), "node3": of_docker(answer(memory=9))}
    plan = placement(answers, empty=["node1"])
    waves = {move["workload"]: (move["wave"], move["beside"]) for move in plan["moves"]}
    assert waves == {
        "alone": ("", []), "cache": ("shop", ["db", "web"]), "db": ("shop", ["cache", "web"]), "web": ("shop", ["cache", "db"]), "other": ("", []),
    }  # fmt: skip
    assert len({there for name, (_from, there) in goes(plan).items() if name in ("db", "web", "cache")}) == 1
    assert {move["wave"] for move in placement(answers, empty=["node1"], mode="offline")["moves"]} == {""}


@pytest.mark.parametrize(
    ("host", "more"),
    [
        (bridged(bridged(answer(), "db"), "web", running=False, state="exited"), {}),
        (bridged(answer(sessions=[session("released", "db")]), "db", "web"), {}),
        (bridged(answer(), "db", "web"), {"waves": {"first": ["web"]}}),
        (bridged(answer(), "db", "web"), {"apart": {"halves": ["db", "web"]}}),
        (bridged(answer(), "db", "web"), {"moves": [{"workload": "db", "to": "node2"}, {"workload": "web", "to": "node3"}], "empty": []}),
        (bridged(bridged(answer(), "db"), "web", project="till"), {}),
    ],
)
def test_these_on_one_bridge_go_each_alone(host, more):
    plan = placement({"node1": host, "node2": of_docker(answer()), "node3": of_docker(answer())}, **{"empty": ["node1"], **more})
    assert plan["problems"] == [] and sorted(goes(plan)) == ["db", "web"]
    assert {move["wave"] for move in plan["moves"]} <= {"", "first"} and [move["beside"] for move in plan["moves"]] == [[], []]


def test_a_container_with_the_name_of_the_project_has_a_place_of_its_own():
    """It cannot go where one of its name is, and the wave can."""
    node1 = of_docker(bridged(answer(), "db", "web"), "shop")
    plan = placement({"node1": node1, "node2": of_docker(answer(), "shop"), "node3": of_docker(answer(memory=3))}, empty=["node1"])
    assert {name: there for name, (_from, there) in goes(plan).items()} == {"db": "node2", "web": "node2", "shop": "node3"}


def parted(*names, running=True):
    """A project of podman-compose, as host_info has it of one of its hosts."""
    rows = answer(*names)["workloads"]
    state = "running" if running else "exited"
    whole = {"name": "trade", "running": running, "state": state, "labels": {}, "memory": 2 * GIB, "disk": 2 * GIB, "members": sorted(names)}
    return {**whole, "parts": rows} if running else whole


def with_trade(*names, running=True, sessions=()):
    found = answer(sessions=sessions)
    return {**found, "workloads": [parted(*names, running=running)]}


@pytest.mark.parametrize("how", [{"empty": ["node1"]}, {"moves": [{"workload": "trade"}]}, {"moves": [{"workload": "trade", "to": "node2"}]}])
def test_a_project_s_containers_go_live_to_one_host_beside_each_other(how):
    plan = placement({"node1": with_trade("db", "web"), "node2": answer(), "node3": answer(memory=1)}, **how)
    assert goes(plan) == {"db": ("node1", "node2"), "web": ("node1", "node2")}
    assert {move["workload"]: (move["together"], move["beside"]) for move in plan["moves"]} == {"db": (["db", "web"], ["web"]), "web": (["db", "web"], ["db"])}
    offline = placement({"node1": with_trade("db", "web"), "node2": answer()}, mode="offline", **how)
    assert goes(offline) == {"trade": ("node1", "node2")}


def test_what_is_left_of_a_project_follows_its_others():
    """An earlier run was cut off when one of them had been released."""
    gone = [session("released", "web", "node3"), session("prepared", "db", "node3")]
    answers = {"node1": with_trade("db", "web", sessions=gone), "node2": answer(), "node3": {**answer(), "workloads": [parted("db", "web", running=False)]}}
    for how in ({"empty": ["node1"]}, {"moves": [{"workload": "trade"}]}):
        plan = placement(answers, **how)
        assert goes(plan) == {"db": ("node1", "node3"), "web": ("node1", "node3")}
        assert {move["workload"]: (move["session"], move["together"]) for move in plan["moves"]} == {"db": ("db-1", ["db-1"]), "web": ("web-1", [])}
        assert {move["workload"]: move["beside"] for move in plan["moves"]} == {"db": ["web"], "web": ["db"]}


def test_a_project_goes_to_one_host_and_a_workload_of_its_name_is_meant_before_it():
    answers = {"node1": of_docker(answer(), "shop-db-1", "shop-web-1", project="shop"), "node2": of_docker(answer())}
    assert problems(answers, moves=[{"workload": "shop"}]) == [
        "shop is a project of shop-db-1, shop-web-1, which are to stay on one host: name it with `to`"
    ]
    assert problems(answers, moves=[{"workload": "shop", "to": "node2", "from": "node2"}]) == ["there is no container or guest named shop on node2"]
    answers = {"node1": of_docker(answer("shop"), "shop-db-1", project="shop"), "node2": of_docker(answer())}
    assert goes(placement(answers, moves=[{"workload": "shop"}])) == {"shop": ("node1", "node2")}


def test_a_guest_is_of_no_wave():
    answers = {"node1": with_guests(answer("shop"), "vm1"), "node2": with_guests(answer())}
    assert problems(answers, empty=["node1"], waves={"all": ["shop", "vm1"]}) == ["vm1 is a guest, and waves are of containers: take it out of the wave all"]


def test_how_long_a_guest_stood_still():
    plan = placement({"node1": with_guests(answer(), "vm1"), "node2": with_guests(answer())}, empty=["node1"])
    assert steps(plan) == [("finish", ["vm1"])]
    known = {"vm1@node1.finish": {"__handover_has_ended": True, "__kvm_migrate_done": {"figures": {"downtime_ms": 70}, "held_ms": 20.0}}}
    assert "0.09 s" in "".join(plan_outcome(plan, known)["lines"])
