package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/report"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/snapshot"
)

// readMemory reads how a workload's memory is dumped.
func readMemory(path string) (*snapshot.Memory, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var m snapshot.Memory
	d := json.NewDecoder(f)
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return nil, usageError(fmt.Sprintf("--memory %s: %v", path, err))
	}
	if err := m.Check(); err != nil {
		return nil, usageError(fmt.Sprintf("--memory %s: %v", path, err))
	}
	return &m, nil
}

// memoryCommands are the words of dumps after which the workload runs on.
type memoryCommands struct{ *app }

func (a memoryCommands) commands() []*cobra.Command {
	return []*cobra.Command{a.stayBehind(), a.dumpInPlace(), a.letRun()}
}

func (a memoryCommands) stayBehind() *cobra.Command {
	return &cobra.Command{Use: hooks.StayWord + " GATE", Short: "Let tasks that were dumped where they are run on when CRIU, which is file 3, has ended", Args: between(1, 1), RunE: func(_ *cobra.Command, args []string) error {
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		gate, err := hooks.ReadStaying(args[0])
		if err != nil {
			return err
		}
		return gate.StayWhenGone()
	}}
}

// dumpInPlace takes the memory of a workload that has no disks.
func (a memoryCommands) dumpInPlace() *cobra.Command {
	var limit time.Duration
	c := &cobra.Command{Use: "dump-in-place FILE", Short: "Dump a workload that runs on where it stood, as FILE says", Args: between(1, 1), RunE: func(c *cobra.Command, args []string) error {
		m, err := readMemory(args[0])
		if err != nil {
			return err
		}
		stood, err := snapshot.TakeMemory(c.Context(), m, record.RunDir, limit)
		if err != nil {
			return err
		}
		return a.print(struct {
			FrozenMS float64            `json:"frozen_ms"`
			Took     map[string]float64 `json:"frozen_took"`
		}{report.MS(stood.For), stood.Took})
	}}
	c.Flags().DurationVar(&limit, "freeze-limit", 10*time.Second, "how long the workload may stand still beside its dump")
	return c
}

// letRun ends a dump in place of which all processes were killed.
func (a memoryCommands) letRun() *cobra.Command {
	return &cobra.Command{Use: "let-run FILE", Short: "Let a workload run on that a killed dump-in-place has left standing still", Args: between(1, 1), RunE: func(_ *cobra.Command, args []string) error {
		m, err := readMemory(args[0])
		if err != nil {
			return err
		}
		if err := m.LetRun(record.RunDir); err != nil {
			return err
		}
		return a.print(struct{}{})
	}}
}
