# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: traces
type: notification
short_description: The stages of each move as spans of OpenTelemetry
version_added: 0.1.0
description:
  - At the end of a play, sends the passes, the stages and the pause of each move that it made to a collector of OpenTelemetry, by OTLP over HTTP in JSON.
  - Where no collector is named, does nothing.
  - With E(TRACEPARENT), the moves are in that trace, below that span. P(community.general.opentelemetry#callback) reads the same variable
    for the tasks, so both are in one trace.
options:
  endpoint:
    description:
      - The collector, as V(http://localhost:4318). C(/v1/traces) is added.
      - E(OTEL_EXPORTER_OTLP_TRACES_ENDPOINT) is the whole address instead.
      - The other variables of OpenTelemetry for headers, timeout and the service's name are heeded, too.
    type: str
    env:
      - name: OTEL_EXPORTER_OTLP_ENDPOINT
requirements:
  - enabled by name, as in C(callbacks_enabled = livefleet.handover.traces) in C(ansible.cfg)
author:
  - The Handover maintainers (@livefleet)
"""

import json
import os
import typing as t

from ansible.module_utils.urls import open_url
from ansible.plugins.callback import CallbackBase
from ansible_collections.livefleet.handover.plugins.plugin_utils._traces import address_of, headers_of, parent_of, request_of, seconds_of, spans_of

_REPORTS = "livefleet.handover.controller_files"


class CallbackModule(CallbackBase):
    """Takes the record of each move from the task that writes it, and sends all of them at the end: no move waits for a collector."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "livefleet.handover.traces"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, *arguments: t.Any, **options: t.Any) -> None:
        super().__init__(*arguments, **options)
        self.address = address_of(os.environ)
        self.parent = parent_of(os.environ.get("TRACEPARENT", ""))
        self.spans: list[dict[str, t.Any]] = []

    def v2_runner_on_ok(self, result: t.Any) -> None:
        if not self.address:
            return
        task = result._task_fields
        if task.get("action") != _REPORTS:
            return
        for name, text in (task.get("args", {}).get("files") or {}).items():
            if not name.endswith(".json"):
                continue
            try:
                record = json.loads(text)
                if "source_events" in record:
                    self.spans += spans_of(record, self.parent)
            except (KeyError, TypeError, ValueError) as error:
                self._display.warning(f"{name}: the move has no spans, since its record is not as expected: {error!r}")

    def v2_playbook_on_stats(self, stats: t.Any) -> None:
        if not self.spans:
            return
        body = json.dumps(request_of(self.spans, os.environ.get("OTEL_SERVICE_NAME") or "handover"))
        self.spans = []
        try:
            open_url(self.address, method="POST", data=body, headers=headers_of(os.environ), timeout=seconds_of(os.environ))
        except Exception as error:  # noqa: BLE001 - whatever a collector does, the moves are made
            self._display.warning(
                f"The spans of the moves were not taken by {self.address}: {error}: name a collector that takes OTLP over HTTP (port 4318), "
                "or take livefleet.handover.traces out of callbacks_enabled"
            )
