package main

import (
	"context"
	"flag"
	"math"

	"github.com/livefleet/handover/helper/internal/bluefs"
)

// bluefsLayout tells where on its devices an OSD keeps its database.
func bluefsLayout(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("bluefs", flag.ContinueOnError)
	home := f.String("home", "", "")
	work := f.String("work", "/run", "")
	inside := f.String("inside", "", "")
	tool, err := parse(f, args, 0, math.MaxInt)
	if err != nil {
		return err
	}
	if *home == "" {
		return usageError("usage: pcopy bluefs --home DIR [--work DIR [--inside DIR]] [TOOL WORD…]")
	}
	if *inside == "" {
		*inside = *work
	}
	layout, err := bluefs.Read(ctx, *home, *work, *inside, tool)
	if err != nil {
		return err
	}
	return print(layout)
}
