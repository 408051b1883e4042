# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: operator
author:
  - The Handover maintainers (@livefleet)
version_added: 0.1.0
short_description: The person and the process behind this run
description:
  - Names the user and the controller of this run, when it is, and the process of Ansible. A move's record has it, so that a second run can
    say whom to wait for.
options: {}
"""

EXAMPLES = r"""
- name: See who runs this
  ansible.builtin.debug:
    msg: "{{ lookup('livefleet.handover.operator').who }}"
"""

RETURN = r"""
_raw:
  description:
    - A mapping with C(who), C(on), C(since), C(boot), C(pid) and C(began).
  type: list
  elements: dict
"""

import typing as t

from ansible.plugins.lookup import LookupBase
from ansible_collections.livefleet.handover.plugins.plugin_utils._operator import myself


class LookupModule(LookupBase):
    """One mapping."""

    def run(self, terms: t.Sequence[str], variables: t.Any = None, **kwargs: t.Any) -> list[dict[str, t.Any]]:
        self.set_options(var_options=variables, direct=kwargs)
        return [myself(variables or {})]
