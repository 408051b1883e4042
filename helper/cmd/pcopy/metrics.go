package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/livefleet/handover/helper/internal/session/metrics"
	"github.com/livefleet/handover/helper/internal/session/record"
)

// hostMetrics is for node_exporter's textfile collector. A timer says it, so a held session is told also where no process of it is left.
func (a hostCommands) hostMetrics() *cobra.Command {
	var root, file string
	c := &cobra.Command{Use: "metrics", Short: "Tell Prometheus of this host's sessions: held ones, pauses, failures, bytes", Args: between(0, 0), RunE: func(*cobra.Command, []string) error {
		page, err := metrics.Page(root, version)
		switch {
		case page == nil:
			return err
		case file != "":
			return errors.Join(err, metrics.Write(file, page))
		}
		_, failed := a.out.Write(page)
		return errors.Join(err, failed)
	}}
	c.Flags().StringVar(&file, "write", "", "the file in node_exporter's folder of text files, replaced as a whole")
	rootFlag(c, &root)
	return c
}

// outcome answers with a session's status, and counts a session that has ended: its folder goes soon, and with it its figures.
func (a sessionCommands) outcome(dir string, s *record.Status, err error) error {
	if s != nil && s.Ended {
		told(metrics.Count(dir))
	}
	return a.answer(s, err)
}

// told warns: an order that was carried out does not fail by a tally that cannot be written.
func told(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "pcopy:", err)
	}
}
