# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rules and the dashboard, loaded by the real Prometheus, which has read the helper's own page: each question has an answer there.

`make setup` unpacks Debian's Prometheus into .cache/prometheus; without it these tests skip.
"""

from __future__ import annotations

import contextlib
import functools
import http
import http.server
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
import yaml
from jinja2 import Template

CHECKOUT = Path(__file__).resolve().parents[3]
MONITORING = CHECKOUT / "monitoring"
RULES = MONITORING / "handover.rules.yml"
# The helper writes this page: TestPage compares it.
PAGE = CHECKOUT / "helper" / "internal" / "session" / "metrics" / "testdata" / "handover.prom"
# Of node_exporter itself.
NODE = '# TYPE node_textfile_mtime_seconds gauge\nnode_textfile_mtime_seconds{file="/var/lib/prometheus/node-exporter/handover.prom"} 1\n'
NAME = re.compile(r"\b(?:handover|node)_[a-z_]+\b")
ROLE = CHECKOUT / "roles" / "pcopy"
# systemd's figure for a unit, from 0 to 10, may not grow.
EXPOSURE = 1.2


def program(name: str) -> str:
    found = shutil.which(name, path=os.pathsep.join((str(CHECKOUT / ".cache" / "prometheus" / "usr" / "bin"), os.environ["PATH"])))
    return found or pytest.skip(f"{name} is not installed: `make setup` unpacks it")


def promtool(*words: str, given: str | None = None) -> str:
    done = subprocess.run([program("promtool"), *words], input=given, cwd=MONITORING, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def rules() -> list[dict]:
    return [rule for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]]


def questions() -> dict[str, str]:
    """Each question of the dashboard by its place, with a value for each of Grafana's variables."""
    board = json.loads((MONITORING / "grafana-dashboard.json").read_text(encoding="utf-8"))
    asked = {}
    for panel in board["panels"]:
        for target in panel["targets"]:
            expression = target["expr"].replace("$instance", ".*").replace("$__rate_interval", "1m")
            assert "$" not in expression, expression
            asked[f"{panel['title']} {target['refId']}"] = expression
    return asked


def test_the_rules_are_rules_and_each_has_a_test():
    assert f"{len(rules())} rules found" in promtool("check", "rules", RULES.name)
    promtool("test", "rules", "handover.rules.test.yml")
    tests = yaml.safe_load((MONITORING / "handover.rules.test.yml").read_text(encoding="utf-8"))["tests"]
    fired = {case["alertname"] for test in tests for case in test["alert_rule_test"] if case["exp_alerts"]}
    assert fired == {rule["alert"] for rule in rules()}
    promtool("check", "config", "prometheus.yml")


def test_the_page_is_one_of_prometheus():
    promtool("check", "metrics", given=PAGE.read_text(encoding="utf-8"))


def test_the_tests_of_the_rules_can_fail(tmp_path):
    for name in ("handover.rules.yml", "handover.rules.test.yml"):
        text = (MONITORING / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(text.replace("handover_session_held == 1", "handover_session_held == 2"), encoding="utf-8")
    done = subprocess.run([program("promtool"), "test", "rules", "handover.rules.test.yml"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "HandoverWorkloadHeld" in done.stdout + done.stderr


class Exporter(http.server.BaseHTTPRequestHandler):
    """Stands for node_exporter."""

    def do_GET(self):
        text = (PAGE.read_text(encoding="utf-8") + NODE).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_words):
        """Nobody reads it."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    """Asks a Prometheus that has read the page, with the rules."""
    place = tmp_path_factory.mktemp("prometheus")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Exporter) as exporter, contextlib.ExitStack() as stack:
        threading.Thread(target=exporter.serve_forever, daemon=True).start()
        stack.callback(exporter.shutdown)
        config = yaml.safe_load((MONITORING / "prometheus.yml").read_text(encoding="utf-8"))
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config["rule_files"] = [str(RULES)]
        config["scrape_configs"][0]["static_configs"] = [{"targets": [f"127.0.0.1:{exporter.server_port}"]}]
        (place / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
        port = free_port()
        words = [program("prometheus"), f"--config.file={place}/prometheus.yml", f"--storage.tsdb.path={place}/data", f"--web.listen-address=127.0.0.1:{port}"]
        log = stack.enter_context((place / "log").open("wb"))
        served = stack.enter_context(subprocess.Popen(words, stdout=log, stderr=log))
        stack.callback(served.kill)
        call = functools.partial(answer, port)
        until(lambda: call("query", query="handover_build_info")["result"], lambda: (place / "log").read_text(encoding="utf-8", errors="replace")[-2000:])
        yield call


def answer(port: int, path: str, **parameters: str) -> dict:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}", timeout=10) as told:
            return json.load(told)["data"]
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.SERVICE_UNAVAILABLE:  # it starts
            raise
        raise AssertionError(f"{parameters}: {error.read().decode()}") from error


def until(has_come, told, seconds: float = 60):
    """Waits for something, on a machine that may be slow; `told` is what to say if it does not come."""
    ends = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError):
            if found := has_come():
                return found
        assert time.monotonic() < ends, told()
        time.sleep(0.1)


def test_prometheus_runs_each_rule(ask):
    def evaluated():
        """The rules, once they have seen the page: two workloads on it are held."""
        found = {rule["name"]: rule for group in ask("rules")["groups"] for rule in group["rules"]}
        return found if len(found["HandoverWorkloadHeld"]["alerts"]) == 2 else None

    found = until(evaluated, lambda: ask("rules"))
    assert {name: rule["health"] for name, rule in found.items()} == {rule["alert"]: "ok" for rule in rules()}


def test_each_question_of_the_dashboard_has_an_answer(ask):
    asked = questions()
    assert len(asked) >= 12
    answers: dict[str, list] = {}

    def every_one() -> bool:
        """A rate has one once there are two samples."""
        answers.update({place: ask("query", query=asked[place])["result"] for place in asked if not answers.get(place)})
        return all(answers.values())

    until(every_one, told=lambda: [place for place, found in answers.items() if not found])
    assert [answers[title][0]["value"][1] for title in ("Workloads held A", "Sessions without a process A")] == ["2", "1"]


def test_each_metric_that_is_asked_for_exists(ask):
    known = {series["__name__"] for series in ask("series", **{"match[]": '{__name__=~"handover_.+|node_.+"}'})}
    wanted = {name for text in [*questions().values(), *(rule["expr"] for rule in rules())] for name in NAME.findall(text)}
    assert wanted
    assert wanted <= known
    page = (CHECKOUT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    families = set(re.findall(r"^# TYPE (\S+)", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert families - set(re.findall(r"`(handover_[a-z_]+)", page)) == set()


def test_the_unit_is_hardened(tmp_path):
    analyze = program("systemd-analyze")
    text = (ROLE / "templates" / "handover-metrics.service.j2").read_text(encoding="utf-8")
    unit = tmp_path / "handover-metrics.service"
    unit.write_text(Template(text).render(pcopy_metrics_dir="/var/lib/prometheus/node-exporter"), encoding="utf-8")
    shown = subprocess.run([analyze, "security", "--offline=true", str(unit)], capture_output=True, text=True, check=True).stdout
    assert float(re.search(r"exposure level for \S+ ([0-9.]+)", shown)[1]) <= EXPOSURE, shown


def test_systemd_knows_each_word_of_the_units(tmp_path):
    text = (ROLE / "templates" / "handover-metrics.service.j2").read_text(encoding="utf-8")
    rendered = Template(text).render(pcopy_metrics_dir="/var/lib/prometheus/node-exporter").replace("/usr/local/libexec/handover/pcopy", "/bin/true")
    (tmp_path / "handover-metrics.service").write_text(rendered, encoding="utf-8")
    timer = shutil.copy(ROLE / "files" / "handover-metrics.timer", tmp_path)
    done = subprocess.run(
        [program("systemd-analyze"), "verify", str(timer), str(tmp_path / "handover-metrics.service")], capture_output=True, text=True, check=False
    )
    ours = [line for line in done.stderr.splitlines() if "handover-metrics" in line]
    assert (done.returncode, ours) == (0, [])
