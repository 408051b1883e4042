package undump

import (
	"fmt"

	"github.com/livefleet/handover/helper/internal/report"
)

// Tell writes what was put back to the session's events, and what could not be.
func (r Report) Tell(log *report.Log, err error) {
	if r.Any() {
		log.Emit("put_back", map[string]any{"waits": r.Waits, "lost": r.Lost, "terminals": r.Terminals, "bytes": r.Bytes})
	}
	if err != nil {
		log.Emit("warning", map[string]any{"text": fmt.Sprintf("the workload runs on, and is not all as it was before the dump: %v", err)})
	}
}
