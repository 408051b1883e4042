# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""podman's secrets on this host: compared without being shown, taken and made.

A value is in memory only, and on a pipe to podman or to the helper. It is read from the store of podman's driver `file`: podman itself tells it
as text, which not every value is, and before 4.5 not at all.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import os
import typing as t
from dataclasses import dataclass

from .._core.runtime import HandoverError, Runtime
from .podman import Podman

FILE = "file"
_STORE = "secretsdata.json"

Document = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class Made:
    """The record of the secrets that one move has made here: name → podman's ID. It is in memory, and gone with the next boot."""

    path: str

    def exists(self) -> bool:
        """Whether it was begun, and not lost since."""
        return os.path.exists(self.path)

    def read(self) -> dict[str, str]:
        """Empty where nothing was made."""
        return dict(json.loads(_read(self.path))) if self.exists() else {}

    def write(self, made: t.Mapping[str, str]) -> None:
        """Replaces it in one step."""
        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        with open(self.path + ".new", "w", encoding="utf-8") as target:
            json.dump(made, target)
        os.replace(self.path + ".new", self.path)

    def add(self, name: str, identifier: str) -> None:
        """Notes a secret that was made a moment ago."""
        self.write({**self.read(), name: identifier})

    def forget(self) -> None:
        """Removes it."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)


@dataclass(frozen=True)
class Secrets:
    """The secrets of this host's podman."""

    runtime: Runtime
    podman: Podman

    def look(self, names: t.Iterable[str], key: str, static_dir: str = "") -> dict[str, dict[str, t.Any]]:
        """Of those that there are: the driver, a digest of the value under a key, and whether the container has still an older value."""
        found = {}
        for name, document in self._inspect(names).items():
            value = _value(document)
            copy = os.path.join(static_dir, "secrets", name) if static_dir else ""
            found[name] = {
                "driver": _driver(document),
                "digest": "" if value is None else hmac.new(key.encode(), value, hashlib.sha256).hexdigest(),
                # podman gives a container the value that a secret has when it creates it, and keeps that.
                "changed": value is not None and os.path.exists(copy) and _read(copy) != value,
            }
        return found

    def take(self, names: t.Sequence[str]) -> list[dict[str, t.Any]]:
        """All of these secrets, so that they can be made again."""
        documents = self._inspect(names)
        taken = []
        for name in names:
            value = _value(documents[name]) if name in documents else None
            if value is None:
                raise HandoverError("the secret {0} is not in podman's store on this host any more: see `podman secret inspect {0}`".format(name))
            spec = documents[name]["Spec"]
            taken.append({"name": name, "labels": dict(spec.get("Labels") or {}), "value": base64.b64encode(value).decode()})
        return taken

    def make(self, secrets: t.Iterable[Document], made: Made) -> list[str]:
        """Makes them, and records each; all, or none of them."""
        try:
            for secret in secrets:
                if secret["name"] in self.podman.secrets():
                    raise HandoverError("podman has a secret {0} on this host already, and it is not written over".format(secret["name"]))
                labels = ["--label={0}={1}".format(key, value) for key, value in sorted(secret["labels"].items())]
                create = [self.podman.path, "secret", "create", "--driver=" + FILE, *labels, secret["name"], "-"]
                made.add(secret["name"], self.runtime.run(create, stdin=base64.b64decode(secret["value"])).stdout.strip())
        except HandoverError:
            with contextlib.suppress(HandoverError):
                self.remove(made.read(), made)
                made.write({})
            raise
        return sorted(made.read())

    def remove(self, names: t.Iterable[str], made: Made) -> tuple[list[str], list[str]]:
        """Removes those of them that were made: the names of these, and of those that may have been, if the record is gone."""
        known, recorded = made.read(), made.exists()
        there = {name: document["ID"] for name, document in self._inspect(names).items()}
        gone = [name for name, identifier in there.items() if known.get(name) == identifier]
        for name in gone:
            self.podman.run("secret", "rm", name)
        return gone, [] if recorded else [name for name in there if name not in gone]

    def _inspect(self, names: t.Iterable[str]) -> dict[str, Document]:
        there = set(self.podman.secrets())
        known = [name for name in names if name in there]
        answered = self.runtime.run_json([self.podman.path, "secret", "inspect", *known]) if known else []
        return {document["Spec"]["Name"]: document for document in answered or []}


def _driver(document: Document) -> str:
    return str((document["Spec"].get("Driver") or {}).get("Name") or FILE)


def _value(document: Document) -> bytes | None:
    """What a secret says, or None where the driver keeps it elsewhere."""
    place = ((document["Spec"].get("Driver") or {}).get("Options") or {}).get("path") or ""
    if _driver(document) != FILE or not place:
        return None
    try:
        stored = json.loads(_read(os.path.join(place, _STORE)))
        return base64.b64decode(stored[document["ID"]])
    except (KeyError, TypeError, ValueError) as exc:
        raise HandoverError("podman's store of secrets in {0} is not as it is known: see `podman secret ls`".format(place)) from exc


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as source:
            return source.read()
    except OSError as exc:
        raise HandoverError("{0} cannot be read: {1}".format(path, exc.strerror)) from exc
