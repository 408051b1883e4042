# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
import yaml
from ansible_collections.livefleet.handover.plugins.filter.typed import typed
from ansible_collections.livefleet.handover.plugins.plugin_utils import _declaration, _door
from ansible_collections.livefleet.handover.plugins.plugin_utils._declaration import COLLECTION, of_playbook

MIGRATE = of_playbook("migrate")
GOOD = {"handover_workload": "shop", "handover_destination": "node2"}


def problems(given, playbook=MIGRATE, strict=True):
    return _door.ask(playbook, given, strict).problems


def test_values_come_out_with_their_types():
    given = {**GOOD, "handover_max_frozen_ms": "0.3s", "handover_lazy_pages": "false", "handover_trial": True, "handover_ignore_checks": "cpu,clock",
             "handover_fence": "true {host}", "handover_source": ""}  # fmt: skip
    asked = _door.ask(MIGRATE, given, strict=True)
    assert asked.problems == []
    assert asked.values == {
        "workload": "shop", "destination": "node2", "source": None, "hosts": "all", "report_dir": "handover-reports",
        "report_host": None, "trial": "first", "driver": "podman", "mode": "live",
        "max_frozen_ms": 300, "auto_converge": False, "lazy_pages": "false", "transport": "tcp", "bind_mounts": "refuse", "secrets": "same",
        "floating_addresses": [], "reserve_space": False, "keep_source": False, "fence": ["true", "{host}"],
        "ignore_checks": ["cpu", "clock"],
    }  # fmt: skip


def test_all_that_is_wrong_is_told_at_once():
    given = {"handover_destination": "no de", "handover_max_frozn": 300, "handover_transport": "shh", "handover_lazy_pages": "maybe"}
    assert problems(given) == [
        "there is no variable handover_max_frozn: did you mean handover_max_frozen_ms?",
        "handover_destination is not a name: 'no de': write one host of the inventory, as in node1",
        "handover_lazy_pages is 'maybe': write false, true or auto",
        "handover_transport is 'shh': write tcp or ssh",
        "handover_workload is missing (the container, pod or project, by name; several as in db+web): give it as in -e handover_workload=shop",
    ]


@pytest.mark.parametrize("name, sentence", [
    ("handover_max_frozn", "there is no variable handover_max_frozn: did you mean handover_max_frozen_ms?"),
    ("handover_colour", "there is no variable handover_colour: docs/variables.md lists them"),
    ("migrate_verfy", "there is no variable migrate_verfy: did you mean migrate_verify?"),
    ("kvm_migrate_tls", "kvm_migrate_tls is no variable of the playbook migrate, and nothing would come of it: leave it out"),
    ("handover_verify", "handover_verify is no variable of the playbook migrate, and nothing would come of it: did you mean migrate_verify?"),
    ("handover_snapshot", "handover_snapshot is no variable of the playbook migrate, and nothing would come of it: leave it out"),
])  # fmt: skip
def test_a_variable_that_nothing_would_read_is_refused(name, sentence):
    assert problems({**GOOD, name: "1"}) == [sentence]


def test_an_inventory_may_hold_the_variables_of_all_playbooks_and_of_other_software():
    given = {**GOOD, "kvm_migrate_tls": "true", "handover_snapshot": "x", "handover_labels": ["ssd"], "migrate_database_url": "x", "snapshot_class": "gold"}
    assert problems(given, strict=False) == []
    assert problems({**GOOD, "migrate_verfy": True}, strict=False) == ["there is no variable migrate_verfy: did you mean migrate_verify?"]
    assert problems({**GOOD, "kvm_migrate_wibble": 1}, strict=False) == ["there is no variable kvm_migrate_wibble: docs/variables.md lists them"]


@pytest.mark.parametrize("typed, read", [
    ("auto", "auto"), (" Auto ", "auto"), (True, "true"), ("true", "true"), ("True", "true"), ("yes", "true"), ("On", "true"), (1, "true"),
    (False, "false"), ("FALSE", "false"), ("no", "false"), ("0", "false"), ("", "false"), (" ", "false"), (None, "false"),
])  # fmt: skip
def test_lazy_pages_are_asked_for_as_people_type_it(typed, read):
    asked = _door.ask(MIGRATE, {**GOOD, "handover_lazy_pages": typed}, strict=True)
    assert (asked.problems, asked.values["lazy_pages"]) == ([], read)


@pytest.mark.parametrize("typed", ["auto", True, "true", False, "false", ""])
def test_the_role_s_own_variable_of_lazy_pages_is_one_of_three_words(typed):
    assert problems({**GOOD, "migrate_lazy_pages": typed}) == []
    assert problems({**GOOD, "migrate_lazy_pages": "often"}) == ["migrate_lazy_pages is 'often': write false, true or auto"]


@pytest.mark.parametrize("old, name, value, read", [
    ("handover_max_frozen", "handover_max_frozen_ms", "300", 300),
    ("migrate_max_frozen", "migrate_max_frozen_ms", "0.2s", 200),
])  # fmt: skip
def test_a_variable_s_old_name_counts(old, name, value, read):
    asked = _door.ask(MIGRATE, {**GOOD, old: value}, True)
    assert (asked.values["max_frozen_ms"], asked.problems) == (read, [])
    assert problems({**GOOD, old: value, name: value}) == []
    assert problems({**GOOD, old: value, name: "7"}) == [f"{old} is the old name of {name}, and they say different things: leave {old} out"]


def test_each_old_name_has_a_present_one():
    for old, name in _declaration.renamed().items():
        assert old not in _declaration.known()
        assert name in _declaration.known()
        assert not any(sentence for sentence in problems({**GOOD, old: "60"}) if "there is no variable" in sentence)


def test_a_role_takes_the_old_names_without_a_playbook():
    for old, name in _declaration.renamed().items():
        if old.startswith("handover_"):
            continue
        role = _declaration.prefix(name)
        defaults = yaml.safe_load((_declaration.COLLECTION / "roles" / role / "defaults" / "main.yml").read_text(encoding="utf-8"))
        template = defaults[name]
        default = _declaration.of_role(role)[name]["default"]
        assert str(template) == "{{ " + old + " | default(" + str(default) + ") }}"


def test_a_name_of_a_time_has_its_unit():
    """A timeout is in seconds, everywhere. Any other time has its unit in its name."""
    times = {name: unit for name, unit in _declaration.table()["units"].items() if unit in ("seconds", "milliseconds")}
    times.update({name: spec["unit"] for name, spec in _declaration.table()["variables"].items() if "unit" in spec})
    ends = {"seconds": ("_seconds", "_timeout"), "milliseconds": ("_ms",)}
    assert [name for name, unit in times.items() if not name.endswith(ends[unit])] == []


def test_private_names_and_those_of_others_are_not_looked_at():
    assert not [name for name in ("__handover_plan", "__migrate_stage", "ansible_limit", "handover", "migrated", "other_migrate_x") if _door.ours(name)]
    assert all(_door.ours(name) for name in ("handover_x", "migrate_x", "kvm_cache_x", "ceph_osd_restart_x", "ceph_hosts"))


def test_a_role_s_variable_stands_for_the_playbook_s_and_may_not_contradict_it():
    assert _door.ask(MIGRATE, {**GOOD, "migrate_max_frozen_ms": "200"}, False).values["max_frozen_ms"] == 200
    assert _door.ask(MIGRATE, {**GOOD, "migrate_max_frozen_ms": "200", "handover_max_frozen_ms": 200}, True).problems == []
    said = "handover_max_frozen_ms and migrate_max_frozen_ms say different things of one setting: leave one of them out"
    assert problems({**GOOD, "migrate_max_frozen_ms": "200", "handover_max_frozen_ms": 300}) == [said]
    assert problems({**GOOD, "migrate_verify": "perhaps"}) == ["migrate_verify is 'perhaps': write true or false"]


def test_moves_are_a_list_of_mappings():
    move = of_playbook("move")
    assert _door.ask(move, {"handover_moves": '[{"workload": "shop", "to": "node2"}]'}, True).values["moves"] == [{"workload": "shop", "to": "node2"}]
    assert _door.ask(move, {"handover_moves": "- workload: shop"}, True).problems == []
    assert problems({}, move) == [
        "handover_moves is missing (the moves, a list of {workload, from, to}): give it as in -e '{\"handover_moves\": "
        '[{"workload": "shop", "to": "node2"}]}\''
    ]
    assert "too" in problems({"handover_moves": [{"workload": "shop", "too": "node2"}]}, move)[0]
    assert "workload" in problems({"handover_moves": [{"to": "node2"}]}, move)[0]


def test_a_mark_is_lifted_by_a_clear_word_only():
    maintenance = of_playbook("maintenance")

    def mark(word):
        return _door.ask(maintenance, {"handover_host": "node3", "handover_maintenance": word}, True)

    assert [mark(word).values["maintenance"] for word in ("present", "true", True, "absent", "false", False)] == [True, True, True, False, False, False]
    assert mark("lifted").problems == ["handover_maintenance is 'lifted': write true or false"]
    assert "handover_maintenance is missing" in mark("").problems[0]


def match(pattern):
    return ["node1"] if pattern.startswith("lab") else []


def test_hosts_that_are_not_there_are_told_with_the_one_that_was_meant():
    everyone = ["node1", "node2"]
    drain = of_playbook("drain")
    assert _door.strangers(drain, {"source": "node1,nod2"}, everyone, match) == ["handover_source: nod2 is not in the inventory: did you mean node2?"]
    assert _door.strangers(drain, {"source": "lab:!node2", "destinations": ["node1", "x"]}, everyone, match) == [
        "handover_destinations: x is not in the inventory: name one of its hosts (node1, node2)"
    ]
    assert _door.strangers(MIGRATE, {"destination": "node2", "hosts": "all"}, everyone, match) == []
    assert _door.strangers(MIGRATE, {"destination": "node2"}, [], match) == [
        "handover_destination: node2 is not in the inventory: the inventory has no hosts: name one with -i"
    ]


def test_a_limit_may_choose_and_not_leave_out():
    cache, drain = of_playbook("kvm_cache"), of_playbook("drain")
    assert _door.narrowed(cache, "node1", ["node1"], ["node1"]) == []
    assert _door.narrowed(cache, "node2", ["node1"], ["node2"]) == [
        "--limit node2 leaves out node1, which handover_source names: leave --limit away"
    ]
    assert _door.narrowed(drain, "node1", ["node1"], ["node1"])[0].startswith("--limit cannot be used with drain: ")
    assert _door.narrowed(drain, "", [], []) == []


def test_a_playbook_runs_whole_or_not_at_all():
    assert _door.skipped(MIGRATE, ["all"], ["other"], "") == []
    assert len(_door.skipped(MIGRATE, ["foo"], ["untagged"], "Hand it over")) == 3


def test_every_variable_has_a_description_an_example_and_a_type():
    for name in _declaration.playbooks():
        for variable, spec in of_playbook(name).takes.items():
            assert spec.get("description") and spec.get("type") and "example" in spec, (name, variable)
            example = spec["example"]
            found = []
            assert _door._read({variable: spec}, {variable: example}, found) and not found, (variable, found)


def test_every_word_of_the_declaration_means_something():
    table = _declaration.table()
    of_roles = {name for role in _declaration.roles() for name in _declaration.of_role(role)}
    assert set(table["units"]) <= of_roles
    assert {spec["sets"] for playbook in map(of_playbook, table["playbooks"]) for spec in playbook.takes.values() if "sets" in spec} <= of_roles
    # awx_setup asks no host of an inventory: its role's own specification reads its variables.
    assert {f"{name}.yml" for name in table["playbooks"]} | {"awx_setup.yml"} == {path.name for path in (COLLECTION / "playbooks").glob("*.yml")}
    assert {name for playbook in table["playbooks"].values() for name in playbook["takes"]} == set(table["variables"])


def test_a_role_s_variable_has_its_type_however_it_was_given():
    assert [typed(each, "ceph_osd_restart_osds") for each in ("12", "3,4", [3, 4], "")] == [[12], [3, 4], [3, 4], []]
    assert [typed(each, "ceph_osd_restart_afresh") for each in ("false", "true", False, "")] == [False, True, False, False]
    assert typed("ipmitool -H x", "migrate_fence") == ["ipmitool", "-H", "x"]
    assert typed("-p 2222", "migrate_ssh_options") == ["-p", "2222"]
    assert typed("none,writeback", "kvm_consolidation_modes") == ["none", "writeback"]
