package nbd

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
)

// reply is a chunk as a server sends it.
func reply(kind, flags uint16, cookie uint64, payload ...[]byte) []byte {
	body := bytes.Join(payload, nil)
	b := binary.BigEndian.AppendUint32(nil, structuredMagic)
	b = binary.BigEndian.AppendUint16(b, flags)
	b = binary.BigEndian.AppendUint16(b, kind)
	b = binary.BigEndian.AppendUint64(b, cookie)
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)))
	return append(b, body...)
}

func u32(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
func u64(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// serve is a server of one export of 4 KiB, which answers the first request with these
// bytes; handshake may change an answer to an option.
func serve(t *testing.T, answer []byte, handshake func(option uint32) []byte) string {
	return serveWith(t, 0, answer, handshake)
}

// serveWith has an export with these flags.
func serveWith(t *testing.T, flags uint16, answer []byte, handshake func(option uint32) []byte) string {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		hello := append(u64(initMagic), u64(optionMagic)...)
		_, _ = conn.Write(append(hello, 0, fixedNewstyle|noZeroes))
		_, _ = io.ReadFull(conn, make([]byte, 4))
		say := func(option, kind uint32, body ...byte) {
			b := append(u64(answerMagic), u32(option)...)
			b = append(append(b, u32(kind)...), u32(uint32(len(body)))...)
			_, _ = conn.Write(append(b, body...))
		}
		for option := uint32(0); option != optGo; {
			head := make([]byte, 16)
			if _, err := io.ReadFull(conn, head); err != nil {
				return
			}
			option = binary.BigEndian.Uint32(head[8:])
			_, _ = io.ReadFull(conn, make([]byte, binary.BigEndian.Uint32(head[12:])))
			if handshake != nil {
				if b := handshake(option); b != nil {
					say(option, ansError|1, b...)
					return
				}
			}
			switch option {
			case optSetContext:
				say(option, ansContext, append(u32(7), Allocation...)...)
			case optGo:
				say(option, ansInfo, append(append([]byte{0, infoExport}, u64(4096)...), byte(flags>>8), byte(flags))...)
			}
			say(option, ansAck)
		}
		_, _ = io.ReadFull(conn, make([]byte, 28))
		_, _ = conn.Write(answer)
		_, _ = io.Copy(io.Discard, conn)
	}()
	return socket
}

func TestARead(t *testing.T) {
	ones, holes := bytes.Repeat([]byte{1}, 3072), append(u64(3072), u32(1024)...)
	for _, at := range []struct {
		name, err string
		answer    []byte
	}{
		{"data and a hole", "", append(reply(chunkData, 0, 1, u64(0), ones), reply(chunkHole, flagDone, 1, holes)...)},
		{"a part is missing", "has 3072 bytes: unexpected EOF", reply(chunkData, flagDone, 1, u64(0), ones)},
		{"beyond what was asked", "bytes that were not asked for", reply(chunkData, flagDone, 1, u64(2048), ones)},
		{"before it", "bytes that were not asked for", reply(chunkHole, flagDone, 1, append(u64(1<<63), u32(9)...))},
		{"of another request", "a reply to the request 2", reply(chunkData, flagDone, 2, u64(0), ones)},
		{"an error", "refused the request with error 5: no disk", reply(chunkError|1, flagDone, 1, u32(5), []byte{0, 7}, []byte("no disk"))},
		{"an error without words", "an error without a number", reply(chunkError|1, flagDone, 1, u32(5))},
		{"too long", "is too long", binary.BigEndian.AppendUint32(reply(chunkData, flagDone, 1)[:16], 1<<31)},
		{"no structure", "a reply without structure", append(u32(simpleMagic), make([]byte, 16)...)},
		{"noise", "is none of NBD", []byte("HTTP/1.1 400 Bad Request")},
		{"extents", "a chunk of type 5", reply(chunkStatus, flagDone, 1, u32(7), u64(9))},
	} {
		t.Run(at.name, func(t *testing.T) {
			c, err := Dial(serve(t, at.answer, nil), "vda", Allocation)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			p := bytes.Repeat([]byte{9}, 4096)
			_, err = c.ReadAt(p, 0)
			if at.err == "" {
				if err != nil || !bytes.Equal(p, append(ones, make([]byte, 1024)...)) {
					t.Fatal(err)
				}
			} else if err == nil || !strings.Contains(err.Error(), at.err) {
				t.Fatalf("%v, not %s", err, at.err)
			}
		})
	}
}

func TestExtents(t *testing.T) {
	for _, at := range []struct {
		name, err string
		answer    []byte
	}{
		{"two", "", reply(chunkStatus, flagDone, 1, u32(7), u32(1024), u32(0), u32(9000), u32(Zero))},
		{"none", "says nothing of base:allocation", reply(chunkNone, flagDone, 1)},
		{"of another context", "not asked for", reply(chunkStatus, flagDone, 1, u32(8), u32(1024), u32(0))},
		{"without a length", "no length", reply(chunkStatus, flagDone, 1, u32(7), u32(0), u32(0))},
		{"cut off", "a chunk of type 5 with 11 bytes", reply(chunkStatus, flagDone, 1, u32(7), make([]byte, 7))},
		{"an error", "error 22", reply(chunkError|1, flagDone, 1, u32(22), []byte{0, 0})},
	} {
		t.Run(at.name, func(t *testing.T) {
			c, err := Dial(serve(t, at.answer, nil), "vda", Allocation)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			found, err := c.Extents(0, 4096)
			if at.err == "" {
				if all := found[Allocation]; err != nil || len(all) != 2 || all[1] != (Extent{3072, Zero}) {
					t.Fatal(found, err)
				}
			} else if err == nil || !strings.Contains(err.Error(), at.err) {
				t.Fatalf("%v, not %s", err, at.err)
			}
		})
	}
}

func TestTheHandshake(t *testing.T) {
	refuse := func(which uint32) func(uint32) []byte {
		return func(option uint32) []byte {
			if option != which {
				return nil
			}
			return []byte("not here")
		}
	}
	for option, want := range map[uint32]string{optStructured: "structured replies: the server refused the option 8: not here", optGo: "the option 7: not here"} {
		if _, err := Dial(serve(t, nil, refuse(option)), "vda", Allocation); err == nil || !strings.Contains(err.Error(), want) {
			t.Error(err)
		}
	}
	if _, err := Dial(serve(t, nil, nil), "vda", Allocation, Dirty("x")); err == nil || !strings.Contains(err.Error(), "it has no qemu:dirty-bitmap:x") {
		t.Error(err)
	}
	c, err := Dial(serve(t, nil, nil), "vda", Allocation)
	if err != nil || c.Size() != 4096 {
		t.Fatal(err)
	}
	c.Interrupt()
	if _, err := c.ReadAt(make([]byte, 512), 0); err == nil || c.Close() != nil {
		t.Error("a client that was interrupted reads on")
	}
}
