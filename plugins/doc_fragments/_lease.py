# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change in any release.

from __future__ import annotations


class ModuleDocFragment:
    """Settings of a Ceph cluster for a while."""

    DOCUMENTATION = r"""
options:
  seconds:
    description:
      - How long the lease is.
    type: int
    default: 1800
  units:
    description:
      - The directory for the units of the leases. One that is lost in a reboot loses the leases too.
    type: path
    default: /etc/systemd/system
"""
