package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"syscall"

	"github.com/livefleet/handover/helper/internal/session"
)

// What the restore command of the driver's table has in its environment.
const (
	netavarkEnv = "HANDOVER_NETAVARK" // podman's own netavark
	gateEnv     = "HANDOVER_GATE"     // the directory of CRIU's images
)

// netavark stands in for podman's program of that name while a workload is
// restored: before the first interface is made, the namespace is made silent. In
// everything else it is that program. What it says of its own failures is in
// netavark's words, since podman shows these to the user.
//
// The environment stays with what podman starts, for as long as the workload
// runs: without a session that waits, this does nothing.
func netavark(_ context.Context, args []string) error {
	real := os.Getenv(netavarkEnv)
	if real == "" {
		return usageError("netavark is called by podman, when pcopy has it restore a workload")
	}
	if err := silenceFirst(args); err != nil {
		_ = json.NewEncoder(os.Stdout).Encode(map[string]string{"error": err.Error()})
		os.Exit(1)
	}
	if err := syscall.Exec(real, append([]string{real}, args...), os.Environ()); err != nil {
		return fmt.Errorf("netavark: %s: %w", real, err)
	}
	return nil
}

func silenceFirst(args []string) error {
	verb := slices.Index(args, "setup")
	if verb < 0 || verb+1 >= len(args) || os.Getenv(gateEnv) == "" {
		return nil
	}
	return session.SetUpNetwork(session.RunDir, os.Getenv(gateEnv), args[verb+1])
}
