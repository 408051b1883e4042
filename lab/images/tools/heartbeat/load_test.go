package main

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

func TestSizes(t *testing.T) {
	for text, want := range map[string]size{"7": 7, "64K": 64 << 10, "256M": 256 << 20, "1G": 1 << 30} {
		var s size
		if err := s.Set(text); err != nil || s != want {
			t.Errorf("%s is %d (%v)", text, s, err)
		}
	}
	for _, text := range []string{"", "M", "1T", "-1", "1.5G", "1MK"} {
		var s size
		if err := s.Set(text); err == nil {
			t.Errorf("%q is taken for %d", text, s)
		}
	}
}

func TestALoadIsHeld(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "open")
	l := load{files: 5, connections: 3, memory: 1 << 20, dirty: 1 << 19}
	if err := l.begin(dir); err != nil {
		t.Fatal(err)
	}
	files, connections, memory := 0, 0, 0
	for _, held := range l.held {
		switch h := held.(type) {
		case *os.File:
			files++
			defer h.Close()
		case net.Conn:
			connections++
			defer h.Close()
		case net.Listener:
			defer h.Close()
		case []byte:
			memory = len(h)
		}
	}
	if files != 5 || connections != 6 || memory != 1<<20 {
		t.Errorf("it holds %d files, %d ends of connections and %d bytes", files, connections, memory)
	}
}
