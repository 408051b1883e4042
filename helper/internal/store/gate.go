package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// A gate is a text in the place of a disk's first page, where ext4, XFS, LVM, LUKS and
// partition tables have their beginning. While it stands nothing can mount the disk, so
// the workload cannot start on it: not by podman, not by systemd, not after a restart of
// the host. It is on the disk before the first cluster of a rollback is written, and the
// page that belongs there is written when all else is on the disk.
//
// Each sector of the page has the text: a page of which the power let only a part
// through still shows it.
const (
	gatePage   = 4096
	gateSector = 512
	gateWord   = "handover: a rollback of this disk was begun, and has not ended. Run it again.\nsnapshot "
)

// btrfs has its beginning in the second cluster: that, too, is written last.
const shutClusters = 2

func gateFor(point string) []byte {
	sector := fmt.Appendf(nil, "%s%s\n", gateWord, point)
	sector = append(sector, bytes.Repeat([]byte{'\n'}, gateSector-len(sector))...)
	return bytes.Repeat(sector, gatePage/gateSector)
}

// Shut reports whether a gate stands on a disk, and the point that its rollback goes to.
func Shut(disk io.ReaderAt) (point string, shut bool, err error) {
	page := make([]byte, gatePage)
	n, err := disk.ReadAt(page, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", false, err
	}
	for at := 0; at+gateSector <= n; at += gateSector {
		rest, found := bytes.CutPrefix(page[at:at+gateSector], []byte(gateWord))
		if found && len(rest) >= 2*idBytes {
			return string(rest[:2*idBytes]), true, nil
		}
	}
	return "", false, nil
}
