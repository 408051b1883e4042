#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: openvz_config_info

short_description: Tell the fate of each line of an OpenVZ container's configuration

version_added: 0.1.0

description:
  - Reads the configuration of a container (C(CTID.conf)) of OpenVZ 6, or of Virtuozzo 7 and later, and tells of each line whether it is carried to a
    container on a stock kernel, translated, only reported, or refused, and why.
  - No line is left out. One that is not known is refused, and so is a value that is not understood. A line that vzctl itself does not read is reported.
  - Hosts of OpenVZ have a Python that Ansible no longer supports. Fetch the file with M(ansible.builtin.raw), and pass O(content) on another host.

extends_documentation_fragment:
  - livefleet.handover._attributes
  - livefleet.handover._attributes.info_module

options:
  path:
    description:
      - The file on the host.
    type: path
  content:
    description:
      - The file's content, instead of O(path).
    type: str
  ctid:
    description:
      - The container's id, which stands for C($VEID) in its paths.
    type: str

seealso:
  - plugin: livefleet.handover.vz_update_plan
    plugin_type: filter

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Fetch a container's configuration
  ansible.builtin.raw: cat /etc/vz/conf/101.conf
  register: fetched
  delegate_to: old1

- name: Tell the fate of its lines
  livefleet.handover.openvz_config_info:
    content: "{{ fetched.stdout }}"
    ctid: "101"
  register: told

- name: Print the table
  livefleet.handover.show_lines:
    lines: "{{ told.lines }}"
"""

RETURN = r"""
generation:
  description: V(6) for a file of vzctl 4, V(7) for one of libvzctl. A parameter that is set twice counts as the first there, and as the last here.
  returned: success
  type: int
rows:
  description: Each line that says something, in the order of the file; a line may have several rows.
  returned: success
  type: list
  elements: dict
  contains:
    line:
      description: Its number.
      type: int
    name:
      description: The parameter.
      type: str
    value:
      description: Its value.
      type: str
    fate:
      description: C(carried), C(translated), C(reported) or C(refused).
      type: str
    text:
      description: The result, or the reason.
      type: str
    sets:
      description: The values of RV(container) that it sets.
      type: list
      elements: str
  sample:
    - {line: 3, name: PHYSPAGES, value: "0:262144", fate: translated, text: "memory_bytes: 1073741824 bytes", sets: [memory_bytes]}
container:
  description: The new container's values. A limit that is none is null.
  returned: success
  type: dict
  sample: {hostname: shop, onboot: true, addresses: [10.0.0.101], memory_bytes: 1073741824}
fates:
  description: How many rows have each fate.
  returned: success
  type: dict
  sample: {carried: 5, translated: 3, reported: 20, refused: 0}
lines:
  description: The rows for people.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._openvz.translation import table, translate


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={"path": {"type": "path"}, "content": {"type": "str"}, "ctid": {"type": "str"}},
        mutually_exclusive=[["path", "content"]],
        required_one_of=[["path", "content"]],
        supports_check_mode=True,
    )
    text = module.params["content"]
    if text is None:
        try:
            with open(module.params["path"], encoding="utf-8", errors="surrogateescape") as file:
                text = file.read()
        except OSError as exc:
            module.fail_json(msg=f"{module.params['path']}: {exc.strerror}: name the configuration of a container, as /etc/vz/conf/101.conf")
    told = translate(text, module.params["ctid"])
    module.exit_json(changed=False, lines=table(told["rows"]), **told)


if __name__ == "__main__":
    main()
