# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change in any release.

from __future__ import annotations


class ModuleDocFragment:
    """The place of the snapshots on a host."""

    DOCUMENTATION = r"""
options:
  root:
    description:
      - The directory that holds the snapshots.
    type: path
    default: /var/lib/handover/snapshots
"""
