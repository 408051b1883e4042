# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A move's spans, and a play that sends them to a collector on this machine, or to none."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from ansible_collections.livefleet.handover.plugins.plugin_utils import _traces

CHECKOUT = Path(__file__).resolve().parents[4]
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def at(seconds, kind, **more):
    return {"time": f"2026-11-21T04:15:{seconds:012.9f}Z", "event": kind, **more}


# Frozen 2 seconds after the minute, for 300 ms. The destination's clock is half a second ahead.
RECORD = {
    "session": "shop-1", "workload": "shop", "mode": "live", "source": "node1", "destination": "node2", "frozen_ms": 300.0,
    "source_session": {"mode": "live", "stages": [
        {"stage": "barrier", "start_ms": -120.0, "ms": 100.0}, {"stage": "freeze", "start_ms": 0.0, "ms": 2.0},
        {"stage": "restore", "start_ms": 90.0, "ms": 110.0}, {"stage": "criu_restore", "start_ms": 100.0, "ms": 90.0},
    ]},
    "source_events": [
        at(0.6, "state", state="presync", why=""), at(1.4, "pass", **{"pass": 1}, ms=700.0, bytes=5000, sent=4000),
        at(1.7, "clock", ahead_ms=500.0, within_ms=0.25), at(2.002, "stage", stage="freeze", ms=2.0, start_ms=0), at(2.35, "state", state="done", why=""),
    ],
    "destination_events": [at(2.8, "state", state="resumed", why="")],
}  # fmt: skip


def by_name(spans):
    return {span["name"]: span for span in spans}


def attributes(span):
    return {each["key"]: next(iter(each["value"].values())) for each in span["attributes"]}


def test_a_move_is_a_span_with_its_pause_and_its_stages():
    spans = by_name(_traces.spans_of(RECORD, (TRACE, PARENT)))
    above = {span["spanId"]: name for name, span in spans.items()}
    assert {name: above.get(span["parentSpanId"], span["parentSpanId"]) for name, span in spans.items()} == {
        "move shop": PARENT, "pass 1": "move shop", "pause": "move shop", "barrier": "move shop", "freeze": "pause",
        "restore": "pause", "criu_restore": "restore",
    }  # fmt: skip
    assert {span["traceId"] for span in spans.values()} == {TRACE}
    frozen = 1795234502 * 10**9  # 2026-11-21T04:15:02Z
    pause = [int(spans["pause"][key]) - frozen for key in ("startTimeUnixNano", "endTimeUnixNano")]
    assert pause == pytest.approx([0, 300e6], abs=1000)
    assert int(spans["pass 1"]["startTimeUnixNano"]) - frozen == pytest.approx(-1300e6, abs=1000)
    assert attributes(spans["pass 1"]) == {"handover.bytes": "5000", "handover.sent_bytes": "4000"}
    assert attributes(spans["move shop"])["handover.session"] == "shop-1"
    assert attributes(spans["move shop"])["handover.frozen_ms"] == 300.0
    told = {event["name"]: (attributes(event)["handover.role"], int(event["timeUnixNano"]) - frozen) for event in spans["move shop"]["events"]}
    assert told["resumed"] == ("destination", pytest.approx(300e6, abs=1000))


def test_without_events_there_are_no_spans():
    assert _traces.spans_of({**RECORD, "source_events": []}, (TRACE, PARENT)) == []


@pytest.mark.parametrize(
    ("text", "known"),
    [(f"00-{TRACE}-{PARENT}-01", True), ("", False), ("nonsense", False), (f"00-{'0' * 32}-{PARENT}-01", False), (f"00-{TRACE}-{'0' * 16}-01", False)],
)
def test_a_parent(text, known):
    trace, parent = _traces.parent_of(text)
    assert len(trace) == 32
    assert (trace == TRACE, parent) == ((True, PARENT) if known else (False, ""))
    spans = _traces.spans_of(RECORD, (trace, parent))
    assert ("parentSpanId" in spans[0]) == known


@pytest.mark.parametrize(
    ("environment", "address"),
    [
        ({}, ""),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318/"}, "http://c:4318/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://d/x"}, "http://d/x"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "true"}, ""),
    ],
)
def test_where_spans_go(environment, address):
    assert _traces.address_of(environment) == address


def test_headers_and_timeout():
    assert _traces.headers_of({"OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Basic%20abc=, x = 1,none"}) == {
        "Content-Type": "application/json", "Authorization": "Basic abc=", "x": "1",
    }  # fmt: skip
    assert [_traces.seconds_of({"OTEL_EXPORTER_OTLP_TIMEOUT": text}) for text in ("250", "", "0", "x")] == [0.25, 10.0, 10.0, 10.0]


class Collector(http.server.BaseHTTPRequestHandler):
    """Takes spans, or with another status does not."""

    def do_POST(self):
        self.server.taken.append((self.path, self.headers, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
        self.send_response(self.server.status)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_words):
        """Nobody reads it."""


@pytest.fixture
def collector():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        server.taken, server.status = [], 200
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def play(tmp_path, **environment):
    """A play that leaves two records, as the role does, and a page beside each."""
    files = {name: {f"{name}.json": json.dumps({**RECORD, "workload": name}), f"{name}.html": "<p>"} for name in ("shop", "wiki")}
    tasks = [{"livefleet.handover.controller_files": {"directory": str(tmp_path / "reports"), "files": each}} for each in files.values()]
    (tmp_path / "play.yml").write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]), encoding="utf-8")
    ours = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
    return subprocess.run(
        [Path(sys.executable).with_name("ansible-playbook"), "-i", "localhost,", "-c", "local", "play.yml"],
        env={**ours, "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"), "ANSIBLE_CALLBACKS_ENABLED": "livefleet.handover.traces", **environment},
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_play_sends_its_moves_once_at_its_end(tmp_path, collector):
    done = play(
        tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{collector.server_port}", TRACEPARENT=f"00-{TRACE}-{PARENT}-01",
        OTEL_SERVICE_NAME="fleet", OTEL_EXPORTER_OTLP_HEADERS="x-token=abc",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    ((path, headers, body),) = collector.taken
    (resource,) = body["resourceSpans"]
    (scope,) = resource["scopeSpans"]
    assert (path, headers["x-token"], attributes(resource["resource"])) == ("/v1/traces", "abc", {"service.name": "fleet"})
    moves = [span for span in scope["spans"] if span["name"].startswith("move ")]
    assert [(move["name"], move["traceId"], move["parentSpanId"]) for move in moves] == [("move shop", TRACE, PARENT), ("move wiki", TRACE, PARENT)]
    assert len({span["spanId"] for span in scope["spans"]}) == len(scope["spans"]) == 14


def test_a_collector_that_refuses_fails_no_play(tmp_path, collector):
    collector.status = 503
    done = play(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{collector.server_port}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "were not taken by" in done.stdout + done.stderr
    assert "503" in done.stdout + done.stderr


def test_nothing_is_sent_without_a_collector(tmp_path, collector):
    done = play(tmp_path)
    assert (done.returncode, collector.taken) == (0, []), done.stdout + done.stderr
    assert "WARNING" not in done.stdout + done.stderr
