# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A stand-in for vzcptcheck beside that for vzctl: the versions of checkpoints, and the processor's capabilities as bits. CPT_VERSION and CPT_CAPS in the state
folder say others; empty, the kernel has no such module."""

import sys
from pathlib import Path

STATE = Path("/var/lib/vzctl-stand-in")
ANSWERS = {"version": ("CPT_VERSION", "776", "cpt"), "caps": ("CPT_CAPS", "63", "rst")}


def main(words: list) -> int:
    if len(words) != 1 or words[0] not in ANSWERS:
        print("Usage:\tvzcptcheck <command> [argument ...]", file=sys.stderr)
        return 1
    name, usual, module = ANSWERS[words[0]]
    said = (STATE / name).read_text(encoding="utf-8").strip() if (STATE / name).exists() else usual
    if not said:
        print(f"Can't open /proc/{module}: No such file or directory\nKernel module vz{module} not loaded", file=sys.stderr)
        return 1
    print(said)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
