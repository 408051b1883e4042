# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change in any release.

from __future__ import annotations


class ModuleDocFragment:
    """The attributes that every module of the collection answers for."""

    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Can run in C(check_mode) and name its changes without touching the host.
  diff_mode:
    description: Shows the changes in diff mode, or in C(check_mode) those that it would make.
  idempotent:
    description:
      - Run twice in a row with the same arguments, the second run changes nothing.
      - This assumes that nothing else changed the host in between.
"""

    # For modules that only read; used beside the fragment above.
    INFO_MODULE = r"""
options: {}
attributes:
  check_mode:
    support: full
    details:
      - This module only reads.
  diff_mode:
    support: N/A
    details:
      - This module only reads.
  idempotent:
    support: full
    details:
      - This module only reads.
"""
