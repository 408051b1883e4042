# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: hosts
author:
  - The Handover maintainers (@livefleet)
version_added: 0.1.0
short_description: The hosts of a play, once all that its playbook was given is right
description:
  - Stands in the C(hosts) of the plays of this collection's playbooks. Ansible evaluates it before it looks at C(--limit), tags and
    C(--start-at-task), so these cannot leave the checks out.
  - Fails with a sentence for each variable that is missing, is wrong, or that nothing would read.
options:
  _terms:
    description:
      - The playbook's name, and the variables that may name the hosts, of which the first that is set counts. Without any it is C(localhost).
    required: true
  loose:
    description:
      - Take variables of other playbooks, too.
    type: bool
    default: false
notes:
  - A workflow of AWX gives all of its variables, and the results of earlier playbooks, to each of its playbooks. So in a workflow those of other
    playbooks are taken, too. A name that no playbook knows is refused.
  - Of the variables only those of the command line and of the play are known when Ansible evaluates C(hosts). The action
    M(livefleet.handover.options) looks at those of the inventory.
seealso:
  - module: livefleet.handover.options
"""

EXAMPLES = r"""
- name: Mark the hosts
  hosts: "{{ lookup('livefleet.handover.hosts', 'maintenance', 'handover_host') }}"
"""

RETURN = r"""
_raw:
  description:
    - A pattern of hosts.
  type: list
  elements: str
"""

import typing as t

from ansible import context
from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase
from ansible_collections.livefleet.handover.plugins.plugin_utils import _door
from ansible_collections.livefleet.handover.plugins.plugin_utils._ansible import chosen_tasks, given, in_workflow, matcher, only_listed, standalone
from ansible_collections.livefleet.handover.plugins.plugin_utils._declaration import of_playbook
from ansible_collections.livefleet.handover.plugins.plugin_utils._forks import prepare


class LookupModule(LookupBase):
    """Raises where something is wrong."""

    def run(self, terms: t.Sequence[str], variables: t.Any = None, **kwargs: t.Any) -> list[str]:
        self.set_options(var_options=variables, direct=kwargs)
        if only_listed():
            return ["localhost"]
        variables = variables or {}
        playbook = of_playbook(terms[0])
        asked = _door.ask(playbook, given(variables, self._templar), strict=not (self.get_option("loose") or in_workflow(variables)))
        groups = variables.get("groups") or {}
        match = matcher(groups, self._loader)
        problems = asked.problems + _door.strangers(playbook, asked.values, groups.get("all", []), match)
        if not asked.problems:
            limit = variables.get("ansible_limit") or ""
            acts_on = asked.values.get(_door.short(playbook.acts_on)) if playbook.acts_on else None
            problems += _door.narrowed(playbook, limit, match(acts_on or "all"), match("all", limit))
        if standalone(variables):
            problems += _door.skipped(playbook, *chosen_tasks(variables), start_at=context.CLIARGS.get("start_at_task") or "")
        if problems:
            raise AnsibleLookupError(sentences(playbook.name, problems))
        prepare()
        return [next((asked.values[_door.short(name)] for name in terms[1:] if asked.values[_door.short(name)]), "localhost")]


def sentences(playbook: str, problems: t.Sequence[str]) -> str:
    """One text for all that is wrong."""
    heading = "{0}: nothing was touched".format(playbook)
    return "{0}: {1}".format(heading, problems[0]) if len(problems) == 1 else "\n  - ".join([heading + ":", *problems])
