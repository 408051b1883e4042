# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stand-ins for vzquota, vzdqdump and vzdqload beside that for vzctl, by the name that this is called by. The quota of a container is CTID.quota in the state
folder, and the kernel's part of it, while it is on, CTID.quota-on."""

import os
import sys
from pathlib import Path

STATE = Path("/var/lib/vzctl-stand-in")
OPTIONS = ["-U", "-G", "-T", "-F"]


def refuse(why: str) -> int:
    print(f"vzquota : (error) {why}", file=sys.stderr)
    return 61


def main(program: str, words: list) -> int:
    if program == "vzquota" and len(words) == 2 and words[0] in ("off", "drop", "reload2"):
        verb, ctid = words
    elif program in ("vzdqdump", "vzdqload") and words[1:] == OPTIONS:
        verb, ctid = program, words[0]
    else:
        return refuse(f"Usage: {program}")
    file, kernel = STATE / f"{ctid}.quota", STATE / f"{ctid}.quota-on"
    if verb == "off":
        if not kernel.exists():
            return refuse(f"Quota is not running for id {ctid}")
        kernel.unlink()
    elif not file.exists():
        return refuse(f"Quota file {file} does not exist")
    elif verb == "drop":
        if kernel.exists():
            return refuse("Quota is running")
        file.unlink()
    elif verb == "vzdqdump":
        print(file.read_text(encoding="utf-8"), end="")
    elif verb == "vzdqload":
        file.write_text(sys.stdin.read(), encoding="utf-8")
    elif not kernel.exists():
        return refuse(f"Quota is not running for id {ctid}")
    else:
        kernel.write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(os.path.basename(sys.argv[0]), sys.argv[1:]))
