package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/livefleet/handover/helper/internal/image/convert"
	"github.com/livefleet/handover/helper/internal/image/ploop"
)

func imageInfo(_ context.Context, args []string) error {
	f := flag.NewFlagSet("image info", flag.ContinueOnError)
	snapshot := f.String("snapshot", "", "")
	words, err := parse(f, args, 1, 1)
	if err != nil {
		return err
	}
	img, info, err := ploop.Open(words[0], *snapshot)
	if err != nil {
		return err
	}
	return errors.Join(print(info), img.Close())
}

func imageCheck(_ context.Context, args []string) error {
	f := flag.NewFlagSet("image check", flag.ContinueOnError)
	snapshot := f.String("snapshot", "", "")
	words, err := parse(f, args, 1, 1)
	if err != nil {
		return err
	}
	info, found := ploop.Check(words[0], *snapshot)
	bad := slices.ContainsFunc(found, func(f ploop.Finding) bool { return f.Level == ploop.Error })
	err = print(struct {
		*ploop.Info
		OK       bool            `json:"ok"`
		Findings []ploop.Finding `json:"findings"`
	}{info, !bad, found})
	if err == nil && bad {
		err = fmt.Errorf("image check: %s: the image is damaged, see the findings", words[0])
	}
	return err
}

// writing adds the flags of those who write a new image.
func writing(f *flag.FlagSet) (format *string, inUse *bool) {
	return f.String("format", convert.Raw, ""), f.Bool("in-use", false, "")
}

func imageConvert(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("image convert", flag.ContinueOnError)
	snapshot := f.String("snapshot", "", "")
	format, inUse := writing(f)
	words, err := parse(f, args, 2, 2)
	if err != nil {
		return err
	}
	img, info, err := ploop.Open(words[0], *snapshot)
	if err != nil {
		return err
	}
	return convertImage(ctx, img, info, *format, words[1], *inUse)
}

func imageMerge(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("image merge", flag.ContinueOnError)
	plain := f.Bool("plain-base", false, "")
	format, inUse := writing(f)
	words, err := parse(f, args, 3, math.MaxInt)
	if err != nil {
		return err
	}
	last := len(words) - 1
	img, info, err := ploop.OpenChain(words[:last], *plain)
	if err != nil {
		return err
	}
	return convertImage(ctx, img, info, *format, words[last], *inUse)
}

func convertImage(ctx context.Context, img *ploop.Image, info *ploop.Info, format, path string, inUse bool) error {
	defer img.Close()
	if !slices.Contains(convert.Formats, format) {
		return usageError(fmt.Sprintf("--format %s: choose one of %s", format, strings.Join(convert.Formats, ", ")))
	}
	if info.InUse && !inUse {
		return fmt.Errorf("image: %s: the image is in use, or was not closed: unmount it first, or pass --in-use for an image that nobody writes", info.Path)
	}
	s, err := convert.Convert(ctx, img, format, path)
	if err != nil {
		return err
	}
	return print(s)
}
