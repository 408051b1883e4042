# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

from ansible_collections.livefleet.handover.plugins.module_utils._core.sizes import format_size


class FilterModule:
    """Sizes as the messages of this collection write them."""

    def filters(self) -> dict[str, t.Callable]:
        """Name → filter."""
        return {"binary_size": lambda size: format_size(int(size))}
