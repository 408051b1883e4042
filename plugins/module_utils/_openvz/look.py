# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Looks at a container on its OpenVZ host, by one program for a shell: such hosts have a Python that Ansible no longer supports.

The program only reads. It answers in lines: `@word rest`, and files as `@file NAME` with a blank before each of their lines, up to `@end`.
"""

from __future__ import annotations

import typing as t

from .._core.inits import ROOT_SCRIPT, add_root, empty_root
from .config import NEWER

# The container's id or name is the program's first argument.
SCRIPT = (
    r"""
LC_ALL=C; export LC_ALL
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin; export PATH
"""
    + ROOT_SCRIPT
    + r"""
word=$1
conf=/etc/vz/conf/$word.conf
# The name is a link to the configuration: of vzctl 4 to that in conf, of libvzctl to that in the private area, to which the one in conf is a link, too.
if [ ! -f "$conf" ] && [ -n "$word" ] && [ -f "/etc/vz/names/$word" ]; then
    for each in /etc/vz/conf/*.conf; do [ "$each" -ef "/etc/vz/names/$word" ] && conf=$each; done
fi
if [ ! -f "$conf" ]; then
    [ -d /etc/vz/conf ] || { echo "@none"; exit 0; }
    for each in /etc/vz/conf/*.conf; do [ -f "$each" ] && echo "@other $(basename "$each" .conf)"; done
    exit 0
fi
id=$(basename "$conf" .conf)
file() { [ -f "$2" ] || return 0; echo "@file $1"; sed 's/^/ /' "$2"; echo; echo "@end"; }
# The container's own file counts before the host's. Of a value that is set twice there, vzctl 4 takes the first and libvzctl the last.
pick=head
grep -Eq '^[[:space:]]*(NEWER)=' "$conf" && pick=tail
value() {
    found=
    for each in /etc/vz/vz.conf "$conf"; do
        said=$(sed -n -e "s/^[[:space:]]*$1=\"\([^\"]*\)\".*/\1/p;t" -e "s/^[[:space:]]*$1=\([^\"[:space:]]*\).*/\1/p" "$each" 2>/dev/null | $pick -n 1)
        [ -n "$said" ] && found=$said
    done
    printf '%s\n' "$found" | sed "s/\${VEID}/$id/g; s/\$VEID/$id/g"
}
private=$(value VE_PRIVATE); private=${private:-/vz/private/$id}
root=$(value VE_ROOT); root=${root:-/vz/root/$id}
# A warning may come first.
status=$(vzctl status "$id" 2>&1)
word=$(printf '%s\n' "$status" | grep -E '^(CTID|VEID) ' | head -n 1)
status=${word:-$(printf '%s\n' "$status" | head -n 1)}
echo "@id $id"
echo "@vzctl $(vzctl --version 2>&1 | head -n 1)"
echo "@status $status"
echo "@private $private"
echo "@mountpoint $root"
echo "@machine $(uname -m)"
# Each host counts its containers by itself: this tells which host's it is.
echo "@host $(uname -n) $(cut -d ' ' -f 2 /etc/ssh/ssh_host_rsa_key.pub 2>/dev/null | cksum)"
for each in vzctl rsync; do command -v $each >/dev/null 2>&1 || echo "@lacks $each"; done
file conf "$conf"
file vz.conf /etc/vz/vz.conf
for each in prestart premount mount start stop umount postumount; do
    file "script $id.$each" "/etc/vz/conf/$id.$each"
    file "script vps.$each" "/etc/vz/conf/vps.$each"
done
seen=
if [ -e "$private/root.hdd/DiskDescriptor.xml" ] && [ -d "$private/etc" ]; then
    echo "@layout both"
elif [ -e "$private/root.hdd/DiskDescriptor.xml" ]; then
    echo "@layout ploop"
    echo "@kib $(du -sk "$private/root.hdd" | cut -f 1)"
    file descriptor "$private/root.hdd/DiskDescriptor.xml"
    case " $status " in *" mounted "*) seen=$root ;; esac
elif [ -d "$private/fs/root" ]; then
    echo "@layout vzfs"
elif [ -d "$private/etc" ]; then
    echo "@layout simfs"
    echo "@kib $(du -skx "$private" | cut -f 1)"
    seen=$private
elif [ -d "$private/fs/etc" ]; then
    # A directory container of libvzctl's (its layout 4).
    echo "@layout directory"
    echo "@kib $(du -skx "$private" | cut -f 1)"
    seen=$private/fs
fi
# Here libvzctl has action scripts. In a directory container the same place is the container's own.
if [ ! -d "$private/etc" ]; then
    for each in prestart premount mount start stop umount postumount; do
        file "script scripts.$each" "$private/scripts/$each"
    done
fi
if [ -d "$seen/etc" ]; then
    say "@owner $(stat -c %u "$seen/etc")"
    look_at_root "$seen"
fi
exit 0
""".replace("NEWER", "|".join(sorted(NEWER)))
)


def parse(text: str) -> dict[str, t.Any]:
    """The program's answer."""
    found: dict[str, t.Any] = {
        "id": "", "none": False, "others": [], "lacks": [], "files": {}, "scripts": {}, "root": empty_root(),
        "vzctl": "", "status": "", "private": "", "mountpoint": "", "machine": "", "host": "", "owner": "", "layout": "", "kib": 0,
    }  # fmt: skip
    name = ""
    lines: list[str] = []
    for line in text.replace("\r\n", "\n").split("\n"):
        if name and line.startswith("@end"):
            kind, _blank, rest = name.partition(" ")
            (found["scripts"] if kind == "script" else found["files"])[rest or kind] = "\n".join(lines)
            name, lines = "", []
        elif name:
            lines.append(line[1:])
        elif line.startswith("@"):
            word, _blank, rest = line[1:].strip().partition(" ")
            if word == "file":
                name = rest
            elif word == "root":
                add_root(found["root"], rest)
            elif word == "none":
                found["none"] = True
            elif word in ("other", "lacks"):
                found["others" if word == "other" else "lacks"].append(rest)
            elif word == "kib":
                found["kib"] = int(rest) if rest.isdigit() else 0
            elif word in found:
                found[word] = rest
    return found


def state_of(status: str) -> dict[str, bool]:
    """The words of `vzctl status`, of both eras."""
    words = status.split()
    return {
        "exists": "exist" in words,
        "mounted": "mounted" in words,
        "running": "running" in words,
        "suspended": "suspended" in words,
        "paused": "paused" in words,
    }
