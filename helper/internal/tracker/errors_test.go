package tracker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func openFails(t *testing.T, kind string, dev Device, text string) {
	t.Helper()
	trackers, err := Open(kind, []Device{dev})
	for _, tr := range trackers {
		tr.Close()
	}
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("Open(%q, %+v): %v; should say %q", kind, dev, err, text)
	}
}

func TestOpenRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	openFails(t, "guess", Device{Path: file, Cluster: 65536}, `there is no tracker of the kind "guess": choose one of auto, ebpf, hash, ploop`)
	openFails(t, "auto", Device{Path: file, Cluster: 65536}, file+": this is no block device")
	openFails(t, "auto", Device{Path: "/dev/null", Cluster: 65536}, "/dev/null: this is no block device")
	openFails(t, "hash", Device{Path: file, Cluster: 65536}, file+": this is no block device")
	openFails(t, "auto", Device{Path: file + "x", Cluster: 65536}, file+"x: no such file or directory")
	openFails(t, "auto", Device{Path: file, Cluster: 65535}, "a cluster of 65535 bytes cannot be used: choose a power of two")
	if trackers, err := Open("auto", nil); len(trackers) != 0 || err != nil {
		t.Errorf("no devices: %v, %v", trackers, err)
	}
}

func TestOpenRefusesADeviceWithoutMedium(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: looks for a loop device")
	}
	nodes, _ := filepath.Glob("/dev/loop[0-9]*")
	for _, node := range nodes {
		b, err := os.ReadFile("/sys/class/block/" + filepath.Base(node) + "/size")
		if err == nil && strings.TrimSpace(string(b)) == "0" {
			openFails(t, "auto", Device{Path: node, Cluster: 65536}, node+": the device has no medium")
			return
		}
	}
	t.Skip("needs a loop device without a file")
}
