// Package elsewhere takes points into a store on another host, and brings them back.
//
// The store is the same there, and a pcopy of that host writes it (Serve): all that
// package store promises holds there. This side (Link) reaches it over the standard
// streams of ssh, with root's own keys, and gives the orders:
//
//	this host                            the other one
//	open, folder           ───────────►  takes hold of the store
//	                       ◄───────────  its index
//	begin, volume          ───────────►  a new layer
//	sums                   ───────────►  only where all clusters are compared
//	                       ◄───────────  16 bytes for each cluster of the parent
//	data, zeroes           ───────────►  written as they come
//	file, finish           ───────────►  synced, and the index replaced
//	                       ◄───────────  the point
//
// Each is a frame of package wire, so damage on the way is seen. What is compared is
// compared on this side: a cluster that the parent has does not travel.
//
// # Nothing half
//
// A point is acknowledged when it is part of the store on that host's disk. If either
// side dies before that, or the connection does, the other gives the point up: the store
// is as before. A side that hears nothing for silence gives up, too, so no store stays
// locked by a host that has lost its power.
package elsewhere

import (
	"fmt"
	"regexp"
	"strings"
)

// Program is the helper on the other host.
const Program = "/usr/local/libexec/handover/pcopy"

// ServeWord is the word of the command line that calls Serve.
const ServeWord = "serve-store"

// Place is a folder on another host.
type Place struct{ Host, Dir string }

// HOST:/FOLDER, where the host may have a user before it, and an IPv6 address brackets
// around it.
var placePattern = regexp.MustCompile(`^((?:[A-Za-z0-9_][A-Za-z0-9_.-]*@)?(?:[A-Za-z0-9_][A-Za-z0-9_.-]*|\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9_.-]+)?\])):(/.*)$`)

// Parse reads a place. One without a host is a folder of this one.
func Parse(word string) (p Place, elsewhere bool) {
	m := placePattern.FindStringSubmatch(word)
	if m == nil {
		return Place{}, false
	}
	return Place{m[1], m[2]}, true
}

func (p Place) String() string { return p.Host + ":" + p.Dir }

// argv is a command of the other host. A test has its own.
var argv = func(host string, words []string) []string {
	var quoted []string
	for _, w := range words {
		quoted = append(quoted, "'"+strings.ReplaceAll(w, "'", `'\''`)+"'")
	}
	return []string{
		"ssh", "-T", "-o", "BatchMode=yes", "-o", "ControlMaster=no", "-o", "ControlPath=none", "-o", "ConnectTimeout=10",
		"-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3", "-o", "LogLevel=ERROR", "--",
		strings.NewReplacer("[", "", "]", "").Replace(host), Program + " " + strings.Join(quoted, " "),
	}
}

// Command is pcopy on that host, with these words.
func (p Place) Command(words ...string) []string { return argv(p.Host, words) }

// failed is an error of the way there, with its cure.
func (p Place) failed(err error) error {
	return fmt.Errorf("%s: %w: see that `ssh -o BatchMode=yes %s %s version` works here for root", p, err, p.Host, Program)
}
