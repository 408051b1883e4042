package network

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Ends are those of a TCP connection.
type Ends struct{ Local, Remote netip.AddrPort }

// Connected are the TCP connections of the namespace at path, in any state, to others than
// the namespace itself.
func Connected(path string) ([]Ends, error) {
	var found []Ends
	own := map[netip.AddrPort]bool{}
	var failed error
	err := eachTable(path, func(text string) {
		for _, line := range strings.Split(text, "\n")[1:] {
			c := strings.Fields(line)
			if len(c) < 4 || c[3] == listen {
				continue
			}
			e, err := ends(c[1], c[2])
			if err != nil {
				failed = err
				continue
			}
			own[e.Local] = true
			found = append(found, e)
		}
	})
	if err == nil {
		err = failed
	}
	others := found[:0]
	for _, e := range found {
		if !own[e.Remote] && !e.Remote.Addr().IsLoopback() {
			others = append(others, e)
		}
	}
	return others, err
}

func ends(local, remote string) (e Ends, err error) {
	if e.Local, err = end(local); err == nil {
		e.Remote, err = end(remote)
	}
	return e, err
}

// end reads an address and a port as the kernel prints them: the address in words of 32
// bits, each a number of this machine's.
func end(text string) (netip.AddrPort, error) {
	address, port, _ := strings.Cut(text, ":")
	b, err := hex.DecodeString(address)
	n, portErr := strconv.ParseUint(port, 16, 16)
	if err != nil || portErr != nil || len(b)%4 != 0 {
		return netip.AddrPort{}, fmt.Errorf("network: the kernel prints the address %q", text)
	}
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	a, ok := netip.AddrFromSlice(b)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("network: the kernel prints the address %q", text)
	}
	return netip.AddrPortFrom(a.Unmap(), uint16(n)), nil
}
