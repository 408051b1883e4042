package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/livefleet/handover/helper/internal/affinity"
	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/report"
	"github.com/livefleet/handover/helper/internal/session/record"
)

// BoundThreads are the processors that the workload's threads are bound to, when they
// stand still: a look beside the dump.
func BoundThreads(f *hooks.Command) (affinity.Threads, error) {
	if !f.Given() || f.Gate == "" || f.Cgroup == "" {
		return nil, nil
	}
	threads, err := affinity.Read(string(f.Cgroup))
	if err != nil {
		return nil, fmt.Errorf("session: the processors of the workload's threads: %w", err)
	}
	return threads, nil
}

// boundFile is their place in the folder of a member's dump: threads of several members have the same numbers.
const boundFile = "handover-bound.json"

// WriteBound lays those of a member down beside its dump.
func WriteBound(part record.Member, dir string) error {
	if part.Name == "" {
		return nil
	}
	threads, err := BoundThreads(part.Freeze)
	if err != nil || len(threads) == 0 {
		return err
	}
	b, err := json.Marshal(threads)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, boundFile), b, 0o600)
	}
	if err != nil {
		return fmt.Errorf("session: %w", err)
	}
	return nil
}

// readBound reads them on the destination.
func (r *criuRestore) readBound() error {
	if r.part.Name == "" {
		return nil
	}
	b, err := os.ReadFile(filepath.Join(r.h.Restore.Gate, boundFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(b, &r.threads)
	}
	if err != nil {
		return fmt.Errorf("session: %w", err)
	}
	return nil
}

// bindThreads binds the threads of the restored tasks, which have not run yet.
func (r *criuRestore) bindThreads() error {
	if err := r.readBound(); err != nil {
		return err
	}
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
