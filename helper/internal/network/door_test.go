package network

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"
)

const doorLimit = 300 * time.Millisecond

func TestBehindAShutDoorNobodyNewComesIn(t *testing.T) {
	s := newSegment(t)
	port := s.echo(address4)
	before, err := s.dial(address4, port, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	ran := errors.New("it ran")
	err = BehindShutDoor(context.Background(), s.workload, doorLimit, func() error {
		if c, err := s.dial(address4, port, doorLimit); err == nil {
			c.Close()
			t.Error("a new connection came in")
		}
		if err := says(before, time.Second); err != nil {
			t.Errorf("an old connection stands still: %v", err)
		}
		return ran
	})
	if !errors.Is(err, ran) {
		t.Errorf("it told %v", err)
	}
	if _, err := s.dial(address4, port, 5*time.Second); err != nil {
		t.Errorf("the door stays shut: %v", err)
	}
}

func TestNothingBeginsWhileSomebodyWaits(t *testing.T) {
	s := newSegment(t)
	var l net.Listener
	s.in(s.workload, func() (err error) {
		l, err = net.Listen("tcp", "192.0.2.10:0")
		return err
	})
	defer l.Close()
	if _, err := s.dial(address4, l.Addr().(*net.TCPAddr).Port, time.Second); err != nil {
		t.Fatal(err)
	}
	run := func() (ran bool, err error) {
		err = BehindShutDoor(context.Background(), s.workload, doorLimit, func() error { ran = true; return nil })
		return ran, err
	}
	if ran, err := run(); ran || err == nil || !strings.Contains(err.Error(), "has 1 connection waiting to be accepted by the workload, which does not accept") {
		t.Errorf("ran: %t, %v", ran, err)
	}
	// It is a busy one, and accepts a moment later.
	accepted := time.AfterFunc(doorLimit/3, func() { _, _ = l.Accept() })
	defer accepted.Stop()
	if ran, err := run(); !ran || err != nil {
		t.Errorf("ran: %t, %v", ran, err)
	}
}
