package watch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// handle is a file handle as the kernel gives it, four bytes of type and then
// the rest: a name of an object that stays when it is moved.
type handle string

func newHandle(kind int32, b []byte) handle {
	return handle(binary.NativeEndian.AppendUint32(nil, uint32(kind))) + handle(b)
}

func (h handle) file() unix.FileHandle {
	return unix.NewFileHandle(int32(binary.NativeEndian.Uint32([]byte(h[:4]))), []byte(h[4:]))
}

// event is one of fanotify's, in our words.
type event struct {
	mask   uint64
	dir    handle // the directory that holds the entry; for an event about a directory itself, that one
	name   string // the entry; "." for the directory itself
	object handle // the file itself
}

const (
	metadataSize = 24 // struct fanotify_event_metadata
	infoSize     = 12 // struct fanotify_event_info_fid up to the handle: header and file system's number
	handleSize   = 8  // struct file_handle up to its bytes
)

var errEvent = errors.New("the kernel sent an event that this pcopy does not understand")

// parse cuts the bytes read from fanotify into events.
func parse(b []byte, each func(event)) error {
	for len(b) > 0 {
		if len(b) < metadataSize {
			return errEvent
		}
		size, head := int(binary.NativeEndian.Uint32(b)), int(binary.NativeEndian.Uint16(b[6:]))
		if b[4] != unix.FANOTIFY_METADATA_VERSION || head < metadataSize || size < head || size > len(b) {
			return fmt.Errorf("%w: version %d, %d bytes", errEvent, b[4], size)
		}
		e := event{mask: binary.NativeEndian.Uint64(b[8:])}
		if err := e.parse(b[head:size]); err != nil {
			return err
		}
		each(e)
		b = b[size:]
	}
	return nil
}

// parse reads the records that follow an event.
func (e *event) parse(b []byte) error {
	for len(b) > 0 {
		if len(b) < 4 {
			return errEvent
		}
		kind, size := b[0], int(binary.NativeEndian.Uint16(b[2:]))
		if size < 4 || size > len(b) {
			return errEvent
		}
		record := b[:size]
		b = b[size:]
		switch kind {
		case unix.FAN_EVENT_INFO_TYPE_FID, unix.FAN_EVENT_INFO_TYPE_DFID, unix.FAN_EVENT_INFO_TYPE_DFID_NAME:
		default:
			continue // was not asked for, and says nothing that we need
		}
		if len(record) < infoSize+handleSize {
			return errEvent
		}
		fh := record[infoSize:]
		n := int(binary.NativeEndian.Uint32(fh))
		if n < 0 || n > len(fh)-handleSize {
			return errEvent
		}
		h := newHandle(int32(binary.NativeEndian.Uint32(fh[4:])), fh[handleSize:handleSize+n])
		if kind == unix.FAN_EVENT_INFO_TYPE_FID {
			e.object = h
			continue
		}
		e.dir, e.name = h, "."
		if kind == unix.FAN_EVENT_INFO_TYPE_DFID_NAME {
			name, _, ended := strings.Cut(string(fh[handleSize+n:]), "\x00")
			if !ended {
				return errEvent
			}
			e.name = name
		}
	}
	return nil
}
