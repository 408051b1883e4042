# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A stand-in for prlctl beside that for vzctl: `prlctl list -i -f -j NAME` for the virtual machines that MACHINES in the state folder names, one a line."""

import json
import sys
from pathlib import Path

MACHINES = Path("/var/lib/vzctl-stand-in/MACHINES")


def main(words: list) -> int:
    known = MACHINES.read_text(encoding="utf-8").split() if MACHINES.exists() else []
    if words[:4] != ["list", "-i", "-f", "-j"] or len(words) != 5:
        print("Usage: prlctl ACTION <ID | NAME> [OPTIONS]", file=sys.stderr)
        return 1
    if words[4] not in known:
        print(f"Failed to get VM config: The virtual machine could not be found. ({words[4]})", file=sys.stderr)
        return 255
    print(json.dumps([{"ID": "b7f5a0a6-2f0b-4b8e-9f2c-6d1d2c3b4a59", "Name": words[4], "Type": "VM", "State": "running", "OS": "linux"}], indent=4))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
