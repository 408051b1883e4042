# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files that a unit consists of: read on one host, written on another, put aside where they were.

Of a quadlet these are its own file, the quadlets that it names, and the drop-ins of all of them. Of a unit they are its file and its drop-ins. Both
may name files with variables.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import stat
import typing as t

from .._core.runtime import HandoverError

Document = t.Mapping[str, t.Any]

# Where root's quadlets are; the first that has a name counts.
QUADLETS = ("/run/containers/systemd", "/etc/containers/systemd", "/usr/share/containers/systemd")
UNITS = ("/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
ASIDE = ".migrated"
# So the files begin that a move itself adds to a unit.
OURS = "zz-handover-"
# A unit's file is a text of some lines.
_MOST = 1 << 20
# Quadlets that stand for a workload.
_QUADLETS = (".container", ".pod")
# Quadlets that another may name, by their kinds: those that are carried, and why the others are not.
_CARRIED = (".volume", ".network")
_REFUSED = {
    ".image": "has its image made by {0}: write the image's name into Image=",
    ".build": "has its image made by {0}: write the image's name into Image=",
    ".kube": "belongs to {0}: give it a quadlet of its own",
}
# A container's ID, by which a unit may name it.
_ID = re.compile(rb"\b[0-9a-f]{64}\b")
_NAMES = re.compile(r"^\s*(?:Volume|Network|Pod|Image|Mount|Rootfs)\s*=(.*)$", re.MULTILINE)
_NAMED = re.compile(r"(?:^|[\s,=:])([A-Za-z0-9_.@-]+\.(?:volume|network|pod|image|build|kube))(?=$|[\s,:])")
_RELATIVE = re.compile(r"^\s*(?:EnvironmentFile|Volume|Mount|Secret|PodmanArgs)\s*=.*?(?<![^\s=,])(\.{1,2}/[^\s:,]*)", re.MULTILINE)


class Reader:
    """The files of one unit on this host."""

    def __init__(self, shown: Document, quadlets: t.Sequence[str] = QUADLETS, units: t.Sequence[str] = UNITS) -> None:
        self.quadlets = quadlets
        self.units = units
        self.kind = "unit"
        self.companions: list[str] = []  # services that stand for the quadlets that it names
        self.explained: set[str] = set()  # services of which a problem tells, or another check
        self.in_pod = ""  # the service of the pod whose quadlet it names
        self.problems: list[str] = []
        self.documents: list[dict[str, t.Any]] = []
        main, source = shown.get("FragmentPath") or "", shown.get("SourcePath") or ""
        if source.endswith(_QUADLETS) and os.path.dirname(source).startswith(tuple(quadlets)):
            self.kind = "quadlet"
            self._quadlet(source)
        elif main.startswith(tuple(folder + "/" for folder in units)) and not source:
            self._take(main, "unit")
        else:
            self.problems.append(
                "comes from {0}, which is neither a quadlet of root's nor a unit's file: write one of these".format(source or main or "no file")
            )
        own = "/{0}.d/".format(shown.get("Id") or "")
        for path in (shown.get("DropInPaths") or "").split():
            if os.path.basename(path).startswith(OURS):
                continue  # of a move that was not brought to its end
            if own in path:
                self._take(path, "drop-in")
            elif "/service.d/" not in path:
                self.problems.append("is changed by {0}, which other units have as well: put that into {1} of its own".format(path, own.strip("/")))
        for path in re.findall(r"^(/.*?) \(", shown.get("EnvironmentFiles") or "", re.MULTILINE):
            if os.path.exists(path):
                self._take(path, "environment")

    def _quadlet(self, path: str) -> None:
        text = self._take(path, "unit") + "".join(self._drop_ins(path))
        relative = _RELATIVE.search(text)
        if relative:
            self.problems.append("names {0} by a path that begins at its own folder: write the whole path".format(relative.group(1)))
        for path_there in re.findall(r"^\s*EnvironmentFile\s*=\s*-?(/[^\s%]+)", text, re.MULTILINE):
            if os.path.exists(path_there):
                self._take(path_there, "environment")
        for name in sorted(named(text)):
            self._companion(name)

    def _companion(self, name: str) -> None:
        kind = os.path.splitext(name)[1]
        if kind == ".pod":
            # The pod moves as one: whether it can is asked of all of it.
            self.in_pod = service_of(name)
            self.explained.add(self.in_pod)
            return
        if kind in _REFUSED:
            self.problems.append(_REFUSED[kind].format(name))
            self.explained.add(service_of(name))
            return
        path = found(name, self.quadlets)
        if not path:
            self.problems.append("names {0}, and there is no such quadlet: write it, or name the {1} itself".format(name, kind[1:]))
            return
        self.companions.append(service_of(name))
        self._take(path, "volume" if kind == ".volume" else "network")
        self._drop_ins(path, "volume" if kind == ".volume" else "network")

    def _drop_ins(self, path: str, role: str = "drop-in") -> list[str]:
        name, texts = os.path.basename(path), []
        for folder in self.quadlets:
            directory = os.path.join(folder, name + ".d")
            with contextlib.suppress(OSError):
                texts += [self._take(os.path.join(directory, each), role) for each in sorted(os.listdir(directory)) if each.endswith(".conf")]
        return texts

    def _take(self, path: str, role: str) -> str:
        if any(document["path"] == path for document in self.documents):
            return ""
        try:
            with open(path, "rb") as opened:
                status = os.fstat(opened.fileno())
                content = opened.read(_MOST + 1)
        except OSError as exc:
            self.problems.append("has the file {0}, which cannot be read ({1})".format(path, exc.strerror))
            return ""
        if len(content) > _MOST or not stat.S_ISREG(status.st_mode):
            self.problems.append("has the file {0}, which is no text of at most 1 MiB".format(path))
            return ""
        self.documents.append(
            {
                "path": path,
                "role": role,
                "mode": "{0:04o}".format(stat.S_IMODE(status.st_mode)),
                "content": base64.b64encode(content).decode(),
            }
        )
        return content.decode("utf-8", "replace") + "\n"


def named(text: str) -> set[str]:
    """The quadlets that a quadlet names."""
    return {name for value in _NAMES.findall(text) for name in _NAMED.findall(value)}


def service_of(name: str) -> str:
    """The service that the generator makes of a quadlet that is no container."""
    stem, kind = os.path.splitext(name)
    return "{0}-{1}.service".format(stem, kind[1:])


def found(name: str, folders: t.Sequence[str]) -> str:
    """The file of a quadlet; it may lie in a folder further down."""
    for folder in folders:
        for directory, _directories, names in sorted(os.walk(folder)):
            if name in names:
                return os.path.join(directory, name)
    return ""


# On the destination


def content_of(document: Document, source_id: str, twin_id: str) -> bytes:
    """A file as it is written there. A unit may name its container by the ID, which is another one over there."""
    content = base64.b64decode(document["content"])
    return content.replace(source_id.encode(), twin_id.encode()) if source_id and twin_id and document["role"] in ("unit", "drop-in") else content


def differing(documents: t.Iterable[Document], source_id: str, twin_id: str) -> list[str]:
    """Those that are there with another content."""
    return [
        document["path"] for document in documents if not _is(document["path"], content_of(document, source_id, twin_id)) and os.path.lexists(document["path"])
    ]


def missing(documents: t.Iterable[Document], source_id: str, twin_id: str) -> list[str]:
    """Paths of those that are not there as they should be."""
    return [document["path"] for document in documents if not _is(document["path"], content_of(document, source_id, twin_id))]


def write(document: Document, path: str, source_id: str, twin_id: str) -> bool:
    """Writes a file whole; nothing is done where it is there already."""
    content = content_of(document, source_id, twin_id)
    if _is(path, content):
        return False
    try:
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        write_text(path, content, int(document["mode"], 8))
    except OSError as exc:
        raise HandoverError("{0} cannot be written on this host: {1}".format(path, exc.strerror)) from exc
    return True


def write_text(path: str, content: bytes, mode: int = 0o644) -> None:
    """A file that is there whole or not at all, also after a power cut."""
    beside = path + ".handover-new"
    with open(os.open(beside, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, mode), "wb") as opened:
        os.fchmod(opened.fileno(), mode)
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())
    os.replace(beside, path)
    sync_folder(os.path.dirname(path))


def sync_folder(folder: str) -> None:
    """Its names are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is(path: str, content: bytes) -> bool:
    try:
        with open(path, "rb") as opened:
            return opened.read() == content
    except OSError:
        return False


def place_until_settled(path: str, kind: str) -> str:
    """Where systemd finds a file until the next boot only."""
    folder, name = os.path.split(path)
    parent = os.path.basename(folder)
    inner = os.path.join(parent, name) if parent.endswith(".d") else name
    return os.path.join("/run/systemd/system" if kind == "unit" or ".service.d/" in path else QUADLETS[0], inner)


# On the source, when the container has left


def to_put_aside(documents: t.Iterable[Document], quadlets: t.Sequence[str] = QUADLETS) -> list[str]:
    """Those of its files that no other unit has: a network stays, and so does a volume that another quadlet names, and a file with variables."""
    own = [document for document in documents if document["role"] in ("unit", "drop-in", "volume")]
    names = {os.path.basename(document["path"]) for document in own if document["role"] == "volume"}
    theirs = [document["path"] for document in own]
    needed = {name for name in names if any(name in text for path, text in _texts(quadlets) if path not in theirs)}
    return [path for path in theirs if os.path.lexists(path) and not any(name in path for name in needed)]


def _texts(folders: t.Sequence[str]) -> t.Iterator[tuple[str, set[str]]]:
    for folder in folders:
        for directory, _directories, files in os.walk(folder):
            for name in files:
                path = os.path.join(directory, name)
                if not name.endswith((".container", ".pod", ".kube", ".conf")):
                    continue
                with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as opened:
                    yield path, named(opened.read())


def forget_aside(documents: t.Iterable[Document]) -> None:
    """Removes files that an earlier move put aside on this host, where the same have come back.

    The container had another ID here then, so what differs in IDs alone is the same.
    """
    for document in documents:
        path = document["path"] + ASIDE
        with contextlib.suppress(OSError):
            with open(path, "rb") as opened:
                same = _without_ids(opened.read()) == _without_ids(base64.b64decode(document["content"]))
            if same:
                os.unlink(path)


def _without_ids(content: bytes) -> bytes:
    return _ID.sub(b"", content)


def put_aside(paths: t.Iterable[str]) -> None:
    """Renames them; one of an earlier move makes room."""
    for path in paths:
        try:
            os.replace(path, path + ASIDE)
            sync_folder(os.path.dirname(path))
        except OSError as exc:
            raise HandoverError("{0} cannot be renamed to {0}{1}: {2}".format(path, ASIDE, exc.strerror)) from exc
