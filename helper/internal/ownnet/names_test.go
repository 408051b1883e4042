package ownnet

import "testing"

func TestWhichTablesAreTheMovesOwn(t *testing.T) {
	for name, own := range map[string]bool{"handover": true, "CRIU": true, "CRIU-53479e68-fc85-41c2-bb": true, "CRIUS": false, "filter": false} {
		if comesAndGoes(name) != own {
			t.Errorf("%s is the move's own: %t", name, !own)
		}
	}
}
