package blockprobe

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/cilium/ebpf/btf"

	"github.com/livefleet/handover/helper/internal/structs"
)

// kernel holds the facts about the running kernel that the programs need.
type kernel struct {
	rq struct {
		q, cmdFlags, sector, bio, start, tag field
	}
	queue struct{ disk, id field }
	bio   struct {
		next, bdev, opf, sector, size, private, remaining field
	}
	bdev struct{ disk field }
	disk struct{ major, minor field }

	complete struct{ rq, bytes int } // the arguments of block_rq_complete
	queued   struct{ bio int }       // of block_bio_queue
	done     struct{ bio int }       // of block_bio_complete
	remapped struct{ bio, dev, from int }

	// The operations whose range is that of the request. Of the others, those
	// with an odd number change the device too, in ways that have no range here.
	ranged  []int32
	discard int32

	// rwPage: the kernel has a way to write pages to some drivers past all
	// tracepoints (before 6.3).
	rwPage bool
}

// field is where a member of a structure lies.
type field struct{ off, size int16 }

// errNoBTF says that the kernel does not describe itself.
var errNoBTF = errors.New("this kernel has no BTF (/sys/kernel/btf/vmlinux), from which the layout of its structures is read: use a kernel with CONFIG_DEBUG_INFO_BTF, as all current distributions have")

// lookKernel reads the layout from the running kernel.
func lookKernel() (*kernel, error) {
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
		return nil, errNoBTF
	}
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return nil, fmt.Errorf("reading the kernel's BTF: %w", err)
	}
	defer debug.FreeOSMemory()  // before the copying takes as much for itself
	defer btf.FlushKernelSpec() // some tens of megabytes, needed once
	return readLayout(spec)
}

// types is the part of a btf.Spec that is needed.
type types interface {
	TypeByName(name string, typ any) error
}

// layout collects fields and arguments, and everything that is missing.
type layout struct {
	types   types
	missing []error
}

func readLayout(t types) (*kernel, error) {
	l := &layout{types: t}
	k := &kernel{}

	k.rq.q = l.field("request", "q")
	k.rq.cmdFlags = l.field("request", "cmd_flags")
	k.rq.sector = l.field("request", "__sector")
	k.rq.bio = l.field("request", "bio")
	k.rq.start = l.field("request", "start_time_ns")
	k.rq.tag = l.field("request", "tag")
	k.queue.disk = l.field("request_queue", "disk")
	k.queue.id = l.field("request_queue", "id")
	k.bio.next = l.field("bio", "bi_next")
	k.bio.bdev = l.field("bio", "bi_bdev")
	k.bio.opf = l.field("bio", "bi_opf")
	k.bio.private = l.field("bio", "bi_private")
	k.bio.remaining = l.field("bio", "__bi_remaining")
	k.bio.sector = l.field("bio", "bi_iter", "bi_sector")
	k.bio.size = l.field("bio", "bi_iter", "bi_size")
	k.bdev.disk = l.field("block_device", "bd_disk")
	k.disk.major = l.field("gendisk", "major")
	k.disk.minor = l.field("gendisk", "first_minor")

	k.complete.rq, k.complete.bytes = l.argument("block_rq_complete", "request"), l.argument("block_rq_complete", "unsigned int")
	k.queued.bio = l.argument("block_bio_queue", "bio")
	k.done.bio = l.argument("block_bio_complete", "bio")
	k.remapped.bio, k.remapped.dev, k.remapped.from = l.argument("block_bio_remap", "bio"), l.argument("block_bio_remap", "dev_t"), l.argument("block_bio_remap", "sector_t")

	ops := l.operations()
	for _, name := range []string{"REQ_OP_WRITE", "REQ_OP_DISCARD"} {
		if _, ok := ops[name]; !ok {
			l.lacks("the operation %s", name)
		}
	}
	k.discard = ops["REQ_OP_DISCARD"]
	// REQ_OP_WRITE_SAME went in 5.18, and the others came over the years.
	for _, name := range []string{"REQ_OP_WRITE", "REQ_OP_WRITE_ZEROES", "REQ_OP_WRITE_SAME", "REQ_OP_SECURE_ERASE", "REQ_OP_ZONE_APPEND"} {
		if op, ok := ops[name]; ok {
			k.ranged = append(k.ranged, op)
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

// field finds a member of a structure, or a member of a member.
func (l *layout) field(structure string, path ...string) field {
	var s *btf.Struct
	if err := l.types.TypeByName(structure, &s); err != nil {
		l.lacks("struct %s", structure)
		return field{}
	}
	var off uint32
	for i, name := range path {
		m, base, ok := structs.Member(s.Members, name)
		if !ok {
			l.lacks("the field %s of struct %s", name, structure)
			return field{}
		}
		off += base.Bytes()
		if i < len(path)-1 {
			inner, ok := btf.UnderlyingType(m.Type).(*btf.Struct)
			if !ok {
				l.lacks("a struct in the field %s of struct %s", name, structure)
				return field{}
			}
			s = inner
			continue
		}
		size, err := btf.Sizeof(m.Type)
		if err != nil || m.BitfieldSize != 0 || size != 4 && size != 8 || off > 4096 {
			l.lacks("a plain number in the field %s of struct %s", name, structure)
			return field{}
		}
		return field{int16(off), int16(size)}
	}
	return field{}
}

// argument finds which argument of a tracepoint has a type, given by the name of the
// type itself or of a pointer's target. The last one counts: for a number that is the
// size, which stands after the status where both are numbers.
func (l *layout) argument(tracepoint, typ string) int {
	var def *btf.Typedef
	if err := l.types.TypeByName("btf_trace_"+tracepoint, &def); err != nil {
		l.lacks("the tracepoint %s", tracepoint)
		return 0
	}
	found := -1
	if ptr, ok := def.Type.(*btf.Pointer); ok {
		if proto, ok := ptr.Target.(*btf.FuncProto); ok && len(proto.Params) > 0 {
			for i, p := range proto.Params[1:] { // the first is the tracepoint's own data
				t := p.Type
				if target, ok := t.(*btf.Pointer); ok {
					t = target.Target
				}
				if c, ok := t.(*btf.Const); ok {
					t = c.Type
				}
				if t.TypeName() == typ {
					found = i
				}
			}
		}
	}
	if found < 0 {
		l.lacks("an argument of type %q in the tracepoint %s", typ, tracepoint)
		return 0
	}
	return found
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
