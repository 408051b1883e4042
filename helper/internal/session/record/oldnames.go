package record

import "fmt"

// The names of old of a spec's and a status's fields. A spec that has one is read as if it had
// the present one; a status is shown with both.

// oldPolicy are fields of a policy that were renamed.
type oldPolicy struct {
	OldReconnectTimeout int `json:"resume_timeout,omitempty"`
	OldMaxFrozen        int `json:"max_frozen,omitempty"`
	OldFrozenPatience   int `json:"frozen_patience,omitempty"`
	OldPauseBase        int `json:"pause_base,omitempty"`
}

// takeOldNames moves what was said under an old name to the present one.
func (p *Policy) takeOldNames() error {
	for _, each := range []struct {
		old, name string
		was, is   *int
	}{
		{"resume_timeout", "reconnect_timeout", &p.OldReconnectTimeout, &p.ReconnectTimeout},
		{"max_frozen", "max_frozen_ms", &p.OldMaxFrozen, &p.MaxFrozenMS},
		{"frozen_patience", "frozen_patience_seconds", &p.OldFrozenPatience, &p.FrozenPatienceSeconds},
		{"pause_base", "pause_base_ms", &p.OldPauseBase, &p.PauseBaseMS},
	} {
		if *each.was == 0 {
			continue
		}
		if *each.is != 0 && *each.is != *each.was {
			return fmt.Errorf("policy: %[1]s is the old name of %[2]s, and they say different things (%[3]d, %[4]d): leave %[1]s out", each.old, each.name, *each.was, *each.is)
		}
		*each.is, *each.was = *each.was, 0
	}
	return nil
}

// oldStatus are fields of a status that were renamed. `resumed` is a state, too.
type oldStatus struct {
	OldReconnects int    `json:"resumed,omitempty"`
	OldBroken     string `json:"resuming,omitempty"`
}

// takeOldNames is for a status that another version has written.
func (s *Status) takeOldNames() {
	if s.Reconnects == 0 {
		s.Reconnects = s.OldReconnects
	}
	if s.Broken == "" {
		s.Broken = s.OldBroken
	}
}

// withOldNames is for readers that know the old names alone.
func (s *Status) withOldNames() { s.OldReconnects, s.OldBroken = s.Reconnects, s.Broken }
