# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lines for people to read. Where a program reads the standard output, they go to standard error."""

from __future__ import annotations

import re

from ansible import constants
from ansible.utils.display import Display

display = Display()

# Callbacks that print one document, or one a line, for programs.
_FOR_PROGRAMS = re.compile(r"(^|[._])(jsonl?|junit|null|logstash)($|_)")


def say(line: str) -> None:
    """Shows a line beside Ansible's own output."""
    display.display("  {0}".format(line).rstrip(), stderr=bool(_FOR_PROGRAMS.search(constants.DEFAULT_STDOUT_CALLBACK or "")))
