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
// That is what a Command's Hold is for: a folder in front of PATH with a program
// of the name criu, which calls Held. It looks at the request without taking it
// from the socket, asks the gate of the images that the request names, and then
// becomes the real CRIU. A request that restores nothing is passed on at once.
//
// It is no safeguard, and nothing rests on it: what begins to restore too early
// finds images that are not complete, and what is restored is held at post-restore.

// criuProgram is what a runtime looks for in PATH.
const criuProgram = "criu"

// Held is what stands in for CRIU: the program own, called with args. ask decides
// whether CRIU may come up for the images in a directory. It returns only if it
// may not, or if there is no CRIU.
func Held(ctx context.Context, own string, args []string, ask func(imageDir string) (bool, error)) error {
	real, err := realCRIU(own)
	if err != nil {
		return err
	}
	if len(args) == 2 && args[0] == "swrk" {
		dir, err := imagesToRestore(args[1])
		if err != nil {
			return err
		}
		if dir != "" {
			if err := mayStart(ctx, dir, ask); err != nil {
				return err
			}
		}
	}
	if err := unix.Exec(real, append([]string{criuProgram}, args...), os.Environ()); err != nil {
		return fmt.Errorf("hooks: %s: %w", real, err)
	}
	return nil
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

// realCRIU is the first one in PATH that is not the program own.
func realCRIU(own string) (string, error) {
	self, err := os.Stat(own)
	if err != nil {
		return "", fmt.Errorf("hooks: %w", err)
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		path := filepath.Join(dir, criuProgram)
		info, err := os.Stat(path)
		if err == nil && !info.IsDir() && info.Mode()&0o111 != 0 && !os.SameFile(info, self) {
			return path, nil
		}
	}
	return "", fmt.Errorf("hooks: there is no %s in PATH (%s)", criuProgram, os.Getenv("PATH"))
}

// imagesToRestore waits for the request on a runtime's socket and tells from
// which directory it restores; nothing if it asks for something else.
func imagesToRestore(socket string) (string, error) {
	fd, err := strconv.Atoi(socket)
	if err != nil {
		return "", fmt.Errorf("hooks: %q is no file descriptor", socket)
	}
	b := make([]byte, 64<<10)
	n, _, err := unix.Recvfrom(fd, b, unix.MSG_PEEK)
	for errors.Is(err, unix.EINTR) {
		n, _, err = unix.Recvfrom(fd, b, unix.MSG_PEEK)
	}
	if err != nil {
		return "", fmt.Errorf("hooks: the runtime's request: %w", err)
	}
	images, restores := parseRequest(b[:n])
	if !restores {
		return "", nil
	}
	// The descriptor is one of the runtime's.
	peer, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return "", fmt.Errorf("hooks: the runtime's socket: %w", err)
	}
	dir, err := filepath.EvalSymlinks(fmt.Sprintf("/proc/%d/fd/%d", peer.Pid, images))
	if err != nil {
		return "", fmt.Errorf("hooks: the directory of CRIU's images: %w", err)
	}
	return dir, nil
}

// Of criu's rpc.proto: criu_req has its type in field 1 and criu_opts in field 2;
// criu_opts has images_dir_fd in field 1.
const (
	fieldType      protowire.Number = 1
	fieldOptions   protowire.Number = 2
	fieldImagesDir protowire.Number = 1
	typeRestore                     = 2
)

// parseRequest reads what is needed of a criu_req. What cannot be read restores
// nothing: CRIU itself will say what is wrong with it.
func parseRequest(b []byte) (imagesDir int, restores bool) {
	options := []byte{}
	imagesDir = -1
	each(b, func(n protowire.Number, value uint64, bytes []byte) {
		switch n {
		case fieldType:
			restores = value == typeRestore
		case fieldOptions:
			options = bytes
		}
	})
	each(options, func(n protowire.Number, value uint64, _ []byte) {
		if n == fieldImagesDir {
			imagesDir = int(int32(value))
		}
	})
	return imagesDir, restores && imagesDir >= 0
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
