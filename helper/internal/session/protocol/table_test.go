package protocol

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/livefleet/handover/helper/internal/session/record"
)

var allStates = []record.State{
	record.Prepare, record.Presync, record.Barrier, record.Frozen, record.Flushed, record.Prepared, record.Released, record.Resumed,
	record.Refused, record.Settled, record.Done, record.Thawed, record.Discarded, record.Failed, record.InDoubt, record.Fenced,
}

// allowedPairs are the table once more, by state as a reader of a journal asks for it. A rule that
// is added or widened has to be added here too: on purpose.
var allowedPairs = map[record.Role]map[record.State]string{
	record.Destination: {
		record.Prepare:  "hello fail",
		record.Presync:  "again afresh round barrier fail +join",
		record.Barrier:  "barrier arm frozen fail +fetch",
		record.Frozen:   "arm dumped flushed sum fail +fetch",
		record.Flushed:  "digests verified fail +fetch",
		record.Prepared: "run fail +fetch",
		record.Released: "+fetch",
		record.Resumed:  "+fetch",
		record.InDoubt:  "+fetch",
		record.Settled:  "end +fetch",
		record.Done:     "end",
	},
	record.Source: {
		record.Prepare:  "welcome digests fail +join",
		record.Presync:  "welcome came round digests fail +join",
		record.Barrier:  "round synced armed fail +fetch",
		record.Frozen:   "fail +fetch",
		record.Flushed:  "digests differs sum verified prepared refused settled fail +fetch",
		record.Prepared: "refused fail +fetch",
		record.Released: "resumed refused doubt +fetch",
		record.Resumed:  "doubt settled +fetch",
		record.InDoubt:  "+fetch",
		record.Settled:  "+fetch",
	},
}

// Every message in every state, on both kinds of connections, at both sides: each pair that is not
// allowed is refused in a sentence that names the message, the state and the peer.
func TestTheTableWalked(t *testing.T) {
	refused := 0
	for _, by := range []record.Role{record.Source, record.Destination} {
		for _, state := range allStates {
			may := strings.Fields(allowedPairs[by][state])
			for kind, make := range empty {
				_, err := Hear(by, state, make())
				check(t, by, state, kind, err, slices.Contains(may, string(kind)))
				further := HearFirst(by, state, make())
				check(t, by, state, kind, further, slices.Contains(may, "+"+string(kind)))
				if err != nil {
					refused++
				}
			}
		}
	}
	if refused < 700 {
		t.Errorf("only %d pairs were refused", refused)
	}
}

func check(t *testing.T, by record.Role, state record.State, kind Kind, err error, may bool) {
	t.Helper()
	if may {
		if err != nil {
			t.Error(err)
		}
		return
	}
	want := fmt.Sprintf("session: the %s sent %q while the %s is %s, which takes only ", other(by), kind, by, state)
	if err == nil || !strings.HasPrefix(err.Error(), want) || strings.ContainsAny(err.Error(), "\n") {
		t.Errorf("the %s in %s heard %q: %v; the refusal begins with %q", by, state, kind, err, want)
	}
}

// A refusal has the peer's own reason, where the message has one.
func TestARefusalTellsThePeersReason(t *testing.T) {
	_, err := Hear(record.Source, record.Done, &Doubt{Reason{Why: "the disk is full"}})
	if err == nil || !strings.Contains(err.Error(), "no message (its reason: the disk is full)") {
		t.Error(err)
	}
}

// A state is reached by a message only where the table says so, and only where the journal takes it.
func TestAMessageLeadsWhereTheJournalGoes(t *testing.T) {
	for _, r := range rules {
		for _, in := range r.in {
			for _, to := range r.next {
				if !reachable(r.by, in, to) {
					t.Errorf("the %s hears %q in %s and is %s by it, to which its journal does not come", r.by, r.kind, in, to)
				}
			}
			if r.further {
				continue
			}
			turn, err := Hear(r.by, in, empty[r.kind]())
			if err != nil {
				t.Fatal(err)
			}
			for _, to := range allStates {
				if err := turn.Leads(to); (err == nil) != slices.Contains(r.next, to) {
					t.Errorf("the %s heard %q in %s, to %s: %v", r.by, r.kind, in, to, err)
				}
			}
		}
	}
	// And back: each step forward of a destination's journal has its message. Those of the source that have
	// none are its own: cutover, freeze, the last data, the release.
	own := map[record.Role][]string{
		record.Source: {"presync barrier", "barrier frozen", "frozen flushed", "prepared released", "settled done"},
	}
	for by, last := range map[record.Role][]record.State{record.Source: forward, record.Destination: forward} {
		for i := range len(last) - 1 {
			step := fmt.Sprintf("%s %s", last[i], last[i+1])
			if !led(by, last[i+1]) && !slices.Contains(own[by], step) {
				t.Errorf("no message leads the %s to %s", by, last[i+1])
			}
		}
	}
}

// forward are the states of a move that succeeds.
var forward = []record.State{
	record.Prepare, record.Presync, record.Barrier, record.Frozen, record.Flushed, record.Prepared, record.Released, record.Resumed, record.Settled, record.Done,
}

func led(by record.Role, to record.State) bool {
	return slices.ContainsFunc(rules, func(r rule) bool { return r.by == by && slices.Contains(r.next, to) })
}

// reachable says whether the journal comes from a state to another, in one step or more.
func reachable(by record.Role, from, to record.State) bool {
	if from == to {
		return true
	}
	seen, todo := map[record.State]bool{}, []record.State{from}
	for len(todo) > 0 {
		at := todo[0]
		todo = todo[1:]
		for _, next := range record.Next(by, at) {
			if next == to {
				return true
			}
			if !seen[next] {
				seen[next] = true
				todo = append(todo, next)
			}
		}
	}
	return false
}

// The model that spin explores has its own lines of which message takes a side where: the same as here.
func TestTheModelHearsTheSame(t *testing.T) {
	text, err := os.ReadFile("../../../model/handover.pml")
	if err != nil {
		t.Fatal(err)
	}
	side := map[string]record.Role{"s": record.Source, "d": record.Destination}
	heard := 0
	lines := regexp.MustCompile(`\b([sd])_at == (\w+)[^\n]*?\bto_[sd]\?\[m_(\w+)\] -> take\([^\n]*?\b[sd]_record\((\w+)\)`)
	for _, line := range lines.FindAllStringSubmatch(string(text), -1) {
		by, in, kind, to := side[line[1]], record.State(line[2]), Kind(line[3]), record.State(line[4])
		heard++
		make, ok := empty[kind]
		if !ok {
			t.Errorf("the model has a message %q, and the table none", kind)
			continue
		}
		turn, err := Hear(by, in, make())
		if err == nil {
			err = turn.Leads(to)
		}
		if err != nil {
			t.Errorf("in the model the %s hears %q in %s and is %s: %v", by, kind, in, to, err)
		}
	}
	if heard != 7 {
		t.Errorf("%d of the 7 lines of the model in which a message leads to a state were read", heard)
	}
	_, names, _ := strings.Cut(string(text), "mtype = { m_flushed")
	names, _, _ = strings.Cut("m_flushed"+names, "}")
	for _, name := range strings.Split(names, ",") {
		if kind := Kind(strings.TrimPrefix(strings.TrimSpace(name), "m_")); empty[kind] == nil {
			t.Errorf("the model has a message %q, and this package none", kind)
		}
	}
}
