package floating

import (
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// engine makes the rules that netavark makes, in short: new connections are led to the
// workload, packets of no known connection are not forwarded, and others that leave have
// the host's own address.
func engine() error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "engine"})
	chain := func(name string, kind nftables.ChainType, hook *nftables.ChainHook, priority *nftables.ChainPriority, rules ...[]expr.Any) {
		in := c.AddChain(&nftables.Chain{Table: table, Name: name, Type: kind, Hooknum: hook, Priority: priority})
		for _, r := range rules {
			c.AddRule(&nftables.Rule{Table: table, Chain: in, Exprs: r})
		}
	}
	chain("forward", nftables.ChainTypeFilter, nftables.ChainHookForward, nftables.ChainPriorityFilter, []expr.Any{
		&expr.Ct{Register: 1, Key: expr.CtKeySTATE},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(expr.CtStateBitINVALID), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
		&expr.Verdict{Kind: expr.VerdictDrop},
	})
	lead := func(to, inner netip.Addr) []expr.Any {
		return append(with(to, 1),
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(80)},
			&expr.Immediate{Register: 1, Data: inner.AsSlice()},
			&expr.Immediate{Register: 2, Data: binaryutil.BigEndian.PutUint16(80)},
			&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(familyOf(to)), RegAddrMin: 1, RegProtoMin: 2})
	}
	chain("in", nftables.ChainTypeNAT, nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest, lead(float4.Prefix.Addr(), inner4), lead(float6.Prefix.Addr(), inner6))
	chain("out", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource,
		append(with(inner4, 0), &expr.Masq{}), append(with(inner6, 0), &expr.Masq{}))
	return c.Flush()
}

// with matches TCP packets to an address, or with from 0 those that come from it.
func with(a netip.Addr, to uint32) []expr.Any {
	family, offset, size := byte(unix.NFPROTO_IPV4), 12+4*to, uint32(4)
	if a.Is6() {
		family, offset, size = unix.NFPROTO_IPV6, 8+16*to, 16
	}
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{family}},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: a.AsSlice()},
	}
}
