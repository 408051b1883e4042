package blockdev

import "testing"

func TestWhoHandsBiosOn(t *testing.T) {
	for name, want := range map[string]bool{"dm-0": false, "zram0": false, "ram3": false, "md127": true, "nvme0n1": true} {
		if got := (&Device{Name: name, BioBased: true}).HandsOnBios(); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if (&Device{Name: "nvme0n1"}).HandsOnBios() {
		t.Error("a device with a request queue hands on no bios")
	}
}
