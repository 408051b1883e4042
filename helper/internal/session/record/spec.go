package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"github.com/livefleet/handover/helper/internal/codec"
	"github.com/livefleet/handover/helper/internal/floating"
	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/tracker"
	"github.com/livefleet/handover/helper/internal/transport"
)

// Role is the side.
type Role string

// The two sides.
const (
	Source      Role = "source"
	Destination Role = "destination"
)

// The modes: live (memory moves too), offline (stop and start), copy (no workload:
// only the bytes), trial (the workload is frozen and dumped, and runs on where it
// is).
const (
	Live    = "live"
	Offline = "offline"
	Copy    = "copy"
	Trial   = "trial"
)

// The fate of blocks that a file system does not use: they are zeroes on the
// destination, or they are sent as they are.
const (
	FreeSkip = "skip"
	FreeSend = "send"
)

// DefaultCluster is the unit of copying where the spec names none.
const DefaultCluster = 64 << 10

// Spec is the specification of a session. The controller writes one for each side; a
// side believes only its own: nothing that the peer says can name a path here.
type Spec struct {
	Version     int         `json:"version"`
	ID          string      `json:"id"`
	Role        Role        `json:"role"`
	Mode        string      `json:"mode"`
	Workload    string      `json:"workload,omitempty"`
	Driver      string      `json:"driver,omitempty"`
	Bundle      string      `json:"bundle,omitempty"`  // the workload's OCI bundle here: the OCI hook knows it by this
	Bundles     []string    `json:"bundles,omitempty"` // those of its members, where it is several containers that move as one
	Listen      string      `json:"listen,omitempty"`  // destination: IP:PORT, port 0 for any, or unix:/PATH
	Peer        Peer        `json:"peer"`
	Volumes     []Vol       `json:"volumes,omitempty"`
	Directories []Directory `json:"directories,omitempty"`
	Trees       []Tree      `json:"trees,omitempty"`
	Network     Network     `json:"network"`
	Hooks       Hooks       `json:"hooks"`
	Members     []Member    `json:"members,omitempty"` // those that are dumped and restored one by one, see members.go
	Policy      Policy      `json:"policy"`
}

// Peer is the other side: the source's way there, by its address or by the standard
// streams of a command that ends in `pcopy stream` there; and the fingerprint of its
// certificate, on any way.
type Peer struct {
	Address     string   `json:"address,omitempty"` // as Listen
	Command     []string `json:"command,omitempty"` // word by word; no shell reads it here
	Fingerprint string   `json:"fingerprint"`
}

// Way is how connections come to it.
func (p Peer) Way() (transport.Way, error) {
	if len(p.Command) > 0 {
		return transport.Over(p.Command), nil
	}
	return transport.ParseAddress(p.Address)
}

// Vol is one volume. Source: the block device (mode copy: or a file) it is read
// from and where it is mounted. Destination: the image that is made, where it is
// mounted at the cutover, and how; and the loop device that it had, whose number it
// keeps if that is free.
type Vol struct {
	Name       string `json:"name"`
	Size       int64  `json:"size"`
	Cluster    int    `json:"cluster,omitempty"`
	Device     string `json:"device,omitempty"`
	Tracker    string `json:"tracker,omitempty"` // a kind that tracker.Open knows; none: the volume does not change
	Image      string `json:"image,omitempty"`
	Kept       string `json:"kept,omitempty"` // destination: an earlier copy of it, to begin from and to leave behind
	Mountpoint string `json:"mountpoint,omitempty"`
	Fstype     string `json:"fstype,omitempty"`
	Options    string `json:"options,omitempty"`
	// SameDevice says that the destination mounts it on no other device than Device: a
	// process knows a file by that number (SQLite).
	SameDevice bool `json:"same_device,omitempty"`
	// Folders are those in it that an engine binds elsewhere: a restore that begins before
	// the volume has come finds them empty.
	Folders []string `json:"folders,omitempty"`
}

// The stages in which the source sends a tree.
const (
	StagePresync = "presync" // once in presync; later changes, in the freeze
	StageFreeze  = "freeze"  // once, in the freeze: memory that has a path, such as /dev/shm
	StageDump    = "dump"    // once, when the state dump is complete: the dump itself
)

// Tree is a folder that travels whole.
type Tree struct {
	Name  string `json:"name"`
	Path  string `json:"path"`
	Stage string `json:"stage,omitempty"`
	// Mounted says, on the destination, that the engine mounts it below something
	// else when it begins to restore, and need not see it change any more.
	Mounted bool `json:"mounted,omitempty"`

	only string // nothing but this file in it
}

// Only names the one file of it that travels; empty: all that is in it does.
func (t *Tree) Only() string { return t.only }

// Network is the workload's own network, if it has one that others can reach and
// that is to be silent while both hosts have it.
type Network struct {
	Namespace string `json:"namespace,omitempty"` // source: its path
	// Only are the interfaces whose addresses and routes are carried; the rest is left
	// out. None: all are carried, and an error where that cannot be.
	Only   []string `json:"only,omitempty"`
	Silent bool     `json:"silent,omitempty"` // destination: it comes up silent
	// Floating are the addresses of the host that are its published ports' alone, and move
	// along: on the source where they are, on the destination where they will be.
	Floating []floating.Address `json:"floating,omitempty"`
}

// Hooks is the driver's row of commands.
type Hooks struct {
	Freeze  *hooks.Command `json:"freeze,omitempty"`
	Thaw    *hooks.Command `json:"thaw,omitempty"`
	Reclaim *hooks.Command `json:"reclaim,omitempty"`
	Restore *hooks.Command `json:"restore,omitempty"`
	Resume  *hooks.Command `json:"resume,omitempty"`
	Discard *hooks.Command `json:"discard,omitempty"`
	// Still fails where something of the workload runs that is not dumped with it. It is asked
	// right before the freeze, when nothing of it is let start any more.
	Still *hooks.Command `json:"still,omitempty"`
}

// Policy is when presync has done enough, and the operator's other choices.
type Policy struct {
	MaxPasses   int    `json:"max_passes,omitempty"`
	TargetDirty int64  `json:"target_dirty,omitempty"` // bytes
	Limit       int64  `json:"limit,omitempty"`        // bytes per second, 0 = none
	Shared      int64  `json:"shared,omitempty"`       // bytes per second that all sessions of the source host may take together, 0 = any
	AtOnce      int64  `json:"at_once,omitempty"`      // how many sessions of the source host copy at once until they have converged, 0 = all
	Verify      bool   `json:"verify,omitempty"`
	Free        string `json:"free,omitempty"`         // unused blocks of the file systems: skip, send
	Compression string `json:"compression,omitempty"`  // how data are packed: auto, none, lz4, zstd
	Delta       *bool  `json:"delta,omitempty"`        // of a cluster that was sent before, only its changed sectors
	Precopy     *bool  `json:"precopy,omitempty"`      // live: memory goes ahead of the dump, as far as the destination has room
	LazyPages   bool   `json:"lazy_pages,omitempty"`   // live: memory follows when the workload runs on the destination
	PlaceMemory bool   `json:"place_memory,omitempty"` // live: memory is placed beside CRIU's restore, where that is possible
	Connections int    `json:"connections,omitempty"`  // over which volumes are sent side by side
	PeerTimeout int    `json:"peer_timeout,omitempty"` // seconds that an answer may take beyond the work it is about
	// HashLimit is how many bytes may be read in the pause, by a tracker that knows no
	// other way to find the written clusters; 0 = as many as there are.
	HashLimit int64 `json:"hash_limit,omitempty"`
	// ReconnectTimeout is for how many seconds a connection that broke in presync may be made again.
	ReconnectTimeout int `json:"reconnect_timeout,omitempty"`
	// WaitTimeout is for how many seconds the destination waits for the source to connect, and the source
	// for a cutover to be asked for.
	WaitTimeout int `json:"wait_timeout,omitempty"`
	// MaxFrozenMS is for how many milliseconds a live workload may be frozen, by the forecast: a cutover that was
	// asked for waits for a moment in which it is within that, and after FrozenPatienceSeconds seconds it is not begun. 0 = any.
	MaxFrozenMS           int `json:"max_frozen_ms,omitempty"`
	FrozenPatienceSeconds int `json:"frozen_patience_seconds,omitempty"`
	// Throttle is the directory of the workload's cgroup whose processor time is cut, step by step, while a cutover that was
	// asked for waits for such a moment (package throttle); none: it is left alone.
	Throttle string `json:"throttle,omitempty"`
	// PauseBaseMS is the fixed cost of a pause by a trial, in milliseconds, and Memory the size of a
	// dump of the workload when the controller looked, in bytes. Both are for the forecast.
	PauseBaseMS int   `json:"pause_base_ms,omitempty"`
	Memory      int64 `json:"memory,omitempty"`
	// ReserveSpace has the destination take all the room of the images and of the directory volumes
	// before the first pass.
	ReserveSpace bool `json:"reserve_space,omitempty"`
	// IgnoreDatabases has open databases of SQLite's count for nothing: they may get another device and inode.
	IgnoreDatabases bool `json:"ignore_databases,omitempty"`
	// IgnoreMulticast has memberships in multicast groups that are lost count for nothing: they are told.
	IgnoreMulticast bool `json:"ignore_multicast,omitempty"`
	// PauseAt is the state in which this side stops when it has recorded it, until it is told to
	// continue.
	PauseAt State `json:"pause_at,omitempty"`

	oldPolicy
}

const (
	defaultMaxPasses   = 10
	defaultTargetDirty = 8 << 20
	defaultPeerTimeout = 30
	defaultConnections = 1
	defaultWaitTimeout = 3600
	MaxConnections     = 16
	defaultReconnect   = 60
	defaultPatience    = 60
)

// The lengths are not in the patterns: a count makes one so large that compiling
// it took a third of the time in which CRIU's hook starts, in the pause.
var (
	idPattern   = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*$`)
	namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.+-]*$`)

	// The tasks below it are ended: a few digits might match another container's.
	containerPattern = regexp.MustCompile(`^[0-9a-f]{12}[0-9a-f]*$`)
)

func isID(s string) bool   { return len(s) <= 64 && idPattern.MatchString(s) }
func isName(s string) bool { return len(s) <= 255 && namePattern.MatchString(s) }

// LoadSpec reads and checks a session's spec.json.
func LoadSpec(dir string) (*Spec, error) {
	path := filepath.Join(dir, SpecFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("session: there is no session in %s: it has no %s", dir, SpecFile)
	} else if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	s, err := ParseSpec(data)
	if err != nil {
		return nil, fmt.Errorf("session: %s: %w", path, err)
	}
	return s, nil
}

// ParseSpec reads a spec, fills in the defaults and checks it. An unknown key is
// an error: it is a misspelt one, or one that this version cannot honour.
func ParseSpec(data []byte) (*Spec, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	var s Spec
	if err := d.Decode(&s); err != nil {
		return nil, err
	}
	if d.More() {
		return nil, errors.New("something follows the spec")
	}
	if err := s.Policy.takeOldNames(); err != nil {
		return nil, err
	}
	s.fillIn()
	return &s, s.check()
}

// fillIn puts the defaults where the spec says nothing.
func (s *Spec) fillIn() {
	if s.Policy.MaxPasses == 0 {
		s.Policy.MaxPasses = defaultMaxPasses
	}
	if s.Policy.Free == "" {
		s.Policy.Free = FreeSkip
	}
	if s.Policy.TargetDirty == 0 {
		s.Policy.TargetDirty = defaultTargetDirty
	}
	if s.Policy.Compression == "" {
		s.Policy.Compression = codec.Auto
	}
	if s.Policy.Delta == nil {
		yes := true
		s.Policy.Delta = &yes
	}
	if s.Policy.Precopy == nil {
		yes := true
		s.Policy.Precopy = &yes
	}
	if s.Policy.Connections == 0 {
		s.Policy.Connections = defaultConnections
	}
	if s.Policy.PeerTimeout == 0 {
		s.Policy.PeerTimeout = defaultPeerTimeout
	}
	if s.Policy.ReconnectTimeout == 0 {
		s.Policy.ReconnectTimeout = defaultReconnect
	}
	if s.Policy.FrozenPatienceSeconds == 0 {
		s.Policy.FrozenPatienceSeconds = defaultPatience
	}
	if s.Policy.WaitTimeout == 0 {
		s.Policy.WaitTimeout = defaultWaitTimeout
	}
	for i := range s.Volumes {
		if s.Volumes[i].Cluster == 0 {
			s.Volumes[i].Cluster = DefaultCluster
		}
		if s.Volumes[i].Tracker == "" {
			s.Volumes[i].Tracker = tracker.Auto
		}
	}
}

// Identity is this side's key for the session in dir. It is made once; asking
// again gives the same.
func Identity(dir string) (*transport.Identity, error) {
	path := filepath.Join(dir, IdentityDir)
	if _, err := os.Stat(path); err == nil {
		return transport.Load(path)
	}
	id, err := transport.NewIdentity()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	return id, id.Save(path)
}
