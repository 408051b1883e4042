package store

import (
	"fmt"
	"slices"
	"time"
)

// Policy is how many points are kept. A period keeps the latest point in each of the
// last so many hours, days, weeks and so on that have one.
type Policy struct {
	Last    int `json:"last"`
	Hourly  int `json:"hourly"`
	Daily   int `json:"daily"`
	Weekly  int `json:"weekly"`
	Monthly int `json:"monthly"`
	Yearly  int `json:"yearly"`
}

// Verdict is the fate of a point.
type Verdict struct {
	Point *Point   `json:"point"`
	Keep  bool     `json:"keep"`
	Why   []string `json:"why"` // it is kept
}

// periods tell the period that a time is in. Weeks begin on Monday.
var periods = []struct {
	name  string
	count func(p Policy) int
	of    func(t time.Time) string
}{
	{"last", func(p Policy) int { return p.Last }, func(t time.Time) string { return "" }},
	{"hourly", func(p Policy) int { return p.Hourly }, func(t time.Time) string { return t.Format("2006-01-02 15") }},
	{"daily", func(p Policy) int { return p.Daily }, func(t time.Time) string { return t.Format("2006-01-02") }},
	{"weekly", func(p Policy) int { return p.Weekly }, func(t time.Time) string {
		year, week := t.ISOWeek()
		return fmt.Sprintf("%d-W%02d", year, week)
	}},
	{"monthly", func(p Policy) int { return p.Monthly }, func(t time.Time) string { return t.Format("2006-01") }},
	{"yearly", func(p Policy) int { return p.Yearly }, func(t time.Time) string { return t.Format("2006") }},
}

// Prune says which points a policy keeps, the latest first; they are given in the order
// in which they were taken. Points with a name and the
// current one are always kept: a name is given by a person, and the next increment is
// built on the current one. Periods are those of zone.
func Prune(points []*Point, current string, policy Policy, zone *time.Location) ([]Verdict, error) {
	any := false
	for _, period := range periods {
		n := period.count(policy)
		if n < 0 {
			return nil, fmt.Errorf("store: %s: %d: a policy keeps no less than nothing", period.name, n)
		}
		any = any || n > 0
	}
	if !any {
		return nil, fmt.Errorf("store: the policy keeps nothing: say how many snapshots are kept, such as --keep-last 7")
	}
	// By the order in which they were taken: the clock of a host can go back, and those of
	// a time to come would outdo all that follow.
	sorted := slices.Clone(points)
	slices.Reverse(sorted)
	verdicts := make([]Verdict, len(sorted))
	for i, p := range sorted {
		verdicts[i] = Verdict{Point: p, Why: []string{}}
		if p.Name != "" {
			verdicts[i].Why = append(verdicts[i].Why, "named")
		}
		if p.ID == current {
			verdicts[i].Why = append(verdicts[i].Why, "current")
		}
	}
	for _, period := range periods {
		left, seen := period.count(policy), map[string]bool{}
		for i, v := range verdicts {
			if left == 0 {
				break
			}
			of := period.of(v.Point.Taken.In(zone))
			if of == "" {
				of = v.Point.ID
			}
			if seen[of] {
				continue
			}
			seen[of] = true
			left--
			verdicts[i].Why = append(verdicts[i].Why, period.name)
		}
	}
	for i := range verdicts {
		verdicts[i].Keep = len(verdicts[i].Why) > 0
	}
	return verdicts, nil
}
