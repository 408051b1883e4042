# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The user by whom Ansible reaches the hosts has no more than docs/security.md gives it, and makes the first move of the tutorial."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time

import pytest
from controller import ADDRESSES, GATEWAY, Controller, ask, start, where, words
from pages import Page

SECURITY, TUTORIAL = Page("docs/security.md"), Page("docs/site/tutorials/first-move.md")
HERE, THERE = "db-a", "db-b"
NAMES = {"192.0.2.11": ADDRESSES[HERE], "192.0.2.12": ADDRESSES[THERE]}
REFUSED = "a password is required"
RULE = "# /etc/sudoers.d/handover\n"


def make(host: str, key: str) -> None:
    """The user, with the page's lines and no other."""
    rule = next(text for text in re.findall(r"```text\n(.*?)```", SECURITY.text, flags=re.S) if text.startswith(RULE))
    options = SECURITY.words("from=").replace("CONTROLLER", GATEWAY)
    ask(host, "useradd --create-home --shell /bin/bash handover && install --directory --owner=handover --mode=0700 ~handover/.ssh")
    ask(host, SECURITY.words("passwd "))
    ask(host, "cat >/etc/sudoers.d/handover && chmod 0440 /etc/sudoers.d/handover && visudo --check", rule)
    ask(host, "cat >~handover/.ssh/authorized_keys", f"{options} {key}")
    assert ask(host, "passwd --status handover").split()[1] == "L"


@pytest.fixture(scope="module")
def user(fleet, tarball, tmp_path_factory):
    """The tutorial, up to the hosts that are prepared; by that user, as the page's last item says."""
    folder = tmp_path_factory.mktemp("user")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "key"], check=True)
    for host in (HERE, THERE):
        make(host, (folder / "key.pub").read_text(encoding="utf-8"))
    (install,) = TUTORIAL.lines("sh", "ansible-galaxy collection install")
    variables = "\n    ".join(SECURITY.words(f"ansible_{each}: ") for each in ("user", "become"))
    names = {**NAMES, install.split()[-1]: tarball.name, "ansible_user: root": variables}
    made = Controller(folder, tarball, folder / "key", names)
    # Nothing on the controller becomes root: this would be found first.
    (folder / "home" / "sudo").write_text("#!/bin/sh\necho sudo was called on the controller >&2\nexit 1\n", encoding="utf-8")
    (folder / "home" / "sudo").chmod(0o755)
    made.environment["PATH"] = f"{folder / 'home'}:{made.environment['PATH']}"
    made.type(install)
    made.write("hosts.yml", TUTORIAL.block("yaml", "container_hosts:"))
    made.write("prepare.yml", TUTORIAL.block("yaml", "- hosts: container_hosts"))
    made.type(TUTORIAL.words("ansible-playbook -i hosts.yml prepare.yml"))
    return made


@pytest.fixture(scope="module")
def shop(user):
    """A container with a volume that this user has made, too."""
    play = [{
        "hosts": HERE,
        "roles": [{"role": "livefleet.handover.image_volume", "image_volume_install_packages": False,
                   "image_volume_volumes": [{"name": "shopdata", "size": "64M"}]}],
    }]  # fmt: skip
    user.write("volume.yml", json.dumps(play))
    user.type("ansible-playbook -i hosts.yml volume.yml")
    start(HERE, "shop", 60)
    return "shop"


def test_the_user_moves_a_container_there_and_back(user, shop):
    (look,) = TUTORIAL.lines("sh", "ansible-playbook -i hosts.yml livefleet.handover.migrate")
    assert look.endswith(" --check") and "shop can move from db-a to db-b." in user.type(look)
    move, back = look.removesuffix(" --check"), TUTORIAL.words("-e handover_destination=")
    for line, there in ((move, THERE), (re.sub("-e handover_destination=[^ ]+", back, move), HERE)):
        (here,) = where(shop, HERE, THERE)
        before = words(here, shop)
        said = user.type(line)
        assert f"shop has moved from {here} to {there} (live)." in said and "Total suspended time" in said, said
        assert where(shop, HERE, THERE) == [there] and words(there, shop) > before
    assert "shop is on db-a already: nothing is left to do." in user.type(f"{move} {back}")
    user.type(f"ansible-playbook -i hosts.yml livefleet.handover.drain -e handover_source={HERE} --check")
    assert where(shop, HERE, THERE) == [HERE]


def test_the_user_recovers_a_move_whose_controller_was_killed(user, shop):
    (look,) = TUTORIAL.lines("sh", "ansible-playbook -i hosts.yml livefleet.handover.migrate")
    paused = "-e '{\"migrate_pause_at\": {\"source\": \"presync\"}, \"migrate_session\": \"newcomer\"}'"
    line = user.fill(f"exec {look.removesuffix(' --check')} {paused}")
    moving = subprocess.Popen(["sh", "-ec", line], cwd=user.folder, env=user.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, start_new_session=True)  # fmt: skip
    try:
        events = "grep --count --no-messages '\"paused\"' /var/lib/handover/sessions/newcomer/events.jsonl || true"
        ends = time.monotonic() + 120
        while ask(HERE, events).strip() in ("", "0"):
            assert moving.poll() is None and time.monotonic() < ends, "the move has not come to its pause"
            time.sleep(0.2)
    finally:
        os.killpg(moving.pid, signal.SIGKILL)
        moving.wait()
    # Its helpers stand where they were told to, as in a move under way: it is taken back by its name.
    user.type("ansible-playbook -i hosts.yml livefleet.handover.recover -e handover_session=newcomer")
    assert where(shop, HERE, THERE) == [HERE] and words(HERE, shop) > 0
    assert ask(HERE, "ls /var/lib/handover/sessions").split() == []


@pytest.mark.parametrize("command", [
    "sudo -n id", "sudo -n -i", "sudo -n /bin/sh -c id", "sudo -n /bin/bash -c 'echo BECOME-SUCCESS-x'",
    "sudo -n -u nobody /bin/sh -c 'echo BECOME-SUCCESS-x; id'",
])  # fmt: skip
def test_sudo_refuses_all_but_a_task_of_ansible_as_root(user, command):
    done = user.ssh("handover", HERE, command)
    assert done.returncode != 0 and REFUSED in done.stdout, done.stdout


def test_a_task_becomes_root_and_no_other_user(user):
    """A raw one: of the others, Ansible fails before it asks sudo, at handing its files to that user."""
    asked = "ansible container_hosts -i hosts.yml -m ansible.builtin.raw -a 'id -un'"
    assert len(re.findall("(?m)^root\r?$", user.type(asked))) == 2
    assert user.type(f"{asked} --become-user nobody", status=2).count("Missing sudo password") >= 2


def test_the_key_is_worth_nothing_elsewhere_and_opens_no_port(user):
    """From another host, and through this one."""
    assert user.ssh("handover", HERE, "true").returncode == 0
    key = (user.folder.parent / "key").read_text(encoding="utf-8")
    ask(THERE, "cat >/root/key && chmod 0600 /root/key", key)
    # The lab's own settings would offer the fleet's key.
    alone = "-F /dev/null -i /root/key -o IdentitiesOnly=yes -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
    said = ask(THERE, f"ssh {alone} handover@{ADDRESSES[HERE]} true 2>&1 || true; rm /root/key")
    assert "Permission denied" in said
    assert "administratively prohibited" in user.ssh("handover", HERE, "", "-W", "127.0.0.1:22").stdout
