package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
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
		return saidInLog(args, mayCreate(ctx, args, sessionsDir, record.RunDir))
	}}
}

// runcRestore is the gate before runc restores a container, and becomes runc. It is
// called with runc's own words, and with the real one in PATH.
func (a internalCommands) runcRestore() *cobra.Command {
	return &cobra.Command{Use: "runc-restore WORD…", Short: "The gate before runc restores a container", DisableFlagParsing: true, RunE: func(c *cobra.Command, args []string) error {
		ctx, cancel := context.WithTimeout(c.Context(), runtimePatience)
		defer cancel()
		words, hold, err := restoring(ctx, args, sessionsDir, record.RunDir)
		if err != nil {
			return saidInLog(args, err)
		}
		runc, err := exec.LookPath("runc")
		if err != nil {
			return saidInLog(args, err)
		}
		if hold != "" {
			if err := os.Setenv("PATH", hold+string(filepath.ListSeparator)+os.Getenv("PATH")); err != nil {
				return err
			}
		}
		return saidInLog(args, syscall.Exec(runc, append([]string{"runc"}, words...), os.Environ()))
	}}
}

// runcEntered is the hook that runcRestore gives to a container: see recovery.Enter.
func (a internalCommands) runcEntered() *cobra.Command {
	return &cobra.Command{Use: "runc-entered", Short: "The hook of a container that runc restores", Args: between(0, 0), RunE: func(c *cobra.Command, _ []string) error {
		state, err := recovery.ReadOCIState(os.Stdin)
		if err != nil {
			return err
		}
		state.Restores = true
		return recovery.Enter(c.Context(), sessionsDir, record.RunDir, state)
	}}
}

func mayCreate(ctx context.Context, words []string, root, runDir string) error {
	bundle, err := bundleOf(words)
	if err != nil {
		return err
	}
	memory, err := recovery.GoesBack(runDir, bundle)
	if err != nil {
		return err
	}
	if memory != nil {
		return errors.New("session: the container goes back to the memory of a snapshot, and is not started beside it: wait for the end of that")
	}
	state := &recovery.OCIState{Bundle: bundle}
	if err := recovery.MayCreate(ctx, root, runDir, state); err != nil {
		return err
	}
	return recovery.BringAddresses(root, runDir, state)
}

// restoring are the words with which runc restores a container, and the folder in front of
// PATH that stands in for CRIU. For a session they are its own: the images are where that
// has them and not where the engine has copied them to, and the network is the helper's
// before it is the engine's.
func restoring(ctx context.Context, words []string, root, runDir string) (changed []string, hold string, err error) {
	bundle, err := bundleOf(words)
	if err != nil {
		return nil, "", err
	}
	spec, err := recovery.Restoring(root, runDir, bundle)
	if err != nil {
		return nil, "", err
	}
	if spec == nil {
		changed, err = withoutSession(ctx, words, bundle, root, runDir)
		return changed, "", err
	}
	r := spec.Hooks.Restore
	return restoreWords(words, r.Gate, filepath.Dir(r.Log)), r.Hold, enterFirst(filepath.Join(bundle, "config.json"))
}

// withoutSession are the words of a restore that is no session's: of a container that goes
// back to the memory of a snapshot with those images, and else an operator's own.
func withoutSession(ctx context.Context, words []string, bundle, root, runDir string) ([]string, error) {
	state := &recovery.OCIState{Bundle: bundle, Restores: true}
	if err := recovery.MayStart(ctx, root, runDir, state); err != nil {
		return nil, err
	}
	if err := recovery.BringAddresses(root, runDir, state); err != nil {
		return nil, err
	}
	memory, err := recovery.GoesBack(runDir, bundle)
	if err != nil || memory == nil {
		return words, err
	}
	return restoreWords(words, memory.Images, memory.Work), nil
}

// restoreWords are runc's words with other images, and with all that a session carries.
func restoreWords(words []string, images, work string) (changed []string) {
	for i := 0; i < len(words); i++ {
		switch words[i] {
		case "restore":
			changed = append(changed, words[i], "--image-path", images, "--work-path", work, "--tcp-established", "--file-locks")
		case "--image-path", "--work-path":
			i++
		default:
			changed = append(changed, words[i])
		}
	}
	return changed
}

// enterFirst puts the helper's hook before the engine's own in a bundle's configuration.
func enterFirst(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("the container's bundle: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var config map[string]any
	if err := d.Decode(&config); err != nil {
		return fmt.Errorf("%s is damaged: %w", path, err)
	}
	own, err := os.Executable()
	if err != nil {
		return err
	}
	hooks, _ := config["hooks"].(map[string]any)
	if hooks == nil {
		hooks = map[string]any{}
	}
	before, _ := hooks["prestart"].([]any)
	first := map[string]any{"path": own, "args": []string{"pcopy", "internal", "runc-entered"}, "timeout": int(runtimePatience.Seconds())}
	hooks["prestart"] = append([]any{first}, before...)
	config["hooks"] = hooks
	if b, err = json.Marshal(config); err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o600)
}

// bundleOf is the bundle that runc was told.
func bundleOf(words []string) (string, error) {
	if bundle := option(words, "--bundle", "-b"); bundle != "" {
		return bundle, nil
	}
	return "", errors.New("session: runc was not told the bundle of the container, so it is not known whether it may start")
}

// saidInLog writes an error to runc's log, too: Docker shows the user the last one in it.
func saidInLog(words []string, err error) error {
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
