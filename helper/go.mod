module github.com/livefleet/handover/helper

go 1.24.0

require (
	github.com/cilium/ebpf v0.21.0
	golang.org/x/sync v0.19.0
	golang.org/x/sys v0.41.0
)
