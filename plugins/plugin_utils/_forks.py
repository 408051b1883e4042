# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Makes the processes cheap that Ansible starts, one for each task and host."""

from __future__ import annotations

import functools
import gc

from ansible.plugins.loader import action_loader, connection_loader, filter_loader, shell_loader, test_loader

OURS = "livefleet.handover."
# Filters of every move. Others are loaded where they are needed.
FILTERS = (
    *(
        OURS + name
        for name in (
            "destination_directories", "destination_tmpfs", "destination_volumes", "earlier_moves", "first_session", "fresh_look", "move_record",
            "move_result", "pause_base", "report_folder", "session_name", "source_volumes", "times_rows", "told", "typed", "volume_steps",
        )
    ),
    "community.general.keep_keys",
)  # fmt: skip
PLUGINS = (
    (connection_loader, "ssh"),
    (shell_loader, "sh"),
    *((action_loader, name) for name in ("assert", "set_fact", OURS + "host_steps", OURS + "options", OURS + "show_lines")),
)


@functools.lru_cache(maxsize=None)
def prepare() -> None:
    """Loads plugins in the process that all others begin as a copy of.

    Each would load them for itself, filters above all, which took more than half of the time of a task. Objects that are there now are no
    garbage, and the collector does not touch them any more: a page that it touches is copied in each process.
    """
    for loader in (filter_loader, test_loader):
        # Ansible's own, which are known only when all of them are.
        list(loader.all())
    for name in FILTERS:
        filter_loader.get(name)
    for loader, name in PLUGINS:
        loader.get(name, class_only=True)
    gc.freeze()
