package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/livefleet/handover/helper/internal/tracker/blockprobe"
)

func TestAProbeIsRecalledOnlyIfItIsStillTrue(t *testing.T) {
	good := blockprobe.Finding{Name: "kernel", OK: true}
	bad := blockprobe.Finding{Name: "btf", Text: "the kernel has no BTF"}
	for name, c := range map[string]struct {
		kept    probed
		by      string
		age     time.Duration
		damaged bool
		want    bool
	}{
		"as it was":         {probed{[]blockprobe.Finding{good}, good, good}, "pcopy 1", time.Minute, false, true},
		"long ago":          {probed{[]blockprobe.Finding{good}, good, good}, "pcopy 1", 2 * time.Hour, false, false},
		"in the future":     {probed{[]blockprobe.Finding{good}, good, good}, "pcopy 1", -time.Minute, false, false},
		"another program":   {probed{[]blockprobe.Finding{good}, good, good}, "pcopy 2", time.Minute, false, false},
		"did not work":      {probed{[]blockprobe.Finding{good, bad}, good, good}, "pcopy 1", time.Minute, false, false},
		"no silence":        {probed{[]blockprobe.Finding{good}, bad, good}, "pcopy 1", time.Minute, false, false},
		"no flows":          {probed{[]blockprobe.Finding{good}, good, bad}, "pcopy 1", time.Minute, false, false},
		"found nothing out": {probed{nil, good, good}, "pcopy 1", time.Minute, false, false},
		"damaged":           {probed{[]blockprobe.Finding{good}, good, good}, "pcopy 1", time.Minute, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "run", "probe.json")
			if err := remember(path, remembered{c.by, c.kept}); err != nil {
				t.Fatal(err)
			}
			if c.damaged {
				if err := os.Truncate(path, 20); err != nil {
					t.Fatal(err)
				}
			}
			now := time.Now()
			if err := os.Chtimes(path, now, now.Add(-c.age)); err != nil {
				t.Fatal(err)
			}
			got, ok := recalled(path, "pcopy 1", now)
			if ok != c.want {
				t.Fatalf("recalled: %v %v, want %v", got, ok, c.want)
			}
			if ok && (len(got.Findings) != 1 || got.Findings[0] != good || got.Silence != good) {
				t.Errorf("recalled something else: %+v", got)
			}
		})
	}
}

func TestNothingIsRecalledWhereNothingWasFound(t *testing.T) {
	if p, ok := recalled(filepath.Join(t.TempDir(), "probe.json"), "pcopy 1", time.Now()); ok {
		t.Errorf("recalled %+v of nothing", p)
	}
}
