package ploopcopy

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/livefleet/handover/helper/internal/tracker"
)

// sysBlock is where the kernel tells of its block devices.
const sysBlock = "/sys/block"

// BelowPloop completes a source on an OpenVZ host: of a ploop device the file travels
// that holds its top layer, in the device's clusters, tracked by the kernel itself.
// Other devices, and a source that names its image or a tracker of its own, stay as
// they are.
func (s *Source) BelowPloop() error { return s.below(sysBlock) }

func (s *Source) below(sys string) error {
	if s.Image != "" || s.Tracker != tracker.Auto {
		return nil
	}
	path, err := filepath.EvalSymlinks(s.Device)
	if err != nil {
		return nil // Send tells of a device that is not there
	}
	disk := filepath.Join(sys, filepath.Base(path))
	top, err := os.ReadFile(filepath.Join(disk, "pstate", "top"))
	if os.IsNotExist(err) {
		return nil // no ploop device
	}
	read := func(name ...string) (text string) {
		if err != nil {
			return ""
		}
		var b []byte
		b, err = os.ReadFile(filepath.Join(append([]string{disk}, name...)...))
		return strings.TrimSuffix(string(b), "\n")
	}
	level := strings.TrimSpace(string(top))
	image, format := read("pdelta", level, "image"), read("pdelta", level, "format")
	sectors := read("pstate", "block_size")
	if err != nil {
		return fmt.Errorf("ploopcopy: %s: the kernel does not say which image is below the device: %w", s.Device, err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(sectors))
	if err != nil || n <= 0 || n > MaxCluster/sector {
		return fmt.Errorf("ploopcopy: %s: the kernel says that its clusters have %q sectors", s.Device, sectors)
	}
	s.Image, s.Tracker, s.Cluster, s.Raw = image, tracker.Ploop, n*sector, format == "raw"
	return nil
}
