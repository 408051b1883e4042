package session

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/session/recovery"
)

// imagesFolder holds images that those who play CRIU add to a dump.
const imagesFolder = "images"

func dumpImages(control, imageDir string) error {
	entries, _ := os.ReadDir(filepath.Join(control, imagesFolder))
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(control, imagesFolder, e.Name()))
		if err == nil {
			err = os.WriteFile(filepath.Join(imageDir, e.Name()), b, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// message is one of protobuf, of numbers by field.
func message(numbers map[protowire.Number]uint64) (b []byte) {
	for n, v := range numbers {
		b = protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), v)
	}
	return b
}

// dumps has the dump hold an image with one message.
func (r *rig) dumps(name string, magic uint32, m []byte) {
	r.t.Helper()
	b := binary.LittleEndian.AppendUint32(nil, 0x54564319)
	b = binary.LittleEndian.AppendUint32(b, magic)
	b = append(binary.LittleEndian.AppendUint32(b, uint32(len(m))), m...)
	if err := os.MkdirAll(filepath.Join(r.control, imagesFolder), 0o700); err != nil {
		r.t.Fatal(err)
	}
	r.note(filepath.Join(imagesFolder, name), string(b))
}

// A periodic timer that CRIU leaves disarmed keeps the workload where it is.
func TestATimerThatIsLostTakesTheMoveBack(t *testing.T) {
	for name, restored := range map[string]bool{"it is armed": true, "it is not": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			timer, _, errno := unix.Syscall(unix.SYS_TIMERFD_CREATE, unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC, 0)
			if errno != 0 {
				t.Fatal(errno)
			}
			defer unix.Close(int(timer))
			spec := [2]unix.Timespec{{Sec: 1}, {}}
			if restored {
				spec[1] = unix.NsecToTimespec(int64(time.Millisecond))
			}
			if _, _, errno := unix.Syscall6(unix.SYS_TIMERFD_SETTIME, timer, 0, uintptr(unsafe.Pointer(&spec)), 0, 0, 0); errno != 0 {
				t.Fatal(errno)
			}
			// What CRIU has restored is this process.
			r.note(rootFile, strconv.Itoa(os.Getpid()))
			file := message(map[protowire.Number]uint64{1: 17, 2: 7})
			of := message(map[protowire.Number]uint64{5: 1, 9: 1}) // one tick, every second: it fired in the freeze
			r.dumps("files.img", 0x56303138, protowire.AppendBytes(protowire.AppendTag(file, 12, protowire.BytesType), of))
			r.dumps(fmt.Sprintf("ids-%d.img", os.Getpid()), 0x54432030, message(map[protowire.Number]uint64{2: 3}))
			r.dumps("fdinfo-3.img", 0x56213732, message(map[protowire.Number]uint64{1: 7, 4: uint64(timer)}))
			w := r.startWriter()
			r.start()
			r.wait(r.src, record.UntilConverged)
			if restored {
				go func() { _, _ = recovery.Cutover(context.Background(), r.src) }()
				r.moved(w)
				return
			}
			src, _ := r.cutover()
			if src.State != record.Thawed || !strings.Contains(src.Error, "the workload's timers: CRIU has not restored them as they were") {
				t.Errorf("source %s %q", src.State, src.Error)
			}
			r.runsOnce(w, record.Source)
			r.cleanDestination()
		})
	}
}
