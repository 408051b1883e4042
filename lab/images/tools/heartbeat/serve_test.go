package main

import (
	"bufio"
	"fmt"
	"net"
	"testing"
	"time"
)

func TestAnAnswerIsTheNextBeat(t *testing.T) {
	beats := newProgress()
	beats.reach(7)
	here, there := net.Pipe()
	defer here.Close()
	go acknowledge(there, beats)
	answers := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(here).ReadString('\n')
		answers <- line
	}()
	fmt.Fprintln(here, "?")
	select {
	case early := <-answers:
		t.Fatalf("%q came before the beat", early)
	case <-time.After(100 * time.Millisecond):
	}
	beats.reach(8)
	if got := <-answers; got != "8\n" {
		t.Fatalf("the answer is %q", got)
	}
}
