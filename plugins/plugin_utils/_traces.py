# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A move as spans of OpenTelemetry, in the JSON form of its protocol: https://opentelemetry.io/docs/specs/otlp/.

The span of the move has the pause, the passes, and the stages outside of the pause; the pause has its stages. The states of both sides are
events. All times are the source's clock, as in the report.
"""

from __future__ import annotations

import re
import secrets
import typing as t
from dataclasses import dataclass, field
from urllib.parse import unquote

from ansible_collections.livefleet.handover.plugins.module_utils._core.timeline import origin_ms, timeline

_INTERNAL = 1
_TRACEPARENT = re.compile(r"^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}$")


@dataclass
class Trace:
    """The spans of one move. Those of all moves of a play have the same parent, if there is one."""

    trace_id: str
    parent: str
    origin: float
    spans: list[dict[str, t.Any]] = field(default_factory=list)

    def add(self, name: str, parent: str, start_ms: float, ms: float, **attributes: t.Any) -> dict[str, t.Any]:
        span = {
            "traceId": self.trace_id,
            "spanId": secrets.token_hex(8),
            "name": name,
            "kind": _INTERNAL,
            "startTimeUnixNano": self._nano(start_ms),
            "endTimeUnixNano": self._nano(start_ms + ms),
            "attributes": attributes_of(attributes),
        }
        if parent:
            span["parentSpanId"] = parent
        self.spans.append(span)
        return span

    def event(self, name: str, at_ms: float, **attributes: t.Any) -> dict[str, t.Any]:
        return {"name": name, "timeUnixNano": self._nano(at_ms), "attributes": attributes_of(attributes)}

    def _nano(self, at_ms: float) -> str:
        # A float of milliseconds since 1970 is exact to a quarter of a microsecond.
        return str(int(self.origin * 1_000_000) + round(at_ms * 1_000_000))


def attributes_of(values: t.Mapping[str, t.Any]) -> list[dict[str, t.Any]]:
    """Their names have a dot where Python takes an underscore twice."""
    return [{"key": name.replace("__", "."), "value": _value(value)} for name, value in values.items()]


def _value(value: t.Any) -> dict[str, t.Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": str(value)}


def parent_of(traceparent: str) -> tuple[str, str]:
    """The trace and the span that a caller names, as W3C writes them; a trace of its own without, or with one that is none."""
    found = _TRACEPARENT.match(traceparent.strip())
    if found is None or not int(found[1], 16) or not int(found[2], 16):
        return secrets.token_hex(16), ""
    return found[1], found[2]


def spans_of(report: t.Mapping[str, t.Any], parent: tuple[str, str]) -> list[dict[str, t.Any]]:
    """The spans of a move by its report; none where its events do not tell."""
    drawn = timeline(report)
    if not drawn:
        return []
    trace = Trace(*parent, origin=origin_ms(report))
    move = trace.add(
        f"move {report['workload']}", trace.parent, drawn["begin_ms"], drawn["end_ms"] - drawn["begin_ms"],
        handover__session=report["session"], handover__workload=report["workload"], handover__mode=report["mode"],
        handover__source=report["source"], handover__destination=report["destination"], handover__frozen_ms=drawn["frozen_ms"],
    )  # fmt: skip
    move["events"] = [
        trace.event(state["state"], state["from_ms"], handover__role=role) for role, states in drawn["states"].items() for state in states
    ]  # fmt: skip
    for each in drawn["passes"]:
        trace.add(f"pass {each['pass']}", move["spanId"], each["start_ms"], each["ms"], handover__bytes=each["bytes"], handover__sent_bytes=each["sent"])
    pause = trace.add("pause", move["spanId"], 0.0, drawn["frozen_ms"])
    above: dict[str, str] = {}
    for role, stages in drawn["stages"].items():
        for stage in stages:
            parent_id = above.get(stage["part_of"], pause["spanId"] if stage["frozen"] else move["spanId"])
            span = trace.add(stage["stage"], parent_id, stage["start_ms"], stage["ms"], handover__role=role, handover__label=stage["label"])
            above[stage["stage"]] = span["spanId"]
    return trace.spans


def request_of(spans: t.Sequence[t.Mapping[str, t.Any]], service: str) -> dict[str, t.Any]:
    """What a collector is sent."""
    scope = {"name": "livefleet.handover"}
    return {"resourceSpans": [{"resource": {"attributes": attributes_of({"service__name": service})}, "scopeSpans": [{"scope": scope, "spans": spans}]}]}


def address_of(environment: t.Mapping[str, str]) -> str:
    """Where the spans go; empty if no collector is named, or all of OpenTelemetry is turned off."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return ""
    whole = environment.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
    base = environment.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")
    return whole or (base.rstrip("/") + "/v1/traces" if base else "")


def headers_of(environment: t.Mapping[str, str]) -> dict[str, str]:
    """Those that the collector asks for, as a token: NAME=VALUE with commas between, in the encoding of addresses."""
    text = environment.get("OTEL_EXPORTER_OTLP_TRACES_HEADERS") or environment.get("OTEL_EXPORTER_OTLP_HEADERS", "")
    pairs = (pair.partition("=") for pair in text.split(",") if "=" in pair)
    return {"Content-Type": "application/json", **{name.strip(): unquote(value.strip()) for name, _equals, value in pairs}}


def seconds_of(environment: t.Mapping[str, str]) -> float:
    """For how long the collector may take."""
    text = environment.get("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT") or environment.get("OTEL_EXPORTER_OTLP_TIMEOUT", "")
    return int(text) / 1000 if text.isdigit() and int(text) else 10.0
