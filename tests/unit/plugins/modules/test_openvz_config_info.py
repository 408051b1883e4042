# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.modules import openvz_config_info


class Ended(Exception):
    pass


class Module:
    """AnsibleModule, as far as it is used."""

    def __init__(self, params):
        self.params = {"path": None, "content": None, "ctid": None, **params}

    def __call__(self, **_spec):
        return self

    def exit_json(self, **result):
        raise Ended({"failed": False, **result})

    def fail_json(self, **result):
        raise Ended({"failed": True, **result})


def run(monkeypatch, **params):
    monkeypatch.setattr(openvz_config_info, "AnsibleModule", Module(params))
    with pytest.raises(Ended) as ended:
        openvz_config_info.main()
    return ended.value.args[0]


def test_a_file_of_the_host(monkeypatch, tmp_path):
    path = tmp_path / "101.conf"
    path.write_bytes(b'HOSTNAME="shop"\nDESCRIPTION="caf\xe9"\nVE_PRIVATE="/vz/private/$VEID"\n')
    result = run(monkeypatch, path=str(path), ctid="101")
    assert (result["failed"], result["changed"]) == (False, False)
    assert result["container"]["hostname"] == "shop" and result["container"]["private"] == "/vz/private/101"
    assert len(result["lines"]) == len(result["rows"]) == 3


def test_content_of_elsewhere(monkeypatch):
    assert run(monkeypatch, content="ONBOOT=yes\n")["fates"] == {"carried": 1, "translated": 0, "reported": 0, "refused": 0}


def test_a_file_that_is_not_there(monkeypatch, tmp_path):
    result = run(monkeypatch, path=str(tmp_path / "102.conf"))
    assert result["failed"] and "102.conf: No such file or directory: name the configuration of a container" in result["msg"]
