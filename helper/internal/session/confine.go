package session

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"

	"github.com/livefleet/handover/helper/internal/confine"
)

// Confine, if it is set, takes from this process what the rules do not leave it: for
// ever, so whoever serves a session in a process of its own sets it.
//
// Only a session that starts nothing and mounts nothing is confined, one of mode copy.
// What a handover starts inherits what this process may do: CRIU, and the containers
// that it restores, which would not be what they were.
var Confine func(confine.Rules) error

func (b *base) confine(r confine.Rules) error {
	s := b.spec
	startsNothing := s.Mode == Copy && s.Hooks == (Hooks{}) && len(s.Trees)+len(s.Directories) == 0
	for _, v := range s.Volumes {
		startsNothing = startsNothing && v.Mountpoint == ""
	}
	if Confine == nil || !startsNothing {
		return nil
	}
	r.Write = append(r.Write, b.dir)
	err := Confine(r)
	if errors.Is(err, confine.ErrNoLandlock) {
		b.log.Emit("warning", map[string]any{"text": err.Error()})
		return nil
	}
	if err != nil {
		return fmt.Errorf("session: %w", err)
	}
	b.log.Emit("confined", nil)
	return nil
}

// confineSource leaves it the session's folder, the way to the destination, and the
// place where it is counted among those who share a limit.
func (s *source) confineSource() error {
	_, text, err := net.SplitHostPort(s.spec.Peer.Address)
	if err != nil {
		return fmt.Errorf("session: %w", err)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return fmt.Errorf("session: the address %q: the port is no number", s.spec.Peer.Address)
	}
	r := confine.Rules{Connect: uint16(port)}
	if s.share != nil {
		r.Write = append(r.Write, filepath.Join(s.runDir, sharesDir))
	}
	return s.base.confine(r)
}

// confineDestination leaves it the session's folder; and the images that it has made
// may be removed again.
func (d *destination) confineDestination() error {
	var r confine.Rules
	for _, v := range d.images {
		r.Remove = append(r.Remove, filepath.Dir(v.Image))
	}
	return d.base.confine(r)
}
