package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"sync"
)

// progress is how far the beats have come: the last one that is on the disk.
type progress struct {
	mu   sync.Mutex
	next *sync.Cond
	last uint64
}

func newProgress() *progress {
	p := &progress{}
	p.next = sync.NewCond(&p.mu)
	return p
}

func (p *progress) reach(count uint64) {
	p.mu.Lock()
	p.last = count
	p.mu.Unlock()
	p.next.Broadcast()
}

// after waits for the next beat, and returns its number.
func (p *progress) after() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	for now := p.last; p.last == now; {
		p.next.Wait()
	}
	return p.last
}

// serve answers each line of each client with the number of the next beat, once that is on the disk.
func serve(address string, beats *progress) error {
	var plain net.ListenConfig
	plain.SetMultipathTCP(false) // CRIU knows no such sockets
	door, err := plain.Listen(context.Background(), "tcp", address)
	if err != nil {
		return err
	}
	for {
		client, err := door.Accept()
		if err != nil {
			return err
		}
		go acknowledge(client, beats)
	}
}

// acknowledge ends with its client, which tells nobody why.
func acknowledge(client net.Conn, beats *progress) {
	defer client.Close()
	for asked := bufio.NewScanner(client); asked.Scan(); {
		if _, err := fmt.Fprintln(client, beats.after()); err != nil {
			return
		}
	}
}
