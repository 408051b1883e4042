package main

import (
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/session/recovery"
)

// unitMayStart is the ExecCondition= of a unit whose container is being moved.
func (a internalCommands) unitMayStart() *cobra.Command {
	return &cobra.Command{Use: "unit-may-start ROLE SESSION", Short: "Whether a unit may start the container that a session moves", Args: between(2, 2), RunE: func(c *cobra.Command, args []string) error {
		role := record.Role(args[0])
		if role != record.Source && role != record.Destination {
			return usageError("unit-may-start: the role is source or destination, and not " + args[0])
		}
		return recovery.UnitMayStart(c.Context(), args[1], record.RunDir, role)
	}}
}

// within has a command run as a part of a unit.
func (a internalCommands) within() *cobra.Command {
	return &cobra.Command{Use: "within CGROUP PROGRAM ARGUMENT…", Short: "Become a program in the cgroup of a unit", DisableFlagParsing: true, RunE: func(_ *cobra.Command, args []string) error {
		if len(args) < 2 || !filepath.IsAbs(args[0]) || !filepath.IsAbs(args[1]) {
			return usageError("within: a cgroup's folder and a program are needed, each by its whole path")
		}
		return hooks.Within(args[0], args[1:])
	}}
}

// inTurn runs commands for the members of a workload.
func (a internalCommands) inTurn() *cobra.Command {
	return &cobra.Command{Use: "in-turn WORKLOAD PROGRAM ARGUMENT… -- NAME… [--- PROGRAM ARGUMENT… -- NAME…]", Short: "Run programs for the members of a workload, one after the other", DisableFlagParsing: true, RunE: func(c *cobra.Command, args []string) error {
		var turns []hooks.Turn
		for rest := args[min(1, len(args)):]; len(rest) > 0; {
			part := rest
			if end := slices.Index(rest, "---"); end >= 0 {
				part, rest = rest[:end], rest[end+1:]
			} else {
				rest = nil
			}
			dash := slices.Index(part, "--")
			if dash < 1 || !filepath.IsAbs(part[0]) {
				return usageError("in-turn: a program by its whole path is needed, and behind -- the names of members")
			}
			turns = append(turns, hooks.Turn{Argv: part[:dash], Members: part[dash+1:]})
		}
		if len(turns) == 0 {
			return usageError("in-turn: a workload and a program are needed")
		}
		return hooks.InTurn(c.Context(), record.RunDir, args[0], turns)
	}}
}
