# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One variable, from the sent text to its value.

`-e key=value` sends text. A file of variables, JSON and an inventory send values with types. A survey sends text, with a line for each
choice, and an empty text for a question without an answer. All of them go through `read`: it returns a value of the declared type, or
None where nothing was said, or it raises ValueError with the end of a sentence.

Kinds are finer than Ansible's types. A kind is the meaning of a text, as `size`, `command` or `host`.
"""

from __future__ import annotations

import json
import math
import re
import shlex
import typing as t

import yaml
from ansible_collections.livefleet.handover.plugins.module_utils._core.sizes import parse_size

_TRUE, _FALSE = frozenset(("true", "yes", "on", "1", "y", "t")), frozenset(("false", "no", "off", "0", "n", "f"))

# Seconds of each unit of time that may stand behind a number.
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(?P<number>\d+(?:[.]\d+)?)\s*(?P<unit>{0})?".format("|".join(_UNITS)))

# podman's own rule for names, and an inventory's names of hosts.
_CONTAINER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
# One container, or several that move as one.
_WORKLOAD = re.compile(rf"{_CONTAINER.pattern}(\+{_CONTAINER.pattern})*")
# libvirt takes every name that is one line and can be a file's.
_GUEST = re.compile(r"[^/\n]*[^/\s][^/\n]*")
_SESSION = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


def read(value: t.Any, spec: t.Mapping[str, t.Any]) -> t.Any:
    """The value by its declaration; None for nothing."""
    if value is None or isinstance(value, str) and not value.strip():
        return None
    words = spec.get("words", {})
    if str(value).strip().lower() in words:
        return words[str(value).strip().lower()]
    kind = spec.get("kind") or spec.get("unit") or spec.get("type", "str")
    return _READERS.get(kind, _text)(value, spec)


def _text(value: t.Any, spec: t.Mapping[str, t.Any]) -> str:
    if isinstance(value, (list, tuple, dict)):
        raise ValueError("is a {0}: write one word".format("mapping" if isinstance(value, dict) else "list"))
    text = str(value).strip()
    # JSON and YAML make a truth of the words on and off; a choice means the word.
    if isinstance(value, bool) and spec.get("choices") and text.lower() in spec["choices"]:
        return text.lower()
    return text


def _named(pattern: t.Pattern[str], rule: str) -> t.Callable[[t.Any, t.Mapping[str, t.Any]], str]:
    def reader(value: t.Any, spec: t.Mapping[str, t.Any]) -> str:
        text = _text(value, spec)
        if not pattern.fullmatch(text):
            raise ValueError("is not a name: '{0}': write {1}".format(text, rule))
        return text

    return reader


def _boolean(value: t.Any, spec: t.Mapping[str, t.Any]) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise ValueError("is '{0}': write true or false".format(value))


def _integer(value: t.Any, spec: t.Mapping[str, t.Any]) -> int:
    number = _float(value, spec)
    if number != int(number):
        raise ValueError("is '{0}': write a whole number".format(value))
    return _at_least(int(number), value, spec)


def _float(value: t.Any, spec: t.Mapping[str, t.Any]) -> float:
    try:
        if isinstance(value, bool):
            raise ValueError
        number = float(str(value).strip())
        if not math.isfinite(number):
            raise ValueError
    except ValueError:
        raise ValueError("is '{0}': write a number".format(value)) from None
    return _at_least(number, value, spec)


def _at_least(number: t.Any, value: t.Any, spec: t.Mapping[str, t.Any]) -> t.Any:
    least, most = spec.get("least", 0), spec.get("most", number)
    if number < least:
        raise ValueError("is '{0}': write at least {1}".format(value, least))
    if number > most:
        raise ValueError("is '{0}': write at most {1}".format(value, most))
    return number


def _size(value: t.Any, spec: t.Mapping[str, t.Any]) -> int:
    if isinstance(value, bool) or isinstance(value, float) and value != int(value):
        raise ValueError("is '{0}': write a size, as in 512M or 10G".format(value))
    try:
        return parse_size(str(int(value) if isinstance(value, float) else value))
    except ValueError as exc:
        raise ValueError("is no size: {0}".format(exc)) from None


def _duration(unit: str) -> t.Callable[[t.Any, t.Mapping[str, t.Any]], int]:
    """Whole seconds or milliseconds: a bare number counts them, and a unit behind it is converted."""
    scale, what = {"seconds": (1, "seconds"), "milliseconds": (1000, "milliseconds")}[unit]

    def reader(value: t.Any, spec: t.Mapping[str, t.Any]) -> int:
        found = None if isinstance(value, bool) else _DURATION.fullmatch(str(value).strip().lower())
        if not found:
            raise ValueError("is '{0}': write a number of {1}, or one with its unit, as in 300ms, 30s or 5m".format(value, what))
        number = float(found.group("number")) * (_UNITS[found.group("unit")] * scale if found.group("unit") else 1)
        if abs(number - round(number)) > 1e-6:
            raise ValueError("is '{0}': write whole {1}".format(value, what))
        return _at_least(int(round(number)), value, spec)

    return reader


def _command(value: t.Any, spec: t.Mapping[str, t.Any]) -> list[str]:
    """The words of a command: a list as it is, a text as a shell would split it."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except ValueError:
            raise ValueError("begins with a bracket and is no JSON: write it as a shell takes it, or as [\"word\", \"word\"]") from None
    if isinstance(value, str):
        try:
            return shlex.split(value)
        except ValueError as exc:
            raise ValueError("cannot be split into words ({0}): close the quote".format(str(exc).lower())) from None
    if isinstance(value, (list, tuple)) and all(isinstance(word, (str, int, float)) and not isinstance(word, bool) for word in value):
        return [str(word) for word in value]
    raise ValueError("is no command: write its words, as a text or as a list")


def _pattern(value: t.Any, spec: t.Mapping[str, t.Any]) -> str:
    """A pattern of hosts: a text as Ansible takes it, or a list of such."""
    if isinstance(value, str) and not value.strip().startswith("[") and "\n" not in value.strip():
        return value.strip()
    return ",".join(_list(value, {"elements": "str"}))


def _list(value: t.Any, spec: t.Mapping[str, t.Any]) -> list[t.Any]:
    """A list: as it is, as JSON, a line each, between commas, or one thing alone."""
    item = {"type": spec.get("elements", "str"), **{key: spec[key] for key in ("of", "choices") if key in spec}}
    if "of" in item:
        item["kind"] = item.pop("of")
    read_all = (read(each, item) for each in _items(value, item))
    return [each for each in read_all if each is not None]


def _items(value: t.Any, item: t.Mapping[str, t.Any]) -> t.Iterable[t.Any]:
    if isinstance(value, (list, tuple)):
        return value
    if not isinstance(value, str):
        return [value]
    text = value.strip()
    if text.startswith(("[", "- ", "{")):
        found = _structure(text, "list")
        return found if isinstance(found, list) else [found]
    # No host's name has a space; a guest's may.
    return re.split(r"[\s,]+" if item.get("kind") == "host" else r"[\n,]+", text)


def _mapping(value: t.Any, spec: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    found = _structure(value.strip(), "mapping") if isinstance(value, str) else value
    if not isinstance(found, dict):
        raise ValueError("is '{0}': write a mapping, as in {1}".format(value, json.dumps(spec.get("example", {"key": "value"}))))
    values = {"type": "list", "of": spec["lists_of"]} if "lists_of" in spec else None
    return {str(key): (read(each, values) or [] if values else each) for key, each in found.items()}


def _structure(text: str, what: str) -> t.Any:
    """JSON, or the YAML that people write for it."""
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        raise ValueError("is neither JSON nor YAML: write it as a {0}".format(what)) from None


def _as_it_is(value: t.Any, spec: t.Mapping[str, t.Any]) -> t.Any:
    return value


_READERS: dict[str, t.Callable[[t.Any, t.Mapping[str, t.Any]], t.Any]] = {
    "bool": _boolean,
    "int": _integer,
    "float": _float,
    "bytes": _size,
    "size": _size,
    "seconds": _duration("seconds"),
    "milliseconds": _duration("milliseconds"),
    "list": _list,
    "dict": _mapping,
    "raw": _as_it_is,
    "command": _command,
    "container": _named(_CONTAINER, "letters, digits, dots, dashes and underscores, as in shop"),
    "workload": _named(_WORKLOAD, "letters, digits, dots, dashes and underscores, as in shop, or several such names as in db+web"),
    "hosts": _pattern,
    "host": _named(_CONTAINER, "one host of the inventory, as in node1"),
    "guest": _named(_GUEST, "the guest's name, one line without a slash"),
    "session": _named(_SESSION, "small letters, digits and dashes, as pcopy session list shows it"),
    "snapshot": _named(_CONTAINER, "letters, digits, dots, dashes and underscores, as in before-upgrade"),
}
