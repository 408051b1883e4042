# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The niceness of a process that has many threads."""

from __future__ import annotations

import os
import subprocess
import sys

from ansible_collections.livefleet.handover.plugins.module_utils._ceph.drop_in import set_niceness

THREADS = """
import os, sys, threading
begun = threading.Barrier(5)
def wait(niceness):
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)
    begun.wait()
    threading.Event().wait()
for niceness in map(int, sys.argv[1:]):
    threading.Thread(target=wait, args=(niceness,), daemon=True).start()
begun.wait()
print("ready", flush=True)
threading.Event().wait()
"""


def test_all_threads_change_that_have_what_was_found() -> None:
    inherited = os.getpriority(os.PRIO_PROCESS, 0)  # the first thread's
    found, other, wanted = inherited + 1, inherited + 2, inherited + 3
    process = subprocess.Popen([sys.executable, "-c", THREADS, *map(str, (found, found, found, other))], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout and process.stdout.readline() == "ready\n"
        set_niceness(process.pid, found, wanted)
        threads = [int(thread) for thread in os.listdir(f"/proc/{process.pid}/task")]
        assert sorted(os.getpriority(os.PRIO_PROCESS, thread) for thread in threads) == [inherited, other, wanted, wanted, wanted]
    finally:
        process.kill()
        process.communicate()


def test_one_that_has_ended_is_no_error() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    set_niceness(process.pid, 0, 1)
