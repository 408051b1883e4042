# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The README's lines up to the first move, for two other hosts than its own."""

from __future__ import annotations

from controller import ADDRESSES, Controller
from pages import Page

README = Page("README.md")
HERE, THERE = "web-a", "web-b"
NAMES = {"node1": HERE, "node2": THERE, "192.0.2.11": ADDRESSES[HERE], "192.0.2.12": ADDRESSES[THERE]}


def prepare(newcomer: Controller) -> None:
    """The first two lines of the installation build the tarball, which is there."""
    install = README.lines("sh", "make helper")[-1]
    assert install.startswith("ansible-galaxy collection install ")
    newcomer.type(install)
    newcomer.write("hosts.yml", README.block("yaml", "container_hosts:"))
    newcomer.write("prepare.yml", README.block("yaml", "- hosts: container_hosts"))
    newcomer.type(README.words("ansible-playbook -i hosts.yml prepare.yml"))
    newcomer.environment[README.words("ANSIBLE_INVENTORY")] = README.words("-i hosts.yml").removeprefix("-i ")
