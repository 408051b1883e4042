package main

import (
	"path/filepath"

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
