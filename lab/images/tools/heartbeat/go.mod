module github.com/livefleet/handover/lab/heartbeat

go 1.24
