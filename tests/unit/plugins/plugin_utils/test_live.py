# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import pty
import re
import select
import time

import pytest
from ansible_collections.livefleet.handover.plugins.callback.progress import words
from ansible_collections.livefleet.handover.plugins.plugin_utils import _live
from ansible_collections.livefleet.handover.plugins.plugin_utils._live import Live, Screen, tell

SIZE = os.terminal_size((60, 12))


class Terminal:
    """As much of a VT100 as the screen asks for, and what somebody else prints."""

    def __init__(self):
        self.lines = [""] * SIZE.lines
        self.row, self.saved, self.bottom = SIZE.lines - 1, 0, SIZE.lines

    def feed(self, text):
        for word in re.findall(r"\033\[[\d;]*[A-Za-z]|\033[78]|\n|[^\033\n]+", text):
            self._do(word)

    def _do(self, word):
        if word == "\0337":
            self.saved = self.row
        elif word == "\0338":
            self.row = self.saved
        elif word == "\n":
            if self.row == self.bottom - 1:
                del self.lines[0]
                self.lines.insert(self.bottom - 1, "")
            else:
                self.row += 1
        elif word.startswith("\033["):
            numbers = [int(number) for number in re.findall(r"\d+", word)]
            if word[-1] == "H":
                self.row = numbers[0] - 1
            elif word[-1] == "K":
                self.lines[self.row] = ""
            elif word[-1] == "A":
                self.row -= numbers[0]
            elif word[-1] == "r":
                self.bottom = numbers[1] if numbers else SIZE.lines
        else:
            self.lines[self.row] += word


def test_lines_stay_at_the_bottom_while_all_else_scrolls():
    terminal, screen = Terminal(), Screen()
    terminal.feed("before\n")
    terminal.feed(screen.draw(["shop 1", "web 1"], SIZE))
    for number in range(30):
        terminal.feed("task {0}\n".format(number))
    terminal.feed(screen.draw(["shop 2", "web 2"], SIZE))
    assert terminal.lines[-2:] == ["shop 2", "web 2"]
    assert terminal.lines[-4:-2] == ["task 29", ""]
    assert not any("shop" in line or "web" in line for line in terminal.lines[:-2])


def test_nothing_that_was_printed_is_covered():
    terminal, screen = Terminal(), Screen()
    for number in range(11):
        terminal.feed("task {0}\n".format(number))
    terminal.feed(screen.draw(["shop"], SIZE))
    terminal.feed(screen.draw(["shop", "web", "db"], SIZE))
    assert terminal.lines[-5:] == ["task 10", "", "shop", "web", "db"]
    terminal.feed("after\n")
    assert terminal.lines[-6:] == ["task 10", "after", "", "shop", "web", "db"]


def test_the_terminal_is_given_back():
    terminal, screen = Terminal(), Screen()
    terminal.feed("before\n" + screen.draw(["shop"], SIZE) + screen.draw([], SIZE))
    assert terminal.bottom == SIZE.lines
    assert not any("shop" in line for line in terminal.lines)
    terminal.feed("after\n")
    assert "after" in terminal.lines


def test_a_small_terminal_shows_how_many_more_there_are():
    text = Screen().draw(["w{0}".format(number) for number in range(20)], SIZE)
    assert "w4" in text
    assert "w5" not in text
    assert "… and 15 more" in text


def test_a_long_line_does_not_wrap():
    assert "x" * 59 in Screen().draw(["x" * 200], SIZE)
    assert "x" * 60 not in Screen().draw(["x" * 200], SIZE)


def test_news_of_another_process_are_shown():
    here, there = pty.openpty()
    live = Live(there, words, lambda: os.terminal_size((100, 12)))
    try:
        child = os.fork()
        if child == 0:
            figures = {"pass": 1, "pass_bytes": 2**30, "done_bytes": 2**29, "rate": 2**20}
            status = {"workload": "shop", "id": "shop-1", "state": "presync", "ended": False, **figures}
            os._exit(0 if tell(key="shop@node1", stage="presync", status=status) else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert _read_until(here, "shop@node1  presync, pass 1: 50 % of 1 GiB, 1 MiB/s, 9 min to go")
        tell(key="shop@node1", stage="cutover")
        assert _read_until(here, "shop@node1  cutover")
    finally:
        live.close()
    assert not tell(key="shop@node1", stage="cleanup")
    assert _live.ADDRESS not in os.environ
    assert not os.path.exists(live.folder)
    os.close(here)
    os.close(there)


def _read_until(terminal, text):
    seen = ""
    deadline = time.monotonic() + 10
    while text not in seen and time.monotonic() < deadline:
        if select.select([terminal], [], [], 1)[0]:
            seen += os.read(terminal, 4096).decode()
    return text in seen


@pytest.mark.parametrize("told", [{"key": "shop@node1", "stage": "cutover", "status": {"state": "presync"}}, {"key": "shop@node1", "stage": "cutover"}])
def test_a_stage_that_has_no_figures(told):
    assert words(told) == "shop@node1  cutover"
