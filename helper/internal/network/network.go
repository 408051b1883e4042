// Package network keeps a workload's network namespace silent for as long as two
// hosts hold it, and tells the segment where it is afterwards.
//
// A workload takes its addresses along, the hardware address too. From the freeze to
// the resume both hosts have a namespace with these addresses, and neither may be
// heard: a segment that reaches a namespace whose sockets are gone, or not there yet,
// is answered with a reset, and an answer to an ARP request or a neighbour
// solicitation from the wrong host sends the clients there. Silence drops, inside the
// namespace and in both directions, everything that comes and goes: IP, ICMP with
// neighbour discovery, ARP. Clients send their packets of that time again.
//
// On the source the silence belongs to a Guard, and so to a process: the kernel
// lifts it when that is gone, and a workload that is thawed can never be left
// behind it. On the destination it belongs to the namespace, from before the
// first interface is made: it goes with the namespace, or when it is opened.
//
// A guard can also reject new connections, and only these: CRIU cannot carry a
// connection that has not been accepted yet, nor the unsent rest of one that was
// closed. Settled says whether there are any.
package network

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Inside runs f in the network namespace at path (/run/netns/…, /proc/…/ns/net).
// Sockets that f makes, and files that it reads below /proc/thread-self/net and
// /proc/sys/net, are the namespace's. f must not start goroutines that do either.
func Inside(path string, f func() error) error {
	ns, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("network: the workload's namespace: %w", err)
	}
	defer ns.Close()
	failed := make(chan error, 1)
	go func() {
		// The thread is never unlocked: it ends with the goroutine, and no other
		// goroutine works in the namespace by accident.
		runtime.LockOSThread()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			failed <- fmt.Errorf("network: entering %s: %w", path, err)
			return
		}
		failed <- f()
	}()
	return <-failed
}

// SkipDetection makes interfaces that are made in the namespace from now on use
// their IPv6 addresses at once. Asking the segment first whether another host has
// them takes a second or two, and the answer is known: the source has them, and
// lets go of them.
func SkipDetection(path string) error {
	return Inside(path, func() error {
		err := os.WriteFile("/proc/sys/net/ipv6/conf/default/accept_dad", []byte("0"), 0)
		if errors.Is(err, os.ErrNotExist) { // a kernel without IPv6
			return nil
		}
		return err
	})
}

// Unsettled counts the state of a namespace that a dump would lose at the moment.
type Unsettled struct {
	Waiting int // connections that have not been accepted yet
	Opening int // connections whose handshake is under way
	Closing int // connections that were closed, with something left to send

	Backlog string // in words, the ports of the listeners with pending connections
}

// Settled reads the namespace's sockets.
func Settled(path string) (u Unsettled, err error) {
	err = eachTable(path, u.add)
	return u, err
}

// eachTable reads the kernel's tables of TCP sockets in the namespace at path.
func eachTable(path string, read func(text string)) error {
	return Inside(path, func() error {
		for _, table := range []string{"tcp", "tcp6"} {
			text, err := os.ReadFile("/proc/thread-self/net/" + table)
			if errors.Is(err, os.ErrNotExist) {
				continue
			} else if err != nil {
				return fmt.Errorf("network: %w", err)
			}
			read(string(text))
		}
		return nil
	})
}

// States of a socket as the kernel prints them.
const (
	synRecv  = "03"
	finWait1 = "04"
	lastAck  = "09"
	listen   = "0A"
	closing  = "0B"
)

// add counts in one of the kernel's tables. Its columns are: number, local and
// remote address, state, queues (to send:received, in hexadecimal; of a listener
// the second is how many wait), timer, retransmissions, user, timeout, inode.
func (u *Unsettled) add(table string) {
	for _, line := range strings.Split(table, "\n")[1:] {
		c := strings.Fields(line)
		if len(c) < 10 {
			continue
		}
		_, received, _ := strings.Cut(c[4], ":")
		switch owned := c[9] != "0"; c[3] {
		case listen:
			var n int
			_, _ = fmt.Sscanf(received, "%x", &n)
			u.wait(c[1], n)
		case synRecv:
			u.Opening++
		case finWait1, lastAck, closing:
			if !owned {
				u.Closing++
			}
		}
	}
}

// wait counts those that wait at a listener, of which the kernel prints the address
// and port in hexadecimal.
func (u *Unsettled) wait(local string, n int) {
	if n == 0 {
		return
	}
	u.Waiting += n
	_, hex, _ := strings.Cut(local, ":")
	var port int
	_, _ = fmt.Sscanf(hex, "%x", &port)
	connections := "connections"
	if n == 1 {
		connections = "connection"
	}
	if u.Backlog != "" {
		u.Backlog += ", "
	}
	u.Backlog += fmt.Sprintf("port %d has %d %s waiting", port, n, connections)
}
