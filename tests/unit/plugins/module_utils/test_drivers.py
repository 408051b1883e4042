# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A driver is a row of a table, and has one in each table."""

from __future__ import annotations

import itertools
import pathlib
import re

import yaml
from ansible_collections.livefleet.handover.plugins.module_utils._drivers.examiners import EXAMINERS
from ansible_collections.livefleet.handover.plugins.module_utils._drivers.workload_info import LOOKS

COLLECTION = pathlib.Path(__file__).resolve().parents[4]


def test_each_driver_has_a_row_everywhere():
    tables = {path.stem for path in (COLLECTION / "roles" / "migrate" / "vars").glob("*.yml")}
    specs = yaml.safe_load((COLLECTION / "roles" / "migrate" / "meta" / "argument_specs.yml").read_text(encoding="utf-8"))
    choices = specs["argument_specs"]["main"]["options"]["migrate_driver"]["choices"]
    assert set(EXAMINERS) == set(LOOKS) == tables == set(choices)


def test_each_table_has_the_variables_that_the_role_reads():
    folder = COLLECTION / "roles" / "migrate" / "vars"
    rows = {name: yaml.safe_load(re.sub(r"!unsafe ", "", (folder / f"{name}.yml").read_text(encoding="utf-8"))) for name in EXAMINERS}
    tasks = "".join(path.read_text(encoding="utf-8") for path in [*(folder.parent / "tasks").glob("*.yml"), *(folder / "main").glob("*.yml")])
    for one, other in itertools.permutations(rows, 2):
        read = {name for name in rows[one] if re.search(rf"\b{name}\b", tasks)}
        assert read <= set(rows[other]), (one, read - set(rows[other]))
        assert set(rows[one]["__migrate_driver"]) == set(rows[other]["__migrate_driver"])
    # Ansible looks for the module of a task even if the task is left out.
    for row in rows.values():
        assert not [word for word in row["__migrate_driver"].values() if "{{" in str(word)], "another name of the host has not the variables of a template"
        names = [row["__migrate_driver"][key].rpartition(".")[2] for key in ("module", "service")]
        assert all((COLLECTION / "plugins" / "modules" / f"{name}.py").is_file() for name in names)
