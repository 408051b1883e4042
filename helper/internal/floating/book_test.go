package floating

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestABookKeepsTheAddressesOfBundlesThatAreThere(t *testing.T) {
	b := Book(filepath.Join(t.TempDir(), "addresses"))
	shop, gone := t.TempDir(), filepath.Join(t.TempDir(), "gone")
	if err := b.Strike(shop); err != nil {
		t.Errorf("striking out what is not there: %v", err)
	}
	for bundle, all := range map[string][]Address{gone: {float6}, shop: both} {
		if err := b.Note(bundle, nil, all); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Note(shop, nil, both); err != nil { // prunes
		t.Fatal(err)
	}
	of := func(bundle string) []Address {
		t.Helper()
		all, err := b.Of(bundle)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	if got := of(shop); !slices.Equal(got, both) {
		t.Errorf("noted %v, and read %v", both, got)
	}
	if got := of(gone); got != nil {
		t.Errorf("kept %v of a bundle that is gone", got)
	}
	if err := os.WriteFile(b.path("/damaged"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Of("/damaged"); err == nil || !strings.Contains(err.Error(), "is damaged") {
		t.Errorf("damaged: %v", err)
	}
	// A page that is damaged is its own workload's matter.
	if err := b.Note(shop, nil, both); err != nil {
		t.Errorf("noting beside a damaged page: %v", err)
	}
	// Docker has a bundle only while the container runs.
	layer := t.TempDir()
	if err := errors.Join(b.Note(gone, []string{layer}, both), b.Note(shop, nil, both)); err != nil {
		t.Fatal(err)
	}
	if got := of(gone); !slices.Equal(got, both) {
		t.Errorf("kept %v of a workload that is there, but does not run", got)
	}
	if err := errors.Join(os.Remove(layer), b.Note(shop, nil, both)); err != nil {
		t.Fatal(err)
	}
	if got := of(gone); got != nil {
		t.Errorf("kept %v of a workload whose layer is gone", got)
	}
	if err := b.Strike(shop); err != nil {
		t.Fatal(err)
	}
	if got := of(shop); got != nil {
		t.Errorf("struck out, and read %v", got)
	}
}
