# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A newcomer's first move from the README alone: its blocks are typed as they are, with the names of two other hosts filled in."""

from __future__ import annotations

from controller import start, where, words
from readme import HERE, README, THERE


def test_the_readme_moves_a_container(readme):
    start(HERE, "shop", 50)
    look, move, drain = README.lines("sh", "ansible-playbook livefleet.handover.migrate")
    assert f"shop can move from {HERE} to {THERE}." in readme.type(look)
    assert where("shop", HERE, THERE) == [HERE]
    before = words(HERE, "shop")

    said = readme.type(move)
    assert f"shop has moved from {HERE} to {THERE} (live)." in said and "Total suspended time" in said, said
    assert where("shop", HERE, THERE) == [THERE] and words(THERE, "shop") > before
    assert f"shop is on {THERE} already: nothing is left to do." in readme.type(move)
    assert where("shop", HERE, THERE) == [THERE]

    readme.type(drain)
    assert where("shop", HERE, THERE) == [HERE]
