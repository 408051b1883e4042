package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/livefleet/handover/helper/internal/structs"
)

// Connection is an established TCP connection, as it stands in its namespace.
type Connection struct {
	Local  netip.AddrPort `json:"local"`
	Remote netip.AddrPort `json:"remote"`
	Sent   uint32         `json:"sent"`   // number of the next byte that the peer is to get
	Heard  uint32         `json:"heard"`  // number of the next byte that is expected of it
	Window uint16         `json:"window"` // how much more it may send, as a header of this connection says it
}

// Reader reads the connections of namespaces, by a program in the kernel: their
// sequence numbers are not to be had otherwise, but from a socket that is put
// into repair mode, in which a process that dies would leave it.
type Reader struct {
	program *ebpf.Program
	iter    *link.Iter
}

// NewReader loads the program. An error is no fault of the caller's: the kernel
// does not describe itself, or does not let this process have programs in it.
func NewReader() (*Reader, error) {
	code, err := iterator()
	if err != nil {
		return nil, fmt.Errorf("network: reading connections: %w", err)
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "connections", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceIter, AttachTo: "tcp", License: "GPL", Instructions: code,
	})
	if err != nil {
		return nil, fmt.Errorf("network: reading connections: %w", err)
	}
	i, err := link.AttachIter(link.IterOptions{Program: p})
	if err != nil {
		p.Close()
		return nil, fmt.Errorf("network: reading connections: %w", err)
	}
	return &Reader{p, i}, nil
}

// Close unloads the program. It may be called of a reader that is none.
func (r *Reader) Close() {
	if r != nil {
		r.iter.Close()
		r.program.Close()
	}
}

// Read returns the established connections of the namespace at path to others
// than itself; and how many there are that Settled counts as closing, in a third of
// its time: the kernel goes through its table of all connections once, and not once
// for each family.
func (r *Reader) Read(path string) (all []Connection, closing int, err error) {
	text, err := r.text(path)
	for rest := text; len(rest) >= recSize; rest = rest[recSize:] {
		if rest[recState] != stateEstablished && rest[recOwned] == 0 {
			closing++
		}
	}
	return connections(text), closing, err
}

func (r *Reader) text(path string) (text []byte, err error) {
	if err := Inside(path, func() error {
		f, err := r.iter.Open()
		if err != nil {
			return err
		}
		defer f.Close()
		text, err = io.ReadAll(f)
		return err
	}); err != nil {
		return nil, fmt.Errorf("network: reading connections: %w", err)
	}
	return text, nil
}

// record is the program's form of one connection, in the machine's byte order but for
// the fields in the network's.
const (
	recFamily = 0 // 16 bits
	recLocal  = 2 // port
	recRemote = 4 // port, network's order
	recScale  = 6 // 8 bits: by how many bits the window is more than a header says
	recState  = 7 // 8 bits
	recHeard  = 8
	recSent   = 12
	recWindow = 16 // from
	recFrom   = 20 // this number on
	recHere   = 24 // address, network's order
	recThere  = 40
	recOwned  = 56 // 8 bits: 1 if a process has it
	recSize   = 64
)

// States of a connection that are of interest, as the kernel numbers them.
const stateEstablished, stateFinWait1, stateLastAck, stateClosing = 1, 4, 9, 11

// connections reads the program's output.
func connections(text []byte) []Connection {
	var found []Connection
	own := map[netip.AddrPort]bool{}
	for ; len(text) >= recSize; text = text[recSize:] {
		if text[recState] != stateEstablished {
			continue
		}
		n := binary.NativeEndian
		heard := n.Uint32(text[recHeard:])
		left := max(int32(n.Uint32(text[recFrom:])+n.Uint32(text[recWindow:])-heard), 0)
		c := Connection{
			Local:  netip.AddrPortFrom(address(text, recHere), n.Uint16(text[recLocal:])),
			Remote: netip.AddrPortFrom(address(text, recThere), binary.BigEndian.Uint16(text[recRemote:])),
			Sent:   n.Uint32(text[recSent:]),
			Heard:  heard,
			Window: uint16(min(left>>text[recScale], 0xffff)),
		}
		own[c.Local] = true
		found = append(found, c)
	}
	others := found[:0]
	for _, c := range found {
		// A peer in the same namespace is frozen as well. And a link's own addresses
		// mean something only together with the link.
		if !own[c.Remote] && !c.Remote.Addr().IsLinkLocalUnicast() {
			others = append(others, c)
		}
	}
	return others
}

func address(text []byte, at int) netip.Addr {
	if binary.NativeEndian.Uint16(text[recFamily:]) == unix.AF_INET {
		return netip.AddrFrom4([4]byte(text[at:]))
	}
	return netip.AddrFrom16([16]byte(text[at:])).Unmap()
}

var errNoBTF = errors.New("this kernel has no BTF (/sys/kernel/btf/vmlinux), from which the layout of its structures is read")

// iterator is the program: it is run for each TCP socket, and writes a record of
// those that are established, or are being closed.
func iterator() (asm.Instructions, error) {
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
		return nil, errNoBTF
	}
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return nil, err
	}
	k := layout{spec: spec}
	scale := k.find("tcp_options_received", "rcv_wscale")
	scale += k.find("tcp_sock", "rx_opt")

	const common, sock = asm.R7, asm.R8
	code := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(common, asm.R6, k.at("bpf_iter__tcp", "sk_common"), asm.DWord),
		asm.JEq.Imm(common, 0, "exit"),
		asm.LoadMem(asm.R1, common, k.at("sock_common", "skc_state"), asm.Byte),
		asm.JEq.Imm(asm.R1, stateEstablished, "take"),
		asm.JEq.Imm(asm.R1, stateFinWait1, "take"),
		asm.JEq.Imm(asm.R1, stateLastAck, "take"),
		asm.JNE.Imm(asm.R1, stateClosing, "exit"),
		asm.Mov.Reg(asm.R1, common).WithSymbol("take"),
		asm.FnSkcToTcpSock.Call(),
		asm.JEq.Imm(asm.R0, 0, "exit"),
		asm.Mov.Reg(sock, asm.R0),
	}
	code = append(code, asm.Mov.Imm(asm.R1, 0))
	for at := int16(0); at < recSize; at += 8 {
		code = append(code, asm.StoreMem(asm.R10, at-recSize, asm.R1, asm.DWord))
	}
	copied := func(to int16, base asm.Register, from int16, size asm.Size) {
		code = append(code, asm.LoadMem(asm.R1, base, from, size), asm.StoreMem(asm.R10, to-recSize, asm.R1, size))
	}
	copied(recFamily, common, k.at("sock_common", "skc_family"), asm.Half)
	copied(recLocal, common, k.at("sock_common", "skc_num"), asm.Half)
	copied(recRemote, common, k.at("sock_common", "skc_dport"), asm.Half)
	copied(recState, common, k.at("sock_common", "skc_state"), asm.Byte)
	copied(recHeard, sock, k.at("tcp_sock", "rcv_nxt"), asm.Word)
	copied(recSent, sock, k.at("tcp_sock", "snd_nxt"), asm.Word)
	copied(recWindow, sock, k.at("tcp_sock", "rcv_wnd"), asm.Word)
	copied(recFrom, sock, k.at("tcp_sock", "rcv_wup"), asm.Word)
	code = append(code,
		asm.LoadMem(asm.R1, sock, int16(scale/8), asm.Byte),
		asm.RSh.Imm(asm.R1, int32(scale%8)),
		asm.And.Imm(asm.R1, 0xf),
		asm.StoreMem(asm.R10, recScale-recSize, asm.R1, asm.Byte),
		asm.LoadMem(asm.R1, sock, k.at("sock", "sk_socket"), asm.DWord),
		asm.JEq.Imm(asm.R1, 0, "address"),
		asm.Mov.Imm(asm.R1, 1),
		asm.StoreMem(asm.R10, recOwned-recSize, asm.R1, asm.Byte),
		asm.LoadMem(asm.R1, common, k.at("sock_common", "skc_family"), asm.Half).WithSymbol("address"),
		asm.JNE.Imm(asm.R1, unix.AF_INET, "six"),
	)
	copied(recHere, common, k.at("sock_common", "skc_rcv_saddr"), asm.Word)
	copied(recThere, common, k.at("sock_common", "skc_daddr"), asm.Word)
	code = append(code, asm.Ja.Label("write"))
	six := len(code)
	for at := int16(0); at < 16; at += 8 {
		copied(recHere+at, common, k.at("sock_common", "skc_v6_rcv_saddr")+at, asm.DWord)
		copied(recThere+at, common, k.at("sock_common", "skc_v6_daddr")+at, asm.DWord)
	}
	code[six] = code[six].WithSymbol("six")
	code = append(code,
		asm.LoadMem(asm.R1, asm.R6, k.at("bpf_iter__tcp", "meta"), asm.DWord).WithSymbol("write"),
		asm.LoadMem(asm.R1, asm.R1, k.at("bpf_iter_meta", "seq"), asm.DWord),
		asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, -recSize),
		asm.Mov.Imm(asm.R3, recSize),
		asm.FnSeqWrite.Call(),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("exit"),
		asm.Return(),
	)
	return code, k.err
}

// layout says where members of the kernel's structures lie.
type layout struct {
	spec *btf.Spec
	err  error
}

// at is in bytes from the structure's beginning, find in bits.
func (l *layout) at(structure, member string) int16 { return int16(l.find(structure, member) / 8) }

func (l *layout) find(structure, member string) btf.Bits {
	var s *btf.Struct
	if err := l.spec.TypeByName(structure, &s); err != nil {
		l.err = errors.Join(l.err, err)
		return 0
	}
	_, at, ok := structs.Member(s.Members, member)
	if !ok {
		l.err = errors.Join(l.err, fmt.Errorf("this kernel's struct %s has no %s", structure, member))
	}
	return at
}
