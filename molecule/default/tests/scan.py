# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Looks for texts in all that a host has written since a moment: its files, and its journal. Runs on the host, and reads what to look for from its input.

{"needles": {"name": ["text", …]}, "since": 1767225600.5} → [["name", "/place"], …]

With two words it prints the texts of so many hexadecimal digits in the memory of a session's process: scan.py FOLDER 32.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

# What the kernel makes up, and the files of the containers' own memory and images.
LEFT_OUT = ("/proc", "/sys", "/dev")
CHUNK = 1 << 22


def found_in(content, needles):
    """The names of those of which a text is in there."""
    return sorted(name for name, texts in needles.items() if any(text.encode() in content for text in texts))


def found_in_file(path, needles):
    longest = max(len(text) for texts in needles.values() for text in texts)
    found, rest = set(), b""
    with open(path, "rb") as file:
        while True:
            chunk = file.read(CHUNK)
            if not chunk:
                return found
            found.update(found_in(rest + chunk, needles))
            rest = chunk[-longest:]


def written_since(moment):
    """The regular files of all file systems that were written or made since then, each once."""
    seen = set()
    for folder, folders, names in os.walk("/"):
        folders[:] = [name for name in folders if os.path.join(folder, name) not in LEFT_OUT]
        for name in names:
            path = os.path.join(folder, name)
            try:
                entry = os.lstat(path)
            except OSError:
                continue  # it is gone
            if (entry.st_mode & 0o170000) == 0o100000 and entry.st_ctime >= moment and (entry.st_dev, entry.st_ino) not in seen:
                seen.add((entry.st_dev, entry.st_ino))
                yield path


def digits_in_memory(folder, length):
    """The texts of so many hexadecimal digits in the memory of the session's process."""
    (pid,) = [name for name in os.listdir("/proc") if name.isdigit() and is_of(name, folder)]
    found = set()
    with open("/proc/{0}/maps".format(pid)) as maps, open("/proc/{0}/mem".format(pid), "rb") as memory:
        for line in maps:
            begin, end = (int(word, 16) for word in line.split()[0].split("-"))
            if "rw" not in line.split()[1]:
                continue
            try:
                memory.seek(begin)
                content = memory.read(end - begin)
            except (OSError, ValueError, OverflowError):
                continue  # the kernel's own
            # Texts may stand side by side there. A very long one is none of the session's.
            for run in re.finditer(b"[0-9a-f]{%d,}" % length, content):
                found.update(run[0][n : n + length].decode() for n in range(min(len(run[0]), 4096) - length + 1))
    return found


def is_of(pid, folder):
    try:
        with open("/proc/{0}/cmdline".format(pid), "rb") as file:
            words = file.read().split(b"\0")
    except OSError:
        return False
    return folder.encode() in words and (b"send" in words or b"receive" in words)


def main():
    if len(sys.argv) == 3:
        print("\n".join(digits_in_memory(sys.argv[1], int(sys.argv[2]))))
        return
    asked = json.load(sys.stdin)
    found = []
    for path in written_since(asked["since"]):
        try:
            found += [[name, path] for name in sorted(found_in_file(path, asked["needles"]))]
        except OSError:
            continue  # it is gone
    # Its files hold long entries compressed.
    journal = subprocess.run(["journalctl", "--output=export", "--since=@{0:.0f}".format(asked["since"])], stdout=subprocess.PIPE, check=True).stdout
    found += [[name, "the journal"] for name in found_in(journal, asked["needles"])]
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
