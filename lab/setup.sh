#!/bin/sh
# Installs what this repository needs on Debian 12 or 13, and nothing that is
# there already: packages, Go, a Python environment, the collection's place.
# Run by `make setup`, which takes less than a second when all is done. Words
# are further packages.
set -eu
cd "$(dirname "$0")/.."
. /etc/os-release

fail() {
    echo "setup: $*" >&2
    exit 1
}

update_lists() {
    # A source that has nothing to do with this and cannot be reached is no
    # reason to stop; a package that is then missing is, and apt names it.
    apt-get --quiet=2 update || echo "setup: apt-get update had errors, going on with what it got" >&2
}

install_packages() {
    DEBIAN_FRONTEND=noninteractive apt-get --quiet=2 --yes --no-install-recommends \
        -o DPkg::Lock::Timeout=120 install "$@" >/dev/null ||
        fail "these packages could not be installed: $*: see above, mend apt's sources and run 'make setup' again"
}

debian_mirror() {
    # apt fills these in, not the shell.
    # shellcheck disable=SC2016
    apt-get indextargets --format '$(SITE) $(ORIGIN) $(LABEL)' | awk '$2 == "Debian" && $3 == "Debian" { print $1; exit }'
}

missing_packages() {
    for package in "$@"; do
        [ "$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || echo "$package"
    done
}

# Go from 1.21 on fetches by itself whatever newer toolchain a go.mod asks for.
has_go() {
    command -v go >/dev/null && go_version=$(GOTOOLCHAIN=local go env GOVERSION) &&
        [ "$(printf 'go1.21\n%s\n' "$go_version" | sort --version-sort | head -n1)" = go1.21 ]
}

install_go() {
    if [ "$VERSION_CODENAME" = bookworm ]; then
        # Debian 12's own Go is 1.19.
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $(debian_mirror) bookworm-backports main" \
            >/etc/apt/sources.list.d/handover-backports.list
        update_lists
        install_packages --target-release=bookworm-backports golang-go
    else
        install_packages golang-go
    fi
    has_go || fail "Debian's Go is too old: install Go 1.26 or later from https://go.dev/dl and put it in the PATH"
}

# The first python3 in the PATH may be a version manager's stub.
find_python() {
    for python in /usr/bin/python3 python3; do
        if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$python"
            return
        fi
    done
    fail "no Python 3.11 or later: install python3"
}

make_environment() {
    python=$(find_python)
    wanted=$({ "$python" --version; cat requirements-dev.txt; } | sha256sum)
    [ "$(cat .cache/venv/.made-from 2>/dev/null)" = "$wanted" ] && return
    echo "setup: making the Python environment, one to two minutes"
    [ "$(.cache/venv/bin/python --version 2>/dev/null)" = "$("$python" --version)" ] || rm -rf .cache/venv
    "$python" -m venv .cache/venv || fail "'$python -m venv' failed: install python3-venv"
    .cache/venv/bin/python -m pip install --quiet --no-compile --upgrade --requirement requirements-dev.txt ||
        fail "pip could not install requirements-dev.txt: see above, and check pip's index ('pip config list')"
    # Of a hundred collections four are used; compiling all of them takes a minute.
    .cache/venv/bin/python -m compileall -q -j 0 .cache/venv/lib \
        -x 'ansible_collections/(?!ansible/posix|community/crypto|community/general|containers/podman)' || true
    echo "$wanted" >.cache/venv/.made-from
}

# The oldest ansible-core that is promised, beside the same collections: some tests run with it.
make_oldest_environment() {
    wanted=$({ cat .cache/venv/.made-from requirements-oldest.txt; } | sha256sum)
    [ "$(cat .cache/venv-oldest/.made-from 2>/dev/null)" = "$wanted" ] && return
    rm -rf .cache/venv-oldest
    "$(find_python)" -m venv .cache/venv-oldest || fail "'python3 -m venv' failed: install python3-venv"
    .cache/venv-oldest/bin/python -m pip install --quiet --no-compile --requirement requirements-oldest.txt ||
        fail "pip could not install requirements-oldest.txt: see above, and check pip's index ('pip config list')"
    for place in .cache/venv-oldest/lib/python3*/site-packages; do
        ln -sfn "$(find "$PWD"/.cache/venv/lib -maxdepth 3 -name ansible_collections)" "$place/ansible_collections"
    done
    echo "$wanted" >.cache/venv-oldest/.made-from
}

# promtool and Prometheus check the rules and the dashboard. Unpacked, not installed: the package would start a server on this machine.
unpack_prometheus() {
    [ -x .cache/prometheus/usr/bin/promtool ] && return
    rm -rf .cache/prometheus && mkdir -p .cache/prometheus
    (cd .cache/prometheus && { apt-get --quiet=2 download prometheus >/dev/null 2>&1 || { update_lists && apt-get --quiet=2 download prometheus; }; } &&
        dpkg-deb --extract prometheus_*.deb . && rm prometheus_*.deb) ||
        fail "Debian's package prometheus could not be fetched: see above, and mend apt's sources"
}

case "$ID-$VERSION_CODENAME" in
debian-bookworm | debian-trixie) ;;
*) fail "this is ${PRETTY_NAME:-an unknown system}: the lab and its set-up are made for Debian 12 and 13" ;;
esac
[ "$(id -u)" = 0 ] || fail "packages are installed as root: run this as root, or with sudo"

[ -n "$(debian_mirror)" ] || update_lists

# Of libvirt's schema, which the unit tests walk; Debian 12 has it in libvirt0.
schema=
[ "$VERSION_CODENAME" = bookworm ] || schema=libvirt-common
# shellcheck disable=SC2086
missing=$(missing_packages $schema ca-certificates cpio e2fsprogs gcc git iproute2 kmod libc6-dev mmdebstrap openssh-client procps python3 python3-libvirt \
    python3-venv qemu-user-static qemu-utils rsync shellcheck spin systemd-container util-linux vmtouch xfsprogs "$@")
if [ -n "$missing" ]; then
    echo "setup: installing $(echo "$missing" | tr '\n' ' ')"
    update_lists
    # Word by word: each is one package.
    # shellcheck disable=SC2086
    install_packages $missing
fi

has_go || { echo "setup: installing Go"; install_go; }

make_environment
make_oldest_environment
unpack_prometheus

# Ansible finds the checkout under the collection's name.
mkdir -p .cache/collections/ansible_collections/livefleet
ln -sfn ../../../.. .cache/collections/ansible_collections/livefleet/handover
