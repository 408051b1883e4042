package blockprobe

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/cilium/ebpf/btf"

	"github.com/livefleet/handover/helper/internal/structs"
)

// kernel is what must be known of the running kernel before the programs are loaded.
type kernel struct {
	// The operations whose range is that of the request, a bit for each number. Of the
	// others, those with an odd number change the device too, in ways that have no
	// range here.
	rangedOps uint64
	discard   uint32

	// rwPage: the kernel has a way to write pages to some drivers past all
	// tracepoints (before 6.3).
	rwPage bool

	// types are the kernel's own, tens of megabytes, read once for all programs. Without
	// them each program has them read anew.
	types *btf.Cache
}

// letGo gives the memory of the kernel's types back, before the copying takes as much
// for itself.
func (k *kernel) letGo() {
	k.types = nil
	debug.FreeOSMemory()
}

// members are those that bpf/kernel.h reads. The loader finds where they lie; but of
// one that is missing it says no more than the number of an instruction.
var members = map[string][]string{
	"request":       {"q", "cmd_flags", "__sector", "bio", "start_time_ns", "tag"},
	"request_queue": {"disk", "id"},
	"bio":           {"bi_next", "bi_bdev", "bi_opf", "bi_private", "__bi_remaining", "bi_iter.bi_sector", "bi_iter.bi_size"},
	"block_device":  {"bd_disk"},
	"gendisk":       {"major", "first_minor"},
}

// arguments are those of the tracepoints, by their place, as bpf/block.bpf.c has them.
var arguments = map[string]map[int]string{
	"block_rq_complete":  {0: "request", 2: "unsigned int"},
	"block_bio_queue":    {0: "bio"},
	"block_bio_complete": {1: "bio"},
	"block_bio_remap":    {0: "bio", 1: "dev_t", 2: "sector_t"},
}

// errNoBTF says that the kernel does not describe itself.
var errNoBTF = errors.New("this kernel has no BTF (/sys/kernel/btf/vmlinux), from which the layout of its structures is read: use a kernel with CONFIG_DEBUG_INFO_BTF, as all current distributions have")

// lookKernel reads the layout from the running kernel. The caller lets the types go when
// all programs are loaded.
func lookKernel() (*kernel, error) {
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
		return nil, errNoBTF
	}
	types := btf.NewCache()
	spec, err := types.Kernel()
	if err != nil {
		return nil, fmt.Errorf("reading the kernel's BTF: %w", err)
	}
	k, err := readLayout(spec)
	if err != nil {
		return nil, err
	}
	k.types = types
	return k, nil
}

// types is the part of a btf.Spec that is needed.
type types interface {
	TypeByName(name string, typ any) error
}

// layout looks for members and arguments, and collects everything that is missing.
type layout struct {
	types   types
	missing []error
}

func readLayout(t types) (*kernel, error) {
	l := &layout{types: t}
	k := &kernel{}

	for _, structure := range slices.Sorted(maps.Keys(members)) {
		for _, path := range members[structure] {
			l.member(structure, strings.Split(path, ".")...)
		}
	}
	for _, tracepoint := range slices.Sorted(maps.Keys(arguments)) {
		for _, place := range slices.Sorted(maps.Keys(arguments[tracepoint])) {
			l.argument(tracepoint, place, arguments[tracepoint][place])
		}
	}
	ops := l.operations()
	for _, name := range []string{"REQ_OP_WRITE", "REQ_OP_DISCARD"} {
		if _, ok := ops[name]; !ok {
			l.lacks("the operation %s", name)
		}
	}
	k.discard = uint32(ops["REQ_OP_DISCARD"])
	// REQ_OP_WRITE_SAME went in 5.18, and the others came over the years.
	for _, name := range []string{"REQ_OP_WRITE", "REQ_OP_WRITE_ZEROES", "REQ_OP_WRITE_SAME", "REQ_OP_SECURE_ERASE", "REQ_OP_ZONE_APPEND"} {
		if op, ok := ops[name]; ok {
			k.rangedOps |= 1 << op
		}
	}
	var bops *btf.Struct
	if t.TypeByName("block_device_operations", &bops) == nil {
		for _, m := range bops.Members {
			k.rwPage = k.rwPage || m.Name == "rw_page"
		}
	}
	if len(l.missing) > 0 {
		return nil, fmt.Errorf("this kernel's block layer is not one that is known here: %w", errors.Join(l.missing...))
	}
	return k, nil
}

func (l *layout) lacks(format string, args ...any) {
	l.missing = append(l.missing, fmt.Errorf("it lacks "+format, args...))
}

// member looks for a member of a structure, or for a member of a member.
func (l *layout) member(structure string, path ...string) {
	var s *btf.Struct
	if err := l.types.TypeByName(structure, &s); err != nil {
		l.lacks("struct %s", structure)
		return
	}
	for i, name := range path {
		m, _, ok := structs.Member(s.Members, name)
		if !ok {
			l.lacks("the field %s of struct %s", name, structure)
			return
		}
		if i < len(path)-1 {
			if s, ok = btf.UnderlyingType(m.Type).(*btf.Struct); !ok {
				l.lacks("a struct in the field %s of struct %s", name, structure)
				return
			}
			continue
		}
		if size, err := btf.Sizeof(m.Type); err != nil || m.BitfieldSize != 0 || size != 4 && size != 8 {
			l.lacks("a plain number in the field %s of struct %s", name, structure)
		}
	}
}

// argument looks whether an argument of a tracepoint has a type, given by the name of
// the type itself or of what a pointer points to.
func (l *layout) argument(tracepoint string, place int, typ string) {
	var def *btf.Typedef
	if err := l.types.TypeByName("btf_trace_"+tracepoint, &def); err != nil {
		l.lacks("the tracepoint %s", tracepoint)
		return
	}
	if ptr, ok := def.Type.(*btf.Pointer); ok {
		// The first is the tracepoint's own data.
		if proto, ok := ptr.Target.(*btf.FuncProto); ok && len(proto.Params) > place+1 && nameOfArgument(proto.Params[place+1].Type) == typ {
			return
		}
	}
	l.lacks("an argument of type %q in the place %d of the tracepoint %s", typ, place+1, tracepoint)
}

func nameOfArgument(t btf.Type) string {
	if target, ok := t.(*btf.Pointer); ok {
		t = target.Target
	}
	if c, ok := t.(*btf.Const); ok {
		t = c.Type
	}
	return t.TypeName()
}

// operations reads the numbers of the block operations: enum req_op, which was
// called req_opf before 6.0.
func (l *layout) operations() map[string]int32 {
	ops := make(map[string]int32)
	for _, name := range []string{"req_op", "req_opf"} {
		var e *btf.Enum
		if err := l.types.TypeByName(name, &e); err != nil {
			continue
		}
		for _, v := range e.Values {
			ops[v.Name] = int32(v.Value)
		}
		return ops
	}
	l.lacks("the list of block operations (enum req_op)")
	return ops
}
