package session

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"

	"github.com/livefleet/handover/helper/internal/session/record"
)

// anotherPrint is the fingerprint of nobody.
const anotherPrint = "sha256:0000000000000000000000000000000000000000000000000000000000000000"

// theWay are the states of a session that goes well, on either side.
var theWay = []record.State{record.Presync, record.Barrier, record.Frozen, record.Flushed, record.Prepared, record.Released, record.Resumed, record.Settled, record.Done}

func goAlong(t *testing.T, j *record.Journal, states ...record.State) {
	t.Helper()
	for _, s := range states {
		if err := j.Append(s, ""); err != nil {
			t.Fatal(err)
		}
	}
}

// restartHost plays a restart: the session in dir has recorded all it did in another boot, and
// what lived in /run is gone.
func restartHost(t *testing.T, dir, runDir string) {
	t.Helper()
	anotherBoot(t, dir)
	if err := os.RemoveAll(runDir); err != nil {
		t.Fatal(err)
	}
}

// anotherBoot rewrites a journal as one of another boot.
func anotherBoot(t *testing.T, dir string) {
	t.Helper()
	path := filepath.Join(dir, record.JournalFile)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	var all []byte
	for line := range bytes.Lines(text) {
		_, body, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		body = bytes.Replace(body, bytes.TrimSpace(boot), []byte("an earlier one"), 1)
		all = fmt.Appendf(all, "%08x %s\n", crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)), body)
	}
	if bytes.Equal(all, text) {
		t.Fatal("nothing in the journal is of this boot")
	}
	if err := os.WriteFile(path, all, 0o600); err != nil {
		t.Fatal(err)
	}
}
