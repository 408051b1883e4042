# Copyright (c) 2026, the Handover maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Those who copy an image from one host to another: pcopy, and what people use today, each with the options that suit it best.

All begin with nothing of the source in memory, and all end when the destination has everything on its disk. A server that a contender
needs on the destination runs before the clock does, as pcopy's receiver.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import secrets
import shlex
import subprocess
import sys
import typing as t

from hosts import CHECKOUT, Fleet

SOURCE, DESTINATION = "bench1", "bench2"
FOLDER = "/var/lib/handover/bench"
PORT = "10809"
CLUSTER = 64 << 10
NAME, KEYS = "bench", "keys.psk"  # qemu looks for a file of this name
TOOLS = ("disk.py", "stopwatch.py", "hashcopy.py")
LIMIT_SECONDS = 1200.0
# What a benchmark that was killed may have left on a host; $1 is its folder.
LEFT = """
for process in $(pgrep -f "session $1/session"); do kill -CONT "$process"; kill -KILL "$process"; done
losetup --list --noheadings --output NAME,BACK-FILE | awk -v folder="$1/" 'index($2, folder) == 1 { print $1 }' | xargs -r losetup --detach
rm -rf "$1/session" "$1/keys.psk" "$1/image" "$1/idle" "$1/wide" "$1/target" "$1/other"
:"""


class Pair:
    """The two hosts, with what the benchmark needs on them."""

    def __init__(self) -> None:
        here = CHECKOUT / "tests" / "bench"
        self.fleet = Fleet((SOURCE, DESTINATION), here / "fleet" / "inventory.yml", here / "fleet" / "parameters.yml")
        self.there = self.fleet.address[DESTINATION]
        helper = CHECKOUT / "roles" / "pcopy" / "files" / "pcopy-linux-amd64"
        for host in (SOURCE, DESTINATION):
            self.run(host, "mkdir", "-p", FOLDER)
            for name in TOOLS:
                self.put(host, (here / name).read_bytes(), f"{FOLDER}/{name}")
            self.put(host, helper.read_bytes(), "/usr/local/bin/pcopy")
            self.run(host, "sh", "-c", LEFT, "sh", FOLDER)
        # By which NBD's two sides know each other in TLS.
        key = f"{NAME}:{secrets.token_hex(32)}\n".encode()
        for host in (SOURCE, DESTINATION):
            self.put(host, key, f"{FOLDER}/{KEYS}")

    def put(self, host: str, content: bytes, path: str) -> None:
        self.fleet.run(host, "sh", "-c", 'cat > "$1.new" && chmod 755 "$1.new" && mv "$1.new" "$1"', "sh", path, given=content)

    def run(self, host: str, *argv: str, timeout: float = 600) -> str:
        return self.fleet.run(host, *argv, timeout=timeout)

    def disk(self, host: str, *words: object) -> str:
        """A word of disk.py, on a host."""
        return self.run(host, "python3", f"{FOLDER}/disk.py", *map(str, words)).strip()

    def cold(self, *paths: str) -> None:
        """Nothing of a source is in memory when it is copied."""
        for path in paths:
            self.disk(SOURCE, "forget", path)

    def clear(self, *paths: str) -> None:
        self.run(DESTINATION, "rm", "-rf", *paths)

    def processor(self) -> float:
        """Seconds of processor time that both hosts have used; the kernel's own threads are not in it."""
        used = 0
        for host in (SOURCE, DESTINATION):
            words = self.run(host, "cat", "/sys/fs/cgroup/cpu.stat").split()
            used += int(words[words.index("usage_usec") + 1])
        return used / 1e6

    def timed(self, *argv: str, cutover: str = "") -> dict[str, t.Any]:
        """Runs a command on the source; with cutover, one that serves this session, which is asked to come to its end."""
        before = self.processor()
        result = json.loads(self.run(SOURCE, "python3", f"{FOLDER}/stopwatch.py", f"--cutover={cutover}", "--", *argv, timeout=LIMIT_SECONDS))
        result["processor"] = round(self.processor() - before, 3)
        if result.get("status"):
            sys.exit(f"bench: {shlex.join(argv)}: {result['said'].strip()}")
        result.pop("said", None)
        return result

    @contextlib.contextmanager
    def serve(self, *argv: str, port: str = PORT) -> t.Iterator[None]:
        """A server on the destination."""
        unit = "bench-server"
        self.run(DESTINATION, "systemd-run", "--quiet", "--collect", f"--unit={unit}", "--service-type=exec", "--property=LimitMEMLOCK=infinity", *argv)
        listens = f"for n in $(seq 200); do ss -Hltn 'sport = :{port}' | grep -q . && exit 0; sleep 0.05; done; exit 1"
        try:
            self.run(DESTINATION, "sh", "-c", listens)
            yield
        finally:
            self.run(DESTINATION, "systemctl", "stop", unit)

    @contextlib.contextmanager
    def loop(self, path: str) -> t.Iterator[str]:
        """A block device over an image on the source."""
        device = self.run(SOURCE, "losetup", "--find", "--show", path).strip()
        try:
            yield device
        finally:
            self.run(SOURCE, "losetup", "--detach", device)

    @contextlib.contextmanager
    def line(self, rate: str) -> t.Iterator[None]:
        """A token bucket on both hosts' uplinks, both ways."""
        shape = CHECKOUT / "lab" / "shape.yml"
        self.fleet.play(shape, {"lab_limits": {"rate": rate}})
        try:
            yield
        finally:
            self.fleet.play(shape, {"lab_limits": {}})


@dataclasses.dataclass
class Contender:
    """One that copies the file source to the file target on the other host."""

    pair: Pair
    name: str
    # What runs on the source, and what has to listen on the destination; {source}, {target} and {there} are filled in.
    command: str
    server: str = ""
    # The target has to be there already.
    lies_there: bool = False

    def copy(self, source: str, target: str, fresh: bool = True) -> dict[str, t.Any]:
        if fresh:
            self.pair.clear(target)
        words = {"source": source, "target": target, "there": self.pair.there, "port": PORT}
        if fresh and self.lies_there:
            self.pair.run(DESTINATION, "truncate", "--size", self.pair.run(SOURCE, "stat", "--format=%s", source).strip(), target)
        self.pair.cold(source)
        argv = [word.format(**words) for word in shlex.split(self.command)]
        with contextlib.ExitStack() as stack:
            if self.server:
                stack.enter_context(self.pair.serve(*(word.format(**words) for word in shlex.split(self.server))))
            return self.pair.timed(*argv)


# What is known of the destination is told to those who can be told: the first time, that it is all zeroes.
NBDKIT = "nbdkit --foreground --port={port} file {target} cache=default"
NBDKIT_TLS = NBDKIT.replace("--foreground", f"--foreground --tls=require --tls-psk={FOLDER}/{KEYS}")
QEMU_NBD = "qemu-nbd --persistent --shared=8 --port={port} --format=raw --cache=writeback --discard=unmap {target}"
QEMU_NBD_TLS = QEMU_NBD.replace("--persistent", f"--persistent --object tls-creds-psk,id=tls,endpoint=server,dir={FOLDER} --tls-creds=tls")
CONVERT = "qemu-img convert -n --target-is-zero -W -T none -t writeback"
DD = "dd of={target} bs=4M iflag=fullblock conv=sparse,fsync status=none"
RSYNC = "rsync --inplace --sparse --fsync {more} {{source}} root@{{there}}:{{target}}"


def first(pair: Pair) -> list[Contender]:
    """Who copies onto an empty destination."""
    return [
        Contender(pair, "nbdcopy", "nbdcopy --flush --destination-is-zero {source} nbd://{there}:{port}", NBDKIT, lies_there=True),
        Contender(
            pair, "nbdcopy, TLS",
            f"nbdcopy --flush --destination-is-zero {{source}} nbds://{NAME}@{{there}}:{{port}}?tls-psk-file={FOLDER}/{KEYS}", NBDKIT_TLS, lies_there=True,
        ),
        Contender(pair, "qemu-img convert", CONVERT + " -f raw -O raw {source} nbd://{there}:{port}", QEMU_NBD, lies_there=True),
        Contender(
            pair, "qemu-img convert, TLS",
            f"{CONVERT} --object tls-creds-psk,id=tls,endpoint=client,dir={FOLDER},username={NAME} --target-image-opts -f raw {{source}} "
            "driver=raw,file.driver=nbd,file.host={there},file.port={port},file.tls-creds=tls", QEMU_NBD_TLS, lies_there=True,
        ),
        Contender(pair, "rsync", RSYNC.format(more="--whole-file")),
        Contender(pair, "dd over ssh", "bash -o pipefail -c 'dd if={source} bs=4M status=none | ssh root@{there} " + DD + "'"),
        Contender(pair, "scp", "sh -c 'scp -q {source} root@{there}:{target} && ssh root@{there} sync {target}'"),
    ]  # fmt: skip


def packed(pair: Pair) -> Contender:
    """zstd -3, with as many threads as there are processors, through ssh."""
    there = "set -o pipefail\\; zstd -d -q -c \\| " + DD
    return Contender(pair, "zstd -3 over ssh", "bash -o pipefail -c 'zstd -3 -T0 -q -c {source} | ssh root@{there} " + there + "'")


def again(pair: Pair) -> list[Contender]:
    """Who copies onto a destination that holds what the source held before."""
    return [
        Contender(pair, "nbdcopy", "nbdcopy --flush {source} nbd://{there}:{port}", NBDKIT, lies_there=True),
        Contender(pair, "rsync", RSYNC.format(more="--no-whole-file")),
        Contender(pair, "hash copier", f"python3 {FOLDER}/hashcopy.py send {{source}} root@{{there}} {{target}}"),
    ]


@dataclasses.dataclass
class Sender:
    """A running pcopy session whose copy goes on while its source is written to."""

    session: Session
    pid: int
    process: subprocess.Popen[bytes]

    def status(self) -> dict[str, t.Any]:
        return self.session.status(SOURCE)

    def stop(self) -> None:
        """Nothing is sent from here on, and what is written is marked all the same: that is done in the kernel."""
        self.session.pair.run(SOURCE, "kill", "-STOP", str(self.pid))

    def finish(self) -> dict[str, t.Any]:
        """Lets it go on, and times what it takes from there to its end."""
        pair = self.session.pair
        before = pair.processor()
        result = json.loads(pair.run(SOURCE, "python3", f"{FOLDER}/stopwatch.py", "--go-on", self.session.folder, str(self.pid)))
        result["processor"] = round(pair.processor() - before, 3)
        self.process.wait(60)
        return result


@dataclasses.dataclass
class Session:
    """pcopy: one session of mode copy, by TLS."""

    pair: Pair
    policy: dict[str, t.Any]
    tracker: str = "none"
    folder: str = f"{FOLDER}/session"

    def _prepare(self, source: str, target: str) -> None:
        pair, folder = self.pair, self.folder
        self.target = target
        prints = {}
        for host in (SOURCE, DESTINATION):
            pair.run(host, "rm", "-rf", folder)
            pair.run(host, "mkdir", "-p", folder)
            prints[host] = json.loads(pair.run(host, "pcopy", "identity", folder))["fingerprint"]
        pair.clear(target)
        pair.cold(source)
        size = int(pair.run(SOURCE, "python3", "-c", "import os,sys; print(os.lseek(os.open(sys.argv[1], os.O_RDONLY), 0, 2))", source))
        volume = {"name": "image", "size": size, "cluster": CLUSTER}
        base = {"version": 1, "id": "bench", "mode": "copy"}
        for host, more in (
            (SOURCE, {"role": "source", "peer": {"address": f"{pair.there}:{PORT}", "fingerprint": prints[DESTINATION]},
                      "volumes": [{**volume, "device": source, "tracker": self.tracker}], "policy": self.policy}),
            (DESTINATION, {"role": "destination", "listen": f"{pair.there}:{PORT}", "peer": {"fingerprint": prints[SOURCE]},
                           "volumes": [{**volume, "image": target}]}),
        ):  # fmt: skip
            pair.put(host, json.dumps({**base, **more}).encode(), f"{folder}/spec.json")

    def status(self, host: str) -> dict[str, t.Any]:
        return json.loads(self.pair.run(host, "pcopy", "session", "show", self.folder))

    @contextlib.contextmanager
    def _receiver(self) -> t.Iterator[dict[str, t.Any]]:
        """The destination's side; what it took is known when it has ended."""
        result: dict[str, t.Any] = {}
        pair = self.pair
        argv = pair.fleet.argv(DESTINATION, "python3", f"{FOLDER}/stopwatch.py", "--", "pcopy", "receive", "--session", self.folder)
        with subprocess.Popen(argv, stdout=subprocess.PIPE) as receiver:
            try:
                pair.run(DESTINATION, "pcopy", "session", "wait", self.folder, "--until", "listening", "--timeout", "30")
                yield result
                out, _errors = receiver.communicate(timeout=60)
                result.update(json.loads(out))
            finally:
                if receiver.poll() is None:
                    pair.run(DESTINATION, "sh", "-c", 'pcopy session abort "$1" || :', "sh", self.folder)

    def copy(self, source: str, target: str) -> dict[str, t.Any]:
        """One copy, from the sender's start to its end."""
        self._prepare(source, target)
        with self._receiver() as receiver:
            result = self.pair.timed("pcopy", "send", "--session", self.folder, cutover=self.folder)
        status = self.status(SOURCE)
        if status["state"] != "done":
            sys.exit(f"bench: the session ended as {status['state']}: {status['error']}")
        passes = status["passes"]
        return {**result, "peak_there": receiver["peak"], "sent": status["sent_bytes"], "payload": sum(p["payload"] for p in passes)}

    @contextlib.contextmanager
    def converged(self, source: str, target: str) -> t.Iterator[Sender]:
        """A session that has sent everything once."""
        self._prepare(source, target)
        pair = self.pair
        with self._receiver():
            argv = pair.fleet.argv(SOURCE, "sh", "-c", 'echo $$; exec pcopy send --session "$1"', "sh", self.folder)
            with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
                assert process.stdout
                pid = int(process.stdout.readline())
                pair.run(SOURCE, "sh", "-c", 'until [ -e "$1/status.json" ]; do sleep 0.05; done', "sh", self.folder)
                pair.run(SOURCE, "pcopy", "session", "wait", self.folder, "--until", "converged", "--timeout", "600", timeout=650)
                try:
                    yield Sender(self, pid, process)
                finally:
                    pair.run(SOURCE, "sh", "-c", 'kill -CONT "$1" 2>/dev/null || :', "sh", str(pid))
