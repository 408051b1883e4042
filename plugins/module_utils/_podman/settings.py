# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Settings that `podman update` changes on a container that is there, in the words of `podman create`.

podman does not write such a change into the command that it remembers. Everything here is a pure function of inspect's output.
"""

from __future__ import annotations

import json
import typing as t

Document = t.Mapping[str, t.Any]

# Members of a health check that options can say. Docker's StartInterval is none of them.
_TIMES = {"Interval": "health-interval", "Timeout": "health-timeout", "StartPeriod": "health-start-period"}
_SAID = frozenset((*_TIMES, "Test", "Retries"))
# podman takes a command that begins with one of them, or is a list in JSON, for another form.
_FORMS = ("CMD", "NONE")


def settings_of(inspect: Document) -> dict[str, str]:
    """Option of podman create → value; with an empty one the option is left out. An option that is not here is as in the command."""
    config, host = inspect.get("Config") or {}, inspect.get("HostConfig") or {}
    return {**_restart(host.get("RestartPolicy") or {}), **_health(config.get("Healthcheck") or {})}


def _restart(policy: Document) -> dict[str, str]:
    name, tries = policy.get("Name") or "no", int(policy.get("MaximumRetryCount") or 0)
    return {"restart": "" if name == "no" else "{0}:{1}".format(name, tries) if tries else name}


def _health(check: Document) -> dict[str, str]:
    command = _command(check.get("Test") or [])
    if not command or not _SAID.issuperset(check):
        return {}
    # A time of zero is an interval that the command may have disabled.
    times = {option: "{0}ns".format(check[key]) for key, option in _TIMES.items() if check.get(key)}
    retries = {"health-retries": str(check["Retries"])} if check.get("Retries") else {}
    return {"health-cmd": command, **times, **retries, "no-healthcheck": ""}


def _command(test: t.Sequence[str]) -> str:
    """The value of --health-cmd that podman reads as this test; empty where there is none."""
    form, words = (test[0], test[1:]) if test else ("", ())
    if not words or words[0].upper().startswith(_FORMS) or _is_list(words[0]):
        return ""
    if form == "CMD-SHELL" and len(words) == 1:
        return words[0]
    return json.dumps(list(words)) if form == "CMD" and len(words) > 1 else ""


def _is_list(text: str) -> bool:
    try:
        return isinstance(json.loads(text), list)
    except ValueError:
        return False
