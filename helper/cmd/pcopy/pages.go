package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"time"

	"github.com/livefleet/handover/helper/internal/bluefs"
	"github.com/livefleet/handover/helper/internal/pagecache"
)

// held is a file whose pages are looked after, and which of them.
type held struct {
	*pagecache.File
	ranges []pagecache.Range
}

// residency is the answer about one file.
type residency struct {
	Path     string  `json:"path"`
	Size     int64   `json:"size"`
	Bytes    int64   `json:"bytes"`    // what was asked about
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
func openAll(paths []string, ranges map[string][][2]int64, whole bool) ([]held, error) {
	var all []held
	for _, path := range paths {
		f, err := pagecache.Open(path)
		if err != nil {
			closeAll(all)
			return nil, err
		}
		h := held{File: f}
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

func closeAll(all []held) {
	for _, h := range all {
		h.Close()
	}
}

func (h held) answer(read int64, began time.Time) (residency, error) {
	resident, _, err := h.Resident(h.ranges)
	return residency{h.Path(), h.Size(), pagecache.Total(h.ranges), resident, read, time.Since(began).Seconds()}, err
}

// pages tells what is in memory, or brings it there.
func pages(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("pages", flag.ContinueOnError)
	read := f.Bool("read", false, "")
	seconds := f.Float64("seconds", math.Inf(1), "")
	description := f.String("ranges", "", "")
	paths, err := parse(f, args, 1, math.MaxInt)
	if err != nil {
		return err
	}
	ctx, cancel := within(ctx, *seconds)
	defer cancel()
	ranges, err := described(*description)
	if err != nil {
		return err
	}
	all, err := openAll(paths, ranges, true)
	if err != nil {
		return err
	}
	defer closeAll(all)
	for _, h := range all {
		began := time.Now()
		var n int64
		if *read {
			n, err = h.Read(ctx, h.ranges)
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				return err
			}
		}
		answer, err := h.answer(n, began)
		if err != nil {
			return err
		}
		if err := print(answer); err != nil {
			return err
		}
	}
	return nil
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

// hold keeps files open, and so the pages of block devices in memory, for a time
// or until it is told to end.
func hold(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("hold", flag.ContinueOnError)
	seconds := f.Float64("seconds", 0, "")
	readyWithin := f.Float64("ready-within", math.Inf(1), "")
	read := f.Bool("read", false, "")
	lock := f.Bool("lock", false, "")
	description := f.String("ranges", "", "")
	home := f.String("osd", "", "")
	words, err := parse(f, args, 0, math.MaxInt)
	switch {
	case err != nil:
		return err
	case *seconds <= 0:
		return usageError("hold: --seconds is missing: say how long at most")
	case *home == "" && len(words) == 0:
		return usageError("hold: name what is to be held: files and devices, or with --osd the folder of an OSD")
	case *home != "" && *description != "":
		return usageError("hold: --ranges and --osd exclude each other: an OSD's ranges are found out")
	}
	ctx, cancel := within(ctx, *seconds)
	defer cancel()
	// Told to end, or at the end of its time, it has done what it was asked to.
	ended := func(err error) error {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	var ranges map[string][][2]int64
	if *home == "" {
		ranges, err = described(*description)
	} else {
		words, ranges, err = ofDatabase(ctx, *home, words)
	}
	if err != nil {
		return ended(err)
	}
	all, err := openAll(words, ranges, false)
	if err != nil {
		return err
	}
	defer closeAll(all)
	// What is not there when others stop waiting for it, they read by themselves.
	waited, stop := within(ctx, *readyWithin)
	defer stop()
	for _, h := range all {
		if err := h.bring(waited, *read, *lock); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return ended(err)
		}
	}
	if err := notifyReady(); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// bring reads what is held and locks it, as is asked for, and says how much of it is there.
func (h held) bring(ctx context.Context, read, lock bool) error {
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
	return errors.Join(err, print(answer))
}

// within is a context that ends after so many seconds, which may be infinite.
func within(ctx context.Context, seconds float64) (context.Context, context.CancelFunc) {
	if math.IsInf(seconds, 1) {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Duration(seconds*float64(time.Second)))
}
