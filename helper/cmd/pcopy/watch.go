package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/watchd"
)

// watching is the output of `watch run` when no touched entry is missed any more.
const watching = "watching"

type watchCommands struct{ *app }

func (a watchCommands) watch() *cobra.Command {
	g := group("watch", "Record the files below a folder that are touched, for a second rsync that costs only these",
		a.watchStart(), a.watchRun(), a.watchList(), a.watchStop())
	g.Example = `  pcopy watch start /srv/files
  rsync --archive /srv/files/ backup:/srv/files/
  pcopy watch list --null /srv/files | rsync --archive --from0 --files-from=- /srv/files/ backup:/srv/files/`
	return g
}

// watchStart has `watch run` go on in the background.
func (a watchCommands) watchStart() *cobra.Command {
	return &cobra.Command{Use: "start DIR", Short: "Record in the background every file below a folder that is touched", Args: between(1, 1), RunE: func(_ *cobra.Command, args []string) error {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		run := exec.Command(self, "watch", "run", args[0])
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
	}}
}

func (a watchCommands) watchRun() *cobra.Command {
	return &cobra.Command{Use: "run DIR", Short: "Record in the foreground every file below a folder that is touched", Args: between(1, 1), RunE: func(c *cobra.Command, args []string) error {
		return watchd.Serve(c.Context(), record.RunDir, args[0], func() error {
			_, err := fmt.Fprintln(a.out, watching)
			return err
		})
	}}
}

func (a watchCommands) watchList() *cobra.Command {
	var null bool
	c := &cobra.Command{Use: "list DIR", Short: "List the names that were touched since the last list, for rsync --files-from", Args: between(1, 1), RunE: func(c *cobra.Command, args []string) error {
		names, err := watchd.List(c.Context(), record.RunDir, args[0])
		if err != nil {
			return err
		}
		end := "\n"
		if null {
			end = "\x00"
		}
		w := bufio.NewWriter(a.out)
		for _, name := range names {
			if _, err := io.WriteString(w, name+end); err != nil {
				return err
			}
		}
		return w.Flush()
	}}
	c.Flags().BoolVar(&null, "null", false, "end each name with a zero byte, for rsync --from0")
	return c
}

func (a watchCommands) watchStop() *cobra.Command {
	return &cobra.Command{Use: "stop DIR", Short: "End the recording", Args: between(1, 1), RunE: func(c *cobra.Command, args []string) error {
		return watchd.Stop(c.Context(), record.RunDir, args[0])
	}}
}
