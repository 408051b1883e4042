package protocol

import (
	"testing"

	"github.com/livefleet/handover/helper/internal/affinity"
	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/session/prefetch"
	"github.com/livefleet/handover/helper/internal/session/record"
	"github.com/livefleet/handover/helper/internal/wire"
)

// The messages are what two hosts of different versions agree on: their bytes stay as they are.
func TestMessagesOnTheWire(t *testing.T) {
	opening := Opening{
		ID: "shop-1", Workload: "shop", Mode: "live", Volumes: []Volume{{Name: "data", Size: 1 << 20, Cluster: 65536}}, Directories: []string{"files"}, Trees: []string{"dump"},
		TokenHash: "ab", Verify: true, Lazy: true, Can: []string{"lz4"}, Lines: 2, Sent: Sent{7}, Memory: 4096,
	}
	seen := map[Kind]bool{}
	for _, c := range []struct {
		m    Message
		want string
	}{
		{&Hello{opening}, `{"kind":"hello","id":"shop-1","workload":"shop","mode":"live","volumes":[{"name":"data","size":1048576,"cluster":65536}],"directories":["files"],"trees":["dump"],"token_hash":"ab","verify":true,"lazy":true,"can":["lz4"],"connections":2,"said":7,"memory":4096}`},
		{&Afresh{Opening{ID: "shop-1", TokenHash: "ab"}}, `{"kind":"afresh","id":"shop-1","token_hash":"ab"}`},
		{
			&Welcome{Empty: true, Compare: true, Can: []string{"lz4"}, Lines: 2, Round: 3, Sent: Sent{7}, Stock: 4096, Answer: Answer{Echo: 5, Heard: 6}},
			`{"kind":"welcome","empty":true,"compare":true,"can":["lz4"],"connections":2,"round":3,"said":7,"stock":4096,"echo":5,"heard":6}`,
		},
		{&Join{Further{ID: "shop-1"}}, `{"kind":"join","id":"shop-1"}`},
		{&Fetch{Further{ID: "shop-1"}}, `{"kind":"fetch","id":"shop-1"}`},
		{&Round{Round: 2}, `{"kind":"round","round":2}`},
		{&Again{ID: "shop-1", TokenHash: "ab", Lines: 2}, `{"kind":"again","id":"shop-1","token_hash":"ab","connections":2}`},
		{&Came{Volume: 1, Word: 64, Words: []byte{1, 0}}, `{"kind":"came","volume":1,"word":64,"words":"AQA="}`},
		{&Digests{Volume: 1, Cluster: 4096, Sums: []byte{1, 2}}, `{"kind":"digests","volume":1,"cluster":4096,"sums":"AQI="}`},
		{&Barrier{}, `{"kind":"barrier"}`},
		{&Synced{Took: map[string]float64{"datasync": 1.5}, Answer: Answer{Echo: 5, Heard: 6}}, `{"kind":"synced","took":{"datasync":1.5},"echo":5,"heard":6}`},
		{&Frozen{}, `{"kind":"frozen"}`},
		{
			&Arm{Warm: []Clusters{{Volume: 1, First: 2, End: 3}}, Mapped: []prefetch.File{{Path: "/bin/sh", Ranges: [][2]int64{{0, 4096}}}}},
			`{"kind":"arm","warm":[{"volume":1,"first":2,"end":3}],"mapped":[{"path":"/bin/sh","ranges":[[0,4096]]}]}`,
		},
		{&Armed{}, `{"kind":"armed"}`},
		{&Dumped{}, `{"kind":"dumped"}`},
		{
			&Flushed{Totals: []string{"cd"}, Reset: map[string]string{"net/a": "1"}, Bound: affinity.Threads{}},
			`{"kind":"flushed","totals":["cd"],"reset":{"net/a":"1"}}`,
		},
		{&Differs{Range: &Clusters{Volume: 1, End: 16}}, `{"kind":"differs","range":{"volume":1,"first":0,"end":16}}`},
		{&Sum{Range: &Clusters{First: 8, End: 16}, Sum: "ef"}, `{"kind":"sum","range":{"volume":0,"first":8,"end":16},"sum":"ef"}`},
		{&Verified{Roots: []image.Root{{Algorithm: "x", Size: 1, Root: "y"}}}, `{"kind":"verified","roots":[{"algorithm":"x","size":1,"cluster":0,"root":"y"}]}`},
		{&Prepared{Took: map[string]float64{"attach": 2}}, `{"kind":"prepared","took":{"attach":2}}`},
		{&Run{Token: "token"}, `{"kind":"run","token":"token"}`},
		{&Resumed{Took: map[string]float64{"running": 2}}, `{"kind":"resumed","took":{"running":2}}`},
		{&Refused{Reason{Why: "no"}}, `{"kind":"refused","why":"no"}`},
		{&Doubt{Reason{Why: "perhaps"}}, `{"kind":"doubt","why":"perhaps"}`},
		{&Settled{Took: map[string]float64{"fetch": 3}}, `{"kind":"settled","took":{"fetch":3}}`},
		{&End{}, `{"kind":"end"}`},
		{&Fail{Reason{Why: "no"}}, `{"kind":"fail","why":"no"}`},
	} {
		seen[c.m.Kind()] = true
		f, err := Frame(c.m)
		if err != nil {
			t.Fatal(err)
		}
		if f.Type != wire.Control || string(f.Payload) != c.want {
			t.Errorf("%s\nand not\n%s", f.Payload, c.want)
		}
		back, err := Parse(f, record.Source)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := Frame(back); err != nil || string(again.Payload) != c.want {
			t.Errorf("read and written again: %s, %v", again.Payload, err)
		}
	}
	if len(seen) != len(empty) || len(seen) != 27 {
		t.Errorf("%d kinds of messages were seen, there are %d, and both are 27", len(seen), len(empty))
	}
}

// A newer peer may say more than this side knows.
func TestUnknownFieldsAreIgnored(t *testing.T) {
	m, err := Parse(&wire.Frame{Type: wire.Control, Payload: []byte(`{"kind":"round","round":2,"colour":"red","why":"because"}`)}, record.Source)
	if r, ok := m.(*Round); err != nil || !ok || r.Round != 2 {
		t.Errorf("%+v, %v", m, err)
	}
}

// Any bytes are a message or an error, and a message that was read is written so that it is read again.
func FuzzMessage(f *testing.F) {
	for kind := range empty {
		f.Add([]byte(`{"kind":"` + string(kind) + `"}`))
	}
	f.Add([]byte(`{"kind":"hello","volumes":[{"name":"x","size":1}],"connections":2,"said":7,"memory":4096}`))
	f.Add([]byte(`{"kind":"sum","range":{"volume":-1,"first":9223372036854775807,"end":-1},"sum":"ef"}`))
	f.Add([]byte(`{"kind":"came","words":"AQA=","word":1}{"kind":"run"}`))
	f.Add([]byte(`[{"kind":"hello"}]`))
	f.Add([]byte(`{"kind":"flushed","own_network":{},"bound":[],"told":[{}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Parse(&wire.Frame{Type: wire.Control, Payload: data}, record.Destination)
		if err != nil {
			if m != nil {
				t.Errorf("a message and an error: %+v, %v", m, err)
			}
			return
		}
		written, err := Frame(m)
		if err != nil {
			t.Fatal(err)
		}
		back, err := Parse(written, record.Destination)
		if err != nil || back.Kind() != m.Kind() {
			t.Errorf("%s was read, written as %s and read as %+v, %v", data, written.Payload, back, err)
		}
		for _, state := range allStates {
			for _, by := range []record.Role{record.Source, record.Destination} {
				_, _ = Hear(by, state, m)
				_ = HearFirst(by, state, m)
			}
		}
	})
}
