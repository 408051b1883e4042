package record

import (
	"encoding/json"
	"strings"
	"testing"
)

const oldSpec = `{"version":1,"id":"rig","role":"destination","mode":"live","workload":"shop","listen":"127.0.0.1:0","peer":{"fingerprint":"ab"},` +
	`"hooks":{"restore":{"argv":["true"]}},"policy":POLICY}`

// A spec from before a renaming counts, and one that contradicts itself does not.
func TestOldNamesOfASpec(t *testing.T) {
	read := func(policy string) (*Policy, error) {
		var p Policy
		d := json.NewDecoder(strings.NewReader(policy))
		d.DisallowUnknownFields()
		if err := d.Decode(&p); err != nil {
			return nil, err
		}
		return &p, p.takeOldNames()
	}
	p, err := read(`{"resume_timeout":7,"max_frozen":300,"frozen_patience":9,"pause_base":20}`)
	if err != nil {
		t.Fatal(err)
	}
	if p.ReconnectTimeout != 7 || p.MaxFrozenMS != 300 || p.FrozenPatienceSeconds != 9 || p.PauseBaseMS != 20 {
		t.Errorf("%+v", p)
	}
	if b, err := json.Marshal(p); err != nil || string(b) != `{"reconnect_timeout":7,"max_frozen_ms":300,"frozen_patience_seconds":9,"pause_base_ms":20}` {
		t.Errorf("written again: %s, %v", b, err)
	}
	if _, err := read(`{"max_frozen":300,"max_frozen_ms":300}`); err != nil {
		t.Error(err)
	}
	_, err = read(`{"max_frozen":300,"max_frozen_ms":200}`)
	if err == nil || err.Error() != "policy: max_frozen is the old name of max_frozen_ms, and they say different things (300, 200): leave max_frozen out" {
		t.Error(err)
	}
	// Through the door that every spec comes in by.
	_, err = ParseSpec([]byte(strings.Replace(oldSpec, "POLICY", `{"resume_timeout":7,"reconnect_timeout":8}`, 1)))
	if err == nil || !strings.Contains(err.Error(), "resume_timeout is the old name of reconnect_timeout") {
		t.Error(err)
	}
}

// `pcopy session show` answers to both names, whichever version has written the status.
func TestOldNamesOfAStatus(t *testing.T) {
	var s Status
	if err := json.Unmarshal([]byte(`{"resumed":3,"resuming":"the cable"}`), &s); err != nil {
		t.Fatal(err)
	}
	s.takeOldNames()
	if s.Reconnects != 3 || s.Broken != "the cable" {
		t.Errorf("%+v", s)
	}
	s = Status{Reconnects: 2, Broken: "the switch"}
	b, err := json.Marshal(s.filled())
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`"reconnects":2`, `"broken":"the switch"`, `"resumed":2`, `"resuming":"the switch"`} {
		if !strings.Contains(string(b), part) {
			t.Errorf("no %s in %s", part, b)
		}
	}
}
