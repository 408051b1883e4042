package engine

import (
	"errors"
	"path/filepath"

	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/tmpfs"
)

// LaidTmpfs is the list for the restore of a workload: the frozen source's digests are by name.
func LaidTmpfs(spec *record.Spec, digests map[string]string) *tmpfs.List {
	l := &tmpfs.List{Session: spec.ID}
	for _, d := range spec.Tmpfs() {
		l.Laid = append(l.Laid, tmpfs.Laid{Name: d.Name, Folder: d.Path, Digest: digests[d.Name]})
	}
	return l
}

// hasTmpfs is an error unless each tmpfs that the session carries was filled, and is the one in
// its place. Root is the first of the restored tasks, which have not run yet.
func hasTmpfs(b *record.Session, root string) error {
	places := map[string]string{}
	for _, d := range b.Spec.Tmpfs() {
		places[d.Name] = d.Tmpfs
	}
	if len(places) == 0 {
		return nil
	}
	if root == "" {
		return errors.New("session: CRIU has not told the first process of the restored workload, whose tmpfs are to be looked at")
	}
	return LaidTmpfs(b.Spec, nil).AllFilled(b.Dir, filepath.Join("/proc", root, "root"), places)
}
