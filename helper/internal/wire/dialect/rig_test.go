package dialect

import (
	"bytes"
	"encoding/binary"
	"io"
	"strings"
	"testing"
)

// one and nine write frames and packets as the description has them, by nothing
// that the package uses.
func one(size uint32, pos uint64, payload []byte) []byte {
	b := binary.NativeEndian.AppendUint32(nil, 0x4cc0ac3d)
	b = binary.NativeEndian.AppendUint32(b, size)
	b = binary.NativeEndian.AppendUint64(b, pos)
	return append(b, payload...)
}

func nine(typ, size uint32, pos uint64, rest ...[]byte) []byte {
	b := binary.NativeEndian.AppendUint32(nil, 0x4cc0ac3e)
	b = binary.NativeEndian.AppendUint32(b, typ)
	b = binary.NativeEndian.AppendUint32(b, size)
	b = append(b, 0xaa, 0xbb, 0xcc, 0xdd) // padding: it may be anything
	b = binary.NativeEndian.AppendUint64(b, pos)
	return append(b, bytes.Join(rest, nil)...)
}

func number(n uint32, size int) []byte {
	b := make([]byte, size)
	binary.NativeEndian.PutUint32(b, n)
	return b
}

func answers(v ...int32) []byte {
	var b []byte
	for _, n := range v {
		b = binary.NativeEndian.AppendUint32(b, uint32(n))
	}
	return b
}

// stream is one side's view: what it reads is there already, what it writes is
// kept.
type stream struct {
	in  io.Reader
	out bytes.Buffer
}

func (s *stream) Read(p []byte) (int, error)  { return s.in.Read(p) }
func (s *stream) Write(p []byte) (int, error) { return s.out.Write(p) }

func reading(b ...[]byte) *stream { return &stream{in: bytes.NewReader(bytes.Join(b, nil))} }

func version(t testing.TB, name string) Version {
	t.Helper()
	v, err := Find(name)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func says(t *testing.T, err error, code Code, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("%v\n  should say %q", err, text)
		return
	}
	f, ok := err.(interface{ ExitCode() int })
	if !ok || f.ExitCode() != int(code) {
		t.Errorf("%v: another exit status than %d", err, code)
	}
}
