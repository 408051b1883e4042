package criuimage

import (
	"fmt"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/encoding/protowire"
)

// Watched is the way to a file that a task watches: by its device, as the kernel numbers it,
// and its inode.
type Watched struct {
	Device, Inode uint64
	Path          string // from the tasks' root
}

// WatchedFile is the name of CRIU's list of such ways, in its working directory.
const WatchedFile = "irmap-cache"

const (
	serviceMagic = 0x55105940
	irmapMagic   = 0x57004059
)

// WriteWatched tells CRIU the ways. It asks each once whether it still leads there; without
// them it looks through whole trees while everything stands still.
func WriteWatched(dir string, all []Watched) error {
	b := protowire.AppendFixed32(protowire.AppendFixed32(nil, serviceMagic), irmapMagic)
	for _, w := range all {
		m := number(number(nil, 1, w.Device), 2, w.Inode)
		m = protowire.AppendString(protowire.AppendTag(m, 3, protowire.BytesType), w.Path)
		b = append(protowire.AppendFixed32(b, uint32(len(m))), m...)
	}
	if err := os.WriteFile(filepath.Join(dir, WatchedFile), b, 0o600); err != nil {
		return fmt.Errorf("criuimage: %w", err)
	}
	return nil
}
