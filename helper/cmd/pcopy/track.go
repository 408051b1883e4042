package main

import (
	"context"
	"errors"
	"flag"
	"fmt"

	"github.com/livefleet/handover/helper/internal/blockmap"
	"github.com/livefleet/handover/helper/internal/changes"
)

// tracked opens the trackers of this host for one call.
func tracked(root string, do func(*changes.Store) (any, error)) error {
	s, err := changes.Open(root, "")
	if err != nil {
		return err
	}
	answer, err := do(s)
	if err = errors.Join(err, s.Close()); err != nil || answer == nil {
		return err
	}
	return print(answer)
}

// trackFlags are the flags of one track command, with the one that all have.
func trackFlags(name string) (*flag.FlagSet, *string) {
	f := flag.NewFlagSet("track "+name, flag.ContinueOnError)
	return f, f.String("root", changes.Root, "")
}

func trackStart(_ context.Context, args []string) error {
	f, root := trackFlags("start")
	name := f.String("name", "", "")
	cluster := f.Int("cluster", changes.DefaultCluster, "")
	words, err := parse(f, args, 1, 1)
	if err != nil {
		return err
	}
	if err := blockmap.CheckCluster(*cluster); err != nil {
		return usageError(fmt.Sprintf("track start: --cluster: %v", err))
	}
	return tracked(*root, func(s *changes.Store) (any, error) { return s.Start(words[0], *name, *cluster) })
}

func trackList(_ context.Context, args []string) error {
	f, root := trackFlags("list")
	if _, err := parse(f, args, 0, 0); err != nil {
		return err
	}
	return tracked(*root, func(s *changes.Store) (any, error) { return s.List() })
}

func trackSwap(_ context.Context, args []string) error {
	f, root := trackFlags("swap")
	file := f.String("bitmap", "", "")
	again := f.Bool("again", false, "")
	words, err := parse(f, args, 1, 1)
	if err != nil {
		return err
	}
	if *file == "" {
		return usageError("track swap: --bitmap is missing: what is taken has to be kept somewhere")
	}
	return tracked(*root, func(s *changes.Store) (any, error) { return s.Swap(words[0], *file, *again) })
}

func trackExport(_ context.Context, args []string) error {
	f, root := trackFlags("export")
	file := f.String("bitmap", "", "")
	words, err := parse(f, args, 1, 1)
	if err != nil {
		return err
	}
	if *file == "" {
		return usageError("track export: --bitmap is missing")
	}
	return tracked(*root, func(s *changes.Store) (any, error) { return s.Export(words[0], *file) })
}

func trackStop(_ context.Context, args []string) error {
	f, root := trackFlags("stop")
	words, err := parse(f, args, 1, 1)
	if err != nil {
		return err
	}
	return tracked(*root, func(s *changes.Store) (any, error) { return nil, s.Stop(words[0]) })
}

func showBitmap(_ context.Context, args []string) error {
	f := flag.NewFlagSet("bitmap", flag.ContinueOnError)
	extents := f.Bool("extents", false, "")
	words, err := parse(f, args, 1, 1)
	if err != nil {
		return err
	}
	b, err := changes.ReadBitmap(words[0])
	if err != nil {
		return err
	}
	if !*extents {
		return print(b.Header)
	}
	for off, n := range b.Extents() {
		fmt.Println(off, n)
	}
	return nil
}
