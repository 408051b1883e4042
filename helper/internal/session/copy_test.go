package session

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/session/recovery"
)

// copied is a session of mode copy: no workload, a file that somebody writes to
// between two passes, or nobody.
type copied struct {
	t              *testing.T
	src, dst       string // session folders
	image, arrived string
	policy         record.Policy
	listen         string                           // of the destination; empty: TCP
	peer           func(listens string) record.Peer // how the source comes there; nil: by its address
	send, receive  chan error
}

func newCopied(t *testing.T, content []byte, policy record.Policy) *copied {
	t.Helper()
	top, err := os.MkdirTemp("", "copied") // short, for the sockets in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	c := &copied{t: t, src: filepath.Join(top, "src"), dst: filepath.Join(top, "dst"), image: filepath.Join(top, "image"), arrived: filepath.Join(top, "arrived"), policy: policy}
	for _, d := range []string{c.src, c.dst} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(c.image, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *copied) start() {
	c.t.Helper()
	var prints [2]string
	for i, dir := range []string{c.src, c.dst} {
		id, err := record.Identity(dir)
		if err != nil {
			c.t.Fatal(err)
		}
		prints[i] = id.Fingerprint()
	}
	info, err := os.Stat(c.image)
	if err != nil {
		c.t.Fatal(err)
	}
	write := func(dir string, s record.Spec) {
		b, err := json.Marshal(s)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, record.SpecFile), b, 0o600)
		}
		if err != nil {
			c.t.Fatal(err)
		}
	}
	c.send, c.receive = make(chan error, 1), make(chan error, 1)
	write(c.dst, record.Spec{
		Version: 1, ID: "copied", Role: record.Destination, Mode: record.Copy, Listen: cmp.Or(c.listen, "127.0.0.1:0"), Peer: record.Peer{Fingerprint: prints[0]},
		Volumes: []record.Vol{{Name: "data", Size: info.Size(), Image: c.arrived}},
	})
	go func() { c.receive <- Receive(context.Background(), c.dst, c.dst, planted) }()
	at := c.wait(c.dst, record.UntilListening).Listen
	peer := record.Peer{Address: at}
	if c.peer != nil {
		peer = c.peer(at)
	}
	peer.Fingerprint = prints[1]
	write(c.src, record.Spec{
		Version: 1, ID: "copied", Role: record.Source, Mode: record.Copy, Peer: peer,
		Volumes: []record.Vol{{Name: "data", Size: info.Size(), Device: c.image, Tracker: "none"}}, Policy: c.policy,
	})
	go func() { c.send <- Send(context.Background(), c.src, c.src, planted) }()
	c.wait(c.src, record.UntilConverged)
}

func (c *copied) wait(dir, until string) *record.Status {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	for !exists(filepath.Join(dir, record.StatusFile)) {
		time.Sleep(5 * time.Millisecond)
		if ctx.Err() != nil {
			c.t.Fatalf("%s: nobody began to serve it", dir)
		}
	}
	s, err := record.Wait(ctx, dir, []string{until})
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

// finish asks for the end, and returns how both sides came out.
func (c *copied) finish() (*record.Status, error, error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	_, _ = recovery.Cutover(ctx, c.src)
	serr, rerr := <-c.send, <-c.receive
	s, err := record.Show(c.src)
	if err != nil {
		c.t.Fatal(err)
	}
	return s, serr, rerr
}

// compressible is a quarter each of noise, text, zeroes, and text again.
func compressible(size int) []byte {
	b := make([]byte, size)
	rand.NewChaCha8([32]byte{7}).Read(b[:size/4])
	for i := size / 4; i < size; {
		i += copy(b[i:], fmt.Sprintf("%d commits were acknowledged; ", i))
	}
	clear(b[size/2 : 3*size/4])
	return b
}

// By whatever way it goes, what arrives is what was sent, and both sides' ledgers
// say so.
func TestCopy(t *testing.T) {
	content := compressible(16<<20 + 4096 + 17)
	no := false
	for _, policy := range []record.Policy{
		{}, {Compression: "none"}, {Compression: "lz4"}, {Compression: "zstd"},
		{Connections: 4}, {Connections: 2, Delta: &no, Compression: "none"},
	} {
		t.Run(fmt.Sprintf("%s, %d connections", policy.Compression, policy.Connections), func(t *testing.T) {
			c := newCopied(t, content, policy)
			c.start()
			s, serr, rerr := c.finish()
			if serr != nil || rerr != nil {
				t.Fatal(serr, rerr)
			}
			got, err := os.ReadFile(c.arrived)
			if err != nil || !bytes.Equal(got, content) {
				t.Fatalf("what arrived is not what was sent (%v)", err)
			}
			first := s.Passes[0]
			packs := policy.Compression == "lz4" || policy.Compression == "zstd"
			if auto := policy.Compression == ""; !auto && packs != (first.Payload < first.Sent*3/4) || first.Sent < int64(len(content))*7/10 {
				t.Errorf("%+v", first)
			}
			there, err := record.Show(c.dst)
			if err != nil || len(s.Totals) != 1 || len(there.Totals) != 1 || s.Totals[0] != there.Totals[0] {
				t.Errorf("ledgers: %v here, %v there, %v", s.Totals, there.Totals, err)
			}
			left, err := filepath.Glob(filepath.Join(c.src, "ledger*"))
			if err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}
