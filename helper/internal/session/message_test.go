package session

import (
	"encoding/json"
	"testing"

	"github.com/livefleet/handover/helper/internal/affinity"
	"github.com/livefleet/handover/helper/internal/image"
	"github.com/livefleet/handover/helper/internal/session/prefetch"
	"github.com/livefleet/handover/helper/internal/wire"
)

// The messages are what two hosts of different versions agree on: their bytes stay as they are.
func TestMessagesOnTheWire(t *testing.T) {
	seen := map[kind]bool{}
	for _, c := range []struct {
		m    message
		want string
	}{
		{message{
			Kind: msgHello, ID: "shop-1", Workload: "shop", Mode: "live", Volumes: []volumeHello{{Name: "data", Size: 1 << 20, Cluster: 65536}}, Directories: []string{"files"}, Trees: []string{"dump"},
			TokenHash: "ab", Verify: true, Lazy: true, Can: []string{"lz4"}, Lines: 2, Said: 7, Memory: 4096,
		}, `{"kind":"hello","id":"shop-1","workload":"shop","mode":"live","volumes":[{"name":"data","size":1048576,"cluster":65536}],"directories":["files"],"trees":["dump"],"token_hash":"ab","verify":true,"lazy":true,"can":["lz4"],"connections":2,"said":7,"memory":4096}`},
		{message{Kind: msgAfresh, ID: "shop-1", TokenHash: "ab"}, `{"kind":"afresh","id":"shop-1","token_hash":"ab"}`},
		{
			message{Kind: msgWelcome, Empty: true, Compare: true, Can: []string{"lz4"}, Lines: 2, Round: 3, Said: 7, Stock: 4096, Echo: 5, Heard: 6},
			`{"kind":"welcome","empty":true,"compare":true,"can":["lz4"],"connections":2,"round":3,"said":7,"stock":4096,"echo":5,"heard":6}`,
		},
		{message{Kind: msgJoin, ID: "shop-1"}, `{"kind":"join","id":"shop-1"}`},
		{message{Kind: msgFetch, ID: "shop-1"}, `{"kind":"fetch","id":"shop-1"}`},
		{message{Kind: msgRound, Round: 2}, `{"kind":"round","round":2}`},
		{message{Kind: msgAgain, ID: "shop-1", TokenHash: "ab", Lines: 2}, `{"kind":"again","id":"shop-1","token_hash":"ab","connections":2}`},
		{message{Kind: msgCame, Volume: 1, Word: 64, Words: []byte{1, 0}}, `{"kind":"came","volume":1,"word":64,"words":"AQA="}`},
		{message{Kind: msgDigests, Volume: 1, Cluster: 4096, Sums: []byte{1, 2}}, `{"kind":"digests","volume":1,"cluster":4096,"sums":"AQI="}`},
		{message{Kind: msgBarrier}, `{"kind":"barrier"}`},
		{message{Kind: msgSynced, Took: map[string]float64{"datasync": 1.5}, Echo: 5, Heard: 6}, `{"kind":"synced","took":{"datasync":1.5},"echo":5,"heard":6}`},
		{message{Kind: msgFrozen}, `{"kind":"frozen"}`},
		{
			message{Kind: msgArm, Warm: []clusters{{Volume: 1, First: 2, End: 3}}, Mapped: []prefetch.File{{Path: "/bin/sh", Ranges: [][2]int64{{0, 4096}}}}},
			`{"kind":"arm","warm":[{"volume":1,"first":2,"end":3}],"mapped":[{"path":"/bin/sh","ranges":[[0,4096]]}]}`,
		},
		{message{Kind: msgArmed}, `{"kind":"armed"}`},
		{message{Kind: msgDumped}, `{"kind":"dumped"}`},
		{
			message{Kind: msgFlushed, Totals: []string{"cd"}, Reset: map[string]string{"net/a": "1"}, Bound: affinity.Threads{}},
			`{"kind":"flushed","totals":["cd"],"reset":{"net/a":"1"}}`,
		},
		{message{Kind: msgDiffers, Range: &clusters{Volume: 1, End: 16}}, `{"kind":"differs","range":{"volume":1,"first":0,"end":16}}`},
		{message{Kind: msgSum, Range: &clusters{First: 8, End: 16}, Sum: "ef"}, `{"kind":"sum","range":{"volume":0,"first":8,"end":16},"sum":"ef"}`},
		{message{Kind: msgVerified, Roots: []image.Root{{Algorithm: "x", Size: 1, Root: "y"}}}, `{"kind":"verified","roots":[{"algorithm":"x","size":1,"cluster":0,"root":"y"}]}`},
		{message{Kind: msgPrepared, Took: map[string]float64{"attach": 2}}, `{"kind":"prepared","took":{"attach":2}}`},
		{message{Kind: msgRun, Token: "token"}, `{"kind":"run","token":"token"}`},
		{message{Kind: msgResumed, Took: map[string]float64{"running": 2}}, `{"kind":"resumed","took":{"running":2}}`},
		{message{Kind: msgRefused, Why: "no"}, `{"kind":"refused","why":"no"}`},
		{message{Kind: msgDoubt, Why: "perhaps"}, `{"kind":"doubt","why":"perhaps"}`},
		{message{Kind: msgSettled, Took: map[string]float64{"fetch": 3}}, `{"kind":"settled","took":{"fetch":3}}`},
		{message{Kind: msgEnd}, `{"kind":"end"}`},
		{message{Kind: msgFail, Why: "no"}, `{"kind":"fail","why":"no"}`},
	} {
		seen[c.m.Kind] = true
		f, err := c.m.frame()
		if err != nil {
			t.Fatal(err)
		}
		if f.Type != wire.Control || string(f.Payload) != c.want {
			t.Errorf("%s\nand not\n%s", f.Payload, c.want)
		}
		back, err := parseMessage(f)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := json.Marshal(back); err != nil || string(again) != c.want {
			t.Errorf("read and written again: %s, %v", again, err)
		}
	}
	if len(seen) != 27 {
		t.Errorf("%d kinds of messages were seen, and there are 27", len(seen))
	}
}

func FuzzMessage(f *testing.F) {
	f.Add([]byte(`{"kind":"hello","volumes":[{"name":"x","size":1}]}`))
	f.Fuzz(func(_ *testing.T, data []byte) {
		_, _ = parseMessage(&wire.Frame{Type: wire.Control, Payload: data})
	})
}
