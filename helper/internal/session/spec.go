package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/livefleet/handover/helper/internal/blockmap"
	"github.com/livefleet/handover/helper/internal/codec"
	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/passes"
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

// What becomes of blocks that a file system does not use: they are zeroes on the
// destination, or they are sent as they are.
const (
	FreeSkip = "skip"
	FreeSend = "send"
)

// DefaultCluster is the unit of copying where the spec names none.
const DefaultCluster = 64 << 10

// Spec says what a session does. The controller writes one for each side; a
// side believes only its own: nothing that the peer says can name a path here.
type Spec struct {
	Version     int         `json:"version"`
	ID          string      `json:"id"`
	Role        Role        `json:"role"`
	Mode        string      `json:"mode"`
	Workload    string      `json:"workload,omitempty"`
	Driver      string      `json:"driver,omitempty"`
	Bundle      string      `json:"bundle,omitempty"` // the workload's OCI bundle here: what the OCI hook knows it by
	Listen      string      `json:"listen,omitempty"` // destination: IP:PORT, port 0 for any, or unix:/PATH
	Peer        Peer        `json:"peer"`
	Volumes     []Vol       `json:"volumes,omitempty"`
	Directories []Directory `json:"directories,omitempty"`
	Trees       []Tree      `json:"trees,omitempty"`
	Network     Network     `json:"network"`
	Hooks       Hooks       `json:"hooks"`
	Policy      Policy      `json:"policy"`
}

// Peer is the other side: how the source comes there, by its address or by the
// standard streams of a command that ends in `pcopy stream` there; and the
// fingerprint of its certificate, whatever lies between.
type Peer struct {
	Address     string   `json:"address,omitempty"` // as Listen
	Command     []string `json:"command,omitempty"` // word by word; no shell reads it here
	Fingerprint string   `json:"fingerprint"`
}

// way is how connections come to it.
func (p Peer) way() (transport.Way, error) {
	if len(p.Command) > 0 {
		return transport.Over(p.Command), nil
	}
	return transport.ParseAddress(p.Address)
}

// Vol is one volume. Source: the block device (mode copy: or a file) it is read
// from and where it is mounted. Destination: the image that is made, where it is
// mounted at the cutover, and how.
type Vol struct {
	Name       string `json:"name"`
	Size       int64  `json:"size"`
	Cluster    int    `json:"cluster,omitempty"`
	Device     string `json:"device,omitempty"`
	Tracker    string `json:"tracker,omitempty"` // a kind that tracker.Open knows; none: what is copied does not change
	Image      string `json:"image,omitempty"`
	Kept       string `json:"kept,omitempty"` // destination: an earlier copy of it, to begin from and to leave behind
	Mountpoint string `json:"mountpoint,omitempty"`
	Fstype     string `json:"fstype,omitempty"`
	Options    string `json:"options,omitempty"`
}

// The stages in which the source sends a tree.
const (
	StagePresync = "presync" // once in presync; what changed since, in the freeze
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

// Network is the workload's own network, if it has one that others can reach and
// that is to be silent while both hosts have it.
type Network struct {
	Namespace string `json:"namespace,omitempty"` // source: its path
	Silent    bool   `json:"silent,omitempty"`    // destination: it comes up silent
}

// Hooks is the driver's row of commands.
type Hooks struct {
	Freeze  *hooks.Command `json:"freeze,omitempty"`
	Thaw    *hooks.Command `json:"thaw,omitempty"`
	Reclaim *hooks.Command `json:"reclaim,omitempty"`
	Restore *hooks.Command `json:"restore,omitempty"`
	Resume  *hooks.Command `json:"resume,omitempty"`
	Discard *hooks.Command `json:"discard,omitempty"`
}

// Policy is when presync has done enough, and what else the operator chose.
type Policy struct {
	MaxPasses   int    `json:"max_passes,omitempty"`
	TargetDirty int64  `json:"target_dirty,omitempty"` // bytes
	Limit       int64  `json:"limit,omitempty"`        // bytes per second, 0 = none
	Shared      int64  `json:"shared,omitempty"`       // bytes per second that all sessions of the source host may take together, 0 = any
	AtOnce      int64  `json:"at_once,omitempty"`      // how many sessions of the source host copy at once until they have converged, 0 = all
	Verify      bool   `json:"verify,omitempty"`
	Free        string `json:"free,omitempty"`         // what the file systems do not use: skip, send
	Compression string `json:"compression,omitempty"`  // how what is sent is packed: auto, none, lz4, zstd
	Delta       *bool  `json:"delta,omitempty"`        // of what was sent before, only what has changed
	Precopy     *bool  `json:"precopy,omitempty"`      // live: memory goes ahead of the dump, as far as the destination has room
	LazyPages   bool   `json:"lazy_pages,omitempty"`   // live: memory follows when the workload runs on the destination
	Connections int    `json:"connections,omitempty"`  // over which volumes are sent side by side
	PeerTimeout int    `json:"peer_timeout,omitempty"` // seconds that an answer may take beyond the work it is about
	// HashLimit is how many bytes may be read in the pause, by a tracker that knows no
	// other way, to find out what was written; 0 = as many as there are.
	HashLimit int64 `json:"hash_limit,omitempty"`
	// ResumeTimeout is for how many seconds a connection that broke in presync may be made again.
	ResumeTimeout int `json:"resume_timeout,omitempty"`
	// WaitTimeout is for how many seconds the destination waits for the source to connect, and the source
	// for a cutover to be asked for.
	WaitTimeout int `json:"wait_timeout,omitempty"`
	// MaxFrozen is for how many milliseconds a live workload may be frozen, by the forecast: a cutover that was
	// asked for waits for a moment in which it is within that, and after FrozenPatience seconds it is not begun. 0 = any.
	MaxFrozen      int `json:"max_frozen,omitempty"`
	FrozenPatience int `json:"frozen_patience,omitempty"`
	// Throttle is the directory of the workload's cgroup whose processor time is cut, step by step, while a cutover that was
	// asked for waits for such a moment (package throttle); none: it is left alone.
	Throttle string `json:"throttle,omitempty"`
	// PauseBase is what a trial found that a pause takes in any case, in milliseconds, and Memory what
	// a dump of the workload took when the controller looked, in bytes. Both are for the forecast.
	PauseBase int   `json:"pause_base,omitempty"`
	Memory    int64 `json:"memory,omitempty"`
	// PauseAt is the state in which this side stops when it has recorded it, until it is told to go on.
	PauseAt State `json:"pause_at,omitempty"`
}

const (
	defaultMaxPasses   = 10
	defaultTargetDirty = 8 << 20
	defaultPeerTimeout = 30
	defaultConnections = 1
	defaultWaitTimeout = 3600
	maxConnections     = 16
	defaultResume      = 60
	defaultPatience    = 60
)

// The lengths are not in the patterns: a count makes one so large that compiling
// it took a third of the time in which CRIU's hook starts, in the pause.
var (
	idPattern   = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*$`)
	namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)

	// What is below it is ended: a few digits might be anybody's.
	containerPattern = regexp.MustCompile(`^[0-9a-f]{12}[0-9a-f]*$`)
)

func isID(s string) bool   { return len(s) <= 64 && idPattern.MatchString(s) }
func isName(s string) bool { return len(s) <= 255 && namePattern.MatchString(s) }

// LoadSpec reads and checks a session's spec.json.
func LoadSpec(dir string) (*Spec, error) {
	path := filepath.Join(dir, specFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("session: there is no session in %s: it has no %s", dir, specFile)
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
	if s.Policy.ResumeTimeout == 0 {
		s.Policy.ResumeTimeout = defaultResume
	}
	if s.Policy.FrozenPatience == 0 {
		s.Policy.FrozenPatience = defaultPatience
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
	return &s, s.check()
}

func (s *Spec) check() error {
	switch {
	case s.Version != 1:
		return fmt.Errorf("version is %d, and this pcopy understands 1", s.Version)
	case !isID(s.ID):
		return fmt.Errorf("id %q: small letters, digits and dashes, at most 64", s.ID)
	case s.Role != Source && s.Role != Destination:
		return fmt.Errorf("role %q: source or destination", s.Role)
	case s.Mode != Live && s.Mode != Offline && s.Mode != Copy && s.Mode != Trial:
		return fmt.Errorf("mode %q: live, offline, copy or trial", s.Mode)
	case s.Mode == Trial && s.Role != Source:
		return errors.New("mode trial is for the source alone")
	case s.Workload != "" && !isName(s.Workload):
		return fmt.Errorf("workload %q is no name", s.Workload)
	case s.Mode != Copy && s.Workload == "":
		return fmt.Errorf("mode %s needs a workload", s.Mode)
	case s.Policy.Free != FreeSkip && s.Policy.Free != FreeSend:
		return fmt.Errorf("policy: free %q: skip or send", s.Policy.Free)
	case s.Policy.MaxPasses < 1 || s.Policy.TargetDirty < 0 || s.Policy.Limit < 0 || s.Policy.Shared < 0 || s.Policy.AtOnce < 0 || s.Policy.PeerTimeout < 1 || s.Policy.ResumeTimeout < 1 || s.Policy.HashLimit < 0 || s.Policy.WaitTimeout < 1,
		s.Policy.MaxFrozen < 0 || s.Policy.FrozenPatience < 1 || s.Policy.PauseBase < 0 || s.Policy.Memory < 0:
		return errors.New("policy: a number is out of range")
	case s.Policy.MaxFrozen > 0 && s.Mode != Live:
		return fmt.Errorf("policy: max_frozen is for the mode live: what a stop and a start take (mode %s), nobody can foresee", s.Mode)
	case s.Policy.Throttle != "" && s.Policy.MaxFrozen == 0:
		return errors.New("policy: throttle slows the workload down until the pause is within max_frozen, which is not set: set it, or leave throttle out")
	case s.Policy.Throttle != "" && !filepath.IsAbs(s.Policy.Throttle):
		return fmt.Errorf("policy: throttle: the cgroup %q is not an absolute path", s.Policy.Throttle)
	case s.Policy.PauseAt != "" && next[s.Role][s.Policy.PauseAt] == nil:
		return fmt.Errorf("policy: pause_at %q is no state in which this side could go on", s.Policy.PauseAt)
	case s.Policy.Connections < 1 || s.Policy.Connections > maxConnections:
		return fmt.Errorf("policy: %d connections: 1 to %d", s.Policy.Connections, maxConnections)
	}
	if err := codec.CheckCompression(s.Policy.Compression); err != nil {
		return fmt.Errorf("policy: compression: %w", err)
	}
	if s.Mode != Trial {
		if err := s.checkPeer(); err != nil {
			return err
		}
	}
	seen := map[string]bool{}
	once := func(kind, name string) error {
		if !isName(name) || seen[kind+name] {
			return fmt.Errorf("%s %q: the name is missing, there twice, or not a name", kind, name)
		}
		seen[kind+name] = true
		return nil
	}
	for _, v := range s.Volumes {
		if err := once("volume", v.Name); err != nil {
			return err
		}
		if err := v.check(s.Role); err != nil {
			return fmt.Errorf("volume %s: %w", v.Name, err)
		}
	}
	for _, d := range s.Directories {
		if d.byPath() {
			if seen[d.Path] {
				return fmt.Errorf("volume %q: it is there twice", d.Path)
			}
			seen[d.Path] = true
		} else if err := once("volume", d.Name); err != nil {
			return err
		}
		if err := d.check(); err != nil {
			return fmt.Errorf("volume %s: %w", d.Name, err)
		}
	}
	for _, t := range s.Trees {
		if err := once("tree", t.Name); err != nil {
			return err
		}
		if !filepath.IsAbs(t.Path) {
			return fmt.Errorf("tree %s: path %q is not absolute", t.Name, t.Path)
		}
		if s.Role == Source && t.Stage != StagePresync && t.Stage != StageFreeze && t.Stage != StageDump {
			return fmt.Errorf("tree %s: stage %q: presync, freeze or dump", t.Name, t.Stage)
		}
	}
	if n := s.Network.Namespace; n != "" && !filepath.IsAbs(n) {
		return fmt.Errorf("network: the namespace %q is not an absolute path", n)
	}
	if s.Network != (Network{}) && s.Mode != Live && s.Mode != Trial {
		return fmt.Errorf("network: mode %s moves no connections, and nothing has to be silent", s.Mode)
	}
	if s.Bundle != "" && !filepath.IsAbs(s.Bundle) {
		return fmt.Errorf("bundle %q is not an absolute path", s.Bundle)
	}
	if s.Role == Source && s.Mode != Copy && !s.Hooks.Freeze.Given() {
		return errors.New("hooks: freeze is missing")
	}
	if s.Role == Source && s.Mode == Offline && !s.Hooks.Thaw.Given() {
		return errors.New("hooks: thaw is missing: what is stopped must be startable again")
	}
	if s.Role == Source && (s.Mode == Live || s.Mode == Trial) && s.Hooks.Freeze.Gate == "" {
		return errors.New("hooks: a live freeze needs a gate, the directory that CRIU writes to")
	}
	if r := s.Hooks.Restore; r != nil && r.Container != "" && !containerPattern.MatchString(r.Container) {
		return fmt.Errorf("hooks: the container %q is no ID: at least 12 digits, 0 to 9 and a to f", r.Container)
	}
	if f := s.Hooks.Freeze; f != nil && f.Cgroup != "" && !filepath.IsAbs(string(f.Cgroup)) {
		return fmt.Errorf("hooks: the cgroup %q is not an absolute path", f.Cgroup)
	}
	if s.Role == Destination && s.Mode == Live && (!s.Hooks.Restore.Given() || s.Hooks.Restore.Gate == "") {
		return errors.New("hooks: a live restore needs a command and a gate, the directory that CRIU reads from")
	}
	if s.Role == Destination && s.Mode == Offline && !s.Hooks.Resume.Given() {
		return errors.New("hooks: resume is missing")
	}
	return s.checkLazy()
}

func (s *Spec) checkPeer() error {
	if err := transport.CheckFingerprint(s.Peer.Fingerprint); err != nil {
		return fmt.Errorf("peer: %w", err)
	}
	at := s.Peer.Address
	switch {
	case s.Role == Destination && len(s.Peer.Command) > 0:
		return errors.New("peer: the command is for the source: it is the source that comes to the destination")
	case s.Role == Destination:
		at = s.Listen
	case at != "" && len(s.Peer.Command) > 0:
		return errors.New("peer: there is an address and a command, and one of them is needed")
	case len(s.Peer.Command) > 0:
		if s.Peer.Command[0] == "" || strings.ContainsRune(strings.Join(s.Peer.Command, ""), 0) {
			return fmt.Errorf("peer: %q is no command", s.Peer.Command)
		}
		return nil
	}
	_, err := transport.ParseAddress(at)
	return err
}

func (v *Vol) check(role Role) error {
	if v.Size <= 0 {
		return fmt.Errorf("size %d bytes", v.Size)
	}
	if err := blockmap.CheckCluster(v.Cluster); err != nil {
		return err
	}
	path := v.Device
	if role == Destination {
		path = v.Image
	}
	if !filepath.IsAbs(path) {
		return fmt.Errorf("%q is not an absolute path", path)
	}
	if v.Kept != "" && (role == Source || filepath.Dir(v.Kept) != filepath.Dir(v.Image) || v.Kept == v.Image) {
		return fmt.Errorf("kept %q is no other name in the folder of %q", v.Kept, v.Image)
	}
	if v.Mountpoint != "" && !filepath.IsAbs(v.Mountpoint) {
		return fmt.Errorf("mountpoint %q is not an absolute path", v.Mountpoint)
	}
	if role == Source && v.Tracker != passes.Untracked && !slices.Contains(tracker.Kinds(), v.Tracker) {
		return fmt.Errorf("tracker %q: %s or %s", v.Tracker, strings.Join(tracker.Kinds(), ", "), passes.Untracked)
	}
	if role == Destination && v.Mountpoint != "" && v.Fstype == "" {
		return errors.New("fstype is missing, and it is to be mounted")
	}
	return nil
}

// Identity is this side's key for the session in dir. It is made once; asking
// again gives the same.
func Identity(dir string) (*transport.Identity, error) {
	path := filepath.Join(dir, identityDir)
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
