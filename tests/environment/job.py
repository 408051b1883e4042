# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A job as AWX lays it out for ansible-runner: the project, the inventory as a program, the credential's key, and the answers to the survey.

Answers are marked `!unsafe`, their names as well, and the template's own variables are not. Each question is answered: with its default, or blank.
"""

from __future__ import annotations

import json
import shutil
import typing as t
from dataclasses import dataclass
from pathlib import Path

import yaml

CHECKOUT = Path(__file__).resolve().parents[2]
# AWX compares no keys of hosts, unless its administrator says otherwise.
VARIABLES = {"ANSIBLE_HOST_KEY_CHECKING": "False", "ANSIBLE_NOCOLOR": "1", "ANSIBLE_RETRY_FILES_ENABLED": "False"}


class Unsafe(yaml.SafeDumper):
    """Marks each text as one that is no template."""

    def represent_data(self, data: t.Any) -> yaml.Node:
        return self.represent_scalar("!unsafe", data) if isinstance(data, str) else super().represent_data(data)


@dataclass(frozen=True)
class Done:
    """What a job came to: AWX reads all of it from the artifacts of ansible-runner."""

    status: str
    text: str
    events: list[dict[str, t.Any]]

    @property
    def results(self) -> list[dict[str, t.Any]]:
        """What the job leaves for the next one of a workflow."""
        (stats,) = [event["event_data"] for event in self.events if event["event"] == "playbook_on_stats"]
        return stats.get("artifact_data", {}).get("handover_results", [])


def answers(playbook: str, **given: t.Any) -> dict[str, t.Any]:
    """All answers to the playbook's survey."""
    spec = yaml.safe_load((CHECKOUT / "awx" / "surveys" / f"{playbook}.yml").read_text(encoding="utf-8"))["spec"]
    questions = {each["variable"]: each["default"] for each in spec}
    assert set(given) <= set(questions), f"the survey of {playbook} does not ask for {sorted(set(given) - set(questions))}"
    return {**{name: "" if default is None else default for name, default in questions.items()}, **given}


def extravars(template: dict[str, t.Any], survey: dict[str, t.Any]) -> str:
    """The file of a job's variables: those of its template as they are, and all others marked."""
    return (yaml.dump(template) if template else "") + yaml.dump(survey, Dumper=Unsafe)


def lay_out(place: Path, key: Path, hosts: dict[str, dict[str, str]], survey: dict[str, t.Any], template: dict[str, t.Any], *words: str) -> None:
    """Into a folder that is not there yet. `words` are those of ansible-playbook."""
    listed = {"all": {"hosts": list(hosts)}, "_meta": {"hostvars": hosts}}
    own = {"awx_job_id": 7, "tower_job_id": 7, "awx_user_name": "operator", "awx_job_template_name": "Handover"}
    files = {
        "inventory/hosts": f"#! /usr/bin/env python3\nprint({json.dumps(listed)!r})\n",
        "env/cmdline": " ".join(("-u root", *words)),
        "env/envvars": json.dumps(VARIABLES),
        "env/extravars": extravars(template, {**own, **survey}),
        "env/settings": json.dumps({"idle_timeout": 0, "job_timeout": 0}),
        "env/ssh_key": key.read_text(encoding="utf-8"),
    }
    for name, text in files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o700 if name == "inventory/hosts" else 0o600)
    shutil.copytree(CHECKOUT / "awx" / "playbooks", place / "project" / "awx" / "playbooks")


def read(artifacts: Path) -> Done:
    """From the folder of one run."""
    events = [json.loads(path.read_text(encoding="utf-8")) for path in (artifacts / "job_events").glob("*-*.json")]
    texts = [(artifacts / name).read_text(encoding="utf-8") for name in ("status", "stdout")]
    return Done(*texts, sorted(events, key=lambda event: event["counter"]))
