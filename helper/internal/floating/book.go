package floating

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Book is the folder in which a host notes the addresses that came with workloads, by their
// OCI bundles. An address that was added goes with a boot, and the next start of its
// workload here brings it back: the one thing that every way of starting has in common.
type Book string

// page is the note of one workload. An engine may have the bundle only while the workload
// runs, but its layer for as long as it knows the workload.
type page struct {
	Bundle    string    `json:"bundle"`
	Layers    []string  `json:"layers,omitempty"`
	Addresses []Address `json:"addresses"`
}

func (b Book) path(bundle string) string {
	sum := sha256.Sum256([]byte(bundle))
	return filepath.Join(string(b), hex.EncodeToString(sum[:16])+".json")
}

// Note notes the addresses of a workload, on the disk, and removes the notes of workloads
// that are gone from this host: of which neither the bundle is there nor a layer.
func (b Book) Note(bundle string, layers []string, all []Address) error {
	if err := os.MkdirAll(string(b), 0o700); err != nil {
		return fmt.Errorf("floating: %w", err)
	}
	if err := b.prune(); err != nil {
		return err
	}
	text, err := json.Marshal(page{bundle, layers, all})
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(string(b), ".note-*")
	if err != nil {
		return fmt.Errorf("floating: %w", err)
	}
	defer os.Remove(f.Name()) // once it is renamed, there is nothing of that name
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), b.path(bundle))
	}
	if err != nil {
		return fmt.Errorf("floating: noting the addresses: %w", err)
	}
	return b.sync()
}

// Of are the addresses that are noted for a workload.
func (b Book) Of(bundle string) ([]Address, error) {
	p, err := readPage(b.path(bundle))
	if errors.Is(err, os.ErrNotExist) || err == nil && p.Bundle != bundle {
		return nil, nil
	}
	return p.Addresses, err
}

// Strike removes the note of a workload, on the disk.
func (b Book) Strike(bundle string) error {
	if err := os.Remove(b.path(bundle)); errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("floating: %w", err)
	}
	return b.sync()
}

func (b Book) prune() error {
	paths, err := filepath.Glob(filepath.Join(string(b), "*.json"))
	if err != nil {
		return fmt.Errorf("floating: %w", err)
	}
	for _, path := range paths {
		p, err := readPage(path)
		if err != nil {
			continue // another session has pruned it, or it is damaged: the start that needs it says so
		}
		if !slices.ContainsFunc(append(p.Layers, p.Bundle), mayBeThere) {
			if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("floating: %w", err)
			}
		}
	}
	return nil
}

func mayBeThere(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, os.ErrNotExist)
}

func readPage(path string) (p page, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return p, fmt.Errorf("floating: %w", err)
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return p, fmt.Errorf("floating: %s is damaged: %w: remove it, and add the workload's addresses by hand", path, err)
	}
	return p, nil
}

func (b Book) sync() error {
	d, err := os.Open(string(b))
	if err != nil {
		return fmt.Errorf("floating: %w", err)
	}
	defer d.Close()
	if err := unix.Fsync(int(d.Fd())); err != nil {
		return fmt.Errorf("floating: %w", err)
	}
	return nil
}
