package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/livefleet/handover/helper/internal/network"
)

// acceptLimit is how long a workload may take to accept those that wait for it.
const acceptLimit = time.Second

func (a *app) shutDoor() *cobra.Command {
	var namespace string
	c := &cobra.Command{
		Use: "shut-door --namespace PATH -- COMMAND…", Short: "Run a command that dumps a workload while no new connection reaches it", Args: between(1, -1),
		RunE: func(c *cobra.Command, args []string) error {
			err := network.BehindShutDoor(c.Context(), namespace, acceptLimit, func() error { return runToItsEnd(c.Context(), args) })
			var failed *exec.ExitError
			if errors.As(err, &failed) && failed.Exited() { // it has said why
				os.Exit(failed.ExitCode())
			}
			return err
		},
	}
	c.Flags().StringVar(&namespace, "namespace", "", "the workload's network namespace")
	_ = c.MarkFlagRequired("namespace")
	return c
}

// runToItsEnd runs a command, which is asked to end when this program is, and waits for it.
func runToItsEnd(ctx context.Context, argv []string) error {
	command := exec.CommandContext(ctx, argv[0], argv[1:]...)
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s: %w", argv[0], err)
	}
	return nil
}
