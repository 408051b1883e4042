package engine

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/tmpfs"
)

// LaidTmpfs is the list for the restores of a workload: the frozen source's digests are by name.
func LaidTmpfs(spec *record.Spec, digests map[string]string) (*tmpfs.List, error) {
	l := &tmpfs.List{Session: spec.ID}
	for _, part := range spec.Parts() {
		for _, d := range spec.TmpfsOf(part) {
			images, err := filepath.EvalSymlinks(part.Restore.Gate)
			if err != nil {
				return nil, fmt.Errorf("session: volume %s: %w", d.Name, err)
			}
			l.Laid = append(l.Laid, tmpfs.Laid{Name: d.Name, Images: images, Folder: d.Path, Digest: digests[d.Name]})
		}
	}
	return l, nil
}

// hasTmpfs is an error unless each tmpfs of a part that the session carries was filled, and is the
// one in its place. Root is the first of the restored tasks, which have not run yet.
func hasTmpfs(b *record.Session, part record.Member, root string) error {
	places := map[string]string{}
	for _, d := range b.Spec.TmpfsOf(part) {
		places[d.Name] = d.Tmpfs
	}
	if len(places) == 0 {
		return nil
	}
	if root == "" {
		return errors.New("session: CRIU has not told the first process of the restored workload, whose tmpfs are to be looked at")
	}
	return tmpfs.AllFilled(b.Dir, filepath.Join("/proc", root, "root"), places)
}
