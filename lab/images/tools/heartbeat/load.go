package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// size is a number of bytes, as a flag with K, M or G.
type size int64

func (s *size) String() string { return strconv.FormatInt(int64(*s), 10) }

func (s *size) Set(text string) error {
	number, factor := text, int64(1)
	if i := strings.IndexAny(text, "KMG"); i > 0 && i == len(text)-1 {
		number, factor = text[:i], map[byte]int64{'K': 1 << 10, 'M': 1 << 20, 'G': 1 << 30}[text[i]]
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 {
		return fmt.Errorf("%q is no size: write a number with K, M or G, as in 256M", text)
	}
	*s = size(n * factor)
	return nil
}

// load is what a move has to carry beside the beats.
type load struct {
	memory, dirty      size
	files, connections int

	held []any // so that nothing of it is collected
}

func (l *load) begin(folder string) error {
	if err := l.openFiles(folder); err != nil {
		return err
	}
	if err := l.connect(); err != nil {
		return err
	}
	l.writeMemory()
	return nil
}

func (l *load) openFiles(folder string) error {
	if l.files == 0 {
		return nil
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for n := range l.files {
		f, err := os.OpenFile(filepath.Join(folder, strconv.Itoa(n)), os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return err
		}
		l.held = append(l.held, f)
	}
	return nil
}

func (l *load) connect() error {
	if l.connections == 0 {
		return nil
	}
	door, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	l.held = append(l.held, door)
	for range l.connections {
		there, err := net.Dial("tcp", door.Addr().String())
		if err != nil {
			return err
		}
		here, err := door.Accept()
		if err != nil {
			return err
		}
		l.held = append(l.held, here, there)
	}
	return nil
}

const page = 4096

// writeMemory fills the memory with what cannot be packed, and from then on writes
// one word in each of so many pages a second, in turn.
func (l *load) writeMemory() {
	if l.memory == 0 {
		return
	}
	memory := make([]byte, l.memory)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(memory)
	l.held = append(l.held, memory)
	if l.dirty == 0 {
		return
	}
	const turns = 100 // a second
	go func() {
		at := 0
		for range time.Tick(time.Second / turns) {
			for range int64(l.dirty) / page / turns {
				memory[at]++
				at = (at + page) % len(memory)
			}
		}
	}()
}
