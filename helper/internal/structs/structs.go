// Package structs reads how the running kernel describes its own structures (BTF).
package structs

import "github.com/cilium/ebpf/btf"

// Member finds a member by name, also inside unions and structures without one.
// The number is where it begins, in bits from the beginning of members' structure.
func Member(members []btf.Member, name string) (btf.Member, btf.Bits, bool) {
	for _, m := range members {
		if m.Name == name {
			return m, m.Offset, true
		}
		if m.Name != "" {
			continue
		}
		var inner []btf.Member
		switch t := btf.UnderlyingType(m.Type).(type) {
		case *btf.Struct:
			inner = t.Members
		case *btf.Union:
			inner = t.Members
		}
		if found, at, ok := Member(inner, name); ok {
			return found, m.Offset + at, true
		}
	}
	return btf.Member{}, 0, false
}
