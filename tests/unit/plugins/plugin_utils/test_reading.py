# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.livefleet.handover.plugins.plugin_utils._reading import read

OSDS = {"type": "list", "elements": "int"}
HOSTS = {"type": "list", "elements": "str", "of": "host"}
GUESTS = {"type": "list", "elements": "str", "of": "guest"}
FENCE = {"type": "list", "elements": "str", "kind": "command"}


@pytest.mark.parametrize("value, spec, meant", [
    # A list, as each way of giving variables sends it.
    (12, OSDS, [12]), ("12", OSDS, [12]), ("3,4", OSDS, [3, 4]), ("3, 4,", OSDS, [3, 4]), ([3, "4"], OSDS, [3, 4]), ("[3, 4]", OSDS, [3, 4]),
    ("3\n4\n", OSDS, [3, 4]), ("- 3\n- 4", OSDS, [3, 4]), ("[]", OSDS, []),
    ("node1,node2", HOSTS, ["node1", "node2"]), ("node1 node2", HOSTS, ["node1", "node2"]), ('["node1"]', HOSTS, ["node1"]),
    ("web 1,büro", GUESTS, ["web 1", "büro"]),
    # Truth.
    (True, {"type": "bool"}, True), ("false", {"type": "bool"}, False), ("No", {"type": "bool"}, False), (0, {"type": "bool"}, False),
    ("present", {"type": "bool", "words": {"present": True, "absent": False}}, True),
    ("absent", {"type": "bool", "words": {"present": True, "absent": False}}, False),
    # Numbers, sizes and times.
    ("300", {"type": "int"}, 300), (300.0, {"type": "int"}, 300), ("0.5", {"type": "float"}, 0.5),
    ("512M", {"kind": "size"}, 512 << 20), (4096, {"kind": "size"}, 4096), ("0", {"type": "bytes"}, 0),
    ("300", {"unit": "milliseconds"}, 300), ("300ms", {"unit": "milliseconds"}, 300), ("0.3s", {"unit": "milliseconds"}, 300),
    (30, {"unit": "seconds"}, 30), ("5m", {"unit": "seconds"}, 300), ("2 h", {"unit": "seconds"}, 7200),
    # A command, as a shell splits it.
    ("ipmitool -H {host}-bmc power off", FENCE, ["ipmitool", "-H", "{host}-bmc", "power", "off"]),
    ("fence 'two words'", FENCE, ["fence", "two words"]), (["fence", 1], FENCE, ["fence", "1"]), ('["fence", "a b"]', FENCE, ["fence", "a b"]),
    # Mappings.
    ('{"shop": "ssd"}', {"type": "dict", "lists_of": "label"}, {"shop": ["ssd"]}), ("shop: [ssd, fast]", {"type": "dict"}, {"shop": ["ssd", "fast"]}),
    ({"web": ["a", "b"]}, {"type": "dict", "lists_of": "workload"}, {"web": ["a", "b"]}),
    # Words that YAML makes something else of.
    (True, {"type": "str", "choices": ["true", "only"]}, "true"), (7, {"kind": "container"}, "7"), ("db+web", {"kind": "workload"}, "db+web"),
    (["node1", "node2"], {"kind": "hosts"}, "node1,node2"), ('["node1"]', {"kind": "hosts"}, "node1"), ("lab:!node3", {"kind": "hosts"}, "lab:!node3"),
])  # fmt: skip
def test_what_is_sent_is_what_is_meant(value, spec, meant):
    found = read(value, spec)
    assert found == meant and type(found) is type(meant)


@pytest.mark.parametrize("blank", ["", "  ", "\n", None])
@pytest.mark.parametrize("spec", [{"type": "str"}, {"type": "bool"}, {"type": "int"}, OSDS, FENCE, {"type": "dict"}, {"kind": "container"}])
def test_a_blank_answer_says_nothing(blank, spec):
    assert read(blank, spec) is None


@pytest.mark.parametrize("value, spec, sentence", [
    ("maybe", {"type": "bool"}, "is 'maybe': write true or false"),
    (2, {"type": "bool"}, "is '2': write true or false"),
    ("3,x", OSDS, "is 'x': write a number"),
    ("1.5", {"type": "int"}, "is '1.5': write a whole number"),
    (True, {"type": "int"}, "is 'True': write a number"),
    ("-1", {"type": "int"}, "is '-1': write at least 0"),
    (101, {"type": "float", "most": 100}, "is '101': write at most 100"),
    ("nan", {"type": "float"}, "is 'nan': write a number"),
    ("1 GB", {"kind": "size"}, "is no size: '1 GB' is ambiguous: write 1G for powers of 1024"),
    ("300us", {"unit": "milliseconds"}, "is '300us': write a number of milliseconds, or one with its unit, as in 300ms, 30s or 5m"),
    ("1ms", {"unit": "seconds"}, "is '1ms': write whole seconds"),
    ("fence 'one", FENCE, "cannot be split into words (no closing quotation): close the quote"),
    ({"a": 1}, FENCE, "is no command: write its words, as a text or as a list"),
    ("shop,web", {"type": "dict", "example": {"shop": ["ssd"]}}, "is 'shop,web': write a mapping, as in {\"shop\": [\"ssd\"]}"),
    ("[1, 2", OSDS, "is neither JSON nor YAML: write it as a list"),
    (["shop"], {"kind": "container"}, "is a list: write one word"),
    ("sh op", {"kind": "container"}, "is not a name: 'sh op': write letters, digits, dots, dashes and underscores, as in shop"),
    ("db+web", {"kind": "container"}, "is not a name: 'db+web': write letters, digits, dots, dashes and underscores, as in shop"),
    ("db+", {"kind": "workload"},
     "is not a name: 'db+': write letters, digits, dots, dashes and underscores, as in shop, or several such names as in db+web"),
    ("a/b", {"kind": "guest"}, "is not a name: 'a/b': write the guest's name, one line without a slash"),
])  # fmt: skip
def test_what_cannot_be_meant_is_told(value, spec, sentence):
    with pytest.raises(ValueError) as refused:
        read(value, spec)
    assert str(refused.value) == sentence
