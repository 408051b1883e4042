package blockprobe

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// The programs are in bpf/, in C. What a compiler made of them is beside this file and
// a part of pcopy, so no compiler has to be there when pcopy is built.
//
//go:generate bpf/generate

// attachCopies attaches a marking program as often as it has to be there; the last
// one may be another. A program that marks nothing needs no copies: a bio that it was
// skipped for is one that nobody knows, or is remembered by the other one.
func (l *Collection) attachCopies(program, last string) error {
	var group []*ebpf.Program
	for i := range copies {
		if i == copies-1 {
			program = last
		}
		p, err := l.attach(program)
		if err != nil {
			return err
		}
		group = append(group, p)
	}
	l.copies = append(l.copies, group)
	return nil
}

func (l *Collection) attach(name string) (*ebpf.Program, error) {
	p, err := l.loadProgram(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	l.progs = append(l.progs, p)
	at, err := link.AttachTracing(link.TracingOptions{Program: p})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	l.links = append(l.links, at)
	return p, nil
}

// loadProgram loads one program with the maps of the collection. The kernel's BTF says
// where the structures' members lie, and kernel.go the numbers of the operations.
func (l *Collection) loadProgram(name string) (*ebpf.Program, error) {
	spec, err := loadBlock()
	if err != nil {
		return nil, err
	}
	if err := spec.Variables["ranged_ops"].Set(l.k.rangedOps); err != nil {
		return nil, err
	}
	if err := spec.Variables["discard_op"].Set(l.k.discard); err != nil {
		return nil, err
	}
	spec.Programs = map[string]*ebpf.ProgramSpec{name: spec.Programs[name]}
	ours := map[string]*ebpf.Map{"table": l.maps.table, "front": l.maps.front, "lost": l.maps.lost, "turns": l.maps.turns}
	if l.maps.bios != nil {
		ours["bios"] = l.maps.bios
	} else {
		delete(spec.Maps, "bios") // the programs for request queues do not use it
	}
	set, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: ours, Cache: l.k.types})
	if err != nil {
		return nil, err
	}
	defer set.Close()
	return set.DetachProgram(name), nil
}
