package hooks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protowire"
)

// A runtime that restores starts `criu swrk FD` and writes a request to the
// socket FD. Everything that it does before that, and all that the engine above
// it does before that, needs nothing of the dump but a few small files: so it can
// be done while the workload still runs or is being dumped, if CRIU is then kept
// from starting.
//
// That is the purpose of a Command's Hold: a folder in front of PATH with a program
// of the name criu, which calls Held. It looks at the request without taking it from
// the socket, asks the gate of the images that the request names, and then becomes
// the real CRIU. A request that restores nothing is passed on at once.
//
// It is no safeguard, and safety does not depend on it: a restore that begins too
// early finds incomplete images, and the restored tasks are held at post-restore.

// criuProgram is the name that a runtime looks for in PATH.
const criuProgram = "criu"

// Holder decides for the stand-in for CRIU, by the directory of the images.
type Holder interface {
	// MayStart says whether CRIU may come up to restore; it may take its time.
	MayStart(imageDir string) (bool, error)
	// Options are those of this one dump or restore; nil: there are none.
	Options(imageDir string, restores bool) (*Options, error)
}

// Held is the stand-in for CRIU: the program own, called with args. It returns only if
// CRIU may not come up, or if there is none.
func Held(ctx context.Context, own string, args []string, holder Holder) error {
	real, err := RealProgram(own, criuProgram)
	if err != nil {
		return err
	}
	if len(args) == 2 && args[0] == "swrk" {
		if err := hold(ctx, args[1], holder); err != nil {
			return err
		}
	}
	if err := unix.Exec(real, append([]string{criuProgram}, args...), os.Environ()); err != nil {
		return fmt.Errorf("hooks: %s: %w", real, err)
	}
	return nil
}

// hold prepares a runtime's request before CRIU reads it.
func hold(ctx context.Context, socket string, holder Holder) error {
	fd, err := strconv.Atoi(socket)
	if err != nil {
		return fmt.Errorf("hooks: %q is no file descriptor", socket)
	}
	r, err := readRequest(fd)
	if err != nil || r.kind != typeDump && r.kind != typeRestore || r.images < 0 {
		return err
	}
	// The descriptor is one of the runtime's.
	dir, err := filepath.EvalSymlinks(fmt.Sprintf("/proc/%d/fd/%d", r.peer, r.images))
	if err != nil {
		return fmt.Errorf("hooks: the directory of CRIU's images: %w", err)
	}
	if r.kind == typeRestore {
		if err := mayStart(ctx, dir, holder.MayStart); err != nil {
			return err
		}
	}
	options, err := holder.Options(dir, r.kind == typeRestore)
	if err != nil || options == nil {
		return err
	}
	return options.apply(fd, r)
}

func mayStart(ctx context.Context, dir string, ask func(string) (bool, error)) error {
	type answer struct {
		goOn bool
		err  error
	}
	got := make(chan answer, 1)
	go func() {
		goOn, err := ask(dir)
		got <- answer{goOn, err}
	}()
	select {
	case a := <-got:
		if a.err == nil && !a.goOn {
			a.err = errors.New("hooks: the session refuses to let CRIU restore")
		}
		return a.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// RealProgram is the first one of this name in PATH that is not the program own, which stands in for it.
func RealProgram(own, name string) (string, error) {
	self, err := os.Stat(own)
	if err != nil {
		return "", fmt.Errorf("hooks: %w", err)
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		if err == nil && !info.IsDir() && info.Mode()&0o111 != 0 && !os.SameFile(info, self) {
			return path, nil
		}
	}
	return "", fmt.Errorf("hooks: there is no %s in PATH (%s)", name, os.Getenv("PATH"))
}

// criuRequest is a runtime's request to CRIU.
type criuRequest struct {
	whole  []byte
	peer   int // the runtime's process
	kind   uint64
	images int    // its descriptor of the images' directory; -1 if it names none
	config string // the file that CRIU reads after the request
}

// readRequest waits for the request on a runtime's socket, and leaves it there.
func readRequest(fd int) (r criuRequest, err error) {
	b := make([]byte, 64<<10)
	n, _, err := unix.Recvfrom(fd, b, unix.MSG_PEEK|unix.MSG_TRUNC)
	for errors.Is(err, unix.EINTR) {
		n, _, err = unix.Recvfrom(fd, b, unix.MSG_PEEK|unix.MSG_TRUNC)
	}
	if err == nil && n > len(b) {
		err = fmt.Errorf("it has %d bytes", n)
	}
	if err != nil {
		return r, fmt.Errorf("hooks: the runtime's request: %w", err)
	}
	r = parseRequest(b[:n])
	peer, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return r, fmt.Errorf("hooks: the runtime's socket: %w", err)
	}
	r.peer = int(peer.Pid)
	return r, nil
}

// Of criu's rpc.proto: criu_req has its type in field 1 and criu_opts in field 2;
// criu_opts has images_dir_fd in field 1.
const (
	fieldType      protowire.Number = 1
	fieldOptions   protowire.Number = 2
	fieldImagesDir protowire.Number = 1
	typeDump                        = 1
	typeRestore                     = 2
)

// parseRequest reads the needed parts of a criu_req. An unreadable one asks for
// nothing: CRIU itself will report its fault.
func parseRequest(b []byte) criuRequest {
	r := criuRequest{whole: b, images: -1}
	options := []byte{}
	each(b, func(n protowire.Number, value uint64, bytes []byte) {
		switch n {
		case fieldType:
			r.kind = value
		case fieldOptions:
			options = bytes
		}
	})
	each(options, func(n protowire.Number, value uint64, bytes []byte) {
		switch n {
		case fieldImagesDir:
			r.images = int(int32(value))
		case fieldConfig:
			r.config = string(bytes)
		}
	})
	return r
}

// withConfig is the request with another such file in it.
func (r criuRequest) withConfig(path string) ([]byte, error) {
	changed, err := rewritten(r.whole, fieldOptions, func(options []byte) ([]byte, error) {
		options, err := rewritten(options, fieldConfig, nil)
		return protowire.AppendString(protowire.AppendTag(options, fieldConfig, protowire.BytesType), path), err
	})
	if err != nil {
		return nil, fmt.Errorf("hooks: the runtime's request: %w", err)
	}
	return changed, nil
}

// withLogLevel is a request in which CRIU is told how much to log.
func withLogLevel(request []byte, level uint64) ([]byte, error) {
	changed, err := rewritten(request, fieldOptions, func(options []byte) ([]byte, error) {
		options, err := rewritten(options, fieldLogLevel, nil)
		return protowire.AppendVarint(protowire.AppendTag(options, fieldLogLevel, protowire.VarintType), level), err
	})
	if err != nil {
		return nil, fmt.Errorf("hooks: the runtime's request: %w", err)
	}
	return changed, nil
}

// rewritten is a message with one of its fields replaced; nil: the field is left out.
func rewritten(b []byte, field protowire.Number, into func([]byte) ([]byte, error)) (out []byte, err error) {
	for len(b) > 0 {
		n, t, k := protowire.ConsumeField(b)
		if k < 0 {
			return nil, protowire.ParseError(k)
		}
		switch {
		case n != field:
			out = append(out, b[:k]...)
		case into != nil:
			_, _, tag := protowire.ConsumeTag(b)
			value, l := protowire.ConsumeBytes(b[tag:])
			if t != protowire.BytesType || l < 0 {
				return nil, fmt.Errorf("its field %d is of another type", field)
			}
			if value, err = into(value); err != nil {
				return nil, err
			}
			out = protowire.AppendBytes(protowire.AppendTag(out, field, protowire.BytesType), value)
		}
		b = b[k:]
	}
	return out, nil
}

// each calls do for every field of a message, up to the first that is broken.
func each(b []byte, do func(n protowire.Number, value uint64, bytes []byte)) {
	for len(b) > 0 {
		n, t, k := protowire.ConsumeTag(b)
		if k < 0 {
			return
		}
		b = b[k:]
		switch t {
		case protowire.VarintType:
			v, k := protowire.ConsumeVarint(b)
			if k < 0 {
				return
			}
			do(n, v, nil)
		case protowire.BytesType:
			v, k := protowire.ConsumeBytes(b)
			if k < 0 {
				return
			}
			do(n, 0, v)
		}
		if k = protowire.ConsumeFieldValue(n, t, b); k < 0 {
			return
		}
		b = b[k:]
	}
}
