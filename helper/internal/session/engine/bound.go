package engine

import (
	"fmt"
	"time"

	"github.com/livefleet/handover/helper/internal/affinity"
	"github.com/livefleet/handover/helper/internal/report"
	"github.com/livefleet/handover/helper/internal/session/record"
)

// BoundThreads are the processors that the workload's threads are bound to, when they
// stand still: a look beside the dump.
func BoundThreads(spec *record.Spec) (affinity.Threads, error) {
	f := spec.Hooks.Freeze
	if !f.Given() || f.Gate == "" || f.Cgroup == "" {
		return nil, nil
	}
	threads, err := affinity.Read(string(f.Cgroup))
	if err != nil {
		return nil, fmt.Errorf("session: the processors of the workload's threads: %w", err)
	}
	return threads, nil
}

// bindThreads binds the threads of the restored tasks, which have not run yet.
func (r *criuRestore) bindThreads() error {
	if len(r.threads) == 0 {
		return nil
	}
	began := time.Now()
	unbound, err := r.threads.Bind(r.gate.Root())
	if err != nil {
		return fmt.Errorf("session: %w", err)
	}
	if len(unbound) > 0 {
		r.Log.Emit("warning", map[string]any{"text": fmt.Sprintf("threads %v are bound to none: this host has no processor of theirs", unbound)})
	}
	r.Log.Emit("bound", map[string]any{"threads": len(r.threads), "took": map[string]float64{"bind": report.MS(time.Since(began))}})
	return nil
}
