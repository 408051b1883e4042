package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/session/recovery"
)

// runtimePatience bounds the answer to a runtime, as podman's hook has its own bound.
const runtimePatience = 30 * time.Second

// runcHook says whether a container may be created, to the gate that stands before
// runc where an engine has no hooks: Docker. It is called with runc's own words.
func (a internalCommands) runcHook() *cobra.Command {
	return &cobra.Command{Use: "runc-hook WORD…", Short: "The gate before runc creates a container", DisableFlagParsing: true, RunE: func(c *cobra.Command, args []string) error {
		ctx, cancel := context.WithTimeout(c.Context(), runtimePatience)
		defer cancel()
		return mayCreate(ctx, args, sessionsDir, record.RunDir)
	}}
}

// mayCreate is an error for a container that must not start here. Docker shows the
// user the last error in runc's log, so the sentence is written there, too.
func mayCreate(ctx context.Context, words []string, root, runDir string) error {
	bundle := option(words, "--bundle", "-b")
	err := errors.New("session: runc was not told the bundle of the container, so it is not known whether it may start")
	if bundle != "" {
		err = recovery.MayStart(ctx, root, runDir, &recovery.OCIState{Bundle: bundle})
	}
	if err == nil {
		return nil
	}
	return errors.Join(err, noteIn(option(words, "--log"), err))
}

// option is the value of one of runc's options by any of its names.
func option(words []string, names ...string) string {
	for i, word := range words {
		for _, name := range names {
			if word == name && i+1 < len(words) {
				return words[i+1]
			}
			if value, ok := strings.CutPrefix(word, name+"="); ok {
				return value
			}
		}
	}
	return ""
}

// noteIn adds a line to runc's log in runc's own form.
func noteIn(log string, why error) error {
	if log == "" {
		return nil
	}
	line, err := json.Marshal(map[string]string{"level": "error", "msg": why.Error(), "time": time.Now().UTC().Format(time.RFC3339)})
	if err != nil {
		return err
	}
	f, err := os.OpenFile(log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("runc's log: %w", err)
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}
