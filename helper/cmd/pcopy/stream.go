package main

import (
	"context"
	"errors"
	"flag"
	"os"

	"github.com/livefleet/handover/helper/internal/confine"
	"github.com/livefleet/handover/helper/internal/transport"
)

// stream is the far end of a source's peer.command.
func stream(ctx context.Context, args []string) error {
	words, err := parse(flag.NewFlagSet("stream", flag.ContinueOnError), args, 1, 1)
	if err != nil {
		return err
	}
	to, err := transport.ParseAddress(words[0])
	if err != nil {
		return usageError("stream: " + err.Error())
	}
	if os.Geteuid() == 0 { // it opens nothing but the way to the session
		if err := confine.To(confine.Rules{Connect: to.Port()}); err != nil && !errors.Is(err, confine.ErrNoLandlock) {
			return err
		}
	}
	return transport.Carry(ctx, to)
}

// runWay starts a source's peer.command for it. What it starts has all that root has;
// it needs nothing of that itself.
func runWay(_ context.Context, args []string) error {
	if err := confine.Lower(); err != nil {
		return err
	}
	return transport.Run(args)
}
