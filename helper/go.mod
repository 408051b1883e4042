module github.com/livefleet/handover/helper

go 1.25

require (
	github.com/cilium/ebpf v0.21.0
	github.com/klauspost/compress v1.20.3
	github.com/pierrec/lz4/v4 v4.1.33
	golang.org/x/sync v0.19.0
	golang.org/x/sys v0.41.0
)
