// Package watchd keeps a folder watched between two commands, for operators that
// copy it with a program of their own: start, copy everything while it is in use,
// stop the users of the folder, list the touched entries, copy those.
//
// A process serves one folder, at a socket in the run directory that has the
// folder's real path, as a digest, for its name. Only root can connect to it. A
// request is one line, the word list or stop. The answer is one line of JSON
// (Answer) and, for a list, the names, each ended by a NUL.
package watchd

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/livefleet/handover/helper/internal/transport"
	"github.com/livefleet/handover/helper/internal/tree"
)

// The requests.
const (
	list = "list"
	stop = "stop"
)

// Answer is the line that comes back.
type Answer struct {
	Error string `json:"error,omitempty"`
	Names int    `json:"names,omitempty"`
}

// ErrNobody says that the folder is not watched.
var ErrNobody = errors.New("no process watches it: begin with `pcopy watch start`")

// socket is where the process listens that watches a folder.
func socket(runDir, folder string) (path, real string, err error) {
	if real, err = filepath.Abs(folder); err == nil {
		real, err = filepath.EvalSymlinks(real)
	}
	if err != nil {
		return "", "", fmt.Errorf("watch: %w", err)
	}
	sum := sha256.Sum256([]byte(real))
	return filepath.Join(runDir, "watch", hex.EncodeToString(sum[:12])+".sock"), real, nil
}

// Serve watches a folder until it is told to stop or ctx ends. It calls ready once no
// touched entry is missed any more.
func Serve(ctx context.Context, runDir, folder string, ready func() error) error {
	path, real, err := socket(runDir, folder)
	if err != nil {
		return err
	}
	if conn, err := transport.DialUnix(ctx, path); err == nil {
		conn.Close()
		return fmt.Errorf("watch: %s is watched already: `pcopy watch stop` ends that", real)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	l, err := transport.ListenUnix(path)
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	defer l.Close()
	f, err := tree.Follow(real)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Note(); err != nil {
		return err
	}
	if err := ready(); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { l.Close() })()
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("watch: %w", err)
		}
		ended := serve(conn, f)
		conn.Close()
		if ended {
			return nil
		}
	}
}

// serve answers one request; it reports whether that was the last.
func serve(conn net.Conn, f *tree.Follower) (ended bool) {
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return false // that client has gone
	}
	var a Answer
	var names []string
	switch request := strings.TrimSpace(line); request {
	case stop:
		ended = true
	case list:
		var why string
		names, why, err = f.List()
		switch {
		case err != nil:
			a.Error = err.Error()
		case why != "":
			a.Error = fmt.Sprintf("watch: events were lost (%s): copy everything once more; the next list is of what is touched from now on", why)
		}
		a.Names = len(names)
	default:
		a.Error = fmt.Sprintf("watch: there is no request %q", request)
	}
	w := bufio.NewWriter(conn)
	_ = json.NewEncoder(w).Encode(a)
	for _, n := range names {
		_, _ = w.WriteString(n + "\x00")
	}
	if err := w.Flush(); err != nil {
		f.Lose("the list before did not reach the one who had asked for it")
	}
	return ended
}

// List asks the process that watches a folder for the names of the entries touched
// since the list before. They are below the folder, and "." is the folder itself.
func List(ctx context.Context, runDir, folder string) ([]string, error) {
	return ask(ctx, runDir, folder, list)
}

// Stop ends the process that watches a folder.
func Stop(ctx context.Context, runDir, folder string) error {
	_, err := ask(ctx, runDir, folder, stop)
	return err
}

func ask(ctx context.Context, runDir, folder, request string) ([]string, error) {
	path, real, err := socket(runDir, folder)
	if err != nil {
		return nil, err
	}
	conn, err := transport.DialUnix(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("watch: %s: %w", real, ErrNobody)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	broken := func(err error) error { return fmt.Errorf("watch: %s: asking for %s: %w", real, request, err) }
	if _, err := io.WriteString(conn, request+"\n"); err != nil {
		return nil, broken(err)
	}
	r := bufio.NewReader(conn)
	line, err := r.ReadBytes('\n')
	if err != nil {
		return nil, broken(err)
	}
	var a Answer
	if err := json.Unmarshal(line, &a); err != nil {
		return nil, broken(err)
	}
	if a.Error != "" {
		return nil, errors.New(a.Error)
	}
	names := make([]string, a.Names)
	for i := range names {
		name, err := r.ReadString(0)
		if err != nil {
			return nil, broken(err)
		}
		names[i] = strings.TrimSuffix(name, "\x00")
	}
	return names, nil
}
