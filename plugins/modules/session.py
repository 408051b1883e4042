#!/usr/bin/python

# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: session

short_description: Begin or end one side of a handover

version_added: 0.1.0

description:
  - A session is one side of one move. It is a folder on its host, and while it runs a transient systemd unit with the helper in it.
  - The two sides know each other by the fingerprints of keys that are made for this one session. So the order is
    V(identity) on both, V(started) on the destination, which then listens, and V(started) on the source, which then connects.

extends_documentation_fragment:
  - livefleet.handover._attributes
  - livefleet.handover._sessions

attributes:
  check_mode:
    support: partial
    details:
      - Says whether something would be done. A fingerprint that does not exist yet cannot be told.
  diff_mode:
    support: none
  idempotent:
    support: full

options:
  session:
    description:
      - Name of the session, the same on both sides. Up to 64 small letters, digits and dashes.
    type: str
    required: true
  state:
    description:
      - With V(identity) this side has a key; its fingerprint is returned. With O(plan), that is on record first.
      - With V(started) the helper runs, and has come as far as the other side needs. The destination listens; the source is connected,
        tracks writes, and has begun to copy.
      - With V(recovered) a side whose helper was killed, or whose host was restarted, has come as far as it may without asking the other side.
        systemd does that when the helper ends and when the host boots.
      - With V(resolved) a side that did not learn the workload's outcome is told. A source thaws it or lets go of it; a destination
        that runs it takes the source's part as done, and comes to its end within O(timeout). A side that is not there any more had come to
        its end before.
      - With V(withdrawn) the session is ended before its release, and the workload stays or goes on where it was. It fails where the workload
        has moved. On a destination the plan stays until V(absent), since what was made by it does not start as long as the plan is there.
      - With V(removable) nothing is done, and the task fails unless this side's record says that the workload's copy on this host is not needed any
        more. On a source it has moved; on a destination it never ran.
      - With V(absent) nothing is left of it. Before the release this ends the session, and the workload stays or goes on
        where it was; after it, the task fails until the outcome is known.
    type: str
    choices: [identity, started, recovered, resolved, withdrawn, removable, absent]
    required: true
  role:
    description:
      - Which side this host is. Needed for O(state=started), O(state=withdrawn), O(state=removable) and O(state=absent).
    type: str
    choices: [source, destination]
  spec:
    description:
      - For O(state=started), the helper's task. O(session) and O(role) are put in by the module.
    type: dict
  plan:
    description:
      - For O(state=identity), the facts that a later run needs to finish the move, or to roll it back. Any mapping will do.
        M(livefleet.handover.session_info) returns it.
    type: dict
  outcome:
    description:
      - For O(state=resolved), the outcome by the other side's own session, V(fenced) if the destination was switched off for
        good. It is believed, and a wrong word here makes the workload run twice or not at all.
    type: str
    choices: [resumed, refused, fenced]
  timeout:
    description:
      - Seconds that the whole module may take.
    type: int
    default: 60

requirements:
  - the helper pcopy on the host, which the role P(livefleet.handover.pcopy#role) installs
  - systemd 240 or later

seealso:
  - module: livefleet.handover.session_info
  - module: livefleet.handover.session_wait
  - module: livefleet.handover.cutover

author:
  - The Handover maintainers (@livefleet)
"""

EXAMPLES = r"""
- name: Make a key for the destination's side
  livefleet.handover.session:
    session: shop-20261121t041500z
    state: identity
  register: key

- name: Listen on the destination
  livefleet.handover.session:
    session: shop-20261121t041500z
    role: destination
    state: started
    spec:
      mode: copy
      listen: 10.213.0.12:0
      peer:
        fingerprint: "{{ hostvars['node1'].key.fingerprint }}"
      volumes:
        - name: pgdata
          image: /var/lib/handover/volumes/pgdata.img
          size: 1073741824

- name: Give it up
  livefleet.handover.session:
    session: shop-20261121t041500z
    role: destination
    state: absent
"""

RETURN = r"""
reasons:
  description: Why something was changed, or in check mode would be.
  returned: success
  type: list
  elements: str
  sample:
    - session shop-20261121t041500z does not run on this host
fingerprint:
  description: The mark by which the other side knows this one.
  returned: when O(state=identity), outside of check mode
  type: str
  sample: sha256:6c0cb6e3a25bf0e2d6a4d7f4b4f52ed4c5cd20e4f1f4c1d1d5b7b3d0c1a0f9e8
plan:
  description: The plan as it was written down. None if there was none to write.
  returned: when O(state=identity), outside of check mode
  type: dict
  sample: {role: source, workload: shop, destination: node2}
events:
  description: The helper's own messages, line by line.
  returned: when O(state) is V(withdrawn) or V(absent) and there was a session, outside of check mode
  type: list
  elements: dict
  sample:
    - {time: "2026-11-21T04:15:02.114Z", mono_ns: 81234567, event: state, state: presync, why: ""}
planned:
  description: Whether this side had a plan. Without one the move has made nothing on this host.
  returned: when O(state=withdrawn)
  type: bool
  sample: true
status:
  description: Where the session stands; see M(livefleet.handover.session_info). None where there is none.
  returned: when O(state) is not V(identity)
  type: dict
  sample:
    id: shop-20261121t041500z
    role: destination
    state: prepare
    listen: 10.213.0.12:40123
    running: true
    ended: false
"""

from ..module_utils._core.step import alone
from ..module_utils._podman.steps.session import STEP


def main() -> None:
    """Entry point."""
    alone(STEP)


if __name__ == "__main__":
    main()
