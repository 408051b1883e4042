# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lines at the bottom of a terminal that are kept up to date while everything else scrolls above them.

The terminal does the work: all but its last rows are made its scrolling region, and the last rows are written to in between.
Other printers need not know. News comes as datagrams from the waiting processes, so that the
process that owns the terminal never waits for any of them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import tempfile
import threading
import typing as t

# The path of the socket, for the processes that Ansible starts for its tasks.
ADDRESS = "HANDOVER_PROGRESS"

# Tasks of the roles say before a bar which stage they belong to. A look for an earlier attempt is none.
_STAGE = re.compile(r"^(?:.* : )?(Preflight|Trial|Prepare|Prewarm|Presync|Cutover|Migrate|Fence|Down and up|Release|Settle|Cleanup|Report|Undo) \| ")

# Rows are taken from the scrolling text: so many at most, and never more than half of them.
ROWS = 16


def key(variables: t.Mapping[str, t.Any]) -> str:
    """Whose line it is, from the variables of a host in the inventory: that of the move that it is a part of, if it is one."""
    return (variables.get("__handover_move") or {}).get("name") or variables.get("inventory_hostname") or ""


def stage_of(task: str) -> str:
    """The stage to which a task belongs, by its name; empty: to none."""
    found = _STAGE.match(task)
    return found.group(1).lower() if found else ""


def tell(**news: t.Any) -> bool:
    """Sends news to the live display; False where there is none, or not now."""
    address = os.environ.get(ADDRESS)
    if not address:
        return False
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto(json.dumps(news).encode(), address)
    except OSError:
        return False
    return True


class Screen:
    """The control sequences, and nothing of the terminal itself."""

    def __init__(self) -> None:
        self.rows = 0

    def draw(self, lines: t.Sequence[str], size: os.terminal_size) -> str:
        """The text that puts the lines at the bottom."""
        shown = self._fit(lines, size)
        text = "" if len(shown) == self.rows else self._resize(len(shown), size)
        text += "\0337"
        for number, line in enumerate(shown):
            text += "\033[{0};1H\033[2K{1}".format(size.lines - len(shown) + number + 1, line[: size.columns - 1])
        return text + "\0338"

    def _fit(self, lines: t.Sequence[str], size: os.terminal_size) -> list[str]:
        room = max(1, min(ROWS, size.lines // 2))
        if len(lines) <= room:
            return list(lines)
        return [*lines[: room - 1], "… and {0} more".format(len(lines) - room + 1)]

    def _resize(self, rows: int, size: os.terminal_size) -> str:
        """Makes room for so many rows. The region is set with the cursor kept where it is, pushed up if it stands in the way."""
        text = "\0337" + "".join("\033[{0};1H\033[2K".format(size.lines - row) for row in range(self.rows)) + "\0338"
        text += "\n" * max(0, rows - self.rows) + ("\033[{0}A".format(rows - self.rows) if rows > self.rows else "")
        text += "\0337" + ("\033[1;{0}r".format(size.lines - rows) if rows else "\033[r") + "\0338"
        self.rows = rows
        return text


class Live:
    """A socket, a thread that listens on it, and a terminal."""

    def __init__(self, terminal: int, line: t.Callable[[dict[str, t.Any]], str], size: t.Callable[[], os.terminal_size] = shutil.get_terminal_size) -> None:
        self.terminal, self.line, self.size = terminal, line, size
        self.known: dict[str, dict[str, t.Any]] = {}
        self.screen = Screen()
        self.folder = tempfile.mkdtemp(prefix="handover-")
        self.address = os.path.join(self.folder, "progress")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.address)
        self.owner = os.getpid()
        os.environ[ADDRESS] = self.address
        self.thread = threading.Thread(target=self._listen, daemon=True)
        self.thread.start()

    def _listen(self) -> None:
        while True:
            try:
                news = json.loads(self.socket.recv(65536))
            except ValueError:
                continue
            except OSError:
                return
            if news.get("end"):
                return
            self.take(news)

    def take(self, news: dict[str, t.Any]) -> None:
        """One piece of news: a workload's facts, or that it is gone."""
        key = news["key"]
        if news.get("gone"):
            self.known.pop(key, None)
        else:
            self.known[key] = {**self.known.get(key, {}), **news}
        self._write(self.screen.draw([self.line(each) for each in self.known.values()], self.size()))

    def _write(self, text: str) -> None:
        # Not through Python's buffers: a task's process may be forked off at any time, and would inherit their content.
        data = text.encode("utf-8", "replace")
        try:
            while data:
                data = data[os.write(self.terminal, data) :]
        except OSError:
            pass

    def close(self) -> None:
        """Gives the terminal back as it was."""
        if os.getpid() != self.owner:
            return
        tell(end=True)
        self.thread.join(timeout=2)
        os.environ.pop(ADDRESS, None)
        self._write(self.screen.draw([], self.size()))
        self.socket.close()
        shutil.rmtree(self.folder, ignore_errors=True)
