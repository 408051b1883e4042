# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From the command that made a container on one host to the command that makes its twin on another.

podman remembers the words with which a container was made (`Config.CreateCommand`). They are read as podman reads them:
global options, the verb, options, the image, and from there on the workload's own arguments, which are never touched.
Which options take a value is learned from podman's own help texts, so that a newer podman needs no new table here.

Values that the first podman itself chose (the name, the host name, addresses, host ports, values taken from files or from
its environment) are pinned to those of the running container: the twin must be the same container, not a similar one.
Everything here is a pure function.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, field

from .anonymous_volumes import pinned

_OPTION_LINE = re.compile(r"^\s+(?:-(?P<short>[A-Za-z0-9]), )?--(?P<name>[a-z0-9][a-z0-9-]*)(?: (?P<value>\S+))?(?:\s{2,}|\s*$)")

# Spellings that podman accepts and does not print in its help.
_ALIASES = {
    "dns-opt": "dns-option",
    "healthcheck-command": "health-cmd",
    "healthcheck-interval": "health-interval",
    "healthcheck-retries": "health-retries",
    "healthcheck-start-period": "health-start-period",
    "healthcheck-timeout": "health-timeout",
    "net": "network",
    "override-arch": "arch",
    "override-os": "os",
    "override-variant": "variant",
}
HIDDEN = {"kernel-memory": True, "signature-policy": True}

# Options of `podman run` about the run, not about the container. They stand here by name too because a podman that
# does not print one of them in the help of `create` may yet accept it there.
_RUN_ONLY = frozenset(("detach", "detach-keys", "passwd", "preserve-fd", "preserve-fds", "rmi", "sig-proxy"))

# How the image was fetched, and files on the first host that only `create` itself looked at.
_NOT_CARRIED = frozenset(
    (
        "attach", "authfile", "cert-dir", "cidfile", "creds", "decryption-key", "disable-content-trust", "pull", "quiet",
        "replace", "retry", "retry-delay", "signature-policy", "tls-verify",
    )
)  # fmt: skip

# Written again from the running container's values.
_PINNED = frozenset(("hostname", "ip", "ip6", "mac-address", "name", "network", "publish", "publish-all"))

# Whose values name another container, or a pod.
_TIES = frozenset(("pod", "pod-id-file", "requires", "volumes-from"))

# Files of the first host that the second one's podman would read again, and whose contents are not remembered.
_FILES = frozenset(("hosts-file", "init-path"))
_LABELS = "label-file"
_UNIT_LABEL = "PODMAN_SYSTEMD_UNIT="

_ENVIRONMENT = frozenset(("env", "env-file", "env-host"))
_PROXIES = frozenset(("http_proxy", "https_proxy", "ftp_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY"))
# Variables that podman itself sets in every container.
_OWN_ENVIRONMENT = frozenset(("container", "container_uuid", "HOME", "HOSTNAME", "TERM"))


class CommandError(ValueError):
    """The command cannot be read; the text says which word, and why."""


@dataclass(frozen=True)
class Grammar:
    """The options of a podman verb: name → whether it takes a value; letter → option name."""

    options: t.Mapping[str, bool]
    letters: t.Mapping[str, str]

    @classmethod
    def from_help(cls, text: str) -> Grammar:
        """Reads the text that `podman … --help` prints."""
        options: dict[str, bool] = {}
        letters: dict[str, str] = {}
        for line in text.splitlines():
            match = _OPTION_LINE.match(line)
            if match:
                options[match.group("name")] = match.group("value") is not None
                if match.group("short"):
                    letters[match.group("short")] = match.group("name")
        if not options:
            raise CommandError("podman printed a help text in which no option was found")
        return cls(options, letters)

    def __or__(self, other: Grammar) -> Grammar:
        return Grammar({**other.options, **self.options}, {**other.letters, **self.letters})

    def canonical(self, name: str) -> str:
        return _ALIASES.get(name, name) if name not in self.options else name

    def takes_value(self, name: str) -> bool | None:
        """None for an option that this podman does not know."""
        return self.options.get(name, HIDDEN.get(name))


Option = t.Tuple[str, t.Optional[str]]


@dataclass(frozen=True)
class CreateCommand:
    """A create command, taken apart."""

    options: tuple[Option, ...]
    image: str
    arguments: tuple[str, ...]
    global_options: tuple[Option, ...] = ()

    def values(self, name: str) -> list[str | None]:
        return [value for option, value in self.options if option == name]


@dataclass(frozen=True)
class Attachment:
    """One network that the container is on, as it is now."""

    network: str
    addresses: tuple[str, ...] = ()
    mac: str = ""
    interface: str = ""


@dataclass(frozen=True)
class Port:
    """One published port."""

    container_port: int
    protocol: str
    host_port: str
    host_ip: str = ""

    def __str__(self) -> str:
        host_ip = "[{0}]".format(self.host_ip) if ":" in self.host_ip else self.host_ip
        return "{0}{1}:{2}/{3}".format(host_ip + ":" if host_ip else "", self.host_port, self.container_port, self.protocol)


@dataclass(frozen=True)
class Identity:
    """The container's own properties, as the source's podman shows them; None for a host name means that it has none of its own."""

    name: str
    image: str
    hostname: str | None = None
    networks: tuple[Attachment, ...] = ()
    ports: tuple[Port, ...] = ()
    environment: tuple[str, ...] = field(default=(), repr=False)
    labels: tuple[str, ...] = ()
    # Options that are written as the container is now, and not as it was created; an empty one is left out.
    settings: t.Mapping[str, str] = field(default_factory=dict)
    # Of the anonymous volumes: where each is mounted, and the name that podman gave it.
    volumes: t.Mapping[str, str] = field(default_factory=dict)
    # A unit of systemd makes it anew at each start, and removes it at each stop.
    made_by_unit: bool = False
    # Of a group: the pod that it is a member of, whether it has the network of another container, and the names of those that it names by their IDs.
    pod: str = ""
    joined: bool = False
    # podman readies it only beside those that it requires while they run: it is told of them when all are there.
    requires_later: bool = False
    others: t.Mapping[str, str] = field(default_factory=dict)


def parse(command: t.Sequence[str], podman: Grammar, verb: Grammar) -> CreateCommand:
    """Takes a create command apart; `podman` is the grammar of the global options, `verb` that of `run` and `create` together."""
    words = list(command)
    if not words:
        raise CommandError("podman has not kept the command that made it (it was made through the API or by `podman kube play`)")
    global_options, rest = read_options(words[1:], podman)
    if rest[:1] == ["container"]:
        rest = rest[1:]
    if not rest or rest[0] not in ("run", "create"):
        raise CommandError("it was made by '{0}', not by podman run or podman create".format(" ".join(words[: len(words) - len(rest) + 1])))
    # A global option may also stand behind the verb.
    mixed, rest = read_options(rest[1:], verb | podman)
    options = [(name, value) for name, value in mixed if verb.takes_value(name) is not None]
    global_options += [(name, value) for name, value in mixed if verb.takes_value(name) is None]
    if not rest:
        raise CommandError("no image is named in the command that made it")
    return CreateCommand(tuple(options), rest[0], tuple(rest[1:]), tuple(global_options))


def read_options(words: list[str], grammar: Grammar) -> tuple[list[Option], list[str]]:
    """The options up to the first word that is none, and that word with all that follows."""
    found: list[Option] = []
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        if word == "--":
            return found, words[position:]
        if word == "-" or not word.startswith("-"):
            return found, words[position - 1 :]
        for name, value, needs_next in _read_word(word, grammar):
            if needs_next:
                if position == len(words):
                    raise CommandError("the option --{0} has no value".format(name))
                value = words[position]
                position += 1
            found.append((name, value))
    return found, []


def _read_word(word: str, grammar: Grammar) -> t.Iterator[tuple[str, str | None, bool]]:
    """(name, value, the value is the next word) of each option in one word; `-dit` holds three."""
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        name = grammar.canonical(name)
        takes = grammar.takes_value(name)
        if takes is None:
            raise CommandError("this host's podman does not know the option --{0}".format(name))
        yield name, value if equals else None, takes and not equals
        return
    letters = word[1:]
    for index, letter in enumerate(letters):
        name = grammar.letters.get(letter, "")
        takes = grammar.takes_value(name)
        if takes is None:
            raise CommandError("this host's podman does not know the option -{0} in '{1}'".format(letter, word))
        rest = letters[index + 1 :]
        if takes:
            yield name, (rest[1:] if rest.startswith("=") else rest) or None, not rest
            return
        if rest.startswith("="):
            yield name, rest[1:], False
            return
        yield name, None, False


def unsupported(parsed: CreateCommand, in_group: bool = False, root: str = "") -> str | None:
    """Why a twin cannot be made on another host from this command, or None; `in_group` if all that it needs moves with it, `root` is the whole
    image volume that it has as its root."""
    for name, value in parsed.options:
        if value in ("false", "0") or in_group and name in _TIES:
            continue
        if name in ("pod", "pod-id-file"):
            return "it belongs to a pod"
        if name in ("volumes-from", "requires", "init-ctr"):
            return "it depends on another container (--{0})".format(name)
        if name == "rootfs" and (not root or parsed.image.rstrip("/") != root):
            return "it runs from a directory and not from an image (--rootfs)"
    for name, _value in parsed.global_options:
        if name in ("root", "runroot", "remote", "url", "connection", "storage-driver", "storage-opt", "imagestore", "transient-store", "module", "volumepath"):
            return "it was made with podman's global option --{0}, so it lies in another storage".format(name)
    return None


def carried_options(parsed: CreateCommand) -> list[str]:
    """Names of the options that the command for the twin has from this one."""
    left_out = _RUN_ONLY | _NOT_CARRIED | _PINNED | _ENVIRONMENT | {_LABELS}
    return sorted({name for name, _value in parsed.options} - left_out)


def files(parsed: CreateCommand) -> list[str]:
    """Files of this host that the command names and the twin would have to find over there, each with its option."""
    found = ["--{0}={1}".format(name, value) for name, value in parsed.options if name in _FILES and value]
    for name, value in parsed.options:
        kind, _equals, path = (value or "").partition("=")
        if name == "security-opt" and kind == "seccomp" and path not in ("", "unconfined"):
            found.append("--security-opt seccomp={0}".format(path))
    return found


def twin(parsed: CreateCommand, identity: Identity, create: Grammar) -> list[str]:
    """The arguments of `podman` that create the same container on another host; `create` is the grammar of `podman create` there."""
    written: list[Option] = [("pull", "never"), ("name", identity.name)]
    if identity.hostname is not None:
        written.append(("hostname", identity.hostname))
    written += networks_of(parsed, identity)
    written += [("publish", str(port)) for port in identity.ports]
    written += _environment(parsed, identity)
    if parsed.values(_LABELS):
        written += [("label", label) for label in identity.labels]
    else:
        # podman run takes the name of the unit that it is in from its environment.
        written += [("label", label) for label in identity.labels if label.startswith(_UNIT_LABEL) and label not in parsed.values("label")]
    left_out = _RUN_ONLY | _NOT_CARRIED | _PINNED | _ENVIRONMENT | set(identity.settings) | {_LABELS, *(("rm",) if identity.made_by_unit else ())}
    left_out |= {"requires"} if identity.requires_later else set()
    kept = [(name, value) for name, value in parsed.options if name not in left_out]
    for name, value in [*kept, *((name, value) for name, value in identity.settings.items() if value)]:
        if create.takes_value(name) is None:
            raise CommandError("podman create on this host does not know the option --{0}: install the podman of the source here".format(name))
        written.append((name, value))
    written = pinned(written, identity.volumes)
    # A pod of another host is named by its name, and not by a file there.
    written = [("pod", identity.pod) if name == "pod-id-file" else (name, _tied(name, value, identity)) for name, value in written]
    flags = spell(parsed.global_options, ("cgroup-manager", "runtime-flag"))
    return [*flags, "create", *spell(written), identity.image, *parsed.arguments]


def _tied(name: str, value: str | None, identity: Identity) -> str | None:
    """The value of an option, with other members by their names: an ID, also a short one, is another on each host."""
    if name == "pod" and identity.pod:
        return identity.pod
    if not value or name not in ("requires", "volumes-from", "network", "ipc", "pid", "uts"):
        return value
    words = re.split("([,:])", value)
    known = {word: [other for identifier, other in identity.others.items() if len(word) >= 12 and identifier.startswith(word)] for word in words}
    return "".join(known[word][0] if len(known[word]) == 1 else word for word in words)


def spell(options: t.Iterable[Option], only: t.Container[str] | None = None) -> list[str]:
    """Options with `=` between name and value: a value that looks like an option stays a value."""
    return ["--" + name if value is None else "--{0}={1}".format(name, value) for name, value in options if only is None or name in only]


def networks_of(parsed: CreateCommand, identity: Identity) -> list[Option]:
    if identity.joined or not identity.networks:
        return [("network", value) for value in parsed.values("network")]
    asked = _asked_for(parsed)
    options: list[Option] = []
    for attachment in identity.networks:
        kept = [part for part in asked.get(attachment.network, ()) if part.partition("=")[0] not in ("ip", "ip6", "mac", "interface_name")]
        parts = ["ip=" + address for address in attachment.addresses]
        if attachment.mac:
            parts.append("mac=" + attachment.mac)
        if attachment.interface:
            parts.append("interface_name=" + attachment.interface)
        parts += kept
        options.append(("network", attachment.network + (":" + ",".join(parts) if parts else "")))
    return options


def _asked_for(parsed: CreateCommand) -> dict[str, list[str]]:
    """Network name → the options given with it on the command line."""
    asked: dict[str, list[str]] = {}
    for value in parsed.values("network"):
        name, _colon, options = (value or "").partition(":")
        # Without options, one value may list several networks.
        for each in name.split(","):
            each = "podman" if each in ("bridge", "default") else each
            asked[each] = [part for part in options.split(",") if part]
    return asked


def _environment(parsed: CreateCommand, identity: Identity) -> list[Option]:
    """Values that were written out stay; those that came from a file or from podman's own environment are written out now."""
    plain = [value for value in parsed.values("env") if value and "=" in value]
    borrowed = any(name in _ENVIRONMENT and (name != "env" or "=" not in (value or "")) for name, value in parsed.options)
    options: list[Option] = [("env", value) for value in plain]
    proxies = [entry for entry in identity.environment if entry.partition("=")[0] in _PROXIES]
    if borrowed:
        options += [("env", entry) for entry in identity.environment if entry.partition("=")[0] not in _OWN_ENVIRONMENT and entry not in plain]
    elif proxies and not parsed.values("http-proxy"):
        options += [("env", entry) for entry in proxies if entry not in plain]
    if proxies and not parsed.values("http-proxy"):
        options.append(("http-proxy", "false"))
    return options
