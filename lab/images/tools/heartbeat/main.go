// Command heartbeat shows from inside a container for how long it did not run.
//
// It appends one line a beat to a file: a counter and the wall clock, in
// nanoseconds. The longest gap between two lines is the time that the container
// stood still, whatever anybody outside measured. A gap in the counter, or a
// line that is not whole, is data that was lost.
//
//	heartbeat -file /data/beat [-every 1ms] [-sync 0]
//	heartbeat -gaps /data/beat
//
// Beside it, so that there is more to carry than a file:
//
//	-memory 256M -dirty 64M   hold so much memory, and write to so much of it a second
//	-files 1000               hold so many files open, in a folder beside the beats
//	-connections 200          hold so many TCP connections to itself open
//	-timer 5ms                read a timerfd that fires so often, and write its ticks beside the beats
//	-terminals                have terminals, and write beside the beats how they are
//	-serve :7000              answer each line of a client with the next beat that is on the disk
//
// With -sync N each N-th line is followed by fdatasync, so that N lines at most
// are not yet on the disk. With -gaps it reads such a file instead, and prints
// the number of beats, the longest gap and where it was, as JSON.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	file := flag.String("file", "", "append beats to this `path`")
	every := flag.Duration("every", time.Millisecond, "time between two beats")
	sync := flag.Uint64("sync", 0, "fdatasync after each `N`th beat; 0 is never")
	var load load
	flag.Var(&load.memory, "memory", "hold this `size` of memory")
	flag.Var(&load.dirty, "dirty", "write to this `size` of it each second")
	flag.IntVar(&load.files, "files", 0, "hold `N` files open")
	flag.IntVar(&load.connections, "connections", 0, "hold `N` connections open")
	timer := flag.Duration("timer", 0, "read a timerfd with this `period`")
	terminals := flag.Bool("terminals", false, "have terminals")
	door := flag.String("serve", "", "acknowledge beats to clients at this `address`")
	gaps := flag.String("gaps", "", "report the longest gap in this `path`")
	flag.Parse()

	var err error
	switch {
	case *file != "" && *gaps == "" && *every > 0:
		if err = load.begin(*file + ".open"); err == nil {
			if *terminals {
				go func() { fail(watchTerminals(*file + ".terminals")) }()
			}
			err = run(*file, *every, *sync, *timer, *door)
		}
	case *gaps != "" && *file == "":
		err = printGaps(*gaps, os.Stdout)
	default:
		flag.Usage()
		os.Exit(2)
	}
	fail(err)
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "heartbeat:", err)
		os.Exit(1)
	}
}

// run beats, and reads a timer and serves clients if it is asked to.
func run(file string, every time.Duration, sync uint64, timer time.Duration, door string) error {
	failed := make(chan error, 3)
	beats := newProgress()
	if timer > 0 {
		go func() { failed <- tick(file+".ticks", timer) }()
	}
	if door != "" {
		go func() { failed <- serve(door, beats) }()
	}
	go func() { failed <- beat(file, every, sync, beats) }()
	return <-failed
}

// beat writes until it is killed, and goes on counting where an earlier run ended.
func beat(path string, every time.Duration, sync uint64, beats *progress) error {
	count, err := lastCount(path)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	ticker := time.NewTicker(every)
	line := make([]byte, 0, 48)
	for {
		count++
		line = strconv.AppendUint(line[:0], count, 10)
		line = append(line, ' ')
		line = strconv.AppendInt(line, time.Now().UnixNano(), 10)
		line = append(line, '\n')
		if _, err := f.Write(line); err != nil {
			return err
		}
		if sync > 0 && count%sync == 0 {
			if err := syscall.Fdatasync(int(f.Fd())); err != nil {
				return fmt.Errorf("%s: fdatasync: %w", path, err)
			}
			beats.reach(count)
		}
		<-ticker.C
	}
}

// lastCount returns the counter of a file's last line, or 0 for a file that is not there.
func lastCount(path string) (uint64, error) {
	report, err := readGaps(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	return report.Last, err
}

// Report is what the beats of one file say.
type Report struct {
	Beats  uint64  `json:"beats"`
	First  uint64  `json:"first"`
	Last   uint64  `json:"last"`
	GapMS  float64 `json:"gap_ms"`  // the longest time between two beats
	GapAt  uint64  `json:"gap_at"`  // the beat before it
	FromNS int64   `json:"from_ns"` // wall clock of the beat before it
	ToNS   int64   `json:"to_ns"`   // and of the beat after it
	Missed uint64  `json:"missed"`  // counts that no line has
	Broken uint64  `json:"broken"`  // lines that are no beat
}

func printGaps(path string, out io.Writer) error {
	report, err := readGaps(path)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(report)
}

func readGaps(path string) (Report, error) {
	f, err := os.Open(path)
	if err != nil {
		return Report{}, err
	}
	defer f.Close()
	report, err := measure(f)
	if err != nil {
		return Report{}, fmt.Errorf("%s: %w", path, err)
	}
	return report, nil
}

// measure reads beats and keeps the longest gap. A last line without its end is
// one that is being written.
func measure(in io.Reader) (Report, error) {
	var r Report
	var last int64
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if err == io.EOF {
			return r, nil
		}
		if err != nil {
			return r, err
		}
		count, at, ok := parse(line)
		if !ok {
			r.Broken++
			continue
		}
		if r.Beats == 0 {
			r.First = count
		} else {
			if gap := float64(at-last) / 1e6; gap > r.GapMS {
				r.GapMS, r.GapAt, r.FromNS, r.ToNS = gap, r.Last, last, at
			}
			if count > r.Last+1 {
				r.Missed += count - r.Last - 1
			}
		}
		r.Beats++
		r.Last, last = count, at
	}
}

func parse(line string) (count uint64, at int64, ok bool) {
	first, second, found := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	if !found {
		return 0, 0, false
	}
	count, errCount := strconv.ParseUint(first, 10, 64)
	at, errAt := strconv.ParseInt(second, 10, 64)
	return count, at, errCount == nil && errAt == nil
}
