package main

import (
	"context"
	"flag"
	"fmt"
	"math"
	"runtime"

	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/session"
	"github.com/livefleet/handover/helper/internal/wire"
)

func fdatasync(_ context.Context, args []string) error {
	f := flag.NewFlagSet("fdatasync", flag.ContinueOnError)
	dontneed := f.Bool("dontneed", false, "")
	paths, err := parse(f, args, 1, math.MaxInt)
	if err != nil {
		return err
	}
	for _, p := range paths {
		if err := image.Datasync(p, *dontneed); err != nil {
			return err
		}
	}
	return nil
}

func digest(ctx context.Context, args []string) error {
	paths, err := parse(flag.NewFlagSet("digest", flag.ContinueOnError), args, 1, math.MaxInt)
	if err != nil {
		return err
	}
	for _, p := range paths {
		src, err := image.OpenSource(p)
		if err != nil {
			return err
		}
		d, err := image.Digest(ctx, src, src.Size(), session.DefaultCluster)
		src.Close()
		if err != nil {
			return err
		}
		if err := print(struct {
			Path string `json:"path"`
			image.Root
		}{p, d.Root()}); err != nil {
			return err
		}
	}
	return nil
}

func showVersion(_ context.Context, args []string) error {
	f := flag.NewFlagSet("version", flag.ContinueOnError)
	asJSON := f.Bool("json", false, "")
	if _, err := parse(f, args, 0, 0); err != nil {
		return err
	}
	if *asJSON {
		return print(map[string]any{"version": version, "protocol": wire.MaxVersion, "arch": runtime.GOARCH, "go": runtime.Version()})
	}
	fmt.Printf("pcopy %s (protocol %d, %s, %s)\n", version, wire.MaxVersion, runtime.GOARCH, runtime.Version())
	return nil
}
