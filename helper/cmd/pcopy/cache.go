package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/livefleet/handover/helper/internal/bluefs"
	"github.com/livefleet/handover/helper/internal/pagecache"
)

// cached is a file whose pages are looked after, and which of them.
type cached struct {
	*pagecache.File
	ranges []pagecache.Range
}

// residency is the answer about one file.
type residency struct {
	Path     string  `json:"path"`
	Size     int64   `json:"size"`
	Bytes    int64   `json:"bytes"`    // of all requested ranges
	Resident int64   `json:"resident"` // how much of it is in memory now
	Read     int64   `json:"read"`     // how much had to be read for that
	Seconds  float64 `json:"seconds"`
}

// described reads which ranges of which file are meant; without a description
// none are.
func described(description string) (map[string][][2]int64, error) {
	if description == "" {
		return nil, nil
	}
	text, err := os.ReadFile(description)
	if err != nil {
		return nil, err
	}
	var ranges map[string][][2]int64
	if err := json.Unmarshal(text, &ranges); err != nil {
		return nil, fmt.Errorf(`%s: %w: {"PATH": [[offset, length], …]} was expected`, description, err)
	}
	return ranges, nil
}

// openAll opens files with their ranges. Of a file that has none, all is meant
// or nothing.
func openAll(paths []string, ranges map[string][][2]int64, whole bool) ([]cached, error) {
	var all []cached
	for _, path := range paths {
		f, err := pagecache.Open(path)
		if err != nil {
			closeAll(all)
			return nil, err
		}
		h := cached{File: f}
		named, ok := ranges[path]
		for _, r := range named {
			h.ranges = append(h.ranges, pagecache.Range{Offset: r[0], Length: r[1]})
		}
		if !ok && whole {
			h.ranges = f.Whole()
		}
		h.ranges = f.Clip(h.ranges)
		all = append(all, h)
	}
	return all, nil
}

func closeAll(all []cached) {
	for _, h := range all {
		h.Close()
	}
}

func (h cached) answer(read int64, began time.Time) (residency, error) {
	resident, _, err := h.Resident(h.ranges)
	return residency{h.Path(), h.Size(), pagecache.Total(h.ranges), resident, read, time.Since(began).Seconds()}, err
}

type cacheCommands struct{ *app }

func (a cacheCommands) cache() *cobra.Command {
	g := group("cache", "Look at the page cache, fill it, and keep it", a.cacheShow(), a.cachePin())
	g.Example = `  pcopy cache show --read /var/lib/mysql/ibdata1
  pcopy cache pin --seconds 3600 --read --lock /dev/vdb`
	return g
}

func rangesFlag(c *cobra.Command, description *string) {
	c.Flags().StringVar(description, "ranges", "", `a file that names parts of the files, as {"PATH": [[offset, length], …]}`)
}

// cacheShow tells how much is in memory, or brings it there.
func (a cacheCommands) cacheShow() *cobra.Command {
	var read bool
	var seconds float64
	var description string
	c := &cobra.Command{Use: "show PATH…", Short: "Tell how much of files or block devices is in memory, or bring it there", Args: between(1, -1), RunE: func(c *cobra.Command, args []string) error {
		ctx, cancel := within(c.Context(), seconds)
		defer cancel()
		ranges, err := described(description)
		if err != nil {
			return err
		}
		all, err := openAll(args, ranges, true)
		if err != nil {
			return err
		}
		defer closeAll(all)
		for _, h := range all {
			began := time.Now()
			var n int64
			if read {
				n, err = h.Read(ctx, h.ranges)
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					return err
				}
			}
			answer, err := h.answer(n, began)
			if err != nil {
				return err
			}
			if err := a.print(answer); err != nil {
				return err
			}
		}
		return nil
	}}
	c.Flags().BoolVar(&read, "read", false, "read the parts that are not in memory")
	c.Flags().Float64Var(&seconds, "seconds", math.Inf(1), "read for so many seconds at most")
	rangesFlag(c, &description)
	return c
}

// ofDatabase is where an OSD has its database now: its devices, and the ranges.
func ofDatabase(ctx context.Context, home string, tool []string) ([]string, map[string][][2]int64, error) {
	layout, err := bluefs.Read(ctx, home, "/run", "/run", tool)
	if err != nil {
		return nil, nil, err
	}
	ranges := map[string][][2]int64{}
	for device, extents := range layout.Devices {
		for _, e := range extents {
			ranges[device] = append(ranges[device], e)
		}
	}
	return slices.Sorted(maps.Keys(ranges)), ranges, nil
}

// pinning are the flags of cache pin.
type pinning struct {
	seconds, readyWithin float64
	read, lock           bool
	description, osd     string
}

// cachePin keeps files open, and so the pages of block devices in memory, for a time
// or until it is told to end.
func (a cacheCommands) cachePin() *cobra.Command {
	var h pinning
	c := &cobra.Command{Use: "pin --seconds N (PATH… | --osd DIR [TOOL WORD…])", Aliases: []string{"hold"}, Short: "Keep files open, and so the pages of block devices in memory", RunE: func(c *cobra.Command, args []string) error {
		switch {
		case h.seconds <= 0:
			return usageError("pin: --seconds is missing: say how long at most")
		case h.osd == "" && len(args) == 0:
			return usageError("pin: name the files and devices that are to be kept, or with --osd the folder of an OSD")
		case h.osd != "" && h.description != "":
			return usageError("pin: --ranges and --osd exclude each other: an OSD's ranges are found out")
		}
		return a.pin(c.Context(), h, args)
	}}
	f := c.Flags()
	f.Float64Var(&h.seconds, "seconds", 0, "end after so many seconds")
	f.Float64Var(&h.readyWithin, "ready-within-seconds", math.Inf(1), "tell systemd that it is ready after so many seconds, also while it still reads")
	f.BoolVar(&h.read, "read", false, "read the parts that are not in memory")
	f.BoolVar(&h.lock, "lock", false, "lock the pages in memory")
	f.StringVar(&h.osd, "osd", "", "keep the database of the OSD in this folder; the words are the tool that reads its layout")
	rangesFlag(c, &h.description)
	return c
}

func (a cacheCommands) pin(ctx context.Context, asked pinning, paths []string) error {
	ctx, cancel := within(ctx, asked.seconds)
	defer cancel()
	// Ended by a signal, or by its time limit, it has done its work.
	ended := func(err error) error {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	var ranges map[string][][2]int64
	var err error
	if asked.osd == "" {
		ranges, err = described(asked.description)
	} else {
		paths, ranges, err = ofDatabase(ctx, asked.osd, paths)
	}
	if err != nil {
		return ended(err)
	}
	all, err := openAll(paths, ranges, false)
	if err != nil {
		return err
	}
	defer closeAll(all)
	// The OSD itself reads the parts that are missing when it stops waiting.
	waited, stop := within(ctx, asked.readyWithin)
	defer stop()
	for _, h := range all {
		if err := a.bring(waited, h, asked.read, asked.lock); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return ended(err)
		}
	}
	if err := notifyReady(); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// bring reads the ranges and locks them, as requested, and says how much of them is
// there.
func (a cacheCommands) bring(ctx context.Context, h cached, read, lock bool) error {
	began := time.Now()
	var n int64
	var err error
	if read {
		n, err = h.Read(ctx, h.ranges)
	}
	if err == nil && lock {
		err = h.Lock(ctx, h.ranges)
	}
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	answer, failed := h.answer(n, began)
	if failed != nil {
		return failed
	}
	return errors.Join(err, a.print(answer))
}

// within is a context that ends after so many seconds, which may be infinite.
func within(ctx context.Context, seconds float64) (context.Context, context.CancelFunc) {
	if math.IsInf(seconds, 1) {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Duration(seconds*float64(time.Second)))
}
