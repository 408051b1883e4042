# `make help` lists the targets. Those that boot hosts need Debian 12 or 13, and root; `make helper`, `make check` and `make release` need neither.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

export ANSIBLE_CONFIG := $(CURDIR)/ansible.cfg
export PATH := $(CURDIR)/.cache/venv/bin:$(PATH):/usr/local/go/bin
# Debian's Go does not fetch a newer toolchain unless it is told to.
export GOTOOLCHAIN ?= auto

# The hosts to bring up: `make lab-up FLEET=lab,node3`.
FLEET ?= lab
LAB_PLAY = ansible-playbook -e lab_fleet=$(FLEET)

.PHONY: help
help: ## List the targets, by what they are for
	@awk -F ':.*## ' '/^# --- / { gsub(/^# --- | -+$$/, ""); printf "\n%s\n", $$0 } /^[a-z-]+:.*## / { printf "  %-20s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: root
root:
	@test "$$(id -u)" = 0 || { echo "The lab boots hosts on this machine and needs root: run this with sudo." >&2; exit 1; }

.PHONY: setup
setup: root ## Install missing packages, Go, a Python environment
	@lab/setup.sh

# --- the helper -------------------------------------------------------------

VERSION := $(shell sed -n 's/^version: //p' galaxy.yml)
BINARIES := $(addprefix roles/pcopy/files/pcopy-linux-,amd64 arm64)
# The man pages and the completion, made from the commands' own help. One archive: Ansible takes seconds for each file that it copies.
MANUAL := roles/pcopy/files/pcopy-share.tar
GO_SOURCES := $(shell find helper -name '*.go' ! -name '*_test.go') helper/go.mod helper/go.sum

.PHONY: has-go
has-go:
	@command -v go >/dev/null || { echo "Go 1.26 or later is missing: install it (Debian 13: apt install golang-go), or take a release, which has the helpers." >&2; exit 1; }

.PHONY: helper
helper: roles/pcopy/files/SHA256SUMS ## Build pcopy for amd64 and arm64 into roles/pcopy/files

roles/pcopy/files/SHA256SUMS: $(BINARIES) $(MANUAL)
	cd $(@D) && sha256sum $(notdir $(BINARIES)) >$(@F)

$(BINARIES): roles/pcopy/files/pcopy-linux-%: $(GO_SOURCES) galaxy.yml | has-go
	@mkdir -p $(@D)
	cd helper && CGO_ENABLED=0 GOOS=linux GOARCH=$* go build -trimpath -buildvcs=false \
		-ldflags='-s -w -X main.version=$(VERSION)' -o ../$@ ./cmd/pcopy

$(MANUAL): $(GO_SOURCES) galaxy.yml | has-go
	@rm -rf .cache/share && mkdir -p .cache/share/man/man1 .cache/share/bash-completion/completions
	cd helper && CGO_ENABLED=0 go build -tags man -ldflags='-X main.version=$(VERSION)' -o ../.cache/pcopy-man ./cmd/pcopy
	.cache/pcopy-man internal man .cache/share/man/man1
	.cache/pcopy-man completion bash >.cache/share/bash-completion/completions/pcopy
	cd .cache/share && find * -type f | LC_ALL=C sort | tar --create --file=$(CURDIR)/$@ --files-from=- \
		--mtime=@0 --owner=root --group=root --numeric-owner --mode=u=rw,go=r

# --- a release --------------------------------------------------------------

RELEASE_TOOLS = aead.dev/minisign/cmd/minisign@v0.3.0 github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.9.0

.PHONY: release-tools
release-tools: has-go ## Build the programs that sign a release and list its modules
	@for tool in $(RELEASE_TOOLS); do GOBIN=$(CURDIR)/.cache/tools go install $$tool; done

# KEY=FILE is minisign's secret key; docs/releasing.md says how it is made.
.PHONY: release
release: release-tools ## Build VERSION=1.0.0 from this commit into dist: tarball, packages, sums, SBOM
	@python3 release/release.py "$(VERSION)" $(if $(KEY),--key "$(KEY)")

# Writes the changelog from the fragments, and the version into galaxy.yml. Commit the result before `make release`. Until the version has a tag, the
# same again adds the fragments that came later.
.PHONY: release-prepare
release-prepare: setup ## Write the changelog and the number of VERSION=1.0.0
	@! git rev-parse --quiet --verify "refs/tags/v$(VERSION)" >/dev/null || { echo "v$(VERSION) has been released: prepare the next version." >&2; exit 1; }
	@sed -i 's/^version: .*/version: $(VERSION)/' galaxy.yml
	@cd .cache/collections/ansible_collections/livefleet/handover && $(CURDIR)/.cache/venv/bin/antsibull-changelog release --version "$(VERSION)" --update-existing

# --- the lab ----------------------------------------------------------------

.PHONY: lab-up
lab-up: setup ## Bring the fleet up: booted Debian hosts on this machine
	@$(LAB_PLAY) lab/create.yml

.PHONY: lab-images
lab-images: lab-up ## Build the container images and load them into the fleet
	@$(LAB_PLAY) lab/images.yml

.PHONY: lab-shape
lab-shape: setup ## Limit each uplink: RATE=1gbit; without RATE, lift the limits
	@$(LAB_PLAY) -e '{"lab_limits": {$(if $(RATE),"rate": "$(RATE)")}}' lab/shape.yml

.PHONY: lab-down
lab-down: setup ## Take the fleet down, also after a killed run; keep the built images
	@ansible-playbook lab/destroy.yml

.PHONY: lab-clean
lab-clean: setup ## Take the fleet down and forget the built images too
	@ansible-playbook lab/clean.yml

.PHONY: lab-check
lab-check: setup ## List the lab's leftovers on this machine; fails if there are any
	@ansible-playbook lab/check_clean.yml

# --- a Ceph cluster, on a fleet of its own ------------------------------------

CEPH_PLAY = ansible-playbook -i lab/ceph/inventory.yml -e @lab/ceph/parameters.yml

# CEPH=18.2 is Debian 13's; STORES and DEPLOYMENTS are lists as in lab/ceph/vars.yml.
.PHONY: ceph-up
ceph-up: setup ## Start a Ceph cluster: CEPH=16.2 (or 18.2), two hosts, four OSDs
	@$(CEPH_PLAY) $(if $(CEPH),-e ceph_release=$(CEPH)) $(if $(STORES),-e '{"ceph_stores": [$(STORES)]}') \
		$(if $(DEPLOYMENTS),-e '{"ceph_deployments": [$(DEPLOYMENTS)]}') lab/ceph.yml

.PHONY: ceph-slow
ceph-slow: setup ## Hold its disks to READS=100 reads a second; without READS, lift that
	@$(CEPH_PLAY) -e lab_read_iops=$(or $(READS),0) lab/slow.yml

.PHONY: ceph-down
ceph-down: setup ## Take the cluster and its hosts down
	@$(CEPH_PLAY) lab/destroy.yml

# --- the main job -----------------------------------------------------------

.PHONY: demo
demo: setup helper ## Move a PostgreSQL container while it is used; KEEP=1 leaves the hosts up
	@.cache/venv/bin/python demo/demo.py $(if $(KEEP),--keep)

.PHONY: test-ledger
test-ledger: setup helper ## The same there and back, MOVES=10 times, counting every acknowledged commit
	@.cache/venv/bin/python demo/demo.py --quiet --moves $(or $(MOVES),10) $(if $(KEEP),--keep)

# --- a change: check it, test it -------------------------------------------

# CHECKS="ruff mypy": only these. The checks are listed in tests/check.
.PHONY: check
check: ## Check a change in minutes, without root: linters, types, prose, unit tests
	@python3 tests/check $(CHECKS)

# Ends with 2, and says so, where a list of vulnerabilities cannot be reached.
.PHONY: audit
audit: setup has-go ## Look for known vulnerabilities in the Go modules, and in the Python packages of the tests
	@.cache/venv/bin/python tests/audit

.PHONY: docs
docs: setup ## Write the pages of variables, surveys and inventories from their tables
	@HANDOVER_WRITE_DOCS=1 .cache/venv/bin/python -m pytest -q -c tests/pytest.ini tests/unit/playbooks/test_page.py tests/unit/awx/test_surveys.py tests/unit/plugins/module_utils/_podman/test_inventory.py tests/unit/plugins/module_utils/_docker/test_inventory.py tests/unit/plugins/module_utils/_openvz/driver/test_inventory.py
	@.cache/venv/bin/python tests/guest_inventory.py

.cache/docs/ready: docs/site/requirements.txt
	@echo "site: making a Python environment, about a minute"
	@python3 -m venv .cache/docs && .cache/docs/bin/pip install --quiet --disable-pip-version-check --requirement $< && touch $@

# The reference of the commands is there if `make helper` has run. TARGET names another folder; LINKS=1 looks at the links to the outside, too.
.PHONY: site
site: .cache/docs/ready ## Build the documentation as a site into .cache/site; a warning is an error
	@.cache/docs/bin/python docs/site/build.py $(or $(TARGET),.cache/site) $(if $(LINKS),--links)

# PARTS=go, or "go lint": only these. The parts are listed in tests/suite. WHOLE=1 has the scenarios, too, whose turn it is not.
.PHONY: test
test: setup helper ## Run the whole test suite
	@WHOLE="$(WHOLE)" .cache/venv/bin/python tests/suite $(PARTS)

# --- parts of the test suite, with more in them -----------------------------

# FAULTS=25 is a sample (FAULTS_SEED chooses it), FAULTS="sender killed" one row. FLEETS=3 has so many fleets at it side by side. All of it has a sample on
# Docker's containers, too.
.PHONY: test-faults
test-faults: setup helper ## Break a move at every step in every way; the table goes into docs/safety-tests.md
	@FAULTS_TABLE=1 FAULTS="$(or $(FAULTS),all)" FAULTS_SEED="$(or $(FAULTS_SEED),1)" .cache/venv/bin/$(if $(FLEETS),python tests/faults/wide.py $(FLEETS),molecule test --scenario-name faults)
	@$(if $(filter-out all,$(FAULTS)),,$(MAKE) test-docker-faults)

# SEED=n is that of the first round and chooses everything; SEED=n ROUNDS=1 is one round again.
.PHONY: test-chaos
test-chaos: setup helper ## Random moves with random faults at random times: SECONDS=600 SEED=1
	@.cache/venv/bin/molecule reset --scenario-name chaos
	@CHAOS_SECONDS="$(SECONDS)" CHAOS_SEED="$(SEED)" CHAOS_ROUNDS="$(ROUNDS)" .cache/venv/bin/molecule test --scenario-name chaos

.PHONY: test-fleet
test-fleet: setup helper ## Empty a host onto two others: placement, a wave, a bridge, an interruption; CORE=newest by another ansible-core
	@.cache/venv/bin/molecule reset --scenario-name fleet
	@$(if $(CORE),.cache/venv/bin/python tests/cores with $(CORE)) .cache/venv/bin/molecule test --scenario-name fleet

# STROKES=50 rounds, the first of which has the seed SEED and the next one the next; STROKES=1 SEED=n is one round again.
.PHONY: test-snapshot
test-snapshot: setup helper ## Keep containers and go back: snapshots, backups, clones, and random strokes at them: STROKES=50 SEED=6
	@.cache/venv/bin/molecule reset --scenario-name snapshot
	@SNAPSHOT_STROKES="$(STROKES)" SNAPSHOT_SEED="$(SEED)" .cache/venv/bin/molecule test --scenario-name snapshot

.PHONY: test-snapshot-memory
test-snapshot-memory: setup helper ## Keep a container with its memory, and go back to it on another host
	@.cache/venv/bin/molecule reset --scenario-name snapshot-memory
	@.cache/venv/bin/molecule test --scenario-name snapshot-memory

.PHONY: test-openvz
test-openvz: setup helper ## Import containers of a stand-in for OpenVZ
	@.cache/venv/bin/molecule reset --scenario-name openvz
	@.cache/venv/bin/molecule test --scenario-name openvz

.PHONY: test-openvz-hosts
test-openvz-hosts: setup helper ## Move containers of a stand-in for OpenVZ between its hosts
	@.cache/venv/bin/molecule reset --scenario-name openvz-hosts
	@.cache/venv/bin/molecule test --scenario-name openvz-hosts

# OPENVZ_FAULTS is how many cells of each kind of move (offline, live, by CRIU, of libvzctl, and with a ploop disk), and FAULTS_SEED chooses them.
.PHONY: test-openvz-faults
test-openvz-faults: setup helper ## Break such moves at some steps in some ways
	@.cache/venv/bin/molecule reset --scenario-name openvz-faults
	@OPENVZ_FAULTS="$(or $(OPENVZ_FAULTS),5)" FAULTS_SEED="$(or $(FAULTS_SEED),1)" .cache/venv/bin/molecule test --scenario-name openvz-faults

.PHONY: test-mixed
test-mixed: setup helper ## Move containers from Debian 12 to Debian 13
	@.cache/venv/bin/molecule reset --scenario-name mixed
	@.cache/venv/bin/molecule test --scenario-name mixed

.PHONY: test-docker
test-docker: setup helper ## Move containers of Docker's: there and back, struck in the middle
	@.cache/venv/bin/molecule reset --scenario-name docker
	@.cache/venv/bin/molecule test --scenario-name docker

# DOCKER_FAULTS=all is every cell, DOCKER_FAULTS="sender killed" a row; FAULTS_SEED chooses those of a sample.
.PHONY: test-docker-faults
test-docker-faults: setup helper ## Break moves of Docker's containers at some steps in some ways: DOCKER_FAULTS=15 FAULTS_SEED=1
	@.cache/venv/bin/molecule reset --scenario-name docker-faults
	@DOCKER_FAULTS="$(or $(DOCKER_FAULTS),15)" FAULTS_SEED="$(or $(FAULTS_SEED),1)" .cache/venv/bin/molecule test --scenario-name docker-faults

# KVM_FAULTS=all injects every fault into a guest's move at every step, KVM_FAULTS=switch only there; KVM_FEATURES=all adds post-copy, TLS and auto-converge.
.PHONY: test-kvm
test-kvm: setup helper ## Move KVM guests: their disks with them or shared, offline, refused, struck in the middle
	@.cache/venv/bin/molecule reset --scenario-name kvm
	@KVM_FAULTS="$(KVM_FAULTS)" KVM_FEATURES="$(KVM_FEATURES)" .cache/venv/bin/molecule test --scenario-name kvm

# CEPH_FAULTS=all injects every fault; CEPH_FAULTS=disk only those whose name contains "disk". CEPH=18.2 is Debian 13's.
CEPH_SCENARIO = $(if $(filter 18.2,$(CEPH)),ceph-reef,ceph)
.PHONY: test-ceph
test-ceph: setup helper ## Restart the OSDs of a Ceph cluster: held, prewarmed, refused, struck in the middle
	@.cache/venv/bin/molecule reset --scenario-name $(CEPH_SCENARIO)
	@CEPH_FAULTS="$(CEPH_FAULTS)" .cache/venv/bin/molecule test --scenario-name $(CEPH_SCENARIO)

.PHONY: test-ceph-containers
test-ceph-containers: setup helper ## The same with OSDs in containers, as cephadm and as ceph-ansible run them
	@.cache/venv/bin/molecule reset --scenario-name ceph-containers
	@CEPH_FAULTS="$(CEPH_FAULTS)" .cache/venv/bin/molecule test --scenario-name ceph-containers

# --- the collection as users get it -------------------------------------------

.PHONY: test-import
test-import: setup helper ## Have galaxy-importer look at the tarball, as Galaxy does
	@.cache/venv/bin/python tests/artifact

.PHONY: test-artifact
test-artifact: setup helper ## Move a container there and back with the collection from its tarball
	@.cache/venv/bin/molecule reset --scenario-name default
	@.cache/venv/bin/python tests/artifact default

.PHONY: test-newcomer
test-newcomer: setup helper ## Type the pages' first moves on hosts that nothing was prepared on, by root and by a user without
	@.cache/venv/bin/python -m pytest -q -c tests/pytest.ini -p no:cacheprovider tests/newcomer

# podman is installed if it is missing; its images and containers are the test's own.
.PHONY: test-environment
test-environment: setup helper ## Build the execution environment by podman, and move a container by jobs of AWX's kind in it
	@lab/setup.sh podman runc
	@.cache/venv/bin/python -m pytest -q -c tests/pytest.ini -p no:cacheprovider tests/environment

# CORES="2.18 2.21": only these. Each takes some minutes.
.PHONY: sanity-cores
sanity-cores: setup ## Run ansible-test sanity with every ansible-core that is supported, up to PyPI's newest
	@.cache/venv/bin/python tests/cores sanity $(CORES)

# --- benchmarks, against contenders -----------------------------------------

BENCH_PLAY = ansible-playbook -i tests/bench/fleet/inventory.yml -e @tests/bench/fleet/parameters.yml

# ROWS="full fio": only these; the results of the others stay. RUNS=0 only rewrites the pages.
.PHONY: bench
bench: setup helper ## Measure pcopy against nbdcopy, qemu-img, rsync, dd and scp
	@$(BENCH_PLAY) lab/create.yml
	@.cache/venv/bin/python tests/bench/pcopy.py $(if $(ROWS),--rows "$(ROWS)") $(if $(RUNS),--runs $(RUNS)); \
	status=$$?; $(if $(KEEP),,$(BENCH_PLAY) lab/destroy.yml;) exit $$status

.PHONY: bench-freeze
# ROWS=idle,od+link,docker: the script lists them; each replaces its own part of docs/benchmarks/freeze-runs.json. CONTENDERS=…: the others stay, with their day.
bench-freeze: lab-images setup helper ## Measure the frozen time against podman, rsync and vzmigrate's order, beside the floor of CRIU
	@.cache/venv/bin/python tests/bench/freeze.py $(if $(RUNS),--runs $(RUNS)) $(if $(ROWS),--rows $(ROWS)) $(if $(CONTENDERS),--contenders $(CONTENDERS)) $(if $(ADD),--add)

.PHONY: bench-drain
bench-drain: FLEET = lab,node3
bench-drain: lab-images setup helper ## Measure emptying a host against its link, and its cost for the controller
	@.cache/venv/bin/python tests/bench/drain/drain.py $(if $(RUNS),--runs $(RUNS))

KVM_PLAY = ansible-playbook -i lab/kvm/inventory.yml -e @lab/kvm/parameters.yml

# LOADS=idle: only that; the writer's results stay. ADD=1 keeps the load's earlier runs. MEMORY=256: MiB of the guest.
.PHONY: bench-kvm
bench-kvm: setup ## Measure the live migration of a KVM guest, feature by feature, against plain virsh migrate
	@$(KVM_PLAY) lab/guests.yml
	@$(KVM_PLAY) lab/create.yml
	@.cache/venv/bin/python tests/bench/kvm/kvm.py $(if $(RUNS),--runs $(RUNS)) $(if $(LOADS),--loads $(LOADS)) $(if $(MEMORY),--memory $(MEMORY)) $(if $(ADD),--add); \
	status=$$?; $(if $(KEEP),,$(KVM_PLAY) lab/destroy.yml;) exit $$status

.PHONY: bench-snapshot
# ROWS="second rollback": only these; the results of the others stay. RUNS=0 only rewrites the page.
bench-snapshot: lab-images setup helper ## Measure snapshots, backups and the way back against restic, borg, cp and a move
	@$(BENCH_PLAY) lab/create.yml
	@.cache/venv/bin/python tests/bench/snapshot/snapshot.py $(if $(ROWS),--rows "$(ROWS)") $(if $(RUNS),--runs $(RUNS)); \
	status=$$?; $(if $(KEEP),,$(BENCH_PLAY) lab/destroy.yml;) exit $$status

.PHONY: bench-openvz
bench-openvz: lab-up setup helper ## Measure the downtime of an import out of OpenVZ against rsync twice by hand
	@.cache/venv/bin/python tests/bench/openvz/openvz.py $(if $(RUNS),--runs $(RUNS))

.PHONY: bench-watch
bench-watch: setup helper ## Measure the second pass over a folder of 200,000 files against rsync's
	@.cache/venv/bin/python tests/bench/watch.py $(if $(RUNS),--runs $(RUNS))

# ROWS=bluestore+100,filestore+250: a store and reads a second; CELLS=plain/held: only these; RUNS=5 of each; ADD=1 keeps the row's earlier runs.
.PHONY: bench-ceph
bench-ceph: setup helper ## Measure the restart of an OSD: held, prewarmed, cold, hot, against ceph-ansible's sequence
	@$(CEPH_PLAY) -e '{"ceph_stores": ["bluestore", "filestore-rocksdb", "bluestore", "filestore-rocksdb"], "ceph_osd_size": "12G"}' lab/ceph.yml
	@$(CEPH_PLAY) tests/bench/ready.yml
	@.cache/venv/bin/python tests/bench/ceph.py $(if $(RUNS),--runs $(RUNS)) $(if $(ROWS),--rows $(ROWS)) $(if $(CELLS),--cells "$(CELLS)") $(if $(ADD),--add); \
	status=$$?; $(if $(KEEP),,$(CEPH_PLAY) lab/destroy.yml;) exit $$status
