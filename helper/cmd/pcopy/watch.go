package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/livefleet/handover/helper/internal/follow"
	"github.com/livefleet/handover/helper/internal/session"
)

// watching is what `watch run` says when nothing is missed any more.
const watching = "watching"

// watchStart has `watch run` go on in the background.
func watchStart(_ context.Context, args []string) error {
	words, err := parse(flag.NewFlagSet("watch start", flag.ContinueOnError), args, 1, 1)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	run := exec.Command(self, "watch", "run", words[0])
	run.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := run.StdoutPipe()
	if err != nil {
		return err
	}
	var said strings.Builder
	run.Stderr = &said
	if err := run.Start(); err != nil {
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err == nil && strings.TrimSpace(line) == watching {
		return nil
	}
	if err := run.Wait(); said.Len() == 0 {
		return fmt.Errorf("watch: `pcopy watch run` ended at once: %w", err)
	}
	return errors.New(strings.TrimPrefix(strings.TrimSpace(said.String()), "pcopy: "))
}

func watchRun(ctx context.Context, args []string) error {
	words, err := parse(flag.NewFlagSet("watch run", flag.ContinueOnError), args, 1, 1)
	if err != nil {
		return err
	}
	return follow.Serve(ctx, session.RunDir, words[0], func() error {
		_, err := fmt.Println(watching)
		return err
	})
}

func watchList(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("watch list", flag.ContinueOnError)
	null := f.Bool("null", false, "")
	words, err := parse(f, args, 1, 1)
	if err != nil {
		return err
	}
	names, err := follow.List(ctx, session.RunDir, words[0])
	if err != nil {
		return err
	}
	end := "\n"
	if *null {
		end = "\x00"
	}
	w := bufio.NewWriter(os.Stdout)
	for _, name := range names {
		if _, err := io.WriteString(w, name+end); err != nil {
			return err
		}
	}
	return w.Flush()
}

func watchStop(ctx context.Context, args []string) error {
	words, err := parse(flag.NewFlagSet("watch stop", flag.ContinueOnError), args, 1, 1)
	if err != nil {
		return err
	}
	return follow.Stop(ctx, session.RunDir, words[0])
}
