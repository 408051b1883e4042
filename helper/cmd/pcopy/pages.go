package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"time"

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

// openAll opens files with their ranges. Of a file that the description does not
// name, otherwise is meant: all of it or nothing.
func openAll(paths []string, description string, whole bool) ([]held, error) {
	ranges := map[string][][2]int64{}
	if description != "" {
		text, err := os.ReadFile(description)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(text, &ranges); err != nil {
			return nil, fmt.Errorf(`%s: %w: {"PATH": [[offset, length], …]} was expected`, description, err)
		}
	}
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
	if !math.IsInf(*seconds, 1) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(*seconds*float64(time.Second)))
		defer cancel()
	}
	all, err := openAll(paths, *description, true)
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

// hold keeps files open, and so the pages of block devices in memory, for a time
// or until it is told to end.
func hold(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("hold", flag.ContinueOnError)
	seconds := f.Float64("seconds", 0, "")
	read := f.Bool("read", false, "")
	lock := f.Bool("lock", false, "")
	description := f.String("ranges", "", "")
	paths, err := parse(f, args, 1, math.MaxInt)
	if err != nil {
		return err
	}
	if *seconds <= 0 {
		return usageError("hold: --seconds is missing: say how long at most")
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(*seconds*float64(time.Second)))
	defer cancel()
	// Told to end, or at the end of its time, it has done what it was asked to.
	ended := func(err error) error {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	all, err := openAll(paths, *description, false)
	if err != nil {
		return err
	}
	defer closeAll(all)
	for _, h := range all {
		began := time.Now()
		var n int64
		if *read {
			if n, err = h.Read(ctx, h.ranges); err != nil {
				return ended(err)
			}
		}
		if *lock {
			if err := h.Lock(ctx, h.ranges); err != nil {
				return ended(err)
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
	if err := notifyReady(); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
