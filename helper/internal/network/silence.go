package network

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// tableName is the name of our tables in a namespace, one a family.
const tableName = "handover"

// criuMark is on the packets that CRIU itself sends, from the namespace to the
// namespace, to bring a restored socket into a state in which its peer has closed.
const criuMark = 0xC114

// priority puts our chains before everybody else's.
var priority = nftables.ChainPriorityRef(-500)

var drop = nftables.ChainPolicyDrop

var (
	ip  = &nftables.Table{Family: nftables.TableFamilyINet, Name: tableName}
	arp = &nftables.Table{Family: nftables.TableFamilyARP, Name: tableName}
)

// arpHooks are the hooks of ARP, which have numbers of their own.
var arpHooks = []*nftables.ChainHook{nftables.ChainHookRef(0), nftables.ChainHookRef(1)}

// Silence drops everything in the namespace until it is opened, or gone.
func Silence(path string) error {
	c, closeConn, err := dial(path)
	if err != nil {
		return err
	}
	defer closeConn()
	c.AddTable(ip)
	c.AddTable(arp)
	silence(c)
	return told(path, "silencing", c.Flush())
}

// Silent reports whether the namespace is.
func Silent(path string) (bool, error) {
	c, closeConn, err := dial(path)
	if err != nil {
		return false, err
	}
	defer closeConn()
	chains, err := c.ListChainsOfTableFamily(ip.Family)
	for _, chain := range chains {
		if chain.Table.Name == tableName && chain.Policy != nil && *chain.Policy == drop {
			return true, nil
		}
	}
	return false, told(path, "looking into", err)
}

// closeLater is after the pause: to close a socket of netfilter's the kernel waits
// until the deleted table is out of use everywhere, 10 to 70 ms, and no other process
// in the namespace can change tables in that time.
const closeLater = time.Second

// Open ends the silence of a namespace. It may be called more than once.
func Open(path string) error {
	c, closeConn, err := dial(path)
	if err != nil {
		return err
	}
	defer time.AfterFunc(closeLater, closeConn)
	// Added first, so that there is always something to delete.
	for _, t := range []*nftables.Table{ip, arp} {
		c.AddTable(t)
		c.DelTable(t)
	}
	return told(path, "opening", c.Flush())
}

// Guard keeps a namespace shut for as long as its process lives, and no longer.
type Guard struct {
	path  string
	conn  *nftables.Conn
	close func()
}

// NewGuard puts a guard before the namespace, which lets everything through.
func NewGuard(path string) (_ *Guard, err error) {
	g := &Guard{path: path}
	var nl *netlink.Conn
	if g.conn, g.close, err = dial(path, func(c *netlink.Conn) error { nl = c; return nil }); err != nil {
		return nil, err
	}
	for _, t := range []*nftables.Table{ip, arp} {
		if err := own(nl, t); err != nil {
			g.close()
			return nil, told(path, "guarding", err)
		}
	}
	return g, nil
}

// TurnAway drops requests for new connections from any peer. The peer will ask again.
func (g *Guard) TurnAway() error {
	const tcpFlags, fin, syn, rst, ack = 13, 1, 2, 4, 16
	door := g.conn.AddChain(&nftables.Chain{Table: ip, Name: "door", Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookInput, Priority: priority})
	g.conn.AddRule(&nftables.Rule{Table: ip, Chain: door, Exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: tcpFlags, Len: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{fin | syn | rst | ack}, Xor: []byte{0}},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{syn}},
		&expr.Verdict{Kind: expr.VerdictDrop},
	}})
	return told(g.path, "turning new connections away from", g.conn.Flush())
}

// Silence drops everything.
func (g *Guard) Silence() error {
	silence(g.conn)
	return told(g.path, "silencing", g.conn.Flush())
}

// Close takes the guard away: everything gets through again. It may be called
// more than once, and of a guard that is none.
func (g *Guard) Close() {
	if g != nil && g.close != nil {
		g.close()
		g.close = nil
	}
}

// silence adds the chains in which nothing gets through.
func silence(c *nftables.Conn) {
	for name, hook := range map[string]*nftables.ChainHook{"input": nftables.ChainHookInput, "output": nftables.ChainHookOutput} {
		chain := c.AddChain(&nftables.Chain{Table: ip, Name: name, Type: nftables.ChainTypeFilter, Hooknum: hook, Priority: priority, Policy: &drop})
		c.AddRule(&nftables.Rule{Table: ip, Chain: chain, Exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(criuMark)},
			&expr.Verdict{Kind: expr.VerdictAccept},
		}})
	}
	for i, name := range []string{"input", "output"} {
		c.AddChain(&nftables.Chain{Table: arp, Name: name, Type: nftables.ChainTypeFilter, Hooknum: arpHooks[i], Priority: priority, Policy: &drop})
	}
}

// tableOwner is the kernel's NFT_TABLE_F_OWNER, since Linux 5.12.
const tableOwner = 2

// own makes a table that belongs to the socket: others cannot change it, and the
// kernel removes it when the socket is closed. The library does not know the flag.
func own(nl *netlink.Conn, t *nftables.Table) error {
	header := func(family byte, resource uint16) []byte {
		return []byte{family, unix.NFNETLINK_V0, byte(resource >> 8), byte(resource)}
	}
	ae := netlink.NewAttributeEncoder()
	ae.String(unix.NFTA_TABLE_NAME, t.Name)
	ae.Bytes(unix.NFTA_TABLE_FLAGS, binaryutil.BigEndian.PutUint32(tableOwner))
	attributes, err := ae.Encode()
	if err != nil {
		return err
	}
	message := func(kind uint16, flags netlink.HeaderFlags, data []byte) netlink.Message {
		return netlink.Message{Header: netlink.Header{Type: netlink.HeaderType(kind), Flags: netlink.Request | flags}, Data: data}
	}
	if _, err := nl.SendMessages([]netlink.Message{
		message(unix.NFNL_MSG_BATCH_BEGIN, 0, header(0, unix.NFNL_SUBSYS_NFTABLES)),
		message(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWTABLE, netlink.Acknowledge|netlink.Create|netlink.Excl, append(header(byte(t.Family), 0), attributes...)),
		message(unix.NFNL_MSG_BATCH_END, 0, header(0, unix.NFNL_SUBSYS_NFTABLES)),
	}); err != nil {
		return err
	}
	_, err = nl.Receive() // the acknowledgement, or the refusal
	return err
}

// dial connects to the kernel's tables of the namespace, until the connection is
// closed.
func dial(path string, options ...nftables.SockOption) (*nftables.Conn, func(), error) {
	ns, err := os.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("network: the workload's namespace: %w", err)
	}
	defer ns.Close()
	c, err := nftables.New(nftables.WithNetNSFd(int(ns.Fd())), nftables.AsLasting(), nftables.WithSockOptions(options...))
	if err != nil {
		return nil, nil, told(path, "entering", err)
	}
	return c, func() { _ = c.CloseLasting() }, nil
}

func told(path, what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EAFNOSUPPORT), errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.ENOENT):
		return fmt.Errorf("network: %s %s: the kernel has no nftables for IP or ARP (%w): load the module nf_tables", what, path, err)
	}
	return fmt.Errorf("network: %s %s: %w", what, path, err)
}
