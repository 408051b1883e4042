package structs

import (
	"testing"

	"github.com/cilium/ebpf/btf"
)

func TestMember(t *testing.T) {
	u32 := &btf.Int{Name: "unsigned int", Size: 4}
	inner := &btf.Struct{Size: 8, Members: []btf.Member{{Name: "low", Type: u32}, {Name: "bits", Type: u32, Offset: 36, BitfieldSize: 4}}}
	either := &btf.Union{Size: 8, Members: []btf.Member{{Name: "whole", Type: u32}, {Type: inner}}}
	named := &btf.Struct{Size: 4, Members: []btf.Member{{Name: "hidden", Type: u32}}}
	members := []btf.Member{{Name: "first", Type: u32}, {Type: either, Offset: 64}, {Name: "named", Type: named, Offset: 128}}
	for name, want := range map[string]btf.Bits{"first": 0, "whole": 64, "low": 64, "bits": 100, "named": 128} {
		if m, at, ok := Member(members, name); !ok || at != want || m.Name != name {
			t.Errorf("%s: %v at %d, %v", name, m, at, ok)
		}
	}
	for _, name := range []string{"hidden", "nowhere"} {
		if _, _, ok := Member(members, name); ok {
			t.Errorf("%s was found", name)
		}
	}
}
