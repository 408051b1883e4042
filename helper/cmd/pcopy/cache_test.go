package main

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// service is what systemd is for a service of Type=notify: the messages that it gets.
func service(t *testing.T) <-chan string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	messages := make(chan string, 8)
	go func() {
		buffer := make([]byte, 256)
		for {
			n, err := c.Read(buffer)
			if err != nil {
				return
			}
			messages <- string(buffer[:n])
		}
	}()
	return messages
}

func pinnable(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func openNow(t *testing.T, path string) bool {
	t.Helper()
	links, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if target, _ := os.Readlink(link); target == path {
			return true
		}
	}
	return false
}

func TestAHoldSaysWhenItIsReadyAndEndsWhenTold(t *testing.T) {
	messages, path := service(t), pinnable(t)
	ctx, tell := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- execute(ctx, io.Discard, []string{"cache", "pin", "--seconds=3600", "--read", "--lock", path})
	}()
	select {
	case m := <-messages:
		if m != "READY=1" {
			t.Errorf("it said %q", m)
		}
	case err := <-ended:
		t.Fatalf("it ended before it was ready: %v", err)
	}
	if !openNow(t, path) {
		t.Error("the file is not held open")
	}
	tell()
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
	if openNow(t, path) {
		t.Error("the file is still held open")
	}
}

func TestAHoldEndsByItself(t *testing.T) {
	service(t)
	done := make(chan error, 1)
	go func() {
		done <- execute(context.Background(), io.Discard, []string{"cache", "pin", "--seconds=0.01", pinnable(t)})
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it did not end")
	}
}

func TestAHoldIsReadyWhenOthersStopWaitingForIt(t *testing.T) {
	messages, path := service(t), pinnable(t)
	ctx, tell := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- execute(ctx, io.Discard, []string{"cache", "pin", "--seconds=3600", "--read", "--lock", "--ready-within-seconds=1e-9", path})
	}()
	select {
	case <-messages:
	case err := <-ended:
		t.Fatalf("it ended before it was ready: %v", err)
	}
	if !openNow(t, path) {
		t.Error("the file is not held open")
	}
	tell()
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
}

func TestAPinThatIsNoneIsRefused(t *testing.T) {
	for _, c := range []struct {
		words []string
		says  string
	}{
		{[]string{pinnable(t)}, "say how long at most"},
		{[]string{"--seconds=1"}, "name the files and devices that are to be kept"},
		{[]string{"--seconds=1", "--osd", t.TempDir(), "--ranges", "ranges.json"}, "exclude each other"},
		{[]string{"--seconds=1", "--osd", t.TempDir()}, "is not the folder of an OSD with BlueStore"},
	} {
		if err := execute(context.Background(), io.Discard, append([]string{"cache", "pin"}, c.words...)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("pin %q says %v", c.words, err)
		}
	}
}

func TestRangesThatAreNoneAreRefused(t *testing.T) {
	path := pinnable(t)
	ranges := filepath.Join(t.TempDir(), "ranges.json")
	if err := os.WriteFile(ranges, []byte(`[1, 2]`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := execute(context.Background(), io.Discard, []string{"cache", "show", "--ranges", ranges, path}); err == nil || !strings.Contains(err.Error(), `{"PATH": [[offset, length], …]} was expected`) {
		t.Errorf("cache show says %v", err)
	}
}
