package changes

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/blockmap"
)

// A bitmap file holds the clusters of a device that were written between two swaps of
// the marks. All numbers are little endian.
//
//	offset  size  field
//	     0     8  magic: "HANDBMAP"
//	     8     4  version: 1
//	    12     4  length of this header: 128
//	    16     8  size of the device in bytes
//	    24     4  size of a cluster in bytes, a power of two from 4 KiB to 4 MiB
//	    28     4  flags; bit 0: tracking goes on where this ends (it was exported)
//	    32    16  id of the tracker, made at random when tracking began
//	    48     8  from: the generation that this begins with
//	    56     8  to: the generation that the next one begins with
//	    64    16  boot id of the host
//	    80     8  when the marks were taken, in nanoseconds since 1970
//	    88     8  number of words
//	    96    28  zero
//	   124     4  CRC-32C of the bytes 0 to 123
//	   128    8n  the words: bit b of word w is cluster w*64+b
//	128+8n     4  CRC-32C of everything before
//
// Bits behind the last cluster are zero. A chain of increments is whole if all have
// the same id, the first begins with 0, and each begins with the generation at which
// the one before it ends.
const (
	bitmapMagic   = "HANDBMAP"
	bitmapVersion = 1
	headerSize    = 128
	flagOpen      = 1
	largestFile   = 1 << 31
)

// Header is the header of a bitmap file.
type Header struct {
	ID      string    `json:"id"`
	Boot    string    `json:"boot_id"`
	Size    int64     `json:"size"`
	Cluster int       `json:"cluster"`
	From    uint64    `json:"from"`
	To      uint64    `json:"to"`
	Open    bool      `json:"open"`
	Taken   time.Time `json:"taken"`
	Marked  int64     `json:"marked_bytes"`
}

// Bitmap is a bitmap file.
type Bitmap struct {
	Header
	Map *blockmap.Map
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Bytes are the bitmap as a file.
func (b *Bitmap) Bytes() ([]byte, error) {
	words := b.Map.Words()
	out := make([]byte, headerSize+8*len(words)+4)
	copy(out, bitmapMagic)
	le := binary.LittleEndian
	le.PutUint32(out[8:], bitmapVersion)
	le.PutUint32(out[12:], headerSize)
	le.PutUint64(out[16:], uint64(b.Map.Size()))
	le.PutUint32(out[24:], uint32(b.Map.Cluster()))
	if b.Open {
		le.PutUint32(out[28:], flagOpen)
	}
	for at, text := range map[int]string{32: b.ID, 64: b.Boot} {
		id, err := unhex(text)
		if err != nil {
			return nil, err
		}
		copy(out[at:], id)
	}
	le.PutUint64(out[48:], b.From)
	le.PutUint64(out[56:], b.To)
	le.PutUint64(out[80:], uint64(b.Taken.UnixNano()))
	le.PutUint64(out[88:], uint64(len(words)))
	le.PutUint32(out[124:], crc32.Checksum(out[:124], castagnoli))
	for i, w := range words {
		le.PutUint64(out[headerSize+8*i:], w)
	}
	end := len(out) - 4
	le.PutUint32(out[end:], crc32.Checksum(out[:end], castagnoli))
	return out, nil
}

// unhex reads an id of 16 bytes, with dashes or without.
func unhex(s string) ([]byte, error) {
	b, err := hex.DecodeString(string(bytes.ReplaceAll([]byte(s), []byte("-"), nil)))
	if err == nil && len(b) != 16 {
		err = fmt.Errorf("%d bytes", len(b))
	}
	if err != nil {
		return nil, fmt.Errorf("changes: %q is no id of 16 bytes: %w", s, err)
	}
	return b, nil
}

// ParseBitmap reads a bitmap file's bytes.
func ParseBitmap(in []byte) (*Bitmap, error) {
	le := binary.LittleEndian
	if len(in) < headerSize+4 || string(in[:8]) != bitmapMagic {
		return nil, errors.New("this is no bitmap of pcopy")
	}
	if v := le.Uint32(in[8:]); v != bitmapVersion {
		return nil, fmt.Errorf("a bitmap of version %d, and this pcopy understands %d", v, bitmapVersion)
	}
	if crc32.Checksum(in[:124], castagnoli) != le.Uint32(in[124:]) {
		return nil, errors.New("the header is damaged")
	}
	end := len(in) - 4
	if crc32.Checksum(in[:end], castagnoli) != le.Uint32(in[end:]) {
		return nil, errors.New("the bitmap is damaged or cut short")
	}
	size, cluster, n := int64(le.Uint64(in[16:])), le.Uint32(in[24:]), le.Uint64(in[88:])
	if err := blockmap.CheckCluster(int(cluster)); err != nil {
		return nil, err
	}
	if words := uint64(end-headerSize) / 8; size < 0 || le.Uint32(in[12:]) != headerSize || n != words || (end-headerSize)%8 != 0 || n > largestFile/8 || n != wordsOf(size, int64(cluster)) {
		return nil, fmt.Errorf("the header speaks of %d bytes in clusters of %d and %d words, which is not what follows", size, cluster, n)
	}
	flags := le.Uint32(in[28:])
	if flags&^flagOpen != 0 || !allZero(in[96:124]) {
		return nil, errors.New("the header has something that this version does not know")
	}
	b := &Bitmap{Map: blockmap.New(size, int(cluster))}
	for i := range n {
		b.Map.OrWord(int64(i), le.Uint64(in[headerSize+8*i:]))
	}
	for i, w := range b.Map.Words() {
		if w != le.Uint64(in[headerSize+8*i:]) {
			return nil, errors.New("clusters behind the end of the device are marked")
		}
	}
	b.Header = Header{
		ID: hex.EncodeToString(in[32:48]), Boot: dashed(in[64:80]), Size: size, Cluster: int(cluster), From: le.Uint64(in[48:]), To: le.Uint64(in[56:]),
		Open: flags&flagOpen != 0, Taken: time.Unix(0, int64(le.Uint64(in[80:]))).UTC(), Marked: b.Map.Bytes(),
	}
	return b, nil
}

func wordsOf(size, cluster int64) uint64 {
	clusters := size / cluster
	if size%cluster != 0 {
		clusters++
	}
	return uint64(clusters+63) / 64
}

func allZero(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }

// dashed writes an id as the kernel writes its boot id.
func dashed(b []byte) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// ReadBitmap reads a bitmap file.
func ReadBitmap(path string) (*Bitmap, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("changes: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > largestFile {
		return nil, fmt.Errorf("changes: %s: this is no bitmap of pcopy", path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("changes: %w", err)
	}
	b, err := ParseBitmap(data)
	if err != nil {
		return nil, fmt.Errorf("changes: %s: %w", path, err)
	}
	return b, nil
}

// WriteBitmap makes a new file. It and its name are on the disk when WriteBitmap
// returns. An existing file is never replaced: it may be the only copy of its marks.
func WriteBitmap(path string, b *Bitmap) error {
	data, err := b.Bytes()
	if err != nil {
		return err
	}
	return newFile(path, data, func(tmp string) error {
		if err := os.Link(tmp, path); errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("%s: exists already, and a bitmap never replaces a file: choose another name", path)
		} else if err != nil {
			return err
		}
		return os.Remove(tmp)
	})
}

// newFile writes a file beside path, syncs it, and has it moved to its place.
func newFile(path string, data []byte, place func(tmp string) error) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, ".pcopy-*")
	if err != nil {
		return fmt.Errorf("changes: %w", err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = place(f.Name())
	}
	if err != nil {
		os.Remove(f.Name()) // where it was placed there is no such name any more
		return fmt.Errorf("changes: %w", err)
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == nil {
		err = errors.Join(d.Sync(), d.Close())
	}
	if err != nil {
		return fmt.Errorf("changes: %w", err)
	}
	return nil
}

// replaceJSON writes a small file so that a reader, also after a crash, sees the
// old or the new one.
func replaceJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("changes: %w", err)
	}
	return newFile(path, append(data, '\n'), func(tmp string) error { return os.Rename(tmp, path) })
}

// Extents are the marked stretches, offset and length in bytes.
func (b *Bitmap) Extents() iter.Seq2[int64, int64] { return b.Map.Runs(0) }
