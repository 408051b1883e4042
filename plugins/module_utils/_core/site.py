# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Addresses of the documentation's pages, which .github/workflows/docs.yml publishes: a sentence that refuses something names its own."""

from __future__ import annotations

SITE = "https://livefleet.github.io/handover/"


def page(name: str) -> str:
    return SITE + name


def section(name: str, kind: str, check: str) -> str:
    """The section of a page on a check. Anchors have hyphens where checks have underscores."""
    return f"{name}#{kind}-{check.replace('_', '-')}"
