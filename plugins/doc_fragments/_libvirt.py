# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change in any release.

from __future__ import annotations


class ModuleDocFragment:
    """How the libvirt of a host is asked."""

    DOCUMENTATION = r"""
options:
  uri:
    description: How this host's libvirt is reached.
    type: str
    default: qemu:///system
"""
