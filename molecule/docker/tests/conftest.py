# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where the tests of this scenario find its fleet, unless another of such hosts is named, and the modules that they share."""

from __future__ import annotations

import os
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[3]
for variable, name in (("FAULTS_INVENTORY", "inventory.yml"), ("FAULTS_PARAMETERS", "parameters.yml")):
    os.environ.setdefault(variable, str(CHECKOUT / "lab" / "docker" / name))
sys.path[:0] = [str(CHECKOUT / "tests" / folder) for folder in ("faults", "operator")]
