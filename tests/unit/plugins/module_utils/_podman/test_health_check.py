# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import types

import pytest
from ansible_collections.livefleet.handover.plugins.module_utils._core.runtime import Completed, HandoverError
from ansible_collections.livefleet.handover.plugins.module_utils._podman import health_check as health

ID = "5a3e7d04f11b" + "0" * 52
FOUND = {"Status": "unhealthy", "FailingStreak": 3, "Log": [{"Start": "2026-11-26T00:00:00Z", "End": "2026-11-26T00:00:01Z", "ExitCode": 1, "Output": "no"}]}


class Systemd:
    """A service manager that notes what it is told, and has the units that it is given."""

    def __init__(self, *units, lost=False):
        self.have, self.lost, self.said = list(units), lost, []

    def tool(self, name, package):
        return name

    def run(self, argv, accept=(0,), **more):
        if argv[1] == "list-units":
            listed = "".join("{0} loaded active waiting x\n".format(name) for name in self.have if name.startswith(argv[-1].rstrip("*")))
            return Completed(tuple(argv), 0, listed, "")
        self.said.append(" ".join(argv))
        if argv[0] == "systemd-run" and not self.lost:
            name = next(word[len("--unit=") :] for word in argv if word.startswith("--unit="))
            self.have += [name + ".timer", name + ".service"]
        return Completed(tuple(argv), 0, "", "")


@pytest.fixture
def host(tmp_path, monkeypatch):
    """What there is around a restored container: podman's book, its inspect, and a service manager."""
    monkeypatch.setenv("PATH", "/usr/bin")
    place = types.SimpleNamespace(noted={}, systemd=Systemd(), podman=types.SimpleNamespace(path="/usr/bin/podman", root=lambda: "/var/lib/containers/storage"))
    monkeypatch.setattr(health.book, "state", lambda root, identifier: place.noted)
    place.inspect = {
        "Id": ID, "Name": "shop", "PidFile": str(tmp_path / "userdata" / "pidfile"), "State": {"Health": {"Status": "starting", "Log": None}},
        "Config": {"Healthcheck": {"Test": ["CMD", "true"], "Interval": 90_000_000_000}},
    }  # fmt: skip
    place.log = tmp_path / "healthcheck.log"
    place.make = lambda: health.HealthTimer(place.systemd, ID).make(place.podman, place.inspect, FOUND)
    return place


def test_the_timer_is_podmans_own_but_for_who_makes_it(host):
    assert host.make() == ["the container has no timer for its health check"]
    assert host.systemd.said == [
        "systemctl reset-failed {0}.service".format(ID),
        "systemd-run --quiet --unit={0} --on-unit-inactive=90000000us --timer-property=AccuracySec=1s --property=LogLevelMax=notice "
        "--property=StartLimitIntervalSec=0 --setenv=PATH=/usr/bin /usr/bin/podman healthcheck run {0}".format(ID),
        "systemctl restart --no-block {0}.service".format(ID),
    ]
    assert json.loads(host.log.read_text()) == FOUND
    # Once more, by a run that finds it.
    assert host.make() == []


def test_it_has_the_name_that_podman_will_look_for(host):
    host.noted = {"hcUnitName": ID + "-7b41"}
    host.make()
    assert host.systemd.have == [ID + "-7b41.timer", ID + "-7b41.service"]


@pytest.mark.parametrize(("noted", "unit", "every"), [({}, ID + "-startup", 2000000), ({"startupHCPassed": True}, ID, 90000000)])
def test_the_checks_of_the_start_up_go_on_until_they_are_over(host, noted, unit, every):
    host.noted = noted
    host.inspect["Config"]["StartupHealthCheck"] = {"Test": ["CMD", "true"], "Interval": 2_000_000_000}
    host.make()
    assert "--unit={0} --on-unit-inactive={1}us".format(unit, every) in host.systemd.said[1]


@pytest.mark.parametrize("check", [None, {}, {"Test": ["NONE"], "Interval": 30_000_000_000}, {"Test": ["CMD", "true"], "Interval": 0}])
def test_where_podman_makes_none_there_is_none(host, check):
    host.inspect["Config"]["Healthcheck"] = check
    assert host.make() == []
    assert host.systemd.said == []
    assert not host.log.exists()


def test_what_has_been_checked_here_is_not_written_over(host):
    host.inspect["State"] = {"Healthcheck": FOUND}
    host.make()
    assert not host.log.exists()


def test_a_timer_that_systemd_does_not_have_is_an_error(host):
    host.systemd.lost = True
    with pytest.raises(HandoverError, match="systemd was given the timer 5a3e7d04f11b.*timer and does not have it: see `journalctl"):
        host.make()


def test_results_lie_where_podman_was_told_to_write_them(host):
    assert health.results_file(host.inspect) == str(host.log)
    host.inspect["Config"]["HealthLogDestination"] = "/var/log/checks"
    assert health.results_file(host.inspect) == "/var/log/checks/{0}-healthcheck.log".format(ID)
    host.inspect["Config"]["HealthLogDestination"] = "events_logger"
    assert health.results_file(host.inspect) == str(host.log)


def test_nothing_of_it_stays_and_nothing_else_goes():
    other = ID[:-1] + "1"
    systemd = Systemd(ID + "-7b41.service", ID + "-startup-0f.timer", ID + "-backup.timer", other + ".timer")
    health.HealthTimer(systemd, ID).remove()
    assert systemd.said == [
        "systemctl stop {0}-startup-0f.timer {0}-7b41.service".format(ID),
        "systemctl reset-failed {0}-startup-0f.timer {0}-7b41.service".format(ID),
    ]


@pytest.mark.parametrize(
    ("noted", "unit", "passed"),
    [
        ({"startupHCPassed": True}, "-startup-7b41.timer", True),
        ({"pid": 7}, "-7b41.timer", False),
        # podman's book cannot be read.
        ({}, "-7b41.timer", True),
        ({}, "-startup-7b41.timer", False),
    ],
)
def test_whether_the_start_up_is_over(host, noted, unit, passed):
    host.noted = noted
    assert health.HealthTimer(Systemd(ID + unit), ID).startup_passed(host.podman) is passed
