# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One container of OpenVZ's on this host: laid ready as another's twin, started, removed.

A twin is no container yet: its configuration waits beside /etc/vz/conf until the release, and vzctl does not know it. So nothing here can start it.
"""

from __future__ import annotations

import json
import os
import shutil
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..._core.host import read_text
from ..._core.runtime import Completed, HandoverError, Runtime
from ..._core.step import Step
from . import facts as facts_of, gate, statuses
from .look import DEFAULTS, FOLDER, Look

Document = t.Mapping[str, t.Any]

NAMES = "/etc/vz/names"
STAGED = "/var/lib/handover/openvz"
NOTE = "twin.json"
CONF = "conf"


class OpenvzWorkload:
    """One container of this host."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.params = module.params
        self.name: str = module.params["name"]
        self.runtime = Runtime(module, module.params["timeout"])
        self.reasons: list[str] = []
        self.staged = os.path.join(STAGED, self.name)

    def run(self) -> dict[str, t.Any]:
        """Brings it to the state asked for."""
        states = {"prepared": self._prepare, "started": self._start, "absent": self._remove}
        result = states[self.params["state"]]()
        return dict(result, changed=bool(self.reasons), reasons=self.reasons)

    def _here(self) -> dict[str, t.Any]:
        return Look(self.runtime, self.name).whole()[0]

    def _vzctl(self, *words: str) -> Completed:
        return self.runtime.run([self.runtime.tool("vzctl", "vzctl"), *words], accept=range(256))

    def _places(self) -> dict[str, str]:
        defaults = facts_of.effective("", read_text(DEFAULTS))
        return {name: facts_of.place(defaults, name, self.name) for name in facts_of.PLACES}

    def _dump(self) -> str:
        """The folder that a dump of a move is in, on either side."""
        defaults = facts_of.effective("", read_text(DEFAULTS))
        return os.path.join(facts_of.place(defaults, "DUMPDIR", self.name), facts_of.DUMPED.format(self.name))

    # prepared

    def _prepare(self) -> dict[str, t.Any]:
        source, places = self.params["source"], self._places()
        private = places["VE_PRIVATE"]
        newer = bool(source.get("newer"))
        # Of libvzctl it comes in the private area, and the registration changes it.
        conf = "" if newer else facts_of.moved_configuration(source["conf"], places, self.name)
        if not newer and facts_of.essence(conf) != facts_of.essence(source["conf"]):
            raise HandoverError("the configuration of {0} would not be the same here: it is written in a way that is not understood".format(self.name))
        if self._noted() is not None:
            # Laid ready by an earlier run of the same move.
            if read_text(os.path.join(self.staged, CONF, self.name + ".conf")) != conf or not os.path.isdir(private):
                raise HandoverError("{0} is of an earlier move of {1} and not the same: run playbooks/recover.yml".format(self.staged, self.name))
            return self._result(private)
        for path in (private, os.path.join(FOLDER, self.name + ".conf"), self._dump()):
            if os.path.lexists(path):
                raise HandoverError("{0} is on this host, and was not when the move was planned: see who makes it here, then move it again".format(path))
        self.reasons += ["{0} is not there".format(private), "there is no container {0} that waits for its start".format(self.name)]
        if not self.module.check_mode:
            self._lay_ready(conf, places, source)
        return self._result(private)

    def _lay_ready(self, conf: str, places: t.Mapping[str, str], source: Document) -> None:
        os.makedirs(os.path.join(self.staged, CONF), mode=0o700)
        files = {self.name + ".conf": (conf, 0o644), **{name: (text, 0o755) for name, text in source["scripts"].items()}} if conf else {}
        for name, (text, mode) in files.items():
            self._write(os.path.join(self.staged, CONF, name), text, mode)
        # Before the folder: what the note does not name is not removed.
        dump = self._dump() if (self.params["planned"] or {}).get("dump") else ""
        note = {"private": places["VE_PRIVATE"], "root": places["VE_ROOT"], "name": source["title"], "dump": dump}
        self._write(os.path.join(self.staged, NOTE), json.dumps(note) + "\n", 0o600)
        for key in ("root", "name", *(() if conf else ("private",))):
            self._write(os.path.join(self.staged, key), note[key] + "\n", 0o600)
        if dump:
            self._write(os.path.join(self.staged, "dump"), dump + "\n", 0o600)
        for path in filter(None, (note["private"], dump)):
            os.makedirs(path, mode=0o700)

    def _write(self, path: str, text: str, mode: int) -> None:
        with open(path, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.write(text)
            os.fchmod(file.fileno(), mode)
            file.flush()
            os.fsync(file.fileno())

    def _result(self, private: str) -> dict[str, t.Any]:
        dump = self._dump() if (self.params["planned"] or {}).get("dump") else ""
        mounts = [{"name": facts_of.PRIVATE, "source": private, "destination": "/", "type": "private"}]
        return {
            "volumes": [facts_of.PRIVATE],
            "workload": {
                "exists": True, "held": False, "running": False, "name": self.name, "bundle": facts_of.bundle_of(self.name), "mounts": mounts, "dump": dump,
            },
        }  # fmt: skip

    def _noted(self) -> dict[str, str] | None:
        """What an earlier run has laid ready, or is about to."""
        text = read_text(os.path.join(self.staged, NOTE))
        if not text and os.path.isdir(self.staged):
            # It was ended before it had made anything else.
            shutil.rmtree(self.staged)
        return json.loads(text) if text else None

    # started

    def _start(self) -> dict[str, t.Any]:
        here = self._here()
        if not here["running"]:
            self.reasons.append("{0} is {1}".format(self.name, here["state"] or "not registered"))
            if not self.module.check_mode:
                done = self.runtime.run([gate.TURN, "start", self.name], accept=range(256))
                if done.rc != 0:
                    raise HandoverError("{0} was not started on this host: {1}".format(self.name, done.last_words))
        return {}

    # absent

    def _remove(self) -> dict[str, t.Any]:
        here, noted, left = self._here(), self._noted(), self.staged + ".left"
        if here["exists"] and here["state"] == facts_of.HELD and (noted is not None or os.path.exists(left)):
            # Its session could not end it.
            self.reasons.append("{0} is held for a move".format(self.name))
            here = self._end_held("discard" if noted is not None else "kill") if not self.module.check_mode else {**here, "state": "stopped"}
        if here["exists"] and here["state"] != "stopped":
            raise HandoverError("{0} is {1} on this host, so it is not removed: stop it first if that is meant".format(self.name, here["state"]))
        if here["exists"] and noted is None and not os.path.exists(left):
            raise HandoverError(
                "{0} is on this host, and no move has stopped it here or laid it ready, so it is not removed: `vzctl destroy {0}` does that".format(self.name)
            )
        whole = facts_of.PRIVATE in self.params["volumes"]
        if here["exists"]:
            self.reasons.append("there is a container {0}, which does not run".format(self.name))
        if noted is not None:
            self.reasons.append("{0} was laid ready for a move".format(self.name))
        if self.module.check_mode:
            return {}
        if here["exists"]:
            (self._destroy if whole else self._put_aside)(here)
        if noted is not None:
            # Its place was empty when the note was written.
            for path in filter(None, (noted["private"] if whole else "", noted.get("dump", ""))):
                if os.path.isdir(path):
                    shutil.rmtree(path)
            shutil.rmtree(self.staged)
        if os.path.exists(left):
            shutil.rmtree(self._dump(), ignore_errors=True)
            os.unlink(left)
        return {}

    def _end_held(self, word: str) -> dict[str, t.Any]:
        done = self.runtime.run([gate.TURN, word, self.name, self._dump()], accept=range(256))
        if done.rc != 0:
            raise HandoverError("{0} is held on this host for a move, and was not ended: {1}".format(self.name, done.last_words))
        return self._here()

    def _destroy(self, here: Document) -> None:
        done = self._vzctl("destroy", self.name)
        left = self._here()
        if left["exists"] or os.path.lexists(here["private"]):
            raise HandoverError(
                "`vzctl destroy {0}` has ended, and {1} is still on this host: {2}".format(
                    self.name, here["private"] if not left["exists"] else self.name, statuses.sentence(done.rc, (done.stderr or done.stdout).strip())
                )
            )

        self._forget_name(here)

    def _forget_name(self, here: Document) -> None:
        """The link leads to a configuration that is gone."""
        link = os.path.join(NAMES, here["title"])
        if here["title"] and os.path.islink(link) and not os.path.exists(link):
            os.unlink(link)

    def _put_aside(self, here: Document) -> None:
        """As vzmigrate leaves it: the private area stays, and the container is none any more."""
        if here["newer"]:
            done = self._vzctl("unregister", self.name)
            if self._here()["exists"]:
                raise HandoverError(
                    "`vzctl unregister {0}` has ended, and {0} is still on this host: {1}".format(self.name, statuses.sentence(done.rc, done.last_words))
                )
            return
        for name in sorted(here["scripts"]) + [self.name + ".conf"]:
            path = os.path.join(FOLDER, name)
            if os.path.lexists(path):
                os.replace(path, path + ".migrated")
        self._forget_name(here)


STEP = Step(
    arguments={
        "name": {"type": "str", "required": True},
        "state": {"type": "str", "choices": ["prepared", "started", "absent"], "required": True},
        "source": {"type": "dict"},
        "planned": {"type": "dict"},
        "volumes": {"type": "list", "elements": "str", "default": []},
        "aside": {"type": "list", "elements": "str", "default": []},
        "folders": {"type": "list", "elements": "str", "default": []},
        "members": {"type": "list", "elements": "str", "default": []},
        "pods": {"type": "list", "elements": "str", "default": []},
        "beside": {"type": "list", "elements": "str", "default": []},
        "around": {"type": "dict", "default": {}},
        "timeout": {"type": "int", "default": 120},
    },
    required_if=[("state", "prepared", ["source"])],
    run=lambda module: OpenvzWorkload(module).run(),
)
